#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <string>
#include <string_view>

#include "base/check.h"
#include "policy/hsa_options.h"
#include "policy/methods.h"
#include "policy/stages.h"

namespace rkv::policy {
namespace {

constexpr IntRange kWindow{.low = 1, .high = 4096};
constexpr IntRange kKernel{.low = 1, .high = 65535, .odd = true};

class RocketKv final : public Policy {
 public:
  explicit RocketKv(const RocketKvOptions& options) : options_(options) {}

  std::string_view name() const override { return "rocketkv"; }
  std::string spec() const override {
    const std::string split = options_.split < 0.0 ? "auto" : fmt::format("{}", options_.split);
    return fmt::format(
        "rocketkv:budget={},window_size={},kernel_size={},prompt_budget={},split={}{}",
        options_.budget, options_.window, options_.kernel, ValueOrAuto(options_.prompt_budget),
        split, HsaSpec(options_));
  }

  Needs needs(const TurnShape& shape) const override {
    const RocketKvSplit split = SplitBudget(options_, shape);
    const bool index = !ReadsAllRows(split, MaxRows(split, shape), shape.head_dim);
    return {.window = options_.window,
            .chunk_rows = index ? split.chunk_rows : 0,
            .prefill_last_token = options_.prefill_last_token};
  }

  Status CheckShape(const TurnShape& shape) const override {
    return CheckHsaShape(options_, shape);
  }

  std::int64_t RowsKept(const TurnShape& shape, std::int64_t rows) const override {
    return std::min<std::int64_t>(rows, PromptBudget(SplitBudget(options_, shape)));
  }

  Status Evict(const LayerPrefill& in, std::span<Rows> keep) const override {
    const std::int32_t budget = PromptBudget(SplitBudget(options_, in.shape));
    for (std::size_t h = 0; h < in.heads.size(); ++h) {
      const HeadPrefill& head = in.heads[h];
      keep[h].all = head.view.rows <= budget;
      if (!keep[h].all) {
        Check(static_cast<std::int64_t>(head.mass.size()) + in.window == head.view.rows,
              "a mass for every row before the window");
        keep[h].list = SnapKvRows(head.mass, in.window, options_.kernel, budget);
      }
    }
    return {};
  }

  Status Select(const HeadDecode& in, Rows& read) const override {
    SelectByHsa(SplitBudget(options_, in.shape), in, read);
    return {};
  }

  std::vector<std::pair<std::string, double>> Explain(const TurnShape& shape) const override {
    const RocketKvSplit split = SplitBudget(options_, shape);
    std::vector<std::pair<std::string, double>> out = {
        {"c", split.c},
        {"alpha", split.alpha},
        {"capacity", split.capacity},
        {"prompt_budget", split.prompt_budget},
        {"rows_kept", static_cast<double>(RowsKept(shape, shape.prompt_tokens))}};
    ExplainHsa(split, MaxRows(split, shape), shape.head_dim, out);
    return out;
  }

 private:
  // Rows that an eviction leaves. A derived budget that comes from a short first prompt would throw
  // away rows of a later turn that stage 2 reads for free: k rows always fit, as the window does.
  std::int32_t PromptBudget(const RocketKvSplit& split) const {
    const std::int32_t readable = options_.prompt_budget > 0 ? 0 : split.k;
    return std::max({split.prompt_budget, readable, options_.window + 1});
  }

  // Rows of one kv_head at the end of the first turn.
  std::int32_t MaxRows(const RocketKvSplit& split, const TurnShape& shape) const {
    return std::min(shape.prompt_tokens, PromptBudget(split)) + shape.max_new_tokens;
  }

  RocketKvOptions options_;
};

}  // namespace

PolicyInfo RocketKvInfo() {
  PolicyInfo info{
      .name = "rocketkv",
      .keeps =
          "prompt_budget rows per KV head: the last window_size tokens and the rows that they "
          "attend to most",
      .reads = "topk of the kept rows, chosen from chunk minima and maxima in topr channels",
      .state = "minimum and maximum key of each chunk: 1/page_size of what is kept",
      .source = "RocketKV, arXiv:2502.14051",
      .options = {BudgetInfo(),
                  {"window_size", "32",
                   fmt::format("last prompt tokens whose attention scores the prompt; {} to {}",
                               kWindow.low, kWindow.high)},
                  {"kernel_size", "63",
                   fmt::format("width of the max pooling over row scores; odd, {} to {}",
                               kKernel.low, kKernel.high)},
                  {"prompt_budget", "derived",
                   fmt::format("rows kept of the prompt per KV head, window included; auto or "
                               "window_size + 1 to {}",
                               kMaxTokens)},
                  {"split", "derived",
                   "share of the compression (as an exponent) that the eviction takes; auto or 0 "
                   "to 1"}}};
  for (OptionInfo& option : HsaOptionInfos()) {
    info.options.push_back(std::move(option));
  }
  info.options.push_back(LastTokenInfo());
  return info;
}

MadePolicy MakeRocketKv(const MethodString& given) {
  RocketKvOptions options;
  const std::vector<OptionInfo> known = RocketKvInfo().options;
  OptionReader reader(given, known);
  ReadHsaOptions(reader, options);
  reader.Int("window_size", kWindow, options.window);
  reader.Int("kernel_size", kKernel, options.kernel);
  reader.Int("prompt_budget", {.low = options.window + 1, .high = kMaxTokens, .automatic = true},
             options.prompt_budget);
  reader.FractionOrAuto("split", options.split);
  if (!reader.status().ok()) {
    return reader.status();
  }
  return std::unique_ptr<const Policy>(std::make_unique<RocketKv>(options));
}

}  // namespace rkv::policy
