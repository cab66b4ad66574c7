// The functions of the public API that belong to no object, so that tests can bring their own.
#ifndef RKV_CLI_API_H_
#define RKV_CLI_API_H_

#include <filesystem>
#include <functional>
#include <memory>
#include <string_view>
#include <vector>

#include "bench/peer.h"
#include "rkv/engine.h"

namespace rkv::cli {

struct EngineApi {
  std::function<Result<std::unique_ptr<Engine>>(const EngineOptions&)> open;
  std::function<Status(std::string_view policy)> check_policy;
  std::function<std::vector<PolicyDescription>()> describe_policies;
  std::function<Result<PolicyNumbers>(std::string_view policy, const ExplainShape&)> explain_policy;
  std::function<Result<std::unique_ptr<Engine>>(std::string_view shape, const EngineOptions&)>
      open_shape;
  std::vector<std::string> known_shapes;
  std::vector<bench::PeerKind> peers;
  std::size_t probe_bytes = 0;  // that bench reads to measure memory
  std::string_view version;
  std::filesystem::path source_dir;  // where the default model is looked for
};

}  // namespace rkv::cli

#endif  // RKV_CLI_API_H_
