#include "rkv/engine.h"

#include <fmt/format.h>

#include "base/text.h"
#include "base/thread_pool.h"
#include "engine/engine_impl.h"
#include "engine/memory_plan.h"
#include "model/shape_model.h"
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

int Threads(const EngineOptions& options) {
  return options.threads == 0 ? DefaultThreads() : options.threads;
}

Result<std::unique_ptr<Engine>> MakeEngine(const EngineOptions& options,
                                           std::unique_ptr<model::Model> model) {
  const std::int32_t trained = model->params().context;
  if (options.context > trained) {
    return Status(Code::kInvalidArgument,
                  fmt::format("a context of {} tokens is more than the model was trained for ({})",
                              options.context, trained));
  }
  EngineOptions effective = options;
  effective.context = options.context == 0 ? trained : options.context;
  effective.threads = Threads(options);
  if (options.kv_type == KvType::kAuto) {
    effective.kv_type = options.compute == Compute::kF32 ? KvType::kF32 : KvType::kF16;
  }
  auto engine = std::make_unique<engine::EngineImpl>(effective, std::move(model));
  if (Status status = engine->PackWeights(); !status.ok()) {
    return status;
  }
  return std::unique_ptr<Engine>(std::move(engine));
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
  return MakeEngine(options, *std::move(model));
}

Result<std::unique_ptr<Engine>> Engine::OpenShape(std::string_view shape,
                                                  const EngineOptions& options) {
  if (Status status = CheckOptions(options); !status.ok()) {
    return status;
  }
  if (!options.model_path.empty()) {
    return Status(Code::kInvalidArgument,
                  fmt::format("a shape needs no model file, got '{}'", options.model_path));
  }
  Result<model::ShapePlan> plan = model::PlanShape(shape, options.context);
  if (!plan) {
    return plan.error();
  }
  if (const std::size_t available = engine::AvailableMemory(); plan->bytes > available) {
    return Status(Code::kResourceExhausted,
                  fmt::format("the weights of '{}' take {}, available are {}", shape,
                              HumanBytes(plan->bytes), HumanBytes(available)));
  }
  Result<std::unique_ptr<model::Model>> model =
      model::MakeShapeModel(*std::move(plan), Threads(options));
  if (!model) {
    return model.error();
  }
  return MakeEngine(options, *std::move(model));
}

std::vector<std::string> KnownShapes() { return model::KnownShapes(); }

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
