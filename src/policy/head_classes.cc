#include "policy/head_classes.h"

namespace rkv::policy {

std::int32_t FullHeads(std::int32_t heads, std::int32_t budget, std::int32_t rows,
                       std::int32_t few) {
  if (budget >= rows) {
    return heads;
  }
  const std::int64_t spare = std::int64_t{budget} - few;
  return spare <= 0 ? 0 : static_cast<std::int32_t>(spare * heads / (rows - few));
}

std::int64_t MeanRows(std::int64_t heads, std::int64_t full, std::int64_t rows, std::int64_t few) {
  return (full * rows + (heads - full) * few + heads - 1) / heads;
}

}  // namespace rkv::policy
