// ScoredRow: a row before the window with what the window pays to it, in SnapKV's order.
#ifndef RKV_POLICY_SCORED_ROWS_H_
#define RKV_POLICY_SCORED_ROWS_H_

#include <cmath>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

namespace rkv::policy {

// How a score is ordered: NaN behind every number. Source: policy specification 0.2.4.
inline float NanLast(float score) {
  return std::isnan(score) ? -std::numeric_limits<float>::infinity() : score;
}

struct ScoredRow {
  float pooled = 0;  // mass, max-pooled over neighbours; NaN reads as -infinity in both
  float mass = 0;
  std::int32_t row = 0;
  std::int32_t head = 0;
};

// Higher pooled mass, then higher mass, then the lower row, then the lower head: equal heads that
// compete get equal shares. Source: policy specification 0.2.4.
bool Before(const ScoredRow& a, const ScoredRow& b);

// The rows [0, mass.size()) of `head` in order of row, pooled over `kernel` (odd) rows. O(n).
std::vector<ScoredRow> ScoreRows(std::span<const float> mass, std::int32_t kernel,
                                 std::int32_t head);

// Moves the `count` best rows to the front, in no order. REQUIRES: 0 <= count <= size. O(n).
void BestFirst(std::span<ScoredRow> rows, std::size_t count);

}  // namespace rkv::policy

#endif  // RKV_POLICY_SCORED_ROWS_H_
