// Two classes of heads under one budget: some keep all rows, the others few.
#ifndef RKV_POLICY_HEAD_CLASSES_H_
#define RKV_POLICY_HEAD_CLASSES_H_

#include <cstdint>

namespace rkv::policy {

// How many of `heads` may keep all of `rows` rows when the others keep `few`, so that the mean is
// at most `budget`. Pure.
std::int32_t FullHeads(std::int32_t heads, std::int32_t budget, std::int32_t rows,
                       std::int32_t few);

// The mean over `heads`, of which `full` have `rows` and the others `few` rows; rounded up.
std::int64_t MeanRows(std::int64_t heads, std::int64_t full, std::int64_t rows, std::int64_t few);

}  // namespace rkv::policy

#endif  // RKV_POLICY_HEAD_CLASSES_H_
