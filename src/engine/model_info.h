// DescribeModel: the public facts of a loaded model.
#ifndef RKV_ENGINE_MODEL_INFO_H_
#define RKV_ENGINE_MODEL_INFO_H_

#include "kv/codec.h"
#include "model/model.h"
#include "rkv/engine.h"

namespace rkv::engine {

ModelInfo DescribeModel(const model::Model& model, kv::Codec codec);

}  // namespace rkv::engine

#endif  // RKV_ENGINE_MODEL_INFO_H_
