#include "policy/hsa_beyond.h"

#include <array>
#include <string_view>

#include "policy/value_mean.h"

namespace rkv::policy {
namespace {

constexpr std::array<std::string_view, 2> kComplete = {"no", "mean"};

}  // namespace

void HsaBeyond::Show(OptionVisitor& options) {
  options.Number("top_p", top_p_, {.low = 0, .high = 1},
                 "only the best rows with this share of the estimated attention, at most topk");
  options.Int("force_first", forced_.first, {.low = 0, .high = kMaxTokens},
              "first rows that every step reads, of topk");
  options.Int("force_last", forced_.last, {.low = 0, .high = kMaxTokens},
              "last rows that every step reads, of topk");
  options.Choice("complete", complete_, kComplete,
                 "rows that are not read count by their mean value and estimated attention");
}

Status HsaBeyond::Check(std::int32_t k) const {
  const Status status = CheckUpTo("force_first", forced_.first, k, "topk");
  return status.ok() ? CheckUpTo("force_last", forced_.last, k - forced_.first,
                                 "what force_first leaves of topk")
                     : status;
}

Choice HsaBeyond::ChoiceOf(std::int32_t k, const HeadState& state) const {
  return {.k = k,
          .forced = forced_,
          .top_p = top_p_,
          .mean_value =
              completes() ? static_cast<const CompletedChunks&>(state).mean_value() : nullptr};
}

}  // namespace rkv::policy
