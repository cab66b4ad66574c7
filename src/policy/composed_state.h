// ComposedState: the states of a method's two parts, as one.
#ifndef RKV_POLICY_COMPOSED_STATE_H_
#define RKV_POLICY_COMPOSED_STATE_H_

#include <memory>
#include <span>

#include "policy/head_state.h"
#include "policy/policy.h"

namespace rkv::policy {

struct ComposedState final : HeadState {
  std::unique_ptr<HeadState> evictor, selector;  // null: that part keeps none

  Status Build(const StateBuild& build) override;
  Status Append(const kv::SlotView& rows) override {
    return ForBoth([&](HeadState& part) { return part.Append(rows); });
  }
  void Truncate(const kv::SlotView& rows) override {
    for (HeadState* part : {evictor.get(), selector.get()}) {
      if (part != nullptr) {
        part->Truncate(rows);
      }
    }
  }
  Status Keep(const kv::SlotView& rows, std::span<const std::int32_t> kept) override {
    return ForBoth([&](HeadState& part) { return part.Keep(rows, kept); });
  }

 private:
  template <class Fn>
  Status ForBoth(const Fn& fn) {
    Status status = evictor == nullptr ? Status() : fn(*evictor);
    return status.ok() && selector != nullptr ? fn(*selector) : status;
  }
};

// The same step or head with the state of one part.
inline HeadDecode OfEvictor(HeadDecode in) {
  in.state = in.state == nullptr ? nullptr : static_cast<ComposedState*>(in.state)->evictor.get();
  return in;
}
inline HeadDecode OfSelector(HeadDecode in) {
  in.state = in.state == nullptr ? nullptr : static_cast<ComposedState*>(in.state)->selector.get();
  return in;
}
inline HeadPrefill OfEvictor(HeadPrefill in) {
  in.state =
      in.state == nullptr ? nullptr : static_cast<const ComposedState*>(in.state)->evictor.get();
  return in;
}
inline HeadPrefill OfSelector(HeadPrefill in) {
  in.state =
      in.state == nullptr ? nullptr : static_cast<const ComposedState*>(in.state)->selector.get();
  return in;
}

// Each part sees its own state of the turn before.
inline Status ComposedState::Build(const StateBuild& build) {
  const HeadPrefill given = build.prefill == nullptr ? HeadPrefill() : *build.prefill;
  const auto with = [&](const HeadPrefill& prefill) {
    StateBuild part = build;
    part.prefill = build.prefill == nullptr ? nullptr : &prefill;
    return part;
  };
  const HeadPrefill of_evictor = OfEvictor(given);
  const HeadPrefill of_selector = OfSelector(given);
  Status status;
  if (evictor != nullptr) {
    status = evictor->Build(with(of_evictor));
  }
  if (status.ok() && selector != nullptr) {
    status = selector->Build(with(of_selector));
  }
  return status;
}

}  // namespace rkv::policy

#endif  // RKV_POLICY_COMPOSED_STATE_H_
