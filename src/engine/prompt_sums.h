// PromptSums: what some methods want to know of all of a prompt's queries, gathered while a layer
// runs.
#ifndef RKV_ENGINE_PROMPT_SUMS_H_
#define RKV_ENGINE_PROMPT_SUMS_H_

#include <cstdint>
#include <span>
#include <vector>

#include "attention/backend.h"
#include "engine/runtime.h"
#include "engine/session_state.h"
#include "policy/policy.h"

namespace rkv::engine {

// Sums of one layer, cleared by BeginLayer, except that Gram matrices and residual cosines of all
// layers stay, for policies that decide after the last one.
// Sums do not depend on the number of threads.
class PromptSums {
 public:
  // Prepares for what the sessions need.
  PromptSums(const Runtime& runtime, std::span<SessionState* const> sessions);

  bool needs_all_queries() const { return !masses_.empty() || gram_; }
  bool needs_all_outputs() const { return cosine_; }
  // Bytes for a prompt of `tokens` behind `held_rows`, for the memory plan.
  static std::size_t Bytes(const Runtime& runtime, const policy::Needs& needs,
                           std::int32_t held_rows, std::int32_t tokens);

  // `heads` will get `tokens` rows more.
  void BeginLayer(std::span<const kv::HeadStore> heads, std::int32_t tokens);
  // Queries after RoPE of the tokens stored last: q, q_stride, tokens, group and scale of
  // `queries`, with all heads side by side.
  void AddQueries(const attention::PrefillTile& queries, std::span<const kv::HeadStore> heads);
  // Thread-safe for different tokens. A token's residual stream [embd] before its attention output
  // `delta` is added.
  void AddResidual(std::int32_t token, std::span<const float> hidden, std::span<const float> delta);
  void EndLayer();

  // Puts the sums of `layer` that `needs` asked for into `head`: column mass of the layer that runs
  // alone, Gram matrices of every layer so far.
  void Show(const policy::Needs& needs, std::int32_t layer, std::size_t kv_head,
            policy::HeadPrefill& head) const;
  std::span<const float> residual_cosine() const { return cosines_; }

 private:
  // Column mass for one band.
  struct Mass {
    std::int32_t band = 0;
    std::vector<std::vector<float>> all, near;  // [kv_head][rows]; near empty without a band
  };

  void AddMass(const attention::PrefillTile& queries, std::span<const kv::HeadStore> heads,
               Mass& mass);
  void AddGram(const attention::PrefillTile& queries);

  const Runtime& runtime_;
  std::vector<Mass> masses_;
  std::int32_t layer_ = -1;  // the one that runs
  bool gram_ = false;
  bool cosine_ = false;
  std::vector<std::vector<std::vector<float>>> grams_;  // [layer][kv_head][head_dim * head_dim]
  std::vector<float> token_cosines_;                    // of the layer that runs
  std::vector<float> cosines_;                          // [layers so far]
};

}  // namespace rkv::engine

#endif  // RKV_ENGINE_PROMPT_SUMS_H_
