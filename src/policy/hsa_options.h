// Options of hybrid sparse attention, shared by every method that has it as its second stage.
#ifndef RKV_POLICY_HSA_OPTIONS_H_
#define RKV_POLICY_HSA_OPTIONS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "policy/option_string.h"
#include "policy/policy.h"
#include "policy/rocketkv_split.h"

namespace rkv::policy {

// Largest budget and the like, far above any model's context; keeps sums within 32 bits.
inline constexpr std::int32_t kMaxTokens = 1 << 24;

// "budget", and what stage 2 derives from it unless it is given: "topk", "topr", "page_size".
OptionInfo BudgetInfo();
std::vector<OptionInfo> HsaOptionInfos();
OptionInfo LastTokenInfo();

// Reads budget, topk, topr, page_size, bypass and last_token; errors stay in the reader.
void ReadHsaOptions(OptionReader& reader, RocketKvOptions& options);

// ",topk=…,topr=…,page_size=…,bypass=…,last_token=…".
std::string HsaSpec(const RocketKvOptions& options);
// The value, or "auto" for 0.
std::string ValueOrAuto(std::int32_t value);

// Errors: kInvalidArgument when topr exceeds the head dimension.
Status CheckHsaShape(const RocketKvOptions& options, const TurnShape& shape);

// Appends topk, c2, page_size, topr, and the traffic of a step over max_rows rows: its estimate,
// its total, and whether all rows are read instead (1) because of the dense bypass.
void ExplainHsa(const RocketKvSplit& split, std::int32_t max_rows, std::int32_t head_dim,
                std::vector<std::pair<std::string, double>>& out);

}  // namespace rkv::policy

#endif  // RKV_POLICY_HSA_OPTIONS_H_
