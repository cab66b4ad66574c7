// Building blocks of selectors: kernel calls that count what they read, and checks.
#ifndef RKV_POLICY_SCORE_BLOCKS_H_
#define RKV_POLICY_SCORE_BLOCKS_H_

#include <cstdint>
#include <span>
#include <string_view>

#include "policy/policy.h"

namespace rkv::policy {

// Scores of a step in memory of a frame.
struct ChunkScores {
  std::span<float> u;              // [chunks], sum over the heads
  const float* by_head = nullptr;  // [group][chunks]; null unless asked for
};

// HSA's estimate over `channels` channels of the index (Backend::chunk_scores); its bytes go to
// `read`. With chunks of one row this is SparQ's estimate.
ChunkScores ScoreChunks(const HeadDecode& in, const kv::IndexView& index, std::int32_t channels,
                        bool by_head, Scratch::Frame& frame, Rows& read);

// scores [group][slots] become the softmax of every head; returns their sum over the heads [slots],
// in memory of `frame`.
std::span<float> SumOfSoftmaxes(std::span<float> scores, std::int32_t group, std::int32_t slots,
                                Scratch::Frame& frame);

// Reads the k best slots: scores is [slots].
void ReadBest(const HeadDecode& in, std::span<const float> scores, std::int32_t k, Rows& read);
// Lets every query head read its own k best slots: scores is [group][slots].
void ReadBestOfHeads(const HeadDecode& in, std::span<const float> scores, std::int32_t k,
                     Rows& read);

// Errors: kInvalidArgument when a given option (not 0) is above `most`, which is `what`.
Status CheckAtMost(std::string_view option, std::int32_t value, std::int32_t most,
                   std::string_view what);
// The same for an option that may be 0 and is never "auto".
Status CheckUpTo(std::string_view option, std::int32_t value, std::int32_t most,
                 std::string_view what);

}  // namespace rkv::policy

#endif  // RKV_POLICY_SCORE_BLOCKS_H_
