#include "policy/rocketkv_split.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace rkv::policy {
namespace {

double CompressionRatio(double tokens, std::int32_t budget) {
  return std::max(1.0, tokens / budget);
}

// chunk, r and k from the ratio c2 that stage 2 has to reach; half the budget pays for the
// estimate.
void SplitStage2(const RocketKvOptions& options, const TurnShape& shape, RocketKvSplit& split) {
  split.bypass = options.bypass;
  split.k = options.top_k > 0 ? options.top_k : options.budget / 2;
  split.chunk_rows = options.chunk_rows;
  if (split.chunk_rows <= 0) {
    const double chunk = std::ceil(std::sqrt(split.c2));
    split.chunk_rows = chunk > split.c2 ? 1 : static_cast<std::int32_t>(chunk);
  }
  const double channels = static_cast<double>(shape.head_dim) * split.chunk_rows / split.c2;
  const double most = shape.head_dim;
  split.channels = options.top_r > 0 ? options.top_r
                                     : static_cast<std::int32_t>(std::clamp(channels, 1.0, most));
}

}  // namespace

RocketKvSplit SplitBudget(const RocketKvOptions& options, const TurnShape& shape) {
  Check(options.budget > 0 && shape.head_dim > 0, "a split needs a budget and a head");
  const std::int32_t tokens = shape.prompt_tokens + shape.max_new_tokens;
  RocketKvSplit split;
  split.c = CompressionRatio(tokens, options.budget);
  split.alpha =
      options.split >= 0.0 ? options.split : std::min(0.2 + 0.06 * std::log2(split.c), 0.8);
  // The rows of the answer must fit too: at least twice their number.
  const std::int32_t least = std::min(2 * shape.max_new_tokens, tokens);
  const auto capacity = static_cast<std::int32_t>(tokens / std::pow(split.c, split.alpha));
  const std::int32_t derived = std::max(capacity, least) - shape.max_new_tokens;
  // Room for the window and one row more, else stage 1 could choose nothing (specification 2.1 g).
  const std::int32_t room = std::min(shape.prompt_tokens, options.window + 1);
  split.prompt_budget = std::max(options.prompt_budget > 0 ? options.prompt_budget : derived, room);
  split.capacity = split.prompt_budget + shape.max_new_tokens;
  split.c2 = CompressionRatio(split.capacity, options.budget);
  SplitStage2(options, shape, split);
  return split;
}

RocketKvSplit SplitBudgetHsa(const RocketKvOptions& options, const TurnShape& shape) {
  Check(options.budget > 0 && shape.head_dim > 0, "a split needs a budget and a head");
  RocketKvSplit split;
  split.prompt_budget = shape.prompt_tokens;
  split.capacity = shape.prompt_tokens + shape.max_new_tokens;
  split.c = CompressionRatio(split.capacity, options.budget);
  split.c2 = split.c;
  SplitStage2(options, shape, split);
  return split;
}

double HsaTraffic(const RocketKvSplit& split, std::int32_t rows, std::int32_t head_dim) {
  const double chunks = static_cast<double>(rows) / split.chunk_rows;
  return chunks * split.channels / (2.0 * head_dim) + split.k;
}

}  // namespace rkv::policy
