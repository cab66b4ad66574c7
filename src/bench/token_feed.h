// TokenFeed: the ids that every engine gets, the same for all.
#ifndef RKV_BENCH_TOKEN_FEED_H_
#define RKV_BENCH_TOKEN_FEED_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "rkv/options.h"

namespace rkv::bench {

// Two endless sequences of ids: the prompt's, and those that decode tests feed. Immutable.
class TokenFeed {
 public:
  // Seeded ids in [0, vocab) for `prompt_tokens` and `decode_tokens`. REQUIRES: vocab > 0.
  static TokenFeed Random(std::int32_t vocab, std::int32_t prompt_tokens,
                          std::int32_t decode_tokens, std::uint64_t seed);
  // The prompt repeats `text` as often as needed; decode tests feed ids of the text too, at seeded
  // places. REQUIRES: text is not empty.
  static TokenFeed Text(std::span<const Token> text, std::int32_t prompt_tokens,
                        std::int32_t decode_tokens, std::uint64_t seed);

  // `count` ids of the prompt from `first` on. REQUIRES: within prompt_tokens.
  std::span<const Token> prompt(std::int32_t first, std::int32_t count) const;
  // The id of a decode test's step. REQUIRES: within decode_tokens.
  Token decoded(std::int32_t step) const { return decode_[static_cast<std::size_t>(step)]; }

 private:
  std::vector<Token> prompt_;
  std::vector<Token> decode_;
};

}  // namespace rkv::bench

#endif  // RKV_BENCH_TOKEN_FEED_H_
