#include "policy/budget_split.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace rkv::policy {

double CompressionRatio(double tokens, std::int32_t budget) {
  return std::max(1.0, tokens / budget);
}

BudgetSplit SplitBudget(const SplitOptions& options, const TurnShape& shape) {
  Check(options.budget > 0, "a split needs a budget");
  const std::int32_t tokens = shape.prompt_tokens + shape.max_new_tokens;
  BudgetSplit split;
  split.c = CompressionRatio(tokens, options.budget);
  split.alpha =
      options.alpha >= 0.0 ? options.alpha : std::min(0.2 + 0.06 * std::log2(split.c), 0.8);
  // The rows of the answer must fit too: at least twice their number.
  const std::int32_t least = std::min(2 * shape.max_new_tokens, tokens);
  const auto capacity = static_cast<std::int32_t>(tokens / std::pow(split.c, split.alpha));
  const std::int32_t derived = std::max(capacity, least) - shape.max_new_tokens;
  // Room for the window and one row more, else eviction could choose nothing (specification 2.1 g).
  const std::int32_t room = std::min(shape.prompt_tokens, options.least_rows);
  split.prompt_budget = std::max(options.prompt_budget > 0 ? options.prompt_budget : derived, room);
  split.capacity = split.prompt_budget + shape.max_new_tokens;
  return split;
}

}  // namespace rkv::policy
