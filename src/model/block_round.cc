// Rounding of activations to 8 bits a block.
#include <algorithm>

#include "base/check.h"
#include "model/block_gemm.h"

#if defined(__x86_64__)
#include <immintrin.h>
#define RKV_AVX2 __attribute__((target("avx2,fma")))
#endif

namespace rkv::model {
namespace {

std::size_t RoundUp64(std::size_t n) { return (n + 63) / 64 * 64; }

// Blocks that are rounded together, so that four sums or maxima cost little more than one.
constexpr std::size_t kTogether = 4;

#if defined(__x86_64__)

// The greatest magnitudes of four blocks; NaN for a block that holds one.
RKV_AVX2 __m128 Magnitudes(const float* x) {
  __m256i most[kTogether];  // compared as integers: NaN is the greatest
  for (std::size_t b = 0; b < kTogether; ++b) {
    most[b] = _mm256_setzero_si256();
    for (std::size_t i = 0; i < kPackedBlock; i += 8) {
      const __m256i bits =
          _mm256_loadu_si256(reinterpret_cast<const __m256i*>(x + b * kPackedBlock + i));
      most[b] = _mm256_max_epi32(most[b], _mm256_and_si256(bits, _mm256_set1_epi32(0x7fffffff)));
    }
  }
  const __m256i first = _mm256_max_epi32(_mm256_unpacklo_epi32(most[0], most[1]),
                                         _mm256_unpackhi_epi32(most[0], most[1]));
  const __m256i second = _mm256_max_epi32(_mm256_unpacklo_epi32(most[2], most[3]),
                                          _mm256_unpackhi_epi32(most[2], most[3]));
  const __m256i all =
      _mm256_max_epi32(_mm256_unpacklo_epi64(first, second), _mm256_unpackhi_epi64(first, second));
  return _mm_castsi128_ps(
      _mm_max_epi32(_mm256_castsi256_si128(all), _mm256_extracti128_si256(all, 1)));
}

// Rounds one block to bytes; sums: of neighbouring numbers, in two halves.
RKV_AVX2 void RoundBlock(const float* x, float inverse, std::int8_t* bytes, __m256i* sums) {
  const __m256 factor = _mm256_set1_ps(inverse);
  __m256i q[4];
  for (std::size_t i = 0; i < 4; ++i) {
    q[i] = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x + 8 * i), factor));
  }
  const __m256i low = _mm256_packs_epi32(q[0], q[1]);
  const __m256i high = _mm256_packs_epi32(q[2], q[3]);
  // Packs within 128-bit halves, so the 32-bit pieces come out as 0 4 1 5 2 6 3 7 of their order.
  const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(bytes),
                      _mm256_permutevar8x32_epi32(_mm256_packs_epi16(low, high), order));
  sums[0] = _mm256_madd_epi16(low, _mm256_set1_epi16(1));
  sums[1] = _mm256_madd_epi16(high, _mm256_set1_epi16(1));
}

// The sums of four vectors.
RKV_AVX2 __m128i FourSums(const __m256i* v) {
  const __m256i sums =
      _mm256_hadd_epi32(_mm256_hadd_epi32(v[0], v[1]), _mm256_hadd_epi32(v[2], v[3]));
  return _mm_add_epi32(_mm256_castsi256_si128(sums), _mm256_extracti128_si256(sums, 1));
}

// Rounds four blocks to places [at, at + 4) of `rows`.
RKV_AVX2 void RoundFour(const float* x, const RoundedRows& rows, std::size_t at) {
  const __m128 most = Magnitudes(x);
  const __m128 scale = _mm_div_ps(most, _mm_set1_ps(127.0f));
  float inverse[kTogether];
  _mm_storeu_ps(inverse, _mm_and_ps(_mm_div_ps(_mm_set1_ps(127.0f), most),
                                    _mm_cmpgt_ps(most, _mm_setzero_ps())));
  __m256i sums[2 * kTogether];
  for (std::size_t b = 0; b < kTogether; ++b) {
    RoundBlock(x + b * kPackedBlock, inverse[b], rows.bytes + (at + b) * kPackedBlock,
               sums + 2 * b);
  }
  const __m128i halves[2] = {FourSums(sums), FourSums(sums + 4)};
  const __m128i whole = _mm_hadd_epi32(halves[0], halves[1]);
  const auto store = [](std::int32_t* to, __m128i v) RKV_AVX2 {
    const __m128i zeros = _mm_sub_epi32(_mm_setzero_si128(), _mm_slli_epi32(v, 7));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to), zeros);
  };
  store(rows.half_zeros + 2 * at, halves[0]);
  store(rows.half_zeros + 2 * at + 4, halves[1]);
  store(rows.zeros + at, whole);
  _mm_storeu_ps(rows.scales + at, scale);
  _mm_storeu_ps(rows.sums + at, _mm_mul_ps(scale, _mm_cvtepi32_ps(whole)));
}

#else

void RoundFour(const float*, const RoundedRows&, std::size_t) {
  Check(false, "rounding of activations needs AVX2");
}

#endif

// Rounds fewer than four blocks.
void RoundLast(const float* x, std::size_t blocks, const RoundedRows& rows, std::size_t at) {
  float padded[kTogether * kPackedBlock] = {};
  std::int8_t bytes[kTogether * kPackedBlock];
  float scales[kTogether];
  float sums[kTogether];
  std::int32_t zeros[kTogether];
  std::int32_t half_zeros[2 * kTogether];
  std::copy_n(x, blocks * kPackedBlock, padded);
  RoundFour(padded, {bytes, scales, sums, zeros, half_zeros, kTogether * kPackedBlock}, 0);
  std::copy_n(bytes, blocks * kPackedBlock, rows.bytes + at * kPackedBlock);
  std::copy_n(scales, blocks, rows.scales + at);
  std::copy_n(sums, blocks, rows.sums + at);
  std::copy_n(zeros, blocks, rows.zeros + at);
  std::copy_n(half_zeros, 2 * blocks, rows.half_zeros + 2 * at);
}

}  // namespace

std::size_t RoundedRows::Bytes(std::int32_t in, std::int32_t tokens) {
  const std::size_t count = static_cast<std::size_t>(in) * static_cast<std::size_t>(tokens);
  return RoundUp64(count) + 3 * RoundUp64(count / kPackedBlock * sizeof(float)) +
         RoundUp64(count / kPackedBlock * 2 * sizeof(std::int32_t));
}

RoundedRows RoundedRows::In(std::byte* memory, std::int32_t in, std::int32_t tokens) {
  Check(in % kPackedBlock == 0, "rows that are no whole blocks");
  const std::size_t count = static_cast<std::size_t>(in) * static_cast<std::size_t>(tokens);
  const auto take = [&](std::size_t size) {
    std::byte* out = memory;
    memory += RoundUp64(size);
    return out;
  };
  const std::size_t floats = count / kPackedBlock * sizeof(float);
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
  const auto blocks = static_cast<std::size_t>(in / kPackedBlock);
  const std::size_t first = static_cast<std::size_t>(token) * blocks;
  std::size_t b = 0;
  for (; b + kTogether <= blocks; b += kTogether) {
    RoundFour(x + b * kPackedBlock, *this, first + b);
  }
  if (b < blocks) {
    RoundLast(x + b * kPackedBlock, blocks - b, *this, first + b);
  }
}

}  // namespace rkv::model
