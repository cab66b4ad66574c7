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
#include "kv/chunk_index.h"
#include "kv/head_store.h"
#include "kv/memory_meter.h"
#include "policy/policy.h"
#include "rkv/options.h"

namespace rkv::engine {

// Rows and indexes of one layer, one entry a kv_head; no indexes when the policy needs none.
struct LayerCache {
  std::vector<kv::HeadStore> heads;
  std::vector<kv::ChunkIndex> indexes;
};

// Sums over decode steps, for the means in SessionStats.
struct ReadTotals {
  double rows = 0;      // rows' worth of traffic over all (kv_head, step) reads
  double estimate = 0;  // the part of it that read the index
  std::int64_t reads = 0;
  std::int64_t dense = 0;
};

// What a policy plans for: a first prompt of `prompt_tokens` and an answer of `max_new_tokens`.
policy::TurnShape ShapeOf(const Runtime& runtime, std::int32_t prompt_tokens,
                          std::int32_t max_new_tokens);

// Not movable: stores point at the pool and the meter.
struct SessionState {
  SessionState(const Runtime& runtime, std::unique_ptr<const policy::Policy> method,
               std::int32_t max_new);
  SessionState(const SessionState&) = delete;
  SessionState& operator=(const SessionState&) = delete;

  // Fixes shape and needs for a prompt of `turn_tokens` behind what was seen. Once, before the
  // first prompt; again before a later one when the policy plans anew: the prefill then builds the
  // indexes. Errors: those of Policy::CheckShape; the session is then as before.
  Status BeginTurn(std::int32_t turn_tokens, const Runtime& runtime);
  // Back to an empty session that may begin again.
  void Clear();
  bool empty() const { return position == 0; }

  std::unique_ptr<const policy::Policy> policy;
  std::int32_t max_new_tokens;
  policy::TurnShape shape;
  policy::Needs needs;

  kv::MemoryMeter meter;
  kv::BlockPool pool;
  std::vector<LayerCache> layers;

  std::int32_t position = 0;    // tokens seen
  std::int32_t prompt_end = 0;  // position behind the last prompt
  std::vector<Token> tokens;    // all of them
  std::vector<float> logits;    // after the last token, [vocab]; empty before the first prompt
  bool lost = false;            // rows are no longer those of the tokens seen

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
