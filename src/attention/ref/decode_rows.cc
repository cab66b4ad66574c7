#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "attention/ref/kernels.h"
#include "attention/ref/numbers.h"

namespace rkv::attention::ref {
namespace {

void DecodeHead(const float* q, const kv::HeadView& head, const RowList& rows, float scale,
                float* acc, float* max, float* sum) {
  std::vector<double> scores(static_cast<std::size_t>(rows.count));
  double top = -std::numeric_limits<double>::infinity();
  const auto row_at = [&](std::size_t i) {
    return rows.list != nullptr ? rows.list[i] : static_cast<std::int32_t>(i);
  };
  for (std::size_t i = 0; i < scores.size(); ++i) {
    scores[i] = Dot(q, head.codec, head.Key(row_at(i)), head.head_dim) * scale;
    top = std::max(top, scores[i]);
  }
  const auto width = static_cast<std::size_t>(head.head_dim);
  std::vector<double> out(width, 0.0);
  double total = 0.0;
  // The state's max is an f32: weights are relative to the rounded value, so that merging is exact.
  const double base = static_cast<float>(top);
  for (std::size_t i = 0; i < scores.size(); ++i) {
    const double weight = std::exp(scores[i] - base);
    total += weight;
    for (std::size_t x = 0; x < width; ++x) {
      out[x] +=
          weight * StoredAt(head.codec, kv::Part::kValue, head.head_dim, head.Value(row_at(i)), x);
    }
  }
  std::transform(out.begin(), out.end(), acc, [](double v) { return static_cast<float>(v); });
  *max = static_cast<float>(top);
  *sum = static_cast<float>(total);
}

}  // namespace

void DecodeRows(const GroupQuery& query, const kv::HeadView& head, const RowList& rows, float scale,
                const PartialSoftmax& out) {
  const auto width = static_cast<std::size_t>(head.head_dim);
  for (std::size_t h = 0; h < static_cast<std::size_t>(query.group); ++h) {
    DecodeHead(query.q + h * width, head, rows, scale, out.acc + h * width, out.max + h,
               out.sum + h);
  }
}

}  // namespace rkv::attention::ref
