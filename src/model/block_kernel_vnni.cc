#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "model/block_kernel.h"

#if defined(__x86_64__)
#include <immintrin.h>
#if !defined(__clang__)
// g++ 12 takes the undefined operand inside some of its own AVX-512 intrinsics for a mistake.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
// Highway 1.0.3 has no product of unsigned and signed bytes; so intrinsics, for these functions
// only.
#define RKV_VNNI __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")))
#define RKV_VNNI_INLINE RKV_VNNI inline __attribute__((always_inline))
#endif

namespace rkv::model {

#if defined(__x86_64__)
namespace {

// Two panels times six tokens: 12 sums in f32 and as many in i32 leave 8 of the 32 registers for
// weights, an activation and scales.
constexpr int kTokens = 6;
constexpr int kPanels = 2;

// What one call multiplies. Missing tokens and panels repeat the last one: their results are
// dropped, and the edges need no code of their own.
struct Operands {
  const std::byte* panel[kPanels];
  const std::int8_t* bytes[kTokens];
  const float* scales[kTokens];
  const float* sums[kTokens];
  const std::int32_t* zeros[kTokens];  // of whole blocks, or of halves for kCentred16
};

// Adds the products of the block's groups [first, last) to `sum`.
RKV_VNNI_INLINE void MultiplyGroups(const Operands& o, std::size_t block, std::size_t block_bytes,
                                    std::size_t first, std::size_t last,
                                    __m512i (&sum)[kTokens][kPanels]) {
#pragma GCC unroll 8
  for (std::size_t g = first; g < last; ++g) {
    __m512i weights[kPanels];
#pragma GCC unroll 2
    for (int p = 0; p < kPanels; ++p) {
      weights[p] = _mm512_loadu_si512(o.panel[p] + block * block_bytes + g * kGroupBytes);
    }
#pragma GCC unroll 6
    for (int t = 0; t < kTokens; ++t) {
      std::int32_t four;
      std::memcpy(&four, o.bytes[t] + block * kPackedBlock + g * kGroupInputs, sizeof four);
      const __m512i x = _mm512_set1_epi32(four);
#pragma GCC unroll 2
      for (int p = 0; p < kPanels; ++p) {
        sum[t][p] = _mm512_dpbusd_epi32(sum[t][p], weights[p], x);
      }
    }
  }
}

RKV_VNNI_INLINE void LoadFloats(const Operands& o, std::size_t at, __m512 (&out)[kPanels]) {
#pragma GCC unroll 2
  for (int p = 0; p < kPanels; ++p) {
    out[p] = _mm512_loadu_ps(o.panel[p] + at);
  }
}

// The part of a block whose weights share one scale: all of it, or a half for kCentred16.
template <PanelKind kKind>
RKV_VNNI_INLINE void MultiplyPart(const Operands& o, std::size_t block, std::size_t part,
                                  __m512 (&acc)[kTokens][kPanels]) {
  constexpr std::size_t kParts = kKind == PanelKind::kCentred16 ? 2 : 1;
  constexpr std::size_t kBytes = PanelBlockBytes(kKind);
  constexpr std::size_t kGroups = kBlockGroups / kParts;
  __m512i sum[kTokens][kPanels];
#pragma GCC unroll 6
  for (int t = 0; t < kTokens; ++t) {
    if constexpr (kKind == PanelKind::kMinimum) {
      sum[t][0] = sum[t][1] = _mm512_setzero_si512();
    } else {
      // Starting from -128 times the sum of the activations centres the weights for nothing.
      sum[t][0] = sum[t][1] = _mm512_set1_epi32(o.zeros[t][block * kParts + part]);
    }
  }
  MultiplyGroups(o, block, kBytes, part * kGroups, (part + 1) * kGroups, sum);
  __m512 scale[kPanels];
  LoadFloats(o, block * kBytes + kByteCount + part * kFloatsBytes, scale);
#pragma GCC unroll 6
  for (int t = 0; t < kTokens; ++t) {
    const __m512 x_scale = _mm512_set1_ps(o.scales[t][block]);
#pragma GCC unroll 2
    for (int p = 0; p < kPanels; ++p) {
      acc[t][p] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sum[t][p]), _mm512_mul_ps(scale[p], x_scale),
                                  acc[t][p]);
    }
  }
}

RKV_VNNI_INLINE void AddMinima(const Operands& o, std::size_t block,
                               __m512 (&acc)[kTokens][kPanels]) {
  constexpr std::size_t kBytes = PanelBlockBytes(PanelKind::kMinimum);
  __m512 minimum[kPanels];
  LoadFloats(o, block * kBytes + kByteCount + kFloatsBytes, minimum);
#pragma GCC unroll 6
  for (int t = 0; t < kTokens; ++t) {
    const __m512 total = _mm512_set1_ps(o.sums[t][block]);
#pragma GCC unroll 2
    for (int p = 0; p < kPanels; ++p) {
      acc[t][p] = _mm512_fmadd_ps(minimum[p], total, acc[t][p]);
    }
  }
}

// out: [kTokens][kPanels][kPackedRows].
template <PanelKind kKind>
RKV_VNNI void MultiplyTile(const Operands& o, std::size_t blocks, float* out) {
  __m512 acc[kTokens][kPanels];
#pragma GCC unroll 6
  for (int t = 0; t < kTokens; ++t) {
    acc[t][0] = acc[t][1] = _mm512_setzero_ps();
  }
  for (std::size_t b = 0; b < blocks; ++b) {
    MultiplyPart<kKind>(o, b, 0, acc);
    if constexpr (kKind == PanelKind::kCentred16) {
      MultiplyPart<kKind>(o, b, 1, acc);
    }
    if constexpr (kKind == PanelKind::kMinimum) {
      AddMinima(o, b, acc);
    }
  }
#pragma GCC unroll 6
  for (int t = 0; t < kTokens; ++t) {
#pragma GCC unroll 2
    for (int p = 0; p < kPanels; ++p) {
      _mm512_storeu_ps(out + (t * kPanels + p) * kPackedRows, acc[t][p]);
    }
  }
}

// Writes a token's results for those rows of `panel` that exist.
RKV_VNNI_INLINE void StoreRows(const PanelWeights& weights, std::int32_t panel, const float* sums,
                               const float* bias, float* y) {
  const std::int32_t first = panel * kPackedRows;
  const auto exist = static_cast<__mmask16>((1u << std::min(kPackedRows, weights.out - first)) - 1);
  __m512 sum = _mm512_loadu_ps(sums);
  if (bias != nullptr) {
    sum = _mm512_add_ps(sum, _mm512_maskz_loadu_ps(exist, bias + first));
  }
  _mm512_mask_storeu_ps(y + first, exist, sum);
}

void SetToken(const RoundedRows& x, PanelKind kind, std::size_t token, int t, Operands& o) {
  const auto in = static_cast<std::size_t>(x.in);
  const std::size_t blocks = in / kPackedBlock;
  o.bytes[t] = x.bytes + token * in;
  o.scales[t] = x.scales + token * blocks;
  o.sums[t] = x.sums + token * blocks;
  o.zeros[t] =
      kind == PanelKind::kCentred16 ? x.half_zeros + 2 * token * blocks : x.zeros + token * blocks;
}

// As BlockGemm.
RKV_VNNI void MultiplyTiles(const PanelWeights& weights, const RoundedRows& x,
                            const BlockTile& tile, const float* bias, float* y,
                            std::size_t y_stride) {
  const PanelKind kind = weights.form.kind;
  const auto multiply = kind == PanelKind::kMinimum   ? MultiplyTile<PanelKind::kMinimum>
                        : kind == PanelKind::kCentred ? MultiplyTile<PanelKind::kCentred>
                                                      : MultiplyTile<PanelKind::kCentred16>;
  const std::int32_t last_panel = tile.first_panel + tile.panels - 1;
  const std::int32_t last_token = tile.first_token + tile.tokens - 1;
  for (std::int32_t panel = tile.first_panel; panel <= last_panel; panel += kPanels) {
    Operands o;
    for (int p = 0; p < kPanels; ++p) {
      o.panel[p] = weights.panels + static_cast<std::size_t>(std::min(panel + p, last_panel)) *
                                        PanelBytes(kind, weights.in);
    }
    for (std::int32_t token = tile.first_token; token <= last_token; token += kTokens) {
      for (int t = 0; t < kTokens; ++t) {
        const auto from = static_cast<std::size_t>(std::min(token + t, last_token));
        SetToken(x, kind, from, t, o);
        // The results go to rows that are far apart and in no cache: fetched now, they are there
        // when the product ends. Worth 1 to 2 %.
        const float* to = y + from * y_stride + panel * kPackedRows;
        __builtin_prefetch(to, 1);
        __builtin_prefetch(to + kPackedRows, 1);
      }
      float out[kTokens][kPanels][kPackedRows];
      multiply(o, static_cast<std::size_t>(weights.in / kPackedBlock), &out[0][0][0]);
      for (int t = 0; t < std::min(kTokens, last_token + 1 - token); ++t) {
        for (int p = 0; p < std::min(kPanels, last_panel + 1 - panel); ++p) {
          StoreRows(weights, panel + p, out[t][p], bias,
                    y + static_cast<std::size_t>(token + t) * y_stride);
        }
      }
    }
  }
}

}  // namespace

void BlockGemmVnni(const PanelWeights& weights, const RoundedRows& x, const BlockTile& tile,
                   const float* bias, float* y, std::size_t y_stride) {
  MultiplyTiles(weights, x, tile, bias, y, y_stride);
}

#else

void BlockGemmVnni(const PanelWeights&, const RoundedRows&, const BlockTile&, const float*, float*,
                   std::size_t) {
  Check(false, "BlockGemm needs AVX-512 VNNI");
}

#endif

}  // namespace rkv::model
