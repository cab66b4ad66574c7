#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "model/block_kernel.h"

#if defined(__x86_64__)
#include <immintrin.h>
// Highway 1.0.3 has no product of unsigned and signed bytes; so intrinsics, for these functions
// only.
#define RKV_AVX2 __attribute__((target("avx2,fma")))
#endif

namespace rkv::model {

#if defined(__x86_64__)
namespace {

constexpr std::size_t kPanelBlockBytes = PanelBlockBytes(PanelKind::kMinimum);
// Tokens of one kernel call: 3 x 2 accumulators in f32 and as many in 16 bits fill the registers.
constexpr std::size_t kTileTokens = 3;

// One panel times kTokens tokens. Products of a byte below 2^bits and an activation are summed in
// pairs and then in 16 bits for kFlush groups of 4 inputs, the most that cannot overflow:
// 8 x 2 x 15 x 127 and 4 x 2 x 31 x 127 are below 2^15.
template <int kTokens, std::size_t kFlush>
RKV_AVX2 void PanelTimesTokens(const std::byte* panel, std::size_t blocks, const RoundedRows& x,
                               std::size_t token, float* out) {
  const __m256i ones = _mm256_set1_epi16(1);
  __m256 acc[kTokens][2];
  for (auto& pair : acc) {
    pair[0] = pair[1] = _mm256_setzero_ps();
  }
  for (std::size_t b = 0; b < blocks; ++b) {
    const auto* scales = reinterpret_cast<const float*>(panel + kByteCount);
    for (std::size_t first = 0; first < kBlockGroups; first += kFlush) {
      __m256i sum[kTokens][2];
      for (std::size_t g = first; g < first + kFlush; ++g) {
        const auto* bytes = reinterpret_cast<const __m256i*>(panel + g * kGroupBytes);
        const __m256i w0 = _mm256_loadu_si256(bytes);
        const __m256i w1 = _mm256_loadu_si256(bytes + 1);
        for (int t = 0; t < kTokens; ++t) {
          std::int32_t four;
          std::memcpy(&four, x.bytes + ((token + t) * blocks + b) * kPackedBlock + g * 4, 4);
          const __m256i a = _mm256_set1_epi32(four);
          const __m256i p0 = _mm256_maddubs_epi16(w0, a);
          const __m256i p1 = _mm256_maddubs_epi16(w1, a);
          sum[t][0] = g == first ? p0 : _mm256_add_epi16(sum[t][0], p0);
          sum[t][1] = g == first ? p1 : _mm256_add_epi16(sum[t][1], p1);
        }
      }
      for (int t = 0; t < kTokens; ++t) {
        const __m256 scale = _mm256_set1_ps(x.scales[(token + t) * blocks + b]);
        for (int half = 0; half < 2; ++half) {
          const __m256 product = _mm256_cvtepi32_ps(_mm256_madd_epi16(sum[t][half], ones));
          const __m256 weight_scale = _mm256_loadu_ps(scales + 8 * half);
          acc[t][half] = _mm256_fmadd_ps(product, _mm256_mul_ps(weight_scale, scale), acc[t][half]);
        }
      }
    }
    for (int t = 0; t < kTokens; ++t) {
      const __m256 total = _mm256_set1_ps(x.sums[(token + t) * blocks + b]);
      for (int half = 0; half < 2; ++half) {
        const __m256 minimum = _mm256_loadu_ps(scales + kPackedRows + 8 * half);
        acc[t][half] = _mm256_fmadd_ps(minimum, total, acc[t][half]);
      }
    }
    panel += kPanelBlockBytes;
  }
  for (int t = 0; t < kTokens; ++t) {
    _mm256_storeu_ps(out + t * kPackedRows, acc[t][0]);
    _mm256_storeu_ps(out + t * kPackedRows + 8, acc[t][1]);
  }
}

// Writes a token's results for those rows of `panel` that exist.
void StoreRows(const PanelWeights& weights, std::int32_t panel, const float* sums,
               const float* bias, float* y) {
  const std::int32_t first = panel * kPackedRows;
  const std::int32_t rows = std::min(kPackedRows, weights.out - first);
  for (std::int32_t row = 0; row < rows; ++row) {
    y[first + row] = sums[row] + (bias == nullptr ? 0.0f : bias[first + row]);
  }
}

template <std::size_t kFlush>
void PanelTimes(const std::byte* panel, std::size_t blocks, const RoundedRows& x, std::size_t token,
                std::size_t count, float* out) {
  switch (count) {
    case 1:
      return PanelTimesTokens<1, kFlush>(panel, blocks, x, token, out);
    case 2:
      return PanelTimesTokens<2, kFlush>(panel, blocks, x, token, out);
    default:
      return PanelTimesTokens<3, kFlush>(panel, blocks, x, token, out);
  }
}

}  // namespace

void BlockGemmAvx2(const PanelWeights& weights, const RoundedRows& x, const BlockTile& tile,
                   const float* bias, float* y, std::size_t y_stride) {
  const auto multiply = weights.form.five_bits ? PanelTimes<4> : PanelTimes<8>;
  const auto blocks = static_cast<std::size_t>(weights.in / kPackedBlock);
  const auto end = static_cast<std::size_t>(tile.first_token + tile.tokens);
  for (std::int32_t p = tile.first_panel; p < tile.first_panel + tile.panels; ++p) {
    const std::byte* panel =
        weights.panels + static_cast<std::size_t>(p) * PanelBytes(weights.form.kind, weights.in);
    for (auto token = static_cast<std::size_t>(tile.first_token); token < end;
         token += kTileTokens) {
      float out[kTileTokens * kPackedRows];
      const std::size_t count = std::min(kTileTokens, end - token);
      multiply(panel, blocks, x, token, count, out);
      for (std::size_t t = 0; t < count; ++t) {
        StoreRows(weights, p, out + t * kPackedRows, bias, y + (token + t) * y_stride);
      }
    }
  }
}

#else

void BlockGemmAvx2(const PanelWeights&, const RoundedRows&, const BlockTile&, const float*, float*,
                   std::size_t) {
  Check(false, "BlockGemm needs AVX2");
}

#endif

}  // namespace rkv::model
