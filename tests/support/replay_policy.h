// A policy's choices, recorded in one run and imposed on another: then two ways to compute the same
// thing can be compared to the last bits, although near ties between rows may fall either way.
#ifndef RKV_TESTS_SUPPORT_REPLAY_POLICY_H_
#define RKV_TESTS_SUPPORT_REPLAY_POLICY_H_

#include <algorithm>
#include <iterator>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "policy/policy.h"
#include "support/forwarding_policy.h"

namespace rkv::test {

// What Evict and Select chose, in order of the calls: the pool must have one thread.
struct Choices {
  std::vector<policy::Rows> evict;
  std::vector<policy::Rows> select;
};

// How a run's own choices differ from those imposed on it.
struct Disagreement {
  std::size_t rows = 0;       // chosen in the recorded run
  std::size_t differing = 0;  // of them, not chosen by the run itself
  double share() const {
    return rows == 0 ? 0.0 : static_cast<double>(differing) / static_cast<double>(rows);
  }
};

// Records into *record, or imposes *replay and counts into *disagreement.
class ReplayPolicy final : public ForwardingPolicy {
 public:
  ReplayPolicy(std::unique_ptr<const policy::Policy> inner, Choices* record)
      : ForwardingPolicy(std::move(inner)), record_(record) {}
  ReplayPolicy(std::unique_ptr<const policy::Policy> inner, const Choices* replay,
               Disagreement* disagreement)
      : ForwardingPolicy(std::move(inner)), replay_(replay), disagreement_(disagreement) {}

  Status Evict(const policy::LayerPrefill& in, std::span<policy::Rows> keep) const override {
    Status status = inner().Evict(in, keep);
    for (policy::Rows& rows : keep) {
      Settle(rows, record_ ? &record_->evict : nullptr, replay_ ? &replay_->evict : nullptr,
             &evict_calls_);
    }
    return status;
  }
  Status Select(const policy::HeadDecode& in, policy::Rows& read) const override {
    Status status = inner().Select(in, read);
    Settle(read, record_ ? &record_->select : nullptr, replay_ ? &replay_->select : nullptr,
           &select_calls_);
    return status;
  }

 private:
  void Settle(policy::Rows& rows, std::vector<policy::Rows>* record,
              const std::vector<policy::Rows>* replay, std::size_t* calls) const {
    if (record != nullptr) {
      record->push_back(rows);
      return;
    }
    const policy::Rows& imposed = replay->at((*calls)++);
    if (!imposed.all) {
      std::vector<std::int32_t> missing;
      std::ranges::set_difference(imposed.list, rows.list, std::back_inserter(missing));
      disagreement_->rows += imposed.list.size();
      disagreement_->differing += rows.all ? imposed.list.size() : missing.size();
    } else if (!rows.all) {
      disagreement_->differing += rows.list.size();
    }
    rows = imposed;
  }

  Choices* record_ = nullptr;
  const Choices* replay_ = nullptr;
  Disagreement* disagreement_ = nullptr;
  mutable std::size_t evict_calls_ = 0;
  mutable std::size_t select_calls_ = 0;
};

}  // namespace rkv::test

#endif  // RKV_TESTS_SUPPORT_REPLAY_POLICY_H_
