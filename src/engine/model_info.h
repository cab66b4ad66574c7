// DescribeModel: the public facts of a loaded model.
#ifndef RKV_ENGINE_MODEL_INFO_H_
#define RKV_ENGINE_MODEL_INFO_H_

#include <string>

#include "kv/codec.h"
#include "model/model.h"
#include "rkv/engine.h"

namespace rkv::engine {

ModelInfo DescribeModel(const model::Model& model, kv::Codec codec);

// Architecture, name and sizes in one line: equal for files that hold the same model, whatever
// their weight types.
std::string ModelIdentity(const ModelInfo& info);

}  // namespace rkv::engine

#endif  // RKV_ENGINE_MODEL_INFO_H_
