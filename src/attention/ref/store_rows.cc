#include "attention/ref/kernels.h"

namespace rkv::attention::ref {

void StoreRows(kv::Codec codec, std::int32_t head_dim, const float* keys, const float* values,
               std::size_t stride, std::span<std::byte* const> rows) {
  const auto width = static_cast<std::size_t>(head_dim);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    kv::EncodeRow(codec, {keys + i * stride, width}, rows[i]);
    kv::EncodeRow(codec, {values + i * stride, width}, rows[i] + kv::StoredBytes(codec, head_dim),
                  kv::Part::kValue);
  }
}

}  // namespace rkv::attention::ref
