// ExpandedLinear: a weight matrix made ready for prompts, and the product of several of them with
// the same input.
#ifndef RKV_MODEL_EXPANDED_LINEAR_H_
#define RKV_MODEL_EXPANDED_LINEAR_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/thread_pool.h"
#include "model/block_gemm.h"
#include "model/linear.h"
#include "rkv/options.h"

namespace rkv::model {

// kF32: f32. kAuto: bf16 where the CPU has matrix units for it; else panels of bytes for BlockGemm
// where CPU and type allow them; else bf16 where the CPU multiplies it; else f32.
// Bytes of one layer's expanded matrices are part of the memory plan.
class ExpandedLinear {
 public:
  enum class Form : std::uint8_t { kF32, kBf16, kBlocks };
  static Form FormOf(const Linear& linear, Compute compute);
  static std::size_t Bytes(const Linear& linear, Compute compute);
  // Expands into `memory` (at least Bytes). Parallel over rows.
  ExpandedLinear(const Linear& linear, Compute compute, std::byte* memory, ThreadPool& pool);

  Form form() const { return form_; }
  const Linear& linear() const { return *linear_; }
  // REQUIRES: form() is kBlocks.
  PanelWeights panels() const;
  // REQUIRES: form() is another one. Row-major [out][in] in f32 or bf16.
  const std::byte* rows() const { return memory_; }

 private:
  void ExpandRows(std::byte* memory, ThreadPool& pool) const;
  void ExpandPanels(std::byte* memory, ThreadPool& pool) const;

  const Linear* linear_;
  Form form_;
  PanelForm panel_form_;  // of kBlocks
  const std::byte* memory_;
};

// Rows of activations: x[t * stride + i] for t in [0, tokens).
struct MatMulInput {
  const float* x = nullptr;
  std::size_t stride = 0;
  std::int32_t tokens = 0;
};
// One matrix that multiplies them: y[t * y_stride + row] = (W x[t] + b)[row].
struct MatMulJob {
  const ExpandedLinear* linear = nullptr;
  float* y = nullptr;
  std::size_t y_stride = 0;
};

// Bytes that MatMul needs beside its operands, for inputs of width `in`.
std::size_t MatMulBytes(std::int32_t in, std::int32_t tokens);
// Products of matrices that share their input (q, k, v; gate, up), which is rounded once.
// `memory`: at least MatMulBytes. Parallel; equal for any number of threads.
void MatMul(std::span<const MatMulJob> jobs, const MatMulInput& input, std::byte* memory,
            ThreadPool& pool);

}  // namespace rkv::model

#endif  // RKV_MODEL_EXPANDED_LINEAR_H_
