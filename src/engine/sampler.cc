#include "engine/sampler.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>

namespace rkv::engine {
namespace {

struct Scored {
  float logit;
  Token token;
};

bool Before(const Scored& a, const Scored& b) {
  return a.logit != b.logit ? a.logit > b.logit : a.token < b.token;
}

bool Usable(float logit) { return logit > -std::numeric_limits<float>::infinity(); }  // not NaN

// exp((logit - largest) / temperature), also where both are infinite.
double Weight(float logit, float largest, double temperature) {
  if (logit == largest) {
    return 1.0;
  }
  return std::exp((static_cast<double>(logit) - static_cast<double>(largest)) / temperature);
}

std::vector<float> Penalised(std::span<const float> logits, const SamplerOptions& options,
                             std::span<const Token> recent) {
  std::vector<float> out(logits.begin(), logits.end());
  for (const Token token : recent) {
    if (token < 0 || static_cast<std::size_t>(token) >= logits.size()) {
      continue;
    }
    const auto i = static_cast<std::size_t>(token);  // from `logits`: a repeated id counts once
    out[i] =
        logits[i] > 0 ? logits[i] / options.repeat_penalty : logits[i] * options.repeat_penalty;
  }
  return out;
}

// Index of the first of the largest usable values, or values.size().
std::size_t FirstLargest(std::span<const float> values) {
  std::size_t best = values.size();
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (Usable(values[i]) && (best == values.size() || values[i] > values[best])) {
      best = i;
    }
  }
  return best;
}

// Leaves the k best, best first.
void KeepTopK(std::int32_t k, std::vector<Scored>& scored) {
  const auto keep = static_cast<std::size_t>(k);
  if (k == 0 || keep >= scored.size()) {
    return;
  }
  std::nth_element(scored.begin(), scored.begin() + k, scored.end(), Before);
  scored.resize(keep);
  std::sort(scored.begin(), scored.end(), Before);
}

// Leaves the fewest best whose probabilities reach p, best first.
void KeepTopP(double p, float largest, std::vector<Scored>& scored) {
  if (p >= 1.0) {
    return;
  }
  double total = 0;
  for (const Scored& s : scored) {
    total += Weight(s.logit, largest, 1.0);
  }
  // Sorts a prefix that doubles until it holds enough: usually a few of a large vocabulary.
  double sum = 0;
  std::size_t sorted = 0;
  for (std::size_t end = 256; sorted < scored.size(); end *= 2) {
    end = std::min(end, scored.size());
    const auto begin = scored.begin() + static_cast<std::ptrdiff_t>(sorted);
    const auto middle = scored.begin() + static_cast<std::ptrdiff_t>(end);
    if (middle != scored.end()) {
      std::nth_element(begin, middle, scored.end(), Before);
    }
    std::sort(begin, middle, Before);
    for (; sorted < end; ++sorted) {
      sum += Weight(scored[sorted].logit, largest, 1.0);
      if (sum >= p * total) {
        scored.resize(sorted + 1);
        return;
      }
    }
  }
}

// Leaves those at least p times as probable as the best.
void KeepMinP(double p, float largest, std::vector<Scored>& scored) {
  if (p <= 0.0) {
    return;
  }
  scored.erase(std::remove_if(scored.begin(), scored.end(),
                              [&](const Scored& s) { return Weight(s.logit, largest, 1.0) < p; }),
               scored.end());
}

template <class T>
Status OutOfRange(const char* name, const char* range, T value) {
  return Status(Code::kInvalidArgument,
                fmt::format("{} must be in {}, got {}", name, range, value));
}

}  // namespace

Result<std::vector<Candidate>> Distribution(std::span<const float> logits,
                                            const SamplerOptions& options,
                                            std::span<const Token> recent) {
  std::vector<float> penalised;
  if (options.repeat_penalty != 1.0f && !recent.empty()) {
    penalised = Penalised(logits, options, recent);
    logits = penalised;
  }
  const std::size_t best = FirstLargest(logits);
  if (best == logits.size()) {
    return Status(Code::kInternal,
                  fmt::format("none of {} logits is a number above -infinity", logits.size()));
  }
  if (options.temperature == 0.0f) {
    return std::vector<Candidate>{{static_cast<Token>(best), 1.0}};
  }
  const float largest = logits[best];
  std::vector<Scored> scored;
  scored.reserve(logits.size());
  for (std::size_t i = 0; i < logits.size(); ++i) {
    if (Usable(logits[i])) {
      scored.push_back({logits[i], static_cast<Token>(i)});
    }
  }
  KeepTopK(options.top_k, scored);
  KeepTopP(options.top_p, largest, scored);
  KeepMinP(options.min_p, largest, scored);

  std::vector<Candidate> candidates;
  candidates.reserve(scored.size());
  double total = 0;
  for (const Scored& s : scored) {
    candidates.push_back({s.token, Weight(s.logit, largest, options.temperature)});
    total += candidates.back().probability;
  }
  for (Candidate& candidate : candidates) {
    candidate.probability /= total;
  }
  return candidates;
}

Status Sampler::Validate(const SamplerOptions& options) {
  // Written so that NaN fails.
  if (!(options.temperature >= 0.0f && options.temperature <= 100.0f)) {
    return OutOfRange("temperature", "[0, 100]", options.temperature);
  }
  if (options.top_k < 0) {
    return OutOfRange("top_k", "[0, 2147483647]", options.top_k);
  }
  if (!(options.top_p > 0.0f && options.top_p <= 1.0f)) {
    return OutOfRange("top_p", "(0, 1]", options.top_p);
  }
  if (!(options.min_p >= 0.0f && options.min_p <= 1.0f)) {
    return OutOfRange("min_p", "[0, 1]", options.min_p);
  }
  if (!(options.repeat_penalty > 0.0f && options.repeat_penalty <= 10.0f)) {
    return OutOfRange("repeat_penalty", "(0, 10]", options.repeat_penalty);
  }
  if (options.repeat_last_n < 0 || options.repeat_last_n > 1000000) {
    return OutOfRange("repeat_last_n", "[0, 1000000]", options.repeat_last_n);
  }
  return {};
}

Result<Token> Sampler::Sample(std::span<const float> logits) {
  std::vector<Token> recent;
  recent.reserve(counts_.size());
  for (const auto& [token, count] : counts_) {
    recent.push_back(token);
  }
  const Result<std::vector<Candidate>> candidates = Distribution(logits, options_, recent);
  if (!candidates) {
    return candidates.error();
  }
  if (options_.temperature == 0.0f) {
    return candidates->front().token;
  }
  const double drawn = static_cast<double>(rng_.Next() >> 11) * 0x1p-53;  // [0, 1)
  double sum = 0;
  Token last = candidates->front().token;
  for (const Candidate& candidate : *candidates) {
    if (candidate.probability > 0) {
      last = candidate.token;
      sum += candidate.probability;
      if (drawn < sum) {
        break;
      }
    }
  }
  return last;  // also where rounding leaves the sum below `drawn`
}

void Sampler::Accept(Token token) {
  if (options_.repeat_penalty == 1.0f || options_.repeat_last_n == 0) {
    return;
  }
  window_.push_back(token);
  ++counts_[token];
  if (window_.size() > static_cast<std::size_t>(options_.repeat_last_n)) {
    const auto oldest = counts_.find(window_.front());
    window_.pop_front();
    if (--oldest->second == 0) {
      counts_.erase(oldest);
    }
  }
}

}  // namespace rkv::engine
