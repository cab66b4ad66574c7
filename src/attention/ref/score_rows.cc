#include "attention/ref/kernels.h"
#include "attention/ref/numbers.h"

namespace rkv::attention::ref {

void ScoreRows(const GroupQuery& query, const kv::HeadView& head, const RowList& rows, float scale,
               float* scores) {
  for (std::int32_t g = 0; g < query.group; ++g) {
    const float* q =
        query.q + static_cast<std::size_t>(g) * static_cast<std::size_t>(head.head_dim);
    for (std::int32_t i = 0; i < rows.count; ++i) {
      const std::int32_t row = rows.list != nullptr ? rows.list[i] : i;
      *scores++ = static_cast<float>(Dot(q, head.codec, head.Key(row), head.head_dim) * scale);
    }
  }
}

}  // namespace rkv::attention::ref
