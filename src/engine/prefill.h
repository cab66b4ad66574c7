// Prefill: all tokens of a prompt through one layer after the other, evicting as each layer ends.
#ifndef RKV_ENGINE_PREFILL_H_
#define RKV_ENGINE_PREFILL_H_

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/buffer.h"
#include "engine/prompt_sums.h"
#include "engine/runtime.h"
#include "engine/session_state.h"
#include "model/expanded_linear.h"
#include "rkv/options.h"
#include "rkv/status.h"

namespace rkv::engine {

// Computes `tokens` once for all sessions. The first one's stores hold each layer's full K/V while
// the layer runs; the others copy what they keep, then the first compacts. So the KV memory is what
// is kept plus one layer, never all layers.
//
// Only layers and rows that something later needs are computed: of the last layer keys, values and
// the window's queries, and its output for the last token when `want_logits`.
class Prefill {
 public:
  // REQUIRES: tokens not empty; BeginTurn done; more than one session only if all are empty.
  Prefill(const Runtime& runtime, std::span<SessionState* const> sessions,
          std::span<const Token> tokens, bool want_logits);

  // On success the sessions' positions have moved by tokens.size() and, with want_logits, their
  // logits are set. Errors: kCancelled, kResourceExhausted. After an error an empty session is
  // empty again; one that held rows is as before unless a layer had evicted, then it is lost.
  Status Run(const ProgressCallback& on_progress);

 private:
  struct Weights;
  struct Range {  // tokens of this prompt
    std::int32_t begin = 0;
    std::int32_t end = 0;
    std::int32_t size() const { return end > begin ? end - begin : 0; }
  };

  Status Allocate();
  void Embed();
  Status RunLayers(const ProgressCallback& on_progress);
  Status ReserveExpanded();
  Weights ExpandWeights(Range queries, Range outputs);
  Status RunPieces(const Weights& weights, const ProgressCallback& on_progress);
  Status StoreKeysValues(const Weights& weights, Range piece, bool with_queries);
  void ProjectQueries(const Weights& weights, Range piece, Range queries);
  void RotateQueries(Range piece, Range queries);
  void Attend(Range piece, Range outputs);
  // Lets sums_ see the queries of `queries`.
  void AddQueries(Range piece, Range queries);
  // Products with input rows, which lie in rounded_ meanwhile.
  void MatMul(std::span<const model::MatMulJob> jobs, const model::MatMulInput& input);
  void FinishPiece(const Weights& weights, Range piece, Range outputs);
  Status EndLayer();
  Status EvictDeferred();
  Status EvictLayer(std::size_t index, std::int32_t layer, LayerCache& full,
                    std::span<const std::vector<float>> scores);
  std::vector<std::vector<float>> ScoreLayer(std::size_t index);
  std::vector<policy::HeadPrefill> HeadsOf(const SessionState& session, LayerCache& full,
                                           std::int32_t layer) const;
  policy::LayerPrefill LayerOf(const SessionState& session, std::size_t index, std::int32_t layer,
                               std::span<const policy::HeadPrefill> heads) const;
  Status CopyLayer(SessionState& session);
  Status PlaceRows(SessionState& session, std::int32_t layer, LayerCache& full,
                   std::span<const policy::Rows> keep);
  Status BuildStates(SessionState& session, std::int32_t layer, LayerCache& full,
                     std::span<const policy::HeadPrefill> heads,
                     std::span<const policy::Rows> keep);
  void RollBack();

  // Runs fn(token) for tokens of `range` in parallel blocks.
  template <class Fn>
  void ForTokens(Range range, const Fn& fn);
  float* Hidden(std::int32_t token);
  float* Piece(Buffer& buffer, std::int32_t width, Range piece, std::int32_t token);
  LayerCache& Cache(SessionState& session) const;
  SessionState& primary() const { return *sessions_[0]; }
  double* Stage(const char* name) { return &stages_[name]; }

  const Runtime& runtime_;
  const model::HyperParams& params_;
  std::span<SessionState* const> sessions_;
  std::span<const Token> tokens_;
  bool want_logits_;
  std::int32_t count_;              // tokens of this prompt
  std::int32_t base_;               // position of the first of them
  std::int32_t window_ = 0;         // widest window of the sessions, at most count_
  std::int32_t layer_ = 0;          // the one that runs
  std::vector<std::int32_t> held_;  // [layer][kv_head] rows of the first session before this prompt
  bool evicted_ = false;
  PromptSums sums_;
  std::vector<std::vector<std::vector<policy::Rows>>> kept_;  // [session][layer][kv_head]
  // [session][layer][kv_head] of sessions that evict after the last layer.
  std::vector<std::vector<std::vector<std::vector<float>>>> deferred_;
  // What heads had before this prompt, for RollBack.
  struct Before {
    SessionState* session;
    std::int32_t layer;
    std::size_t head;
    std::unique_ptr<policy::HeadState> state;
    kv::HotRows hot;
  };
  std::vector<Before> before_;

  Buffer hidden_;         // [count][embd]
  Buffer angles_;         // [count][rope dims]
  Buffer norm_, delta_;   // [piece][embd]
  Buffer q_, attention_;  // [piece][q_width]
  Buffer k_, v_;          // [piece][kv_width]
  Buffer gate_, up_;      // [piece][ff]
  Buffer window_q_;       // [window][q_width], queries of the last tokens
  Buffer expanded_;       // weights of one layer
  Buffer rounded_;        // MatMul's memory for a piece
  std::map<std::string, double> stages_;
};

}  // namespace rkv::engine

#endif  // RKV_ENGINE_PREFILL_H_
