// Building blocks of selectors: kernel calls that count what they read, and checks.
#ifndef RKV_POLICY_SCORE_BLOCKS_H_
#define RKV_POLICY_SCORE_BLOCKS_H_

#include <cstdint>
#include <span>
#include <string_view>

#include "policy/policy.h"

namespace rkv::policy {

// u[chunk] of HSA's estimate over `channels` channels of the index, in memory of `frame`
// (Backend::chunk_scores); its bytes go to `read`. With chunks of one row this is SparQ's estimate.
std::span<float> ScoreChunks(const HeadDecode& in, const kv::IndexView& index,
                             std::int32_t channels, Scratch::Frame& frame, Rows& read);

// Errors: kInvalidArgument when a given option (not 0) is above `most`, which is `what`.
Status CheckAtMost(std::string_view option, std::int32_t value, std::int32_t most,
                   std::string_view what);

}  // namespace rkv::policy

#endif  // RKV_POLICY_SCORE_BLOCKS_H_
