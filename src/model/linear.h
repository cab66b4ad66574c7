// Linear: one weight matrix of any ggml type with an optional bias, and its two products.
#ifndef RKV_MODEL_LINEAR_H_
#define RKV_MODEL_LINEAR_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/buffer.h"
#include "base/thread_pool.h"
#include "model/packed_matrix.h"
#include "rkv/options.h"
#include "rkv/status.h"

namespace rkv::model {

// Weights [out][in], rows packed in their ggml type, in the mapped file.
struct Linear {
  std::string name;
  std::uint32_t type = 0;  // ggml_type
  const std::byte* data = nullptr;
  std::size_t row_bytes = 0;
  std::int32_t in = 0;
  std::int32_t out = 0;
  std::vector<float> bias;            // [out], or empty
  const std::byte* packed = nullptr;  // the same weights as a PackedMatrix, or null

  PackedMatrix packed_matrix() const { return {type, packed, in, out}; }
};

// y[t] = W x[t] + b for a few tokens (of several sessions) and several matrices that share the
// input (q, k, v; gate, up). One parallel region; weights are read once for up to kPackedTokens
// tokens where they are packed. kAuto: x is rounded to 8 bits and dotted by the packed kernels, or
// to each type's dot-product partner and dotted by ggml, as llama.cpp does; kF32: rows are expanded
// and dotted in f32. A token's result does not depend on the others nor on the threads.
struct MatVecJob {
  const Linear* linear = nullptr;
  float* y = nullptr;  // [tokens][out]
};
void MatVec(std::span<const MatVecJob> jobs, const float* x, std::int32_t tokens, Compute compute,
            ThreadPool& pool);

// A matrix made ready for prompts. kAuto: bf16 where HasBf16Gemm(), else panels for BlockGemm where
// the CPU and the type allow it, else f32. kF32: f32.
// Bytes of one layer's expanded matrices are part of the memory plan.
class ExpandedLinear {
 public:
  enum class Form : std::uint8_t { kF32, kBf16, kBlocks };
  static Form FormOf(const Linear& linear, Compute compute);
  static std::size_t Bytes(const Linear& linear, Compute compute);
  // Expands into `memory` (at least Bytes). Parallel over rows.
  ExpandedLinear(const Linear& linear, Compute compute, std::byte* memory, ThreadPool& pool);

  // y[t][0, out) = W x[t] + b for `tokens` rows; x_stride, y_stride in numbers.
  // Split over tokens; equal for any number of threads.
  void MatMul(const float* x, std::size_t x_stride, std::int32_t tokens, float* y,
              std::size_t y_stride, ThreadPool& pool) const;

 private:
  void ExpandRows(std::byte* memory, ThreadPool& pool) const;
  void PackPanels(std::byte* memory, ThreadPool& pool) const;
  void AddBiasTo(float* y, std::size_t y_stride, std::int32_t tokens, std::int32_t first_column,
                 std::int32_t columns) const;
  void MatMulBlocks(const float* x, std::size_t x_stride, std::int32_t tokens, float* y,
                    std::size_t y_stride, ThreadPool& pool) const;

  const Linear* linear_;
  Form form_;
  const std::byte* memory_;
};

// Row `row` of a matrix as f32 (embedding look-up). out: [in].
void ExpandRow(const Linear& linear, std::int32_t row, std::span<float> out);

}  // namespace rkv::model

#endif  // RKV_MODEL_LINEAR_H_
