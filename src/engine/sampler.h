// Sampler: chooses the next token from logits.
#ifndef RKV_ENGINE_SAMPLER_H_
#define RKV_ENGINE_SAMPLER_H_

#include <cstdint>
#include <deque>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/rng.h"
#include "rkv/options.h"
#include "rkv/status.h"

namespace rkv::engine {

struct Candidate {
  Token token = 0;
  double probability = 0;  // the candidates' sum is 1
};

// The tokens that may be drawn, with their probabilities. Steps in llama.cpp's order: repeat
// penalty on the tokens of `recent` (each once: positive logits divided, others multiplied), top-k,
// top-p, min-p, temperature. Temperature 0: the first of the largest logits after the penalty. A
// NaN or -infinity is never a candidate; ties at a cut go to the smaller id. The order of the
// result is a fixed function of the inputs; sums run in that order in f64.
//   logits: [vocab] f32. recent: ids, any order; one outside the vocabulary has no effect.
// REQUIRES: options are valid.
// Errors: kInternal when no logit is a number above -infinity.
// Pure. O(vocab) time: nothing sorts more than the candidates that stay.
Result<std::vector<Candidate>> Distribution(std::span<const float> logits,
                                            const SamplerOptions& options,
                                            std::span<const Token> recent);

// Draws tokens one after the other. The same seed, options, logits and accepted tokens give the
// same tokens. Not thread-safe.
class Sampler {
 public:
  // Errors: kInvalidArgument naming option, value and range.
  static Status Validate(const SamplerOptions& options);

  // REQUIRES: Validate(options).ok().
  explicit Sampler(const SamplerOptions& options) : options_(options), rng_(options.seed) {}

  // Draws from Distribution() of the logits and the tokens accepted so far. Greedy sampling uses no
  // randomness, other sampling one number a call.
  Result<Token> Sample(std::span<const float> logits);

  // Puts a token into the repeat penalty's window, the last repeat_last_n of them.
  void Accept(Token token);

 private:
  SamplerOptions options_;
  Rng rng_;
  std::deque<Token> window_;
  std::unordered_map<Token, std::int32_t> counts_;  // of the tokens in window_
};

}  // namespace rkv::engine

#endif  // RKV_ENGINE_SAMPLER_H_
