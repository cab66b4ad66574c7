// Bytes of weights that one decoded token reads.
#ifndef RKV_BENCH_WEIGHT_BYTES_H_
#define RKV_BENCH_WEIGHT_BYTES_H_

#include <cstdint>

#include "rkv/engine.h"

namespace rkv::bench {

// All tensors, save the table of embeddings where another one makes the logits: of that a token
// reads one row. From the tensor list of a GGUF file that an Engine has opened; for a model without
// a file, or when the list cannot be read, estimated from the shape and `file_bytes`.
std::uint64_t WeightBytesPerToken(const ModelInfo& model);

// The estimate alone. Pure.
std::uint64_t EstimateWeightBytes(const ModelInfo& model);

}  // namespace rkv::bench

#endif  // RKV_BENCH_WEIGHT_BYTES_H_
