#include "attention/pool_rows.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "support/random.h"

namespace rkv::attention {
namespace {

using testing::ElementsAre;

std::vector<float> Pool(const std::vector<float>& in, std::int32_t kernel) {
  std::vector<float> out(in.size(), 99.0f);
  MaxPoolRows(in, kernel, out);
  return out;
}

std::vector<float> PlainPool(const std::vector<float>& in, std::int32_t kernel) {
  const auto half = static_cast<std::size_t>(kernel / 2);
  std::vector<float> out;
  for (std::size_t j = 0; j < in.size(); ++j) {
    const std::size_t first = j < half ? 0 : j - half;
    const std::size_t last = std::min(in.size(), j + half + 1);
    out.push_back(*std::max_element(in.begin() + static_cast<std::ptrdiff_t>(first),
                                    in.begin() + static_cast<std::ptrdiff_t>(last)));
  }
  return out;
}

TEST(MaxPoolRows, GivesVectorE2) {
  EXPECT_THAT(Pool({.30f, .02f, .05f, .01f, .40f, .03f, .02f, .04f}, 3),
              ElementsAre(.30f, .30f, .05f, .40f, .40f, .40f, .04f, .04f));
}

TEST(MaxPoolRows, IgnoresWhatLiesOutside) {
  EXPECT_THAT(Pool({-3.0f, -1.0f, -2.0f}, 3), ElementsAre(-1.0f, -1.0f, -1.0f));
  EXPECT_THAT(Pool({}, 63), ElementsAre());
}

TEST(MaxPoolRows, EqualsTheDefinitionForAnyWidth) {
  Rng rng(1);
  for (const std::int32_t kernel : {1, 3, 5, 63, 64 * 2 + 1, 2001}) {
    for (const std::size_t n : {1u, 2u, 3u, 31u, 32u, 62u, 63u, 64u, 65u, 127u, 500u}) {
      const auto in = test::NormalVector(rng, n);
      EXPECT_EQ(Pool(in, kernel), PlainPool(in, kernel)) << kernel << " on " << n;
    }
  }
}

}  // namespace
}  // namespace rkv::attention
