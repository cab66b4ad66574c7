#include "policy/scored_rows.h"

#include <algorithm>

#include "attention/pool_rows.h"

namespace rkv::policy {
bool Before(const ScoredRow& a, const ScoredRow& b) {
  if (a.pooled != b.pooled) {
    return a.pooled > b.pooled;
  }
  if (a.mass != b.mass) {
    return a.mass > b.mass;
  }
  return a.row != b.row ? a.row < b.row : a.head < b.head;
}

std::vector<ScoredRow> ScoreRows(std::span<const float> mass, std::int32_t kernel,
                                 std::int32_t head) {
  std::vector<float> pooled(mass.size());
  attention::MaxPoolRows(mass, kernel, pooled);
  std::vector<ScoredRow> rows(mass.size());
  for (std::size_t i = 0; i < rows.size(); ++i) {
    rows[i] = {NanLast(pooled[i]), NanLast(mass[i]), static_cast<std::int32_t>(i), head};
  }
  return rows;
}

void BestFirst(std::span<ScoredRow> rows, std::size_t count) {
  if (count < rows.size()) {
    std::nth_element(rows.begin(), rows.begin() + static_cast<std::ptrdiff_t>(count), rows.end(),
                     Before);
  }
}

}  // namespace rkv::policy
