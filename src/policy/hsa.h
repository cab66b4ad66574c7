// Hybrid sparse attention: RocketKV's second stage, alone or behind any evictor.
#ifndef RKV_POLICY_HSA_H_
#define RKV_POLICY_HSA_H_

#include <cstdint>

#include "policy/policy.h"

namespace rkv::policy {

// A value of 0 means "derive it from the budget". Names follow TensorRT-LLM where it has one.
struct HsaOptions {
  std::int32_t top_k = 0;       // "topk": rows read exactly per step; t / 2
  std::int32_t top_r = 0;       // "topr": channels used for the estimate
  std::int32_t chunk_rows = 0;  // "page_size": rows a chunk
};

// The derived numbers, named as in the specification's table.
struct HsaSplit {
  std::int32_t k = 0;
  double c2 = 1;
  std::int32_t chunk_rows = 1;
  std::int32_t channels = 1;  // r
};

// c2 = max(1, capacity / t), chunk = ceil(sqrt c2) (1 if that exceeds c2), r = int(d chunk / c2) in
// [1, d], k = t / 2. REQUIRES: shape planned. Pure.
// Source: policy specification section 1 and 2.1 (c).
HsaSplit SplitHsa(const HsaOptions& options, const TurnShape& shape);

// Rows' worth of traffic of the estimate over `rows` rows: (rows / chunk) r / (2 d).
// Source: policy specification 2.1 (f).
double HsaEstimate(const HsaSplit& split, std::int32_t rows, std::int32_t head_dim);

}  // namespace rkv::policy

#endif  // RKV_POLICY_HSA_H_
