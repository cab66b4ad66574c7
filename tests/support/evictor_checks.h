// What holds for the rows that any evictor keeps.
#ifndef RKV_TESTS_SUPPORT_EVICTOR_CHECKS_H_
#define RKV_TESTS_SUPPORT_EVICTOR_CHECKS_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <numeric>
#include <string>
#include <vector>

#include "policy/policy.h"

namespace rkv::test {

using RowsList = std::vector<std::int32_t>;

// The slots of `keep` spelled out.
inline RowsList Spelled(const policy::Rows& keep, std::int32_t rows) {
  RowsList list = keep.list;
  if (keep.all) {
    list.resize(static_cast<std::size_t>(rows));
    std::iota(list.begin(), list.end(), 0);
  }
  return list;
}

// Ascending, unique, of the `rows` there are, with the last `window` of them.
inline void ExpectValid(const policy::Rows& keep, std::int32_t rows, std::int32_t window,
                        const std::string& what) {
  const RowsList list = Spelled(keep, rows);
  EXPECT_TRUE(std::ranges::adjacent_find(list, std::greater_equal<>()) == list.end()) << what;
  ASSERT_GE(static_cast<std::int32_t>(list.size()), std::min(rows, window)) << what;
  for (std::int32_t i = 1; i <= std::min(rows, window); ++i) {
    EXPECT_EQ(list[list.size() - static_cast<std::size_t>(i)], rows - i) << what;
  }
  if (!list.empty()) {
    EXPECT_GE(list.front(), 0) << what;
    EXPECT_LT(list.back(), rows) << what;
  }
}

inline std::int64_t Total(const std::vector<policy::Rows>& keep, std::int32_t rows) {
  std::int64_t sum = 0;
  for (const policy::Rows& head : keep) {
    sum += static_cast<std::int64_t>(Spelled(head, rows).size());
  }
  return sum;
}

}  // namespace rkv::test

#endif  // RKV_TESTS_SUPPORT_EVICTOR_CHECKS_H_
