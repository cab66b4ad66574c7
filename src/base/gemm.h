// Single-threaded matrix products through oneDNN, called from our own threads.
#ifndef RKV_BASE_GEMM_H_
#define RKV_BASE_GEMM_H_

#include <cstddef>
#include <cstdint>

namespace rkv {

// Row-major operands. C[m, n] = A[m, k] * B (+ C when accumulate), B given as [n, k] when
// b_transposed (weights, keys), else as [k, n] (values). Leading dimensions in elements.
struct GemmShape {
  std::int64_t m = 0;
  std::int64_t n = 0;
  std::int64_t k = 0;
  std::int64_t lda = 0;
  std::int64_t ldb = 0;
  std::int64_t ldc = 0;
  bool b_transposed = false;
  bool accumulate = false;
};

// f32 product on the calling thread. Thread-safe. m, n or k of 0: C is cleared unless accumulate.
// Rows of C do not depend on which other rows are in the call beyond rounding (2e-6 relative).
void GemmF32(const GemmShape& shape, const float* a, const float* b, float* c);

// bf16 operands, f32 result, same rules. REQUIRES: HasBf16Gemm().
void GemmBf16(const GemmShape& shape, const std::uint16_t* a, const std::uint16_t* b, float* c);

// Whether this CPU multiplies bf16 in hardware (AVX-512 BF16 or AMX) and oneDNN uses it.
bool HasBf16Gemm();
// Whether it does so in matrix units (AMX), at several times the rate of its vectors. Without them
// bf16 is hardly faster than f32 on some CPUs, and integers are faster than both on all that have
// AVX-512 VNNI.
bool HasMatrixUnits();

// Must run once on every thread that calls the above: oneDNN then stays in that thread.
void UseOneGemmThread();

}  // namespace rkv

#endif  // RKV_BASE_GEMM_H_
