// The bandwidth model of decoding: bytes that a token reads, by method, and the speed-up they
// allow.
#ifndef RKV_BENCH_ROOFLINE_H_
#define RKV_BENCH_ROOFLINE_H_

#include <cstdint>
#include <optional>
#include <string_view>

namespace rkv::bench {

struct CacheShape {
  std::int32_t layers = 0;
  std::int32_t kv_heads = 0;
  std::int32_t head_dim = 0;
  double bytes_per_number = 2;  // f16
};

// Where a decode test stands, in tokens.
struct TestShape {
  std::int32_t depth = 0;       // of the prompt
  std::int32_t new_tokens = 0;  // m of the budget formulas, all of them decoded
};

// Bytes of keys and values of one token, all layers. Pure.
double KvBytesPerRow(const CacheShape& shape);

// Bytes of keys and values that Full-KV reads for a token, mean over the test. Pure.
double FullKvBytes(const CacheShape& shape, const TestShape& test);

// The same for a method, its estimate included, from the equations of docs/methods/rocketkv.md.
// nullopt for a method whose traffic is not modelled: another name than full, rocketkv and hsa, or
// an option that overrides what the budget decides. Pure.
std::optional<double> MethodKvBytes(std::string_view method, const CacheShape& shape,
                                    const TestShape& test);

// What reads `bytes` per token at `gb_per_second`: tokens per second; 0 when either is unknown.
// Pure.
double RooflineRate(double bytes, double gb_per_second);

}  // namespace rkv::bench

#endif  // RKV_BENCH_ROOFLINE_H_
