// SessionState: everything that one conversation holds, without behaviour of its own.
#ifndef RKV_ENGINE_SESSION_STATE_H_
#define RKV_ENGINE_SESSION_STATE_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "engine/runtime.h"
#include "kv/block_pool.h"
#include "kv/head_store.h"
#include "kv/hot_rows.h"
#include "kv/memory_meter.h"
#include "policy/policy.h"
#include "rkv/options.h"

namespace rkv::engine {

// Rows of one layer and what the policy keeps beside them, one entry a kv_head.
struct LayerCache {
  std::vector<kv::HeadStore> heads;
  std::vector<kv::HotRows> hot;  // what the policy works on; all rows unless it parks some
  std::vector<std::unique_ptr<policy::HeadState>> states;  // null where it keeps none

  kv::SlotView Slots(std::size_t head) const { return hot[head].Of(heads[head].view()); }
};

// Sums over decode steps, for the means in SessionStats.
struct ReadTotals {
  double bytes = 0;           // over all (kv_head, step) reads: rows, and what choosing them took
  double estimate_bytes = 0;  // the latter
  std::int64_t reads = 0;
  std::int64_t dense = 0;
};

// What a policy plans from: a first prompt of `prompt_tokens` and an answer of `max_new_tokens`.
policy::TurnShape ShapeOf(const Runtime& runtime, std::int32_t prompt_tokens,
                          std::int32_t max_new_tokens);

// Not movable: stores point at the pool and the meter.
struct SessionState {
  SessionState(const Runtime& runtime, std::unique_ptr<const policy::Policy> method,
               std::int32_t max_new);
  SessionState(const SessionState&) = delete;
  SessionState& operator=(const SessionState&) = delete;

  // Fixes shape and needs for a prompt of `turn_tokens` behind what was seen. Once, before the
  // first prompt; again before a later one when the policy plans anew. States are the prefill's to
  // make. Errors: those of Policy::CheckShape; the session is then as before.
  Status BeginTurn(std::int32_t turn_tokens, const Runtime& runtime);
  // Notes a token that is about to be computed.
  void SeeToken(const Runtime& runtime, Token token);
  // A state for a head that fits shape and needs, or null.
  std::unique_ptr<policy::HeadState> NewState(std::int32_t layer, std::int32_t kv_head);
  // Back to an empty session that may begin again.
  void Clear();
  bool empty() const { return position == 0; }

  std::unique_ptr<const policy::Policy> policy;
  std::int32_t max_new_tokens;
  kv::Codec codec;
  policy::TurnShape shape;  // planned
  policy::Needs needs;

  kv::MemoryMeter meter;
  kv::BlockPool pool;
  std::vector<LayerCache> layers;

  std::int32_t position = 0;      // tokens seen
  std::int32_t prompt_end = 0;    // position behind the last prompt
  std::vector<Token> tokens;      // all of them
  std::vector<float> logits;      // after the last token, [vocab]; empty before the first prompt
  bool lost = false;              // rows are no longer those of the tokens seen
  std::int32_t rewind_floor = 0;  // rows dropped while decoding were needed before this position
  std::vector<policy::TokenClass> classes;  // of the tokens seen, with Needs::token_classes

  std::int32_t prompt_tokens = 0;
  std::int32_t generated_tokens = 0;
  double prefill_seconds = 0;
  double decode_seconds = 0;
  std::size_t layer_bytes = 0;        // one layer's full K/V in the largest prefill
  std::size_t shared_peak_bytes = 0;  // own bytes plus a layer that another session's prefill held
  ReadTotals reads;
  std::map<std::string, double> stage_seconds;
};

}  // namespace rkv::engine

#endif  // RKV_ENGINE_SESSION_STATE_H_
