// Reading stored numbers one by one, for the plain kernels.
#ifndef RKV_ATTENTION_REF_NUMBERS_H_
#define RKV_ATTENTION_REF_NUMBERS_H_

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/half.h"
#include "kv/codec.h"

namespace rkv::attention::ref {

// The number at `index` of an array in `codec`, which is not kQ8.
inline float NumberAt(kv::Codec codec, const std::byte* data, std::size_t index) {
  if (codec == kv::Codec::kF32) {
    float number;
    std::memcpy(&number, data + 4 * index, 4);
    return number;
  }
  std::uint16_t half;
  std::memcpy(&half, data + 2 * index, 2);
  return codec == kv::Codec::kF16 ? F16ToF32(half) : Bf16ToF32(half);
}

// The number at `index` of a stored key or value of `head_dim` numbers.
inline float StoredAt(kv::Codec codec, kv::Part part, std::int32_t head_dim,
                      const std::byte* stored, std::size_t index) {
  if (codec != kv::Codec::kQ8) {
    return NumberAt(codec, stored, index);
  }
  const auto group = static_cast<std::size_t>(kv::ScaleGroup(part, head_dim));
  float scale;
  std::memcpy(&scale, stored + kv::ScaleOffset(head_dim) + 4 * (index / group), 4);
  return scale * static_cast<float>(static_cast<std::int8_t>(stored[index]));
}

// q . key in double; key: [head_dim] in `codec`.
inline double Dot(const float* q, kv::Codec codec, const std::byte* key, std::int32_t head_dim) {
  double sum = 0.0;
  for (std::int32_t x = 0; x < head_dim; ++x) {
    sum += static_cast<double>(q[x]) *
           StoredAt(codec, kv::Part::kKey, head_dim, key, static_cast<std::size_t>(x));
  }
  return sum;
}

}  // namespace rkv::attention::ref

#endif  // RKV_ATTENTION_REF_NUMBERS_H_
