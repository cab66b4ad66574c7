// FillRandom: the rows that a prompt would leave, made up instead of computed.
#ifndef RKV_ENGINE_RANDOM_FILL_H_
#define RKV_ENGINE_RANDOM_FILL_H_

#include <cstddef>
#include <cstdint>

#include "engine/runtime.h"
#include "engine/session_state.h"
#include "rkv/status.h"

namespace rkv::engine {

// Gives an empty session what a first prompt of `tokens` leaves: in every head the rows that its
// policy keeps when the window's attention mass is random, random keys and values, the index. Sets
// position, tokens (all 0) and logits (all 0). Only kept rows take memory.
// REQUIRES: BeginTurn(tokens) done. Errors: those of Policy::Evict, kResourceExhausted; the session
// is then empty again. Cost: writing the rows, in parallel. Equal for any number of threads.
Status FillRandom(const Runtime& runtime, std::int32_t tokens, std::uint64_t seed,
                  SessionState& session);

}  // namespace rkv::engine

#endif  // RKV_ENGINE_RANDOM_FILL_H_
