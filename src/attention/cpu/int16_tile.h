// What the kernels in 16-bit integers share: sizes, packed tiles, vector helpers.
#ifndef RKV_ATTENTION_CPU_INT16_TILE_H_
#define RKV_ATTENTION_CPU_INT16_TILE_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "kv/head_view.h"

#if defined(__x86_64__)
#include <immintrin.h>
#if !defined(__clang__)
// g++ 12 takes the undefined operand inside some of its own AVX-512 intrinsics for a mistake.
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
// Highway 1.0.3 has no product of pairs of i16 that adds to an i32; so intrinsics, for these
// functions only.
#define RKV_VNNI __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,f16c,fma")))
#define RKV_VNNI_INLINE RKV_VNNI inline __attribute__((always_inline))
#endif

namespace rkv::attention::cpu::int16 {

inline constexpr std::size_t kLanes = 16;
// 24 sums of 6 query rows x 4 vectors leave 8 of the 32 registers for a column and a query pair.
inline constexpr std::size_t kBlockRows = 6;
inline constexpr std::size_t kVectors = 4;
inline constexpr std::size_t kPanelKeys = kVectors * kLanes;
inline constexpr std::size_t kPanelPairs = kPanelKeys / 2;
// Keys that share one softmax step: few rescalings, and the tile stays near the L1 cache.
inline constexpr std::size_t kTileKeys = 256;

// Numbers of up to 4,096 channels, each off by half a unit, are still shorter than 2^15.5.
inline constexpr float kRowLength = 46000.0f;
inline constexpr float kInt16Max = 32767.0f;
// 64 x 8191 x 4095 is below 2^31. Weights aim at 8190: the exponential may be off by 1e-4.
inline constexpr float kMaxWeight = 8190.0f;
inline constexpr float kMaxValue = 4095.0f;
// Rows of values below this count as this: the inverse must stay finite.
inline constexpr float kLeastValue = 1e-20f;

// One tile of keys and values in integers; where the pointers to values are null, of keys only.
struct KeyTile {
  std::int32_t* keys;     // [panel][head_dim / 2][kPanelKeys], pairs of channels
  std::int32_t* values;   // [panel][chunk of 64 channels][kPanelPairs][channels], pairs of keys
  float* key_scales;      // [kTileKeys] key = integers * this
  float* value_logs;      // [kTileKeys] log2 of the values' scale
  float* value_inverses;  // [kTileKeys] inverse of the values' scale
};

struct PackWork {
  float* row;             // [head_dim]
  std::int16_t* rounded;  // [kLanes][head_dim]
};

#if defined(__x86_64__)

// Rounds a row of [n] to integers of length kRowLength at most; returns their scale: 0 for a row of
// zeros, NaN for one that is not finite, whose integers are 0.
RKV_VNNI float RoundRow(const float* from, std::size_t n, std::int16_t* to);

// Packs rows [first, first + count) of the head. Keys behind them, up to a whole panel, are zeros
// that nobody sees. Every row is scaled by itself.
RKV_VNNI void PackTile(const kv::HeadView& head, std::size_t first, std::size_t count,
                       const PackWork& work, const KeyTile& tile);

// scale * 2^x for x <= 0: less than -110 counts as -110, NaN stays. Relative error 8e-5 (minimax
// polynomial of degree 3, computed for this file): less than the rounding of what it is used for.
RKV_VNNI_INLINE __m512 Exp2(__m512 x, float scale) {
  x = _mm512_max_ps(_mm512_set1_ps(-110.0f), x);  // subnormal results would take microcode
  const __m512 fraction = _mm512_reduce_ps(x, _MM_FROUND_TO_NEG_INF);  // x - floor(x)
  __m512 p = _mm512_set1_ps(scale * 0.0780245232446447f);
  p = _mm512_fmadd_ps(p, fraction, _mm512_set1_ps(scale * 0.22606715845916714f));
  p = _mm512_fmadd_ps(p, fraction, _mm512_set1_ps(scale * 0.6958335372404933f));
  p = _mm512_fmadd_ps(p, fraction, _mm512_set1_ps(scale * 0.9999252191220295f));
  return _mm512_scalef_ps(p, x);  // times 2^floor(x)
}

// log2 of positive numbers, error 1e-6 (minimax polynomial of log2(1 + t) / t, computed for this
// file).
RKV_VNNI_INLINE __m512 Log2(__m512 x) {
  const __m512 one = _mm512_set1_ps(1.0f);
  const __m512 mantissa = _mm512_getmant_ps(x, _MM_MANT_NORM_p75_1p5, _MM_MANT_SIGN_src);
  // getexp is of mantissas from 1 to 2.
  const __mmask16 halved = _mm512_cmp_ps_mask(mantissa, one, _CMP_LT_OQ);
  const __m512 whole = _mm512_getexp_ps(x);
  const __m512 exponent = _mm512_mask_add_ps(whole, halved, whole, one);
  const __m512 t = _mm512_sub_ps(mantissa, one);
  __m512 p = _mm512_set1_ps(0.11960337820107654f);
  p = _mm512_fmadd_ps(p, t, _mm512_set1_ps(-0.2424759408707938f));
  p = _mm512_fmadd_ps(p, t, _mm512_set1_ps(0.29828024149074783f));
  p = _mm512_fmadd_ps(p, t, _mm512_set1_ps(-0.36157262787895667f));
  p = _mm512_fmadd_ps(p, t, _mm512_set1_ps(0.4806261189617122f));
  p = _mm512_fmadd_ps(p, t, _mm512_set1_ps(-0.7213277665098091f));
  p = _mm512_fmadd_ps(p, t, _mm512_set1_ps(1.4426963164752915f));
  return _mm512_fmadd_ps(p, t, exponent);
}

#endif

}  // namespace rkv::attention::cpu::int16

#endif  // RKV_ATTENTION_CPU_INT16_TILE_H_
