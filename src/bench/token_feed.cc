#include "bench/token_feed.h"

#include "base/check.h"
#include "base/rng.h"

namespace rkv::bench {

TokenFeed TokenFeed::Random(std::int32_t vocab, std::int32_t prompt_tokens,
                            std::int32_t decode_tokens, std::uint64_t seed) {
  Check(vocab > 0, "an empty vocabulary");
  Rng rng(seed);
  const auto draw = [&] {
    return static_cast<Token>(rng.Below(static_cast<std::uint64_t>(vocab)));
  };
  TokenFeed feed;
  for (std::int32_t i = 0; i < prompt_tokens; ++i) {
    feed.prompt_.push_back(draw());
  }
  for (std::int32_t i = 0; i < decode_tokens; ++i) {
    feed.decode_.push_back(draw());
  }
  return feed;
}

TokenFeed TokenFeed::Text(std::span<const Token> text, std::int32_t prompt_tokens,
                          std::int32_t decode_tokens, std::uint64_t seed) {
  Check(!text.empty(), "an empty text");
  Rng rng(seed);
  TokenFeed feed;
  for (std::int32_t i = 0; i < prompt_tokens; ++i) {
    feed.prompt_.push_back(text[static_cast<std::size_t>(i) % text.size()]);
  }
  for (std::int32_t i = 0; i < decode_tokens; ++i) {
    feed.decode_.push_back(text[static_cast<std::size_t>(rng.Below(text.size()))]);
  }
  return feed;
}

std::span<const Token> TokenFeed::prompt(std::int32_t first, std::int32_t count) const {
  return std::span(prompt_).subspan(static_cast<std::size_t>(first),
                                    static_cast<std::size_t>(count));
}

}  // namespace rkv::bench
