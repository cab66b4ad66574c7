// The bandwidth model of decoding: bytes that a token reads, by method, and the speed-up they
// allow.
#ifndef RKV_BENCH_ROOFLINE_H_
#define RKV_BENCH_ROOFLINE_H_

#include <cstdint>
#include <optional>
#include <string_view>

#include "rkv/engine.h"

namespace rkv::bench {

// Where a decode test stands, in tokens.
struct TestShape {
  std::int32_t depth = 0;       // of the prompt
  std::int32_t new_tokens = 0;  // m of the budget formulas, all of them decoded
};

// Bytes of keys and values, of all layers and kv_heads, that a method reads for a token, its
// estimate included; mean over the test. `cache`: ours; its lengths are taken from the test.
// nullopt for what rkv::ExplainPolicy refuses: a peer's cache type, a test without a prompt. Pure.
std::optional<double> MethodKvBytes(std::string_view method, const ExplainShape& cache,
                                    const TestShape& test);

// What reads `bytes` per token at `gb_per_second`: tokens per second; 0 when either is unknown.
// Pure.
double RooflineRate(double bytes, double gb_per_second);

}  // namespace rkv::bench

#endif  // RKV_BENCH_ROOFLINE_H_
