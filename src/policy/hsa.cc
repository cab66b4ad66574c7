#include <fmt/format.h>

#include <memory>
#include <string>
#include <string_view>

#include "policy/hsa_options.h"
#include "policy/methods.h"
#include "policy/stages.h"

namespace rkv::policy {
namespace {

class Hsa final : public Policy {
 public:
  explicit Hsa(const RocketKvOptions& options) : options_(options) {}

  std::string_view name() const override { return "hsa"; }
  std::string spec() const override {
    return fmt::format("hsa:budget={}{}", options_.budget, HsaSpec(options_));
  }

  Needs needs(const TurnShape& shape) const override {
    const RocketKvSplit split = SplitBudgetHsa(options_, shape);
    const bool index = !ReadsAllRows(split, split.capacity, shape.head_dim);
    return {.chunk_rows = index ? split.chunk_rows : 0,
            .prefill_last_token = options_.prefill_last_token,
            .replan = true};
  }

  Status CheckShape(const TurnShape& shape) const override {
    return CheckHsaShape(options_, shape);
  }

  Status Select(const HeadDecode& in, Rows& read) const override {
    SelectByHsa(SplitBudgetHsa(options_, in.shape), in, read);
    return {};
  }

  std::vector<std::pair<std::string, double>> Explain(const TurnShape& shape) const override {
    const RocketKvSplit split = SplitBudgetHsa(options_, shape);
    std::vector<std::pair<std::string, double>> out = {{"c", split.c},
                                                       {"rows_kept", shape.prompt_tokens}};
    ExplainHsa(split, split.capacity, shape.head_dim, out);
    return out;
  }

 private:
  RocketKvOptions options_;
};

}  // namespace

PolicyInfo HsaInfo() {
  PolicyInfo info{.name = "hsa",
                  .keeps = "everything",
                  .reads = "topk rows, chosen from chunk minima and maxima in topr channels",
                  .state = "minimum and maximum key of each chunk: 1/page_size of the cache",
                  .source = "RocketKV section 3.4 (stage 2 alone), arXiv:2502.14051",
                  .options = HsaOptionInfos()};
  info.options.insert(info.options.begin(), BudgetInfo());
  info.options.push_back(LastTokenInfo());
  return info;
}

MadePolicy MakeHsa(const MethodString& given) {
  RocketKvOptions options;
  const std::vector<OptionInfo> known = HsaInfo().options;
  OptionReader reader(given, known);
  ReadHsaOptions(reader, options);
  if (!reader.status().ok()) {
    return reader.status();
  }
  return std::unique_ptr<const Policy>(std::make_unique<Hsa>(options));
}

}  // namespace rkv::policy
