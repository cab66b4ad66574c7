#include "policy/hsa_options.h"

#include <fmt/format.h>

#include "policy/stages.h"

namespace rkv::policy {
namespace {

constexpr IntRange kBudget{.low = 16, .high = kMaxTokens};
constexpr IntRange kTopK{.low = 1, .high = kMaxTokens, .automatic = true};
constexpr IntRange kTopR{.low = 1, .high = 65536, .automatic = true};
constexpr double kMaxBypass = 64;
constexpr IntRange kPageSize{.low = 1, .high = 65536, .automatic = true};

}  // namespace

OptionInfo BudgetInfo() {
  return {"budget", "1024",
          fmt::format("tokens of KV traffic one KV head may cause per decoded token, estimate "
                      "included; {} to {}",
                      kBudget.low, kBudget.high)};
}

std::vector<OptionInfo> HsaOptionInfos() {
  return {
      {"topk", "derived",
       fmt::format("rows read exactly per step; auto (half the budget) or {} to {}", kTopK.low,
                   kTopK.high)},
      {"topr", "derived",
       fmt::format("channels used for the estimate; auto or {} to the head dimension", kTopR.low)},
      {"page_size", "derived",
       fmt::format("rows summarised by one chunk; auto or {} to {}", kPageSize.low,
                   kPageSize.high)},
      {"bypass", "1.6",
       fmt::format("all rows are read while they are at most so many times what a step would "
                   "otherwise read, as choosing takes time too; 1 (never more bytes) to {}",
                   kMaxBypass)},
  };
}

OptionInfo LastTokenInfo() {
  return {"last_token", "decode",
          "where the last prompt token goes: decode (the first decoded step, after the eviction) "
          "or prefill"};
}

void ReadHsaOptions(OptionReader& reader, RocketKvOptions& options) {
  reader.Int("budget", kBudget, options.budget);
  reader.Int("topk", kTopK, options.top_k);
  reader.Int("topr", kTopR, options.top_r);
  reader.Int("page_size", kPageSize, options.chunk_rows);
  reader.Number("bypass", 1, kMaxBypass, options.bypass);
  reader.Choice("last_token", "prefill", "decode", options.prefill_last_token);
}

std::string ValueOrAuto(std::int32_t value) {
  return value > 0 ? fmt::format("{}", value) : "auto";
}

std::string HsaSpec(const RocketKvOptions& options) {
  return fmt::format(",topk={},topr={},page_size={},bypass={},last_token={}",
                     ValueOrAuto(options.top_k), ValueOrAuto(options.top_r),
                     ValueOrAuto(options.chunk_rows), options.bypass,
                     options.prefill_last_token ? "prefill" : "decode");
}

Status CheckHsaShape(const RocketKvOptions& options, const TurnShape& shape) {
  if (options.top_r > shape.head_dim) {
    return Status(Code::kInvalidArgument,
                  fmt::format("option 'topr' is '{}', allowed: auto or a whole number from 1 to "
                              "{}, the model's head dimension",
                              options.top_r, shape.head_dim));
  }
  return {};
}

void ExplainHsa(const RocketKvSplit& split, std::int32_t max_rows, std::int32_t head_dim,
                std::vector<std::pair<std::string, double>>& out) {
  const bool all = ReadsAllRows(split, max_rows, head_dim);
  const double total = HsaTraffic(split, max_rows, head_dim);
  out.emplace_back("topk", split.k);
  out.emplace_back("c2", split.c2);
  out.emplace_back("page_size", split.chunk_rows);
  out.emplace_back("topr", split.channels);
  out.emplace_back("max_rows", max_rows);
  out.emplace_back("estimation_traffic", all ? 0.0 : total - split.k);
  out.emplace_back("total_traffic", all ? max_rows : total);
  out.emplace_back("reads_all", all ? 1.0 : 0.0);
}

}  // namespace rkv::policy
