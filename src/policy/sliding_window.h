// SlidingWindow: the first rows of a conversation and the last ones stay, what lies between goes.
#ifndef RKV_POLICY_SLIDING_WINDOW_H_
#define RKV_POLICY_SLIDING_WINDOW_H_

#include <cstdint>

#include "policy/policy.h"

namespace rkv::policy {

// Needs no state: slots ascend by position and the sinks never go, so that the window follows from
// the number of slots alone. That holds after a prompt, after a rewind and with slots that have
// left the window but are not dropped yet. Policy specification 2.11, variant B.
struct SlidingWindow {
  std::int32_t sinks = 0;   // s
  std::int32_t recent = 0;  // R, the current token included

  std::int32_t rows() const { return sinks + recent; }
  // The window's slots of `slots`; all while they are no more than rows(). `out` is given as all.
  void Fill(std::int32_t slots, Rows& out) const;
  // After a step: as Fill once enough slots have left the window (WorthDropping), else all.
  void Drop(std::int32_t slots, Rows& keep) const;
};

}  // namespace rkv::policy

#endif  // RKV_POLICY_SLIDING_WINDOW_H_
