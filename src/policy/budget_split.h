// BudgetSplit: how many rows the eviction of a two-stage method leaves for its selection.
#ifndef RKV_POLICY_BUDGET_SPLIT_H_
#define RKV_POLICY_BUDGET_SPLIT_H_

#include <cstdint>

#include "policy/policy.h"

namespace rkv::policy {

// A value of 0 (or below 0 for `alpha`) means "derive it from the budget".
struct SplitOptions {
  std::int32_t budget = 1024;      // t: rows of KV traffic a kv_head may cause per step
  double alpha = -1.0;             // in [0, 1]; adaptive: min(0.2 + 0.06 log2 c, 0.8)
  std::int32_t prompt_budget = 0;  // rows of the prompt kept, window included
  std::int32_t least_rows = 1;     // of the prompt that the evictor must be left
};

struct BudgetSplit {
  double c = 1;  // max(1, S / t)
  double alpha = 0;
  std::int32_t prompt_budget = 0;
  std::int32_t capacity = 0;  // rows kept per kv_head, generated ones included
};

// capacity = int(S / c^alpha), at least min(2 m, S); prompt_budget = capacity - m, at least
// min(P, least_rows). Pure. Source: policy specification 2.1 (c), arXiv:2502.14051 section 3.4.
BudgetSplit SplitBudget(const SplitOptions& options, const TurnShape& shape);

// max(1, tokens / budget).
double CompressionRatio(double tokens, std::int32_t budget);

}  // namespace rkv::policy

#endif  // RKV_POLICY_BUDGET_SPLIT_H_
