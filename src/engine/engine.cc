#include "rkv/engine.h"

#include <fmt/format.h>

#include "base/thread_pool.h"
#include "engine/engine_impl.h"
#include "policy/policy.h"

namespace rkv {
namespace {

Status CheckOptions(const EngineOptions& options) {
  if (options.threads < 0 || options.threads > 1024) {
    return {Code::kInvalidArgument,
            fmt::format("threads must be from 0 (automatic) to 1024, got {}", options.threads)};
  }
  if (options.piece_tokens < 1 || options.piece_tokens > 65536) {
    return {Code::kInvalidArgument,
            fmt::format("the prefill piece must be from 1 to 65536 tokens, got {}",
                        options.piece_tokens)};
  }
  if (options.context < 0) {
    return {Code::kInvalidArgument,
            fmt::format("the context must not be negative, got {}", options.context)};
  }
  return {};
}

}  // namespace

Result<std::unique_ptr<Engine>> Engine::Open(const EngineOptions& options) {
  if (Status status = CheckOptions(options); !status.ok()) {
    return status;
  }
  Result<std::unique_ptr<model::Model>> model = model::Model::Load(options.model_path);
  if (!model) {
    return model.error();
  }
  const std::int32_t trained = (*model)->params().context;
  if (options.context > trained) {
    return Status(Code::kInvalidArgument,
                  fmt::format("a context of {} tokens is more than the model was trained for ({})",
                              options.context, trained));
  }
  EngineOptions effective = options;
  effective.context = options.context == 0 ? trained : options.context;
  effective.threads = options.threads == 0 ? DefaultThreads() : options.threads;
  if (options.kv_type == KvType::kAuto) {
    effective.kv_type = options.compute == Compute::kF32 ? KvType::kF32 : KvType::kF16;
  }
  return std::unique_ptr<Engine>(
      std::make_unique<engine::EngineImpl>(effective, std::move(*model)));
}

Result<std::unique_ptr<Engine>> Engine::OpenShape(std::string_view shape, const EngineOptions&) {
  return Status(Code::kUnsupported, fmt::format("the shape '{}' is not built yet", shape));
}

std::vector<std::string> KnownShapes() { return {"smollm2-135m", "qwen2.5-0.5b", "llama-8b"}; }

std::vector<PolicyDescription> DescribePolicies() {
  std::vector<PolicyDescription> out;
  for (const policy::PolicyInfo& info : policy::KnownPolicies()) {
    PolicyDescription description{info.name, info.keeps, info.reads, info.state, info.source, {}};
    for (const policy::OptionInfo& option : info.options) {
      description.options.push_back({option.name, option.default_value, option.help});
    }
    out.push_back(std::move(description));
  }
  return out;
}

Status CheckPolicy(std::string_view policy) {
  const auto method = policy::MakePolicy(policy);
  return method ? Status() : method.error();
}

std::string_view Version() { return RKV_VERSION; }

}  // namespace rkv
