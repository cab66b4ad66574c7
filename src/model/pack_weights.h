// PackWeights: a model's matrices in the layout that decode reads fastest.
#ifndef RKV_MODEL_PACK_WEIGHTS_H_
#define RKV_MODEL_PACK_WEIGHTS_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include "base/buffer.h"
#include "base/thread_pool.h"
#include "model/linear.h"
#include "rkv/status.h"

namespace rkv::model {

// Whether this CPU has a product for the matrix in its packed layout.
bool CanPack(const Linear& linear);

// Packs rows [16 panel, 16 panel + 16) of a matrix, fewer at its end.
// REQUIRES: HasPackedLayout(linear.type, linear.in).
void PackPanel(const Linear& linear, std::int64_t panel, std::byte* to);

// Bytes that PackWeights will take for these matrices.
std::size_t PackedWeightBytes(std::span<Linear* const> matrices);

// Packs those matrices that can be and sets their `packed`; the buffer returned holds them. Calls
// `release` with each one's old bytes as soon as nothing but ExpandRow needs them: then the two
// layouts are never in memory together, but for one matrix. Parallel; some two
// seconds of CPU time for each GB. Errors: kResourceExhausted; nothing has changed then.
Result<Buffer> PackWeights(std::span<Linear* const> matrices, ThreadPool& pool,
                           const std::function<void(std::span<const std::byte>)>& release);

}  // namespace rkv::model

#endif  // RKV_MODEL_PACK_WEIGHTS_H_
