// Keys of low rank: ShadowKV's reconstruction, done once after a prompt.
#ifndef RKV_ENGINE_LOW_RANK_KEYS_H_
#define RKV_ENGINE_LOW_RANK_KEYS_H_

#include <cstddef>
#include <cstdint>

#include "engine/runtime.h"
#include "engine/session_state.h"

namespace rkv::engine {

// Replaces the keys of a layer, but for those that Policy::ExactKeys names, by their projection on
// the Needs::key_rank best directions of all its keys before RoPE, the kv_heads side by side:
// truncated singular values, by the Gram matrix. Values are left alone. Where kv_heads hold
// different positions, each is projected alone on its share of the directions.
// The result does not depend on the number of threads. With w = kv_heads * head_dim:
// O(rows * w^2 + w^3), and ReduceKeysBytes meanwhile.
// REQUIRES: the states of the layer are built; key_rank below w.
// Source: ShadowKV, arXiv:2410.21465; policy specification 2.15 (c).
void ReduceKeys(const Runtime& runtime, SessionState& session, std::int32_t layer);

// For the memory plan.
std::size_t ReduceKeysBytes(const Runtime& runtime);

}  // namespace rkv::engine

#endif  // RKV_ENGINE_LOW_RANK_KEYS_H_
