// A policy that passes every call on to another: the base of test policies that watch or change
// some.
#ifndef RKV_TESTS_SUPPORT_FORWARDING_POLICY_H_
#define RKV_TESTS_SUPPORT_FORWARDING_POLICY_H_

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "policy/policy.h"

namespace rkv::test {

class ForwardingPolicy : public policy::Policy {
 public:
  explicit ForwardingPolicy(std::unique_ptr<const policy::Policy> inner)
      : inner_(std::move(inner)) {}

  std::string_view name() const override { return inner_->name(); }
  std::string spec() const override { return inner_->spec(); }
  policy::TurnShape Plan(const policy::TurnShape& shape) const override {
    return inner_->Plan(shape);
  }
  Status CheckShape(const policy::TurnShape& shape) const override {
    return inner_->CheckShape(shape);
  }
  policy::Needs needs(const policy::TurnShape& shape) const override {
    return inner_->needs(shape);
  }
  std::int64_t RowsKept(const policy::TurnShape& shape, std::int64_t rows) const override {
    return inner_->RowsKept(shape, rows);
  }
  std::size_t StateBytes(const policy::TurnShape& shape, kv::Codec codec,
                         std::int64_t rows) const override {
    return inner_->StateBytes(shape, codec, rows);
  }
  std::vector<std::pair<std::string, double>> Explain(
      const policy::TurnShape& shape) const override {
    return inner_->Explain(shape);
  }
  std::unique_ptr<policy::HeadState> NewState(const policy::StateShape& shape) const override {
    return inner_->NewState(shape);
  }
  void Score(const policy::LayerPrefill& layer, const policy::HeadPrefill& in,
             std::vector<float>& scores) const override {
    inner_->Score(layer, in, scores);
  }
  Status Evict(const policy::LayerPrefill& in, std::span<policy::Rows> keep) const override {
    return inner_->Evict(in, keep);
  }
  void ExactKeys(const policy::TurnShape& shape, const policy::HeadState& state, std::int32_t slots,
                 std::vector<std::int32_t>& exact) const override {
    inner_->ExactKeys(shape, state, slots, exact);
  }
  Status Select(const policy::HeadDecode& in, policy::Rows& read) const override {
    return inner_->Select(in, read);
  }
  Status Observe(const policy::HeadDecode& in, const policy::Rows& read,
                 std::span<const float> log_sum, policy::Rows& keep) const override {
    return inner_->Observe(in, read, log_sum, keep);
  }

 protected:
  const policy::Policy& inner() const { return *inner_; }

 private:
  std::unique_ptr<const policy::Policy> inner_;
};

}  // namespace rkv::test

#endif  // RKV_TESTS_SUPPORT_FORWARDING_POLICY_H_
