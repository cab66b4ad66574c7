// Operations on Rows.
#ifndef RKV_POLICY_ROWS_H_
#define RKV_POLICY_ROWS_H_

#include <cstdint>
#include <span>
#include <vector>

#include "policy/policy.h"

namespace rkv::policy {

// Leaves in `read` what `live` has too. Lists of a query head meet that head's list. A list that
// would be left empty becomes that of `live`: a head must read something.
void Intersect(const Rows& live, Rows& read);

// Slots that some head of the group reads, ascending; `rows` must not be all.
std::vector<std::int32_t> Union(const Rows& rows);

// Where those of `slots` that are in `kept` (both ascending) stand there: what slots are called
// once only `kept` are left.
std::vector<std::int32_t> PlacesIn(std::span<const std::int32_t> kept,
                                   std::span<const std::int32_t> slots);

// Whether to drop `dead` slots beside `live` ones now. Compaction moves up to `live` rows: once a
// eighth of them are dead it costs no more than 8 rows a step, 64 dead ones are few beside any
// more. Fewer would also be most of what a selector finds among a few live ones.
bool WorthDropping(std::int32_t live, std::int32_t dead);

}  // namespace rkv::policy

#endif  // RKV_POLICY_ROWS_H_
