// ComposedPolicy: every method is an evictor, a selector or both under one budget.
#ifndef RKV_POLICY_COMPOSED_H_
#define RKV_POLICY_COMPOSED_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "policy/budget_split.h"
#include "policy/parts.h"
#include "policy/policy.h"

namespace rkv::policy {

// What a method is made of. No evictor: everything is kept; no selector: everything kept is read.
struct Parts {
  std::unique_ptr<Evictor> evictor = nullptr;
  std::unique_ptr<Selector> selector = nullptr;
  bool park = false;   // rows that are dropped stay for later turns
  double alpha = 0.5;  // of SplitOptions, where there are both parts
};

// An evictor alone keeps t rows, a selector alone moves t rows' worth a step. Both: the evictor
// leaves what SplitBudget says, the selector moves t rows' worth a step of that.
class ComposedPolicy final : public Policy {
 public:
  // `prefix`: how the string of this method begins, "rocketkv" or "evict=snapkv,select=hsa".
  ComposedPolicy(std::string_view name, std::string prefix, Parts parts);

  // Shows all options; what a reader changes holds from then on. One of the selector whose name the
  // evictor uses too is shown as select_NAME.
  void Options(OptionVisitor& visitor);

  // Once all options are read. Errors: those of the evictor's files.
  Status Load() { return parts_.evictor == nullptr ? Status() : parts_.evictor->Load(); }

  std::string_view name() const override { return name_; }
  std::string spec() const override { return spec_; }
  // The window was asked for: one longer than the prompt is then an error, not cut.
  void HoldToWindow() { window_given_ = true; }
  // Spells the options out once they are read.
  void FixSpec();

  TurnShape Plan(const TurnShape& shape) const override;
  Status CheckShape(const TurnShape& shape) const override;
  Needs needs(const TurnShape& shape) const override;
  std::int64_t RowsKept(const TurnShape& shape, std::int64_t rows) const override;
  std::size_t StateBytes(const TurnShape& shape, kv::Codec codec, std::int64_t rows) const override;
  std::vector<std::pair<std::string, double>> Explain(const TurnShape& shape) const override;
  std::unique_ptr<HeadState> NewState(const StateShape& shape) const override;
  void Score(const LayerPrefill& layer, const HeadPrefill& in,
             std::vector<float>& scores) const override;
  Status Evict(const LayerPrefill& in, std::span<Rows> keep) const override;
  void ExactKeys(const TurnShape& shape, const HeadState& state, std::int32_t slots,
                 std::vector<std::int32_t>& exact) const override;
  Status Select(const HeadDecode& in, Rows& read) const override;
  Status Observe(const HeadDecode& in, const Rows& read, std::span<const float> log_sum,
                 Rows& keep) const override;

 private:
  bool two_stages() const { return parts_.evictor != nullptr && parts_.selector != nullptr; }
  // Rows that the answer's last step may read, of `kept` rows of the prompt.
  std::int32_t RowsAtEnd(const TurnShape& shape, std::int32_t kept) const;
  // Whether a step over `slots` slots reads them all: k covers them, or they are at most `bypass`
  // times what the step would move. Once false, false for more slots.
  // Source: policy specification 0.2.6 and U2.
  bool ReadsAll(const TurnShape& shape, std::int32_t slots) const;

  std::string name_;
  std::string prefix_;
  std::string spec_;
  Parts parts_;
  SplitOptions split_;
  double bypass_ = 1.6;
  bool prefill_last_token_ = false;
  bool window_given_ = false;
};

}  // namespace rkv::policy

#endif  // RKV_POLICY_COMPOSED_H_
