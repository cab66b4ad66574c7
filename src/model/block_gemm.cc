#include "model/block_gemm.h"

#include <ggml.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>

#include "base/check.h"
#include "base/half.h"

#if defined(__x86_64__)
#include <immintrin.h>
// Highway 1.0.3 has no product of unsigned and signed bytes; so intrinsics, for these functions
// only.
#define RKV_AVX2 __attribute__((target("avx2,fma")))
#endif

namespace rkv::model {
namespace {

constexpr std::size_t kGroups = kGemmBlock / 4;
constexpr std::size_t kByteCount = static_cast<std::size_t>(kGemmBlock) * kPanelRows;
constexpr std::size_t kPanelBlockBytes = kByteCount + 2 * kPanelRows * sizeof(float);

// One block of weights as unsigned bytes with scale and minimum.
struct Block {
  std::array<std::uint8_t, kGemmBlock> bytes;
  float scale;
  float minimum;
};

float ReadF16(const std::byte* from) {
  std::uint16_t bits;
  std::memcpy(&bits, from, sizeof bits);
  return F16ToF32(bits);
}

// ggml's block formats: f16 scale, f16 minimum (the _1 types), 32 fifth bits (the Q5 types), then
// 16 bytes whose low halves are numbers 0 to 15 and high halves 16 to 31. The _0 types are centred.
Block ReadBlock(std::uint32_t type, const std::byte* from) {
  const bool five = type == GGML_TYPE_Q5_0 || type == GGML_TYPE_Q5_1;
  const bool centred = type == GGML_TYPE_Q4_0 || type == GGML_TYPE_Q5_0;
  Block block;
  block.scale = ReadF16(from);
  from += 2;
  if (centred) {
    block.minimum = block.scale * (five ? -16.0f : -8.0f);
  } else {
    block.minimum = ReadF16(from);
    from += 2;
  }
  std::uint32_t fifth = 0;
  if (five) {
    std::memcpy(&fifth, from, sizeof fifth);
    from += 4;
  }
  for (std::size_t i = 0; i < 16; ++i) {
    const auto pair = static_cast<std::uint8_t>(from[i]);
    block.bytes[i] = static_cast<std::uint8_t>((pair & 15u) | (fifth >> i & 1u) << 4);
    block.bytes[i + 16] = static_cast<std::uint8_t>(pair >> 4 | (fifth >> (i + 16) & 1u) << 4);
  }
  return block;
}

// Activations of some tokens in 8 bits: value = scale * byte; sum = scale * sum of the block's
// bytes.
struct Rounded {
  std::int8_t* bytes;  // [token][in]
  float* scales;       // [token][in / 32]
  float* sums;         // [token][in / 32]
};

#if defined(__x86_64__)

RKV_AVX2 float MaxLane(__m256 v) {
  __m128 m = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
  m = _mm_max_ps(m, _mm_movehl_ps(m, m));
  m = _mm_max_ss(m, _mm_shuffle_ps(m, m, 1));
  return _mm_cvtss_f32(m);
}

RKV_AVX2 std::int32_t SumLanes(__m256i v) {
  __m128i s = _mm_add_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
  s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0x4e));
  s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0xb1));
  return _mm_cvtsi128_si32(s);
}

RKV_AVX2 void RoundBlock(const float* x, std::int8_t* bytes, float* scale, float* sum) {
  const __m256 magnitude = _mm256_castsi256_ps(_mm256_set1_epi32(0x7fffffff));
  __m256 v[4];
  __m256 most = _mm256_setzero_ps();
  __m256 unordered = _mm256_setzero_ps();
  for (int i = 0; i < 4; ++i) {
    v[i] = _mm256_loadu_ps(x + 8 * i);
    unordered = _mm256_or_ps(unordered, _mm256_cmp_ps(v[i], v[i], _CMP_UNORD_Q));
    most = _mm256_max_ps(most, _mm256_and_ps(v[i], magnitude));
  }
  const float max = _mm256_movemask_ps(unordered) != 0 ? std::numeric_limits<float>::quiet_NaN()
                                                       : MaxLane(most);  // a NaN stays visible
  *scale = max / 127.0f;
  const __m256 inverse = _mm256_set1_ps(max > 0.0f ? 127.0f / max : 0.0f);
  __m256i q[4];
  __m256i total = _mm256_setzero_si256();
  for (int i = 0; i < 4; ++i) {
    q[i] = _mm256_cvtps_epi32(_mm256_mul_ps(v[i], inverse));
    total = _mm256_add_epi32(total, q[i]);
  }
  *sum = *scale * static_cast<float>(SumLanes(total));
  // Packs within 128-bit halves, so the 32-bit pieces come out as 0 4 1 5 2 6 3 7 of their order.
  const __m256i packed =
      _mm256_packs_epi16(_mm256_packs_epi32(q[0], q[1]), _mm256_packs_epi32(q[2], q[3]));
  const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(bytes),
                      _mm256_permutevar8x32_epi32(packed, order));
}

// One panel times kTokens tokens. Products of a byte below 2^bits and an activation are summed in
// pairs and then in 16 bits for kFlush groups of 4 inputs, the most that cannot overflow:
// 8 x 2 x 15 x 127 and 4 x 2 x 31 x 127 are below 2^15.
template <int kTokens, std::size_t kFlush>
RKV_AVX2 void PanelTimesTokens(const std::byte* panel, std::size_t blocks, const Rounded& x,
                               std::size_t token, float* out) {
  const __m256i ones = _mm256_set1_epi16(1);
  __m256 acc[kTokens][2];
  for (auto& pair : acc) {
    pair[0] = pair[1] = _mm256_setzero_ps();
  }
  for (std::size_t b = 0; b < blocks; ++b) {
    const auto* scales = reinterpret_cast<const float*>(panel + kByteCount);
    for (std::size_t first = 0; first < kGroups; first += kFlush) {
      __m256i sum[kTokens][2];
      for (std::size_t g = first; g < first + kFlush; ++g) {
        const auto* bytes = reinterpret_cast<const __m256i*>(panel + g * 4 * kPanelRows);
        const __m256i w0 = _mm256_loadu_si256(bytes);
        const __m256i w1 = _mm256_loadu_si256(bytes + 1);
        for (int t = 0; t < kTokens; ++t) {
          std::int32_t four;
          std::memcpy(&four, x.bytes + ((token + t) * blocks + b) * kGemmBlock + g * 4, 4);
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
        const __m256 minimum = _mm256_loadu_ps(scales + kPanelRows + 8 * half);
        acc[t][half] = _mm256_fmadd_ps(minimum, total, acc[t][half]);
      }
    }
    panel += kPanelBlockBytes;
  }
  for (int t = 0; t < kTokens; ++t) {
    _mm256_storeu_ps(out + t * kPanelRows, acc[t][0]);
    _mm256_storeu_ps(out + t * kPanelRows + 8, acc[t][1]);
  }
}

template <std::size_t kFlush>
RKV_AVX2 void PanelTimes(const std::byte* panel, std::size_t blocks, const Rounded& x,
                         std::size_t token, std::size_t count, float* out) {
  switch (count) {
    case 1:
      return PanelTimesTokens<1, kFlush>(panel, blocks, x, token, out);
    case 2:
      return PanelTimesTokens<2, kFlush>(panel, blocks, x, token, out);
    default:
      return PanelTimesTokens<3, kFlush>(panel, blocks, x, token, out);
  }
}

#else

void RoundBlock(const float*, std::int8_t*, float*, float*) {
  Check(false, "BlockGemm needs AVX2");
}

template <std::size_t kFlush>
void PanelTimes(const std::byte*, std::size_t, const Rounded&, std::size_t, std::size_t, float*) {
  Check(false, "BlockGemm needs AVX2");
}

#endif

// Tokens of one kernel call: 3 x 2 accumulators in f32 and as many in 16 bits fill the registers.
constexpr std::size_t kTileTokens = 3;

template <std::size_t kFlush>
void MultiplyPanels(const PackedWeights& w, const Rounded& x, std::size_t tokens, float* y,
                    std::size_t y_stride) {
  const auto blocks = static_cast<std::size_t>(w.in / kGemmBlock);
  for (std::int32_t first = 0; first < w.out; first += kPanelRows) {
    const std::byte* panel =
        w.panels + static_cast<std::size_t>(first / kPanelRows) * PanelBytes(w.in);
    const auto rows = static_cast<std::size_t>(std::min(kPanelRows, w.out - first));
    for (std::size_t token = 0; token < tokens; token += kTileTokens) {
      float out[kTileTokens * kPanelRows];
      const std::size_t count = std::min(kTileTokens, tokens - token);
      PanelTimes<kFlush>(panel, blocks, x, token, count, out);
      for (std::size_t t = 0; t < count; ++t) {
        std::memcpy(y + (token + t) * y_stride + first, out + t * kPanelRows, rows * sizeof(float));
      }
    }
  }
}

}  // namespace

bool HasBlockGemm() {
#if defined(__x86_64__)
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
#else
  return false;
#endif
}

bool IsBlockGemmType(std::uint32_t type) {
  return type == GGML_TYPE_Q4_0 || type == GGML_TYPE_Q4_1 || type == GGML_TYPE_Q5_0 ||
         type == GGML_TYPE_Q5_1;
}

std::size_t PanelBytes(std::int32_t in) {
  return static_cast<std::size_t>(in / kGemmBlock) * kPanelBlockBytes;
}

std::size_t PackedBytes(std::int32_t in, std::int32_t out) {
  return static_cast<std::size_t>((out + kPanelRows - 1) / kPanelRows) * PanelBytes(in);
}

void PackPanel(std::uint32_t type, const std::byte* weights, std::size_t row_bytes,
               std::int32_t rows, std::int32_t in, std::byte* panel) {
  Check(IsBlockGemmType(type) && in % kGemmBlock == 0, "weights that cannot be packed");
  const std::size_t block_bytes = ggml_type_size(static_cast<ggml_type>(type));
  std::memset(panel, 0, PanelBytes(in));
  for (std::size_t b = 0; b < static_cast<std::size_t>(in / kGemmBlock); ++b) {
    auto* bytes = reinterpret_cast<std::uint8_t*>(panel);
    auto* scales = reinterpret_cast<float*>(panel + kByteCount);
    for (std::size_t row = 0; row < static_cast<std::size_t>(rows); ++row) {
      const Block block = ReadBlock(type, weights + row * row_bytes + b * block_bytes);
      for (std::size_t g = 0; g < kGroups; ++g) {
        std::memcpy(bytes + (g * kPanelRows + row) * 4, block.bytes.data() + g * 4, 4);
      }
      scales[row] = block.scale;
      scales[kPanelRows + row] = block.minimum;
    }
    panel += kPanelBlockBytes;
  }
}

void BlockGemm(const PackedWeights& weights, const float* x, std::size_t x_stride,
               std::int32_t tokens, float* y, std::size_t y_stride, Scratch& scratch) {
  const auto count = static_cast<std::size_t>(tokens);
  const auto in = static_cast<std::size_t>(weights.in);
  const std::size_t blocks = in / kGemmBlock;
  Scratch::Frame frame(scratch);
  const Rounded rounded{frame.Array<std::int8_t>(count * in), frame.Array<float>(count * blocks),
                        frame.Array<float>(count * blocks)};
  for (std::size_t t = 0; t < count; ++t) {
    for (std::size_t b = 0; b < blocks; ++b) {
      const std::size_t i = t * blocks + b;
      RoundBlock(x + t * x_stride + b * kGemmBlock, rounded.bytes + i * kGemmBlock,
                 rounded.scales + i, rounded.sums + i);
    }
  }
  if (weights.five_bits) {
    MultiplyPanels<4>(weights, rounded, count, y, y_stride);
  } else {
    MultiplyPanels<8>(weights, rounded, count, y, y_stride);
  }
}

}  // namespace rkv::model
