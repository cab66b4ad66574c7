#include <memory>
#include <string>
#include <string_view>

#include "policy/methods.h"

namespace rkv::policy {
namespace {

class Full final : public Policy {
 public:
  std::string_view name() const override { return "full"; }
  std::string spec() const override { return "full"; }
  std::vector<std::pair<std::string, double>> Explain(const TurnShape& shape) const override {
    const double rows = static_cast<double>(shape.prompt_tokens) + shape.max_new_tokens;
    return {{"rows_kept", shape.prompt_tokens},
            {"max_rows", rows},
            {"total_traffic", rows},
            {"reads_all", 1.0}};
  }
};

}  // namespace

PolicyInfo FullInfo() {
  return {.name = "full",
          .keeps = "everything",
          .reads = "everything",
          .state = "none",
          .source = "exact attention",
          .options = {}};
}

MadePolicy MakeFull(const MethodString& given) {
  const OptionReader reader(given, {});
  if (!reader.status().ok()) {
    return reader.status();
  }
  return std::unique_ptr<const Policy>(std::make_unique<Full>());
}

}  // namespace rkv::policy
