#include "engine/pass_key_texts.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "base/rng.h"

namespace rkv::engine {
namespace {

constexpr std::array<std::string_view, 10> kFiller = {
    "The river ran quietly past the mill and the old stone bridge.",
    "Nobody had counted the boats that came back before the storm.",
    "In the market the first apples of the year were sold in baskets.",
    "A letter takes four days from the coast to the capital.",
    "The library closes at six, except on the last day of the month.",
    "Two of the lamps in the long corridor had gone out again.",
    "Every morning the baker opens the shutters before the sun is up.",
    "The hills to the north are covered with pine and heather.",
    "A clerk wrote the numbers into a ledger and locked it away.",
    "The train was late, and the passengers waited in the hall.",
};
constexpr std::array<std::string_view, 10> kNames = {
    "garden", "harbour", "archive",    "observatory", "workshop",
    "chapel", "granary", "lighthouse", "foundry",     "orchard",
};
constexpr std::size_t kKeys = 5;

std::int32_t Words(std::string_view text) {
  return static_cast<std::int32_t>(std::ranges::count(text, ' ')) + 1;
}

std::string Text(Rng& rng, std::int32_t words) {
  std::array<std::string_view, kNames.size()> names = kNames;
  for (std::size_t i = names.size() - 1; i > 0; --i) {
    std::swap(names[i], names[rng.Below(i + 1)]);
  }
  std::array<std::uint64_t, kKeys> keys;
  std::ranges::generate(keys, [&] { return 10000 + rng.Below(90000); });
  std::string text = "Some pass keys are hidden in this text. Remember them.\n\n";
  std::size_t hidden = 0;
  for (std::int32_t count = 0; count < words;) {
    const std::string_view sentence = kFiller[rng.Below(kFiller.size())];
    count += Words(sentence);
    text.append(sentence).append(" ");
    // Keys lie in the middles of equal parts.
    const auto due =
        static_cast<std::int32_t>((2 * hidden + 1) * static_cast<std::size_t>(words) / (2 * kKeys));
    if (hidden < kKeys && count >= due) {
      text += fmt::format("The pass key of the {} is {}. ", names[hidden], keys[hidden]);
      ++hidden;
    }
  }
  text += "\n";
  for (std::size_t i = 0; i < hidden; ++i) {
    text += fmt::format("\nWhat is the pass key of the {}? The pass key of the {} is {}.", names[i],
                        names[i], keys[i]);
  }
  return text;
}

}  // namespace

std::vector<std::string> PassKeyTexts(std::int32_t count, std::int32_t words) {
  Rng rng(20241014);
  std::vector<std::string> texts;
  for (std::int32_t i = 0; i < count; ++i) {
    texts.push_back(Text(rng, words));
  }
  return texts;
}

}  // namespace rkv::engine
