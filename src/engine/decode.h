// DecodeToken: one token through all layers, reading only the rows that the policy selects.
#ifndef RKV_ENGINE_DECODE_H_
#define RKV_ENGINE_DECODE_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine/read_list.h"
#include "engine/runtime.h"
#include "engine/session_state.h"
#include "rkv/options.h"
#include "rkv/status.h"

namespace rkv::engine {

// What selecting leaves of one kv_head besides its rows.
struct HeadSelection {
  std::atomic<bool> done{false};
  double seconds = 0;
};

// Span `index` of the rows that a kv_head reads; there may turn out to be fewer.
struct SpanTask {
  std::int32_t head;
  std::int32_t index;
};

// Working memory of one decoded token, kept between tokens.
struct DecodeBuffers {
  std::vector<float> x, norm, q, k, v, attention, gate, up, delta, angles;
  std::vector<float> partial;           // softmax states of all (kv_head, span) tasks
  std::vector<float> log_sum;           // [kv_head][group], of the softmax over the rows read
  std::vector<policy::Rows> read;       // of each kv_head, by slot
  std::vector<ReadList> rows;           // the same by row of the store
  std::vector<Status> select_status;    // of each kv_head
  std::vector<HeadSelection> selected;  // of each kv_head
  std::vector<SpanTask> spans;          // of all kv_heads in turn
  std::vector<std::size_t> first_span;  // of each kv_head
  void Resize(const model::HyperParams& params);
};

// Appends `token` at session.position and sets session.logits.
// REQUIRES: the session is not lost, the token is in the vocabulary, the context has room.
// Errors: kResourceExhausted; the session is lost then. Results do not depend on the threads.
Status DecodeToken(const Runtime& runtime, Token token, SessionState& session,
                   DecodeBuffers& buffers);

// Final norm and output matrix: logits of hidden state x [embd]. norm is working memory [embd].
void ComputeLogits(const Runtime& runtime, const float* x, std::vector<float>& norm,
                   std::vector<float>& logits);

}  // namespace rkv::engine

#endif  // RKV_ENGINE_DECODE_H_
