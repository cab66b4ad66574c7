#include "cli/progress.h"

#include <gtest/gtest.h>

namespace rkv::cli {
namespace {

TEST(FormatProgress, CountsLayersAndPieces) {
  // Layer 3 of 0..9, half of its tokens: 35 %. 350 of 1000 tokens' work in 10 s.
  EXPECT_EQ(FormatProgress({3, 10, 500, 1000}, 10),
            "prefill  35% [#######-------------]  35 tok/s  ETA 0:19");
}

TEST(FormatProgress, NamesNoRateBeforeTheFirstPiece) {
  EXPECT_EQ(FormatProgress({0, 10, 0, 1000}, 1), "prefill   0% [--------------------]");
  EXPECT_EQ(FormatProgress({}, 1), "prefill   0% [--------------------]");
}

TEST(FormatProgress, EndsAtAHundred) {
  EXPECT_EQ(FormatProgress({9, 10, 1000, 1000}, 2),
            "prefill 100% [####################]  500 tok/s  ETA 0:00");
}

TEST(FormatProgress, FitsANarrowTerminal) {
  EXPECT_LE(FormatProgress({0, 80, 512, 2'000'000'000}, 1e9).size(), 70U);
}

}  // namespace
}  // namespace rkv::cli
