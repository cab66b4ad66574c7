// Rounding of activations to 8 bits a block.
#include <limits>

#include "base/check.h"
#include "model/block_gemm.h"

#if defined(__x86_64__)
#include <immintrin.h>
#define RKV_AVX2 __attribute__((target("avx2,fma")))
#endif

namespace rkv::model {
namespace {

std::size_t RoundUp64(std::size_t n) { return (n + 63) / 64 * 64; }

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

// One block. half_sums: of its first and last 16 bytes. Returns the scale.
RKV_AVX2 float RoundBlock(const float* x, std::int8_t* bytes, std::int32_t* half_sums) {
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
  const __m256 inverse = _mm256_set1_ps(max > 0.0f ? 127.0f / max : 0.0f);
  __m256i q[4];
  for (int i = 0; i < 4; ++i) {
    q[i] = _mm256_cvtps_epi32(_mm256_mul_ps(v[i], inverse));
  }
  // Packs within 128-bit halves, so the 32-bit pieces come out as 0 4 1 5 2 6 3 7 of their order.
  const __m256i packed =
      _mm256_packs_epi16(_mm256_packs_epi32(q[0], q[1]), _mm256_packs_epi32(q[2], q[3]));
  const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(bytes),
                      _mm256_permutevar8x32_epi32(packed, order));
  half_sums[0] = SumLanes(_mm256_add_epi32(q[0], q[1]));
  half_sums[1] = SumLanes(_mm256_add_epi32(q[2], q[3]));
  return max / 127.0f;
}

#else

float RoundBlock(const float*, std::int8_t*, std::int32_t*) {
  Check(false, "rounding of activations needs AVX2");
  return 0.0f;
}

#endif

}  // namespace

std::size_t RoundedRows::Bytes(std::int32_t in, std::int32_t tokens) {
  const std::size_t count = static_cast<std::size_t>(in) * static_cast<std::size_t>(tokens);
  return RoundUp64(count) + 3 * RoundUp64(count / kGemmBlock * sizeof(float)) +
         RoundUp64(count / kGemmBlock * 2 * sizeof(std::int32_t));
}

RoundedRows RoundedRows::In(std::byte* memory, std::int32_t in, std::int32_t tokens) {
  Check(in % kGemmBlock == 0, "rows that are no whole blocks");
  const std::size_t count = static_cast<std::size_t>(in) * static_cast<std::size_t>(tokens);
  const auto take = [&](std::size_t bytes) {
    std::byte* out = memory;
    memory += RoundUp64(bytes);
    return out;
  };
  const std::size_t floats = count / kGemmBlock * sizeof(float);
  RoundedRows rows;
  rows.bytes = reinterpret_cast<std::int8_t*>(take(count));
  rows.scales = reinterpret_cast<float*>(take(floats));
  rows.sums = reinterpret_cast<float*>(take(floats));
  rows.zeros = reinterpret_cast<std::int32_t*>(take(floats));
  rows.half_zeros = reinterpret_cast<std::int32_t*>(take(2 * floats));
  rows.in = in;
  return rows;
}

void RoundedRows::Round(std::int32_t token, const float* x) const {
  const auto blocks = static_cast<std::size_t>(in / kGemmBlock);
  for (std::size_t b = 0; b < blocks; ++b) {
    const std::size_t i = static_cast<std::size_t>(token) * blocks + b;
    std::int32_t half_sums[2];
    scales[i] = RoundBlock(x + b * kGemmBlock, bytes + i * kGemmBlock, half_sums);
    const std::int32_t sum = half_sums[0] + half_sums[1];
    sums[i] = scales[i] * static_cast<float>(sum);
    zeros[i] = -128 * sum;
    half_zeros[2 * i] = -128 * half_sums[0];
    half_zeros[2 * i + 1] = -128 * half_sums[1];
  }
}

}  // namespace rkv::model
