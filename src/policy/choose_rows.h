// Which slots a step reads, given the scores of their chunks: rows that are always read, and the
// best of the others.
#ifndef RKV_POLICY_CHOOSE_ROWS_H_
#define RKV_POLICY_CHOOSE_ROWS_H_

#include <cstdint>
#include <span>
#include <vector>

#include "policy/policy.h"
#include "policy/score_blocks.h"

namespace rkv::policy {

// Slots that are read whatever their score: sinks and a local window. They count in k; where they
// are more than k, the last ones come first.
struct ForcedRows {
  std::int32_t first = 0;
  std::int32_t last = 0;
};

// min(k, slots) slots to `out`, ascending: the forced ones and the best others when all rows of a
// chunk share the score u[chunk]. Order: higher score, then lower slot.
// Cost: O(chunks + k); with sinks and chunks of several rows O(slots).
// Source: policy specification 2.1, stage 2, step 7, and rule 0.2.5.
void ChooseRows(const HeadDecode& in, std::span<const float> u, std::int32_t chunk_rows,
                std::int32_t k, const ForcedRows& forced, std::vector<std::int32_t>& out);

// Drops the worst of `rows` (not the forced ones) while the sum of u over what is left is at least
// `mass`; one row always stays. O(rows log rows).
// Source: Twilight, arXiv:2502.02770; policy specification section 3.
void CutAtMass(std::span<const float> u, std::int32_t chunk_rows, std::int32_t slots,
               const ForcedRows& forced, double mass, std::vector<std::int32_t>& rows);

// Completion: read.share [group] becomes each head's mass on read.list, at most 1.
// by_head: [group][chunks], each head's softmax by row of the chunk.
// Source: SparQ, arXiv:2312.04985; policy specification 2.6 (c).
void ShareByMass(const float* by_head, std::size_t chunks, std::int32_t chunk_rows,
                 std::int32_t group, Rows& read);

struct Choice {
  std::int32_t k = 0;
  ForcedRows forced = {};
  double top_p = 1;                   // below 1: CutAtMass at this share of the softmaxes
  const float* mean_value = nullptr;  // completion by it; needs ChunkScores::by_head
};

// All of the above: fills read.list, and share and mean_value where completion is wanted.
void ReadChosen(const HeadDecode& in, const ChunkScores& scores, std::int32_t chunk_rows,
                const Choice& choice, Rows& read);

}  // namespace rkv::policy

#endif  // RKV_POLICY_CHOOSE_ROWS_H_
