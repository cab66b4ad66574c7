// RocketKvSplit: how a token budget becomes the parameters of both RocketKV stages.
#ifndef RKV_POLICY_ROCKETKV_SPLIT_H_
#define RKV_POLICY_ROCKETKV_SPLIT_H_

#include <cstdint>

#include "policy/policy.h"

namespace rkv::policy {

// The user's options; a value of 0 (or below 0 for `split`) means "derive it from the budget".
// Names of the string form follow TensorRT-LLM where it has one.
struct RocketKvOptions {
  std::int32_t budget = 1024;      // t, "budget": tokens of KV traffic a kv_head may cause per step
  std::int32_t window = 32;        // w, "window_size"
  std::int32_t kernel = 63;        // "kernel_size", odd
  std::int32_t prompt_budget = 0;  // "prompt_budget": rows of the prompt kept, window included
  double split = -1.0;             // "split": alpha in [0, 1]; adaptive min(0.2 + 0.06 log2 c, 0.8)
  std::int32_t top_k = 0;          // "topk": rows read exactly per step; t / 2
  std::int32_t top_r = 0;          // "topr": channels used for the estimate
  std::int32_t chunk_rows = 0;     // "page_size": rows a chunk
  double bypass =
      1.6;  // "bypass": all rows are read when they are at most so many times the traffic
  bool prefill_last_token = false;  // "last_token": prefill | decode
};

// The derived numbers, named as in the specification's table.
struct RocketKvSplit {
  double c = 1;
  double alpha = 0;
  std::int32_t capacity = 0;  // cap: rows kept per kv_head, generated ones included
  std::int32_t prompt_budget = 0;
  std::int32_t k = 0;
  double c2 = 1;
  std::int32_t chunk_rows = 1;
  std::int32_t channels = 1;  // r
  double bypass = 1;
};

// Both stages (RocketKV): capacity = int(S / c^alpha), at least min(2 m, S); the rest follows.
// Pure. Source: policy specification 2.1 (c), arXiv:2502.14051 section 3.4.
RocketKvSplit SplitBudget(const RocketKvOptions& options, const TurnShape& shape);

// Stage 2 alone (HSA): nothing is evicted, so c2 = c; chunk = ceil(sqrt c), r = floor(d * chunk /
// c). Source: policy specification section 1.
RocketKvSplit SplitBudgetHsa(const RocketKvOptions& options, const TurnShape& shape);

// Rows' worth of traffic that one HSA step over `rows` rows causes: (rows / chunk) r / (2 d) + k.
// Source: policy specification 2.1 (f).
double HsaTraffic(const RocketKvSplit& split, std::int32_t rows, std::int32_t head_dim);

}  // namespace rkv::policy

#endif  // RKV_POLICY_ROCKETKV_SPLIT_H_
