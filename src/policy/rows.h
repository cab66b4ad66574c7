// Operations on Rows.
#ifndef RKV_POLICY_ROWS_H_
#define RKV_POLICY_ROWS_H_

#include <cstdint>
#include <span>

#include "policy/policy.h"

namespace rkv::policy {

// Leaves in `read` what `live` has too. Lists of a query head meet that head's list.
void Intersect(const Rows& live, Rows& read);

// Slots that some head of the group reads, ascending; `rows` must not be all.
std::vector<std::int32_t> Union(const Rows& rows);

}  // namespace rkv::policy

#endif  // RKV_POLICY_ROWS_H_
