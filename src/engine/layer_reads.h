// ReadLayer: the rows that one token reads in one layer, and attention over them.
#ifndef RKV_ENGINE_LAYER_READS_H_
#define RKV_ENGINE_LAYER_READS_H_

#include <cstdint>

#include "engine/decode.h"
#include "engine/runtime.h"
#include "engine/session_state.h"
#include "rkv/status.h"

namespace rkv::engine {

// Takes the row that every head has got last into the states, lets the policy select, attends to
// what it selected by buffers.q into buffers.attention, and lets the policy observe that.
// Counts into session.reads. Errors: kResourceExhausted. Results do not depend on the threads.
Status ReadLayer(const Runtime& runtime, std::int32_t layer, SessionState& session,
                 DecodeBuffers& buffers);

}  // namespace rkv::engine

#endif  // RKV_ENGINE_LAYER_READS_H_
