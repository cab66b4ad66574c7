// Linear: one weight matrix of any ggml type with an optional bias, and its product with one token.
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

// Row `row` of a matrix as f32 (embedding look-up). out: [in].
void ExpandRow(const Linear& linear, std::int32_t row, std::span<float> out);

}  // namespace rkv::model

#endif  // RKV_MODEL_LINEAR_H_
