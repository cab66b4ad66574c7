// AVX-512 with VNNI: a group of 4 inputs x 16 rows is one register, its product one instruction.
#include "hwy/highway.h"
#include "model/packed_dot.h"

#if HWY_ARCH_X86_64
#include <ggml.h>
#include <immintrin.h>

#include <limits>

#if HWY_COMPILER_GCC_ACTUAL
// GCC 12 warns of its own headers' deliberately undefined vectors.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif

HWY_PUSH_ATTRIBUTES("avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx2,fma,f16c")
namespace rkv::model {
namespace vnni {
namespace {

using Ints = __m512i;
using Floats = __m512;
constexpr std::uint32_t kWholeByteType = GGML_TYPE_Q8_0;

inline Ints LoadInts(const std::uint8_t* from) { return _mm512_loadu_si512(from); }
inline Ints BroadcastInts(std::uint32_t bits) {
  return _mm512_set1_epi32(static_cast<std::int32_t>(bits));
}
inline Ints And(Ints a, Ints b) { return _mm512_and_si512(a, b); }
inline Ints Or(Ints a, Ints b) { return _mm512_or_si512(a, b); }
template <int kCount>
inline Ints ShiftLeft(Ints a) {
  return _mm512_slli_epi16(a, kCount);
}
template <int kCount>
inline Ints ShiftRight(Ints a) {
  return _mm512_srli_epi16(a, kCount);
}
inline Floats ZeroFloats() { return _mm512_setzero_ps(); }
inline Floats Broadcast(float value) { return _mm512_set1_ps(value); }
inline Floats Add(Floats a, Floats b) { return _mm512_add_ps(a, b); }
inline Floats Multiply(Floats a, Floats b) { return _mm512_mul_ps(a, b); }
inline Floats MultiplyAdd(Floats a, Floats b, Floats c) { return _mm512_fmadd_ps(a, b, c); }
inline Floats Negate(Floats a) { return _mm512_sub_ps(_mm512_setzero_ps(), a); }
inline Floats ToFloats(Ints a) { return _mm512_cvtepi32_ps(a); }
inline void StoreFloats(Floats a, float* to) { _mm512_storeu_ps(to, a); }
inline __m128i LoadSixteen(const std::uint8_t* from) {
  return _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
}
inline Floats HalfFloats(const std::uint8_t* from) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
}
inline Floats ByteFloats(const std::uint8_t* from) {
  return _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(LoadSixteen(from)));
}
inline Floats SignedByteFloats(const std::uint8_t* from) {
  return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(LoadSixteen(from)));
}

template <int kBits>
inline Ints DotFour(const Ints (&w)[4], const std::int8_t* x) {
  Ints sum = _mm512_setzero_si512();
  for (int g = 0; g < 4; ++g) {
    std::int32_t four;
    __builtin_memcpy(&four, x + 4 * g, 4);
    sum = _mm512_dpbusd_epi32(sum, w[g], _mm512_set1_epi32(four));
  }
  return sum;
}

inline void RoundBlock(const float* x, std::int8_t* bytes, float* scale, float* sums) {
  const __m512 v[2] = {_mm512_loadu_ps(x), _mm512_loadu_ps(x + 16)};
  const bool unordered = (_mm512_cmp_ps_mask(v[0], v[0], _CMP_UNORD_Q) |
                          _mm512_cmp_ps_mask(v[1], v[1], _CMP_UNORD_Q)) != 0;
  const float most = _mm512_reduce_max_ps(_mm512_max_ps(_mm512_abs_ps(v[0]), _mm512_abs_ps(v[1])));
  *scale = unordered ? std::numeric_limits<float>::quiet_NaN() : most / 127.0f;
  const __m512 inverse = _mm512_set1_ps(most > 0.0f ? 127.0f / most : 0.0f);
  for (int half = 0; half < 2; ++half) {
    const __m512i q = _mm512_cvtps_epi32(_mm512_mul_ps(v[half], inverse));
    sums[half] = static_cast<float>(_mm512_reduce_add_epi32(q));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(bytes + 16 * half), _mm512_cvtepi32_epi8(q));
  }
}

#include "model/packed_dot-inl.h"

}  // namespace
}  // namespace vnni

const PackedKernels& PackedKernelsAvx512Vnni() {
  static constexpr PackedKernels kKernels = {vnni::RoundAll, vnni::DotPanel};
  return kKernels;
}

}  // namespace rkv::model
HWY_POP_ATTRIBUTES

#else

#include "base/check.h"

namespace rkv::model {
const PackedKernels& PackedKernelsAvx512Vnni() {
  static constexpr PackedKernels kNone = {};
  Check(false, "this build has no AVX-512 kernels");
  return kNone;
}
}  // namespace rkv::model

#endif
