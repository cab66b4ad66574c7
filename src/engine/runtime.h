// Runtime: what prefill and decode share of one engine.
#ifndef RKV_ENGINE_RUNTIME_H_
#define RKV_ENGINE_RUNTIME_H_

#include <cstdint>
#include <string>

#include "attention/backend.h"
#include "base/thread_pool.h"
#include "kv/codec.h"
#include "model/model.h"
#include "rkv/options.h"

namespace rkv::engine {

struct Runtime {
  const model::Model* model = nullptr;
  ThreadPool* pool = nullptr;
  const attention::Backend* backend = nullptr;
  Compute compute = Compute::kAuto;
  kv::Codec codec = kv::Codec::kF16;
  std::int32_t piece_tokens = 1024;
  std::int32_t context = 0;
  std::string identity;  // names the model for tables that belong to it

  const model::HyperParams& params() const { return model->params(); }
};

}  // namespace rkv::engine

#endif  // RKV_ENGINE_RUNTIME_H_
