// Running a test once for every instruction set that was compiled and that this CPU has.
#ifndef RKV_TESTS_SUPPORT_HWY_TARGETS_H_
#define RKV_TESTS_SUPPORT_HWY_TARGETS_H_

#include <gtest/gtest.h>

#include <cstdint>

#include "hwy/highway.h"

namespace rkv::test {

// Calls `body` with each target chosen in turn, then restores the normal choice. Include the
// library's list of targets (attention/cpu/targets.h) before this header.
template <class Body>
void ForEachTarget(const Body& body) {
  for (const std::int64_t target : hwy::SupportedAndGeneratedTargets()) {
    SCOPED_TRACE(hwy::TargetName(target));
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
    body();
  }
  hwy::SetSupportedTargetsForTest(0);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

}  // namespace rkv::test

#endif  // RKV_TESTS_SUPPORT_HWY_TARGETS_H_
