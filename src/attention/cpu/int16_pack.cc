// Packing of rows for the kernels in 16-bit integers.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "attention/cpu/int16_tile.h"

#if defined(__x86_64__)

namespace rkv::attention::cpu::int16 {
namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

// Numbers [x, x + kLanes) of a stored key or value of the head.
template <kv::Part P>
RKV_VNNI_INLINE __m512 LoadNumbers(const kv::HeadView& head, const std::byte* from, std::size_t x) {
  const kv::Codec codec = head.codec;
  if (codec == kv::Codec::kF32) {
    return _mm512_loadu_ps(from + x * sizeof(float));
  }
  if (codec == kv::Codec::kQ8) {
    static_assert(kLanes == kv::kKeyGroup);
    const std::size_t group = P == kv::Part::kKey ? x / kLanes : 0;
    float scale;
    std::memcpy(&scale, from + kv::ScaleOffset(head.head_dim) + group * sizeof scale, sizeof scale);
    const __m128i integers = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + x));
    return _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(integers)), _mm512_set1_ps(scale));
  }
  const __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + x * 2));
  return codec == kv::Codec::kF16
             ? _mm512_cvtph_ps(bits)
             : _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
}

// to[c * stride + i] = from[i * from_stride + c] for 16 x 16 pairs.
RKV_VNNI void TransposePairs(const std::int32_t* from, std::size_t from_stride, std::int32_t* to,
                             std::size_t stride) {
  __m512i a[kLanes];
  __m512i b[kLanes];
  for (std::size_t i = 0; i < kLanes; ++i) {
    a[i] = _mm512_loadu_si512(from + i * from_stride);
  }
  for (std::size_t i = 0; i < kLanes; i += 2) {  // 2 x 2 inside 128-bit quarters
    b[i] = _mm512_unpacklo_epi32(a[i], a[i + 1]);
    b[i + 1] = _mm512_unpackhi_epi32(a[i], a[i + 1]);
  }
  for (std::size_t i = 0; i < kLanes; i += 4) {  // 4 x 4
    a[i] = _mm512_unpacklo_epi64(b[i], b[i + 2]);
    a[i + 1] = _mm512_unpackhi_epi64(b[i], b[i + 2]);
    a[i + 2] = _mm512_unpacklo_epi64(b[i + 1], b[i + 3]);
    a[i + 3] = _mm512_unpackhi_epi64(b[i + 1], b[i + 3]);
  }
  for (std::size_t i = 0; i < 4; ++i) {  // quarters
    const __m512i low01 = _mm512_shuffle_i32x4(a[i], a[i + 4], 0x88);
    const __m512i low23 = _mm512_shuffle_i32x4(a[i + 8], a[i + 12], 0x88);
    const __m512i high01 = _mm512_shuffle_i32x4(a[i], a[i + 4], 0xdd);
    const __m512i high23 = _mm512_shuffle_i32x4(a[i + 8], a[i + 12], 0xdd);
    _mm512_storeu_si512(to + i * stride, _mm512_shuffle_i32x4(low01, low23, 0x88));
    _mm512_storeu_si512(to + (i + 8) * stride, _mm512_shuffle_i32x4(low01, low23, 0xdd));
    _mm512_storeu_si512(to + (i + 4) * stride, _mm512_shuffle_i32x4(high01, high23, 0x88));
    _mm512_storeu_si512(to + (i + 12) * stride, _mm512_shuffle_i32x4(high01, high23, 0xdd));
  }
}

// Keys [j, j + 16) of the tile, of which the first `count` exist. work: [16][head_dim].
RKV_VNNI void PackKeys(const kv::HeadView& head, std::int32_t row, std::size_t j, std::size_t count,
                       const PackWork& work, const KeyTile& tile) {
  const auto head_dim = static_cast<std::size_t>(head.head_dim);
  const std::size_t pairs = head_dim / 2;
  std::fill_n(work.rounded, kLanes * head_dim, std::int16_t{0});
  for (std::size_t i = 0; i < kLanes; ++i) {
    tile.key_scales[j + i] = 0.0f;
    if (i < count) {
      const std::byte* key = head.Key(row + static_cast<std::int32_t>(i));
      for (std::size_t x = 0; x < head_dim; x += kLanes) {
        _mm512_storeu_ps(work.row + x, LoadNumbers<kv::Part::kKey>(head, key, x));
      }
      tile.key_scales[j + i] = RoundRow(work.row, head_dim, work.rounded + i * head_dim);
    }
  }
  std::int32_t* to = tile.keys + j / kPanelKeys * pairs * kPanelKeys + j % kPanelKeys;
  const auto* from = reinterpret_cast<const std::int32_t*>(work.rounded);
  std::size_t c = 0;
  for (; c + kLanes <= pairs; c += kLanes) {
    TransposePairs(from + c, pairs, to + c * kPanelKeys, kPanelKeys);
  }
  for (; c < pairs; ++c) {
    for (std::size_t i = 0; i < kLanes; ++i) {
      to[c * kPanelKeys + i] = from[i * pairs + c];
    }
  }
}

// The greatest magnitude in a value; NaN or infinity where one is in it.
RKV_VNNI float Magnitude(const kv::HeadView& head, const std::byte* value) {
  __m512i most = _mm512_setzero_si512();  // ordered as integers: NaN is the greatest
  for (std::size_t x = 0; x < static_cast<std::size_t>(head.head_dim); x += kLanes) {
    const __m512i bits = _mm512_castps_si512(LoadNumbers<kv::Part::kValue>(head, value, x));
    most = _mm512_max_epi32(most, _mm512_and_si512(bits, _mm512_set1_epi32(0x7fffffff)));
  }
  const std::int32_t top = _mm512_reduce_max_epi32(most);
  float magnitude;
  std::memcpy(&magnitude, &top, sizeof magnitude);
  return magnitude;
}

// Scales of values [j, j + 16) of the tile, of which the first `count` exist.
RKV_VNNI void ScaleValues(const kv::HeadView& head, std::int32_t row, std::size_t j,
                          std::size_t count, const KeyTile& tile) {
  float magnitudes[kLanes] = {};
  for (std::size_t i = 0; i < std::min(kLanes, count); ++i) {
    magnitudes[i] = Magnitude(head, head.Value(row + static_cast<std::int32_t>(i)));
  }
  const __m512 magnitude = _mm512_loadu_ps(magnitudes);
  const __m512 infinity = _mm512_set1_ps(std::numeric_limits<float>::infinity());
  const __mmask16 lost = _mm512_cmp_ps_mask(magnitude, infinity, _CMP_NLT_UQ);
  const __m512 scale = _mm512_mul_ps(_mm512_max_ps(magnitude, _mm512_set1_ps(kLeastValue)),
                                     _mm512_set1_ps(1.0f / kMaxValue));
  const __m512 nan = _mm512_set1_ps(kNaN);
  const __m512 inverse = _mm512_div_ps(_mm512_set1_ps(1.0f), scale);
  _mm512_storeu_ps(tile.value_logs + j, _mm512_mask_blend_ps(lost, Log2(scale), nan));
  _mm512_storeu_ps(tile.value_inverses + j, _mm512_mask_blend_ps(lost, inverse, nan));
}

// Where the pairs of 32 keys go: _mm512_packs_epi32 leaves the weights in this order.
constexpr std::size_t kPairOrder[16] = {0, 2, 16, 18, 4, 6, 20, 22, 8, 10, 24, 26, 12, 14, 28, 30};

// Panel `panel` of the tile's values, of which the first `count` keys of the tile exist. A value
// that is not finite becomes 0: its NaN scale speaks for it.
RKV_VNNI void PackValues(const kv::HeadView& head, std::int32_t first, std::size_t count,
                         std::size_t panel, const KeyTile& tile) {
  const auto head_dim = static_cast<std::size_t>(head.head_dim);
  for (std::size_t slot = 0; slot < kPanelPairs; ++slot) {
    const std::size_t j = panel * kPanelKeys + slot / 16 * 32 + kPairOrder[slot % 16];
    const std::byte* value[2];
    __m512 factor[2];
    for (std::size_t i = 0; i < 2; ++i) {
      value[i] = head.Value(first + static_cast<std::int32_t>(std::min(j + i, count - 1)));
      const float inverse = tile.value_inverses[j + i];
      factor[i] = _mm512_set1_ps(j + i < count && inverse > 0.0f ? inverse : 0.0f);
    }
    for (std::size_t x = 0; x < head_dim; x += kLanes) {
      const __m512i even = _mm512_cvtps_epi32(
          _mm512_mul_ps(LoadNumbers<kv::Part::kValue>(head, value[0], x), factor[0]));
      const __m512i odd = _mm512_cvtps_epi32(
          _mm512_mul_ps(LoadNumbers<kv::Part::kValue>(head, value[1], x), factor[1]));
      const __m512i pair = _mm512_mask_blend_epi16(0xaaaaaaaau, even, _mm512_slli_epi32(odd, 16));
      const std::size_t chunk = x / kPanelKeys * kPanelKeys;
      const std::size_t width = std::min(kPanelKeys, head_dim - chunk);
      _mm512_storeu_si512(
          tile.values + (panel * head_dim + chunk) * kPanelPairs + slot * width + (x - chunk),
          pair);
    }
  }
}

}  // namespace

RKV_VNNI float RoundRow(const float* from, std::size_t n, std::int16_t* to) {
  __m512 squares = _mm512_setzero_ps();
  __m512 most = _mm512_setzero_ps();
  for (std::size_t x = 0; x < n; x += kLanes) {
    const __m512 v = _mm512_loadu_ps(from + x);
    squares = _mm512_fmadd_ps(v, v, squares);
    most = _mm512_max_ps(most, _mm512_abs_ps(v));
  }
  const float length = std::sqrt(_mm512_reduce_add_ps(squares));
  const bool usable = length > 1e-30f && length < std::numeric_limits<float>::infinity();
  const float scale =
      usable ? std::min(kRowLength / length, kInt16Max / _mm512_reduce_max_ps(most)) : 0.0f;
  for (std::size_t x = 0; x < n; x += kLanes) {
    const __m512i rounded =
        _mm512_cvtps_epi32(_mm512_mul_ps(_mm512_loadu_ps(from + x), _mm512_set1_ps(scale)));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + x), _mm512_cvtsepi32_epi16(rounded));
  }
  if (usable) {
    return 1.0f / scale;
  }
  return length <= 1e-30f ? 0.0f : kNaN;
}

RKV_VNNI void PackTile(const kv::HeadView& head, std::size_t first, std::size_t count,
                       const PackWork& work, const KeyTile& tile) {
  const auto first_row = static_cast<std::int32_t>(first);
  const std::size_t padded = (count + kPanelKeys - 1) / kPanelKeys * kPanelKeys;
  for (std::size_t j = 0; j < padded; j += kLanes) {
    const std::int32_t row = first_row + static_cast<std::int32_t>(j);
    const std::size_t valid = j < count ? std::min(kLanes, count - j) : 0;
    PackKeys(head, row, j, valid, work, tile);
    if (tile.values != nullptr) {
      ScaleValues(head, row, j, valid, tile);
    }
  }
  if (tile.values == nullptr) {
    return;
  }
  for (std::size_t j = 0; j < padded; j += kPanelKeys) {
    PackValues(head, first_row, count, j / kPanelKeys, tile);
  }
}

}  // namespace rkv::attention::cpu::int16

#endif
