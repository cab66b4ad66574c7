// Models of a known shape with random weights in memory: to time sizes that no file is at hand for.
#ifndef RKV_MODEL_SHAPE_MODEL_H_
#define RKV_MODEL_SHAPE_MODEL_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "model/gguf.h"
#include "model/hyper_params.h"
#include "model/model.h"
#include "rkv/status.h"

namespace rkv::model {

// "smollm2-135m", "qwen2.5-0.5b", "llama-8b".
std::vector<std::string> KnownShapes();

// What a model will be made of, before its weights take memory.
struct ShapePlan {
  HyperParams params;
  std::vector<GgufTensor> tensors;  // names, types, dims and bytes as in a file; data still unset
  std::size_t bytes = 0;            // of all tensors, each on a cache line
};

// The model called `shape`, for `context` tokens (0: 131072).
// Errors: kInvalidArgument for another name (lists the known ones) or a context outside
// [0, 2^30].
Result<ShapePlan> PlanShape(std::string_view shape, std::int32_t context);

// Fills matrices with random Q4_0 blocks whose scales keep every activation near 1, norms with
// ones. Its tokenizer answers kUnsupported, its path is empty. The same weights every time, for any
// number of threads. Cost: about a second a GB and thread.
// Errors: kResourceExhausted.
Result<std::unique_ptr<Model>> MakeShapeModel(ShapePlan plan, int threads);

}  // namespace rkv::model

#endif  // RKV_MODEL_SHAPE_MODEL_H_
