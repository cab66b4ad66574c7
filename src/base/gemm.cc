#include "base/gemm.h"

#include <omp.h>

#include <algorithm>
#include <dnnl.hpp>

#include "base/check.h"

namespace rkv {
namespace {

// oneDNN's cpu engine holds no state beyond itself; made once, thread-safe.
const dnnl::engine& CpuEngine() {
  static const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  return engine;
}

dnnl::memory::desc Matrix(std::int64_t rows, std::int64_t cols, std::int64_t stride,
                          bool transposed, dnnl::memory::data_type type) {
  const dnnl::memory::dims strides =
      transposed ? dnnl::memory::dims{1, stride} : dnnl::memory::dims{stride, 1};
  return {{rows, cols}, type, strides};
}

// A bf16 product for one shape. Creation costs a JIT compilation; oneDNN's own primitive cache
// makes a second creation cheap, so each thread creates what it needs.
dnnl::matmul MakeBf16Matmul(const GemmShape& s) {
  using Type = dnnl::memory::data_type;
  dnnl::primitive_attr attr;
  if (s.accumulate) {
    dnnl::post_ops ops;
    ops.append_sum(1.0f);
    attr.set_post_ops(ops);
  }
  const auto a = Matrix(s.m, s.k, s.lda, false, Type::bf16);
  const auto b = Matrix(s.k, s.n, s.ldb, s.b_transposed, Type::bf16);
  const auto c = Matrix(s.m, s.n, s.ldc, false, Type::f32);
#if DNNL_VERSION_MAJOR >= 3
  return dnnl::matmul(dnnl::matmul::primitive_desc(CpuEngine(), a, b, c, attr));
#else
  return dnnl::matmul(dnnl::matmul::primitive_desc(dnnl::matmul::desc(a, b, c), attr, CpuEngine()));
#endif
}

bool NothingToMultiply(const GemmShape& s, float* c) {
  if (s.m > 0 && s.n > 0 && s.k > 0) {
    return false;
  }
  for (std::int64_t i = 0; i < s.m && !s.accumulate; ++i) {
    std::fill_n(c + i * s.ldc, s.n, 0.0f);
  }
  return true;
}

}  // namespace

void GemmF32(const GemmShape& s, const float* a, const float* b, float* c) {
  if (NothingToMultiply(s, c)) {
    return;
  }
  const dnnl_status_t status = dnnl_sgemm('N', s.b_transposed ? 'T' : 'N', s.m, s.n, s.k, 1.0f, a,
                                          s.lda, b, s.ldb, s.accumulate ? 1.0f : 0.0f, c, s.ldc);
  Check(status == dnnl_success, "oneDNN refused an f32 product");
}

void GemmBf16(const GemmShape& s, const std::uint16_t* a, const std::uint16_t* b, float* c) {
  if (NothingToMultiply(s, c)) {
    return;
  }
  const dnnl::matmul matmul = MakeBf16Matmul(s);
  dnnl::stream stream(CpuEngine());
  const auto wrap = [&](const dnnl::memory::desc& desc, const void* data) {
    return dnnl::memory(desc, CpuEngine(), const_cast<void*>(data));
  };
  using Type = dnnl::memory::data_type;
  matmul.execute(stream,
                 {{DNNL_ARG_SRC, wrap(Matrix(s.m, s.k, s.lda, false, Type::bf16), a)},
                  {DNNL_ARG_WEIGHTS, wrap(Matrix(s.k, s.n, s.ldb, s.b_transposed, Type::bf16), b)},
                  {DNNL_ARG_DST, wrap(Matrix(s.m, s.n, s.ldc, false, Type::f32), c)}});
  stream.wait();
}

bool HasBf16Gemm() {
  // Asked once, by a product: oneDNN throws where it has no kernel.
  static const bool has = [] {
    if (dnnl::get_effective_cpu_isa() < dnnl::cpu_isa::avx512_core_bf16) {
      return false;
    }
    try {
      MakeBf16Matmul({.m = 2, .n = 2, .k = 2, .lda = 2, .ldb = 2, .ldc = 2, .b_transposed = true});
      return true;
    } catch (const dnnl::error&) {
      return false;
    }
  }();
  return has;
}

bool HasMatrixUnits() {
  static const bool has =
      HasBf16Gemm() && dnnl::get_effective_cpu_isa() >= dnnl::cpu_isa::avx512_core_amx;
  return has;
}

void UseOneGemmThread() { omp_set_num_threads(1); }

}  // namespace rkv
