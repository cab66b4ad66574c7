// A prompt's attention as a whole matrix, its sums as the engine gathers them, and token classes.
#ifndef RKV_TESTS_SUPPORT_PROMPT_ATTENTION_H_
#define RKV_TESTS_SUPPORT_PROMPT_ATTENTION_H_

#include <cmath>
#include <cstdint>
#include <numeric>
#include <vector>

#include "base/rng.h"
#include "policy/policy.h"

namespace rkv::test {

using policy::TokenClass;

// Special tokens and punctuation here and there.
inline TokenClass ClassAt(std::int32_t position) {
  return position % 50 == 20  ? TokenClass::kSpecial
         : position % 11 == 3 ? TokenClass::kPunctuation
                              : TokenClass::kWord;
}

inline std::vector<TokenClass> Classes(std::int32_t tokens) {
  std::vector<TokenClass> classes;
  for (std::int32_t p = 0; p < tokens; ++p) {
    classes.push_back(ClassAt(p));
  }
  return classes;
}

// A prompt's causal attention, [query][row] summed over the group, and what the engine sums of it.
struct Attention {
  Attention(std::int32_t tokens, std::int32_t group, std::int32_t band, std::uint64_t seed)
      : weights(static_cast<std::size_t>(tokens)) {
    Rng rng(seed);
    column.resize(weights.size());
    near.resize(weights.size());
    for (std::size_t i = 0; i < weights.size(); ++i) {
      weights[i].resize(i + 1);
      for (std::int32_t g = 0; g < group; ++g) {
        std::vector<double> row;
        for (std::size_t j = 0; j <= i; ++j) {
          row.push_back(std::exp(2.0 * static_cast<double>(rng.Normal())));
        }
        const double sum = std::accumulate(row.begin(), row.end(), 0.0);
        for (std::size_t j = 0; j <= i; ++j) {
          weights[i][j] += row[j] / sum;
        }
      }
      for (std::size_t j = 0; j <= i; ++j) {
        column[j] += static_cast<float>(weights[i][j]);
        if (static_cast<std::int32_t>(i - j) < band) {
          near[j] += static_cast<float>(weights[i][j]);
        }
      }
    }
  }
  std::vector<std::vector<double>> weights;
  std::vector<float> column, near;
};

}  // namespace rkv::test

#endif  // RKV_TESTS_SUPPORT_PROMPT_ATTENTION_H_
