// AVX2: a group of 4 inputs x 16 rows is two registers, products summed in pairs in 16 bits.
#include "hwy/highway.h"
#include "model/packed_dot.h"

#if HWY_ARCH_X86_64
#include <ggml.h>
#include <immintrin.h>

#include <limits>

HWY_PUSH_ATTRIBUTES("avx2,fma,f16c")
namespace rkv::model {
namespace avx2 {
namespace {

struct Ints {
  __m256i part[2];
};
struct Floats {
  __m256 part[2];
};
constexpr std::uint32_t kWholeByteType = GGML_TYPE_Q4_0;  // bytes have no kernel: never asked for

inline Ints LoadInts(const std::uint8_t* from) {
  const auto* at = reinterpret_cast<const __m256i*>(from);
  return {{_mm256_loadu_si256(at), _mm256_loadu_si256(at + 1)}};
}
inline Ints BroadcastInts(std::uint32_t bits) {
  const __m256i v = _mm256_set1_epi32(static_cast<std::int32_t>(bits));
  return {{v, v}};
}
inline Ints And(const Ints& a, const Ints& b) {
  return {{_mm256_and_si256(a.part[0], b.part[0]), _mm256_and_si256(a.part[1], b.part[1])}};
}
inline Ints Or(const Ints& a, const Ints& b) {
  return {{_mm256_or_si256(a.part[0], b.part[0]), _mm256_or_si256(a.part[1], b.part[1])}};
}
template <int kCount>
inline Ints ShiftLeft(const Ints& a) {
  return {{_mm256_slli_epi16(a.part[0], kCount), _mm256_slli_epi16(a.part[1], kCount)}};
}
template <int kCount>
inline Ints ShiftRight(const Ints& a) {
  return {{_mm256_srli_epi16(a.part[0], kCount), _mm256_srli_epi16(a.part[1], kCount)}};
}
inline Floats ZeroFloats() { return {{_mm256_setzero_ps(), _mm256_setzero_ps()}}; }
inline Floats Broadcast(float value) { return {{_mm256_set1_ps(value), _mm256_set1_ps(value)}}; }
inline Floats Add(const Floats& a, const Floats& b) {
  return {{_mm256_add_ps(a.part[0], b.part[0]), _mm256_add_ps(a.part[1], b.part[1])}};
}
inline Floats Multiply(const Floats& a, const Floats& b) {
  return {{_mm256_mul_ps(a.part[0], b.part[0]), _mm256_mul_ps(a.part[1], b.part[1])}};
}
inline Floats MultiplyAdd(const Floats& a, const Floats& b, const Floats& c) {
  return {{_mm256_fmadd_ps(a.part[0], b.part[0], c.part[0]),
           _mm256_fmadd_ps(a.part[1], b.part[1], c.part[1])}};
}
inline Floats Negate(const Floats& a) {
  return {{_mm256_sub_ps(_mm256_setzero_ps(), a.part[0]),
           _mm256_sub_ps(_mm256_setzero_ps(), a.part[1])}};
}
inline Floats ToFloats(const Ints& a) {
  return {{_mm256_cvtepi32_ps(a.part[0]), _mm256_cvtepi32_ps(a.part[1])}};
}
inline void StoreFloats(const Floats& a, float* to) {
  _mm256_storeu_ps(to, a.part[0]);
  _mm256_storeu_ps(to + 8, a.part[1]);
}
inline __m128i LoadSixteen(const std::uint8_t* from) {
  return _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
}
inline Floats HalfFloats(const std::uint8_t* from) {
  return {{_mm256_cvtph_ps(LoadSixteen(from)), _mm256_cvtph_ps(LoadSixteen(from + 16))}};
}
inline Floats ByteFloats(const std::uint8_t* from) {
  const __m128i bytes = LoadSixteen(from);
  return ToFloats({{_mm256_cvtepu8_epi32(bytes), _mm256_cvtepu8_epi32(_mm_srli_si128(bytes, 8))}});
}
inline Floats SignedByteFloats(const std::uint8_t* from) {
  const __m128i bytes = LoadSixteen(from);
  return ToFloats({{_mm256_cvtepi8_epi32(bytes), _mm256_cvtepi8_epi32(_mm_srli_si128(bytes, 8))}});
}

// Sums of four products of bytes stay below 2^15: 8 x 15 x 127 and 8 x 31 x 127; of 6 bits only two
// groups do, 4 x 63 x 127.
template <int kBits>
inline Ints DotFour(const Ints (&w)[4], const std::int8_t* x) {
  static_assert(kBits <= 6, "products of whole bytes overflow 16 bits");
  const __m256i ones = _mm256_set1_epi16(1);
  Ints sum;
  for (int p = 0; p < 2; ++p) {
    __m256i product[4];
    for (int g = 0; g < 4; ++g) {
      std::int32_t four;
      __builtin_memcpy(&four, x + 4 * g, 4);
      product[g] = _mm256_maddubs_epi16(w[g].part[p], _mm256_set1_epi32(four));
    }
    const __m256i front = _mm256_add_epi16(product[0], product[1]);
    const __m256i back = _mm256_add_epi16(product[2], product[3]);
    if constexpr (kBits == 6) {
      sum.part[p] = _mm256_add_epi32(_mm256_madd_epi16(front, ones), _mm256_madd_epi16(back, ones));
    } else {
      sum.part[p] = _mm256_madd_epi16(_mm256_add_epi16(front, back), ones);
    }
  }
  return sum;
}

inline float MaxLane(__m256 v) {
  __m128 m = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
  m = _mm_max_ps(m, _mm_movehl_ps(m, m));
  m = _mm_max_ss(m, _mm_shuffle_ps(m, m, 1));
  return _mm_cvtss_f32(m);
}

inline std::int32_t SumLanes(__m256i v) {
  __m128i s = _mm_add_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
  s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0x4e));
  s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0xb1));
  return _mm_cvtsi128_si32(s);
}

inline void RoundBlock(const float* x, std::int8_t* bytes, float* scale, float* sums) {
  const __m256 magnitude = _mm256_castsi256_ps(_mm256_set1_epi32(0x7fffffff));
  __m256 v[4];
  __m256 most = _mm256_setzero_ps();
  __m256 unordered = _mm256_setzero_ps();
  for (int i = 0; i < 4; ++i) {
    v[i] = _mm256_loadu_ps(x + 8 * i);
    unordered = _mm256_or_ps(unordered, _mm256_cmp_ps(v[i], v[i], _CMP_UNORD_Q));
    most = _mm256_max_ps(most, _mm256_and_ps(v[i], magnitude));
  }
  const float max = MaxLane(most);
  *scale =
      _mm256_movemask_ps(unordered) != 0 ? std::numeric_limits<float>::quiet_NaN() : max / 127.0f;
  const __m256 inverse = _mm256_set1_ps(max > 0.0f ? 127.0f / max : 0.0f);
  __m256i q[4];
  for (int i = 0; i < 4; ++i) {
    q[i] = _mm256_cvtps_epi32(_mm256_mul_ps(v[i], inverse));
  }
  sums[0] = static_cast<float>(SumLanes(_mm256_add_epi32(q[0], q[1])));
  sums[1] = static_cast<float>(SumLanes(_mm256_add_epi32(q[2], q[3])));
  // Packs within 128-bit halves, so the 32-bit pieces come out as 0 4 1 5 2 6 3 7 of their order.
  const __m256i packed =
      _mm256_packs_epi16(_mm256_packs_epi32(q[0], q[1]), _mm256_packs_epi32(q[2], q[3]));
  const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(bytes),
                      _mm256_permutevar8x32_epi32(packed, order));
}

#include "model/packed_dot-inl.h"

}  // namespace
}  // namespace avx2

const PackedKernels& PackedKernelsAvx2() {
  static constexpr PackedKernels kKernels = {avx2::RoundAll, avx2::DotPanel};
  return kKernels;
}

}  // namespace rkv::model
HWY_POP_ATTRIBUTES

#else

#include "base/check.h"

namespace rkv::model {
const PackedKernels& PackedKernelsAvx2() {
  static constexpr PackedKernels kNone = {};
  Check(false, "this build has no AVX2 kernels");
  return kNone;
}
}  // namespace rkv::model

#endif
