// Memory plan: the bytes a prompt will take, before anything is allocated.
#ifndef RKV_ENGINE_MEMORY_PLAN_H_
#define RKV_ENGINE_MEMORY_PLAN_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "engine/runtime.h"
#include "policy/policy.h"
#include "rkv/engine.h"
#include "rkv/status.h"

namespace rkv::engine {

// Bytes for one session that holds `held_rows` rows a kv_head and gets `tokens` more. The rows of a
// policy that evicts are counted after eviction, one layer's full K/V beside them.
MemoryPlan PlanMemory(const Runtime& runtime, const policy::Policy& policy,
                      const policy::TurnShape& shape, std::int32_t held_rows, std::int32_t tokens);

// Scratch of a prefill: hidden states, piece buffers, expanded weights of the largest layer,
// threads.
std::size_t PrefillScratchBytes(const Runtime& runtime, std::int32_t held_rows, std::int32_t tokens,
                                std::int32_t window);

// Bytes in which a prefill rounds the inputs of one piece's products.
std::size_t RoundedInputBytes(const model::HyperParams& params, std::int32_t piece_tokens);

// Bytes that this process may still take: free memory of the system, of its control groups and of
// its address-space limit, whichever is least.
std::size_t AvailableMemory();

}  // namespace rkv::engine

#endif  // RKV_ENGINE_MEMORY_PLAN_H_
