// Session: one conversation with its compressed cache.
#ifndef RKV_SESSION_H_
#define RKV_SESSION_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "rkv/options.h"
#include "rkv/status.h"

namespace rkv {

// Counts and times since the session began; read-only for callers.
struct SessionStats {
  std::int32_t prompt_tokens = 0;     // of all prompts
  std::int32_t generated_tokens = 0;  // decode steps, the one that ends a prompt left out
  double prefill_seconds = 0;
  double decode_seconds = 0;

  // Bytes of keys and values. full: what Full-KV would hold for the tokens seen.
  std::size_t kv_bytes_full = 0;
  std::size_t kv_bytes_kept = 0;  // blocks and positions
  std::size_t kv_bytes_index = 0;
  std::size_t kv_bytes_parked = 0;
  std::size_t kv_bytes_peak = 0;   // rows and index, highest moment, one layer's full K/V included
  std::size_t kv_bytes_layer = 0;  // one layer's full K/V: what the prefill holds besides
  double tokens_kept = 0;          // rows a kv_head holds now, mean over layers and heads
  // Tokens' worth of traffic of a kv_head and step, the method's estimate included.
  double tokens_read_per_step = 0;
  double kv_bytes_read_per_step = 0;  // of all layers and kv_heads, estimate included
  double dense_share = 0;             // of the (kv_head, step) reads that took all rows

  std::map<std::string, double> stage_seconds;  // "prefill.linear", "decode.select", …
  std::vector<std::string> warnings;            // one line each, once a session
};

struct GenerateResult {
  std::string text;
  std::vector<Token> tokens;
  StopReason stop_reason = StopReason::kMaxTokens;
  std::string stop_string;  // when that was the reason
};

// Not thread-safe: one thread at a time, and one session of an engine at a time computes.
// Must not outlive its Engine.
class Session {
 public:
  virtual ~Session() = default;

  // The method string with every option spelled out.
  virtual std::string policy() const = 0;
  // Tokens seen so far: the next token's absolute position.
  virtual std::int32_t position() const = 0;

  // Feeds one token and returns the logits that follow it, [vocab]; valid until the next call.
  // Errors: kInvalidArgument for an id outside the vocabulary, kResourceExhausted when the context
  // is full (names it), the session is then as before; kResourceExhausted when the system has no
  // memory left, the session is then lost and answers every call with kInvalidArgument.
  virtual Result<std::span<const float>> Decode(Token token) = 0;

  // Forgets the tokens behind `position`, as if they had not been decoded; the next token takes
  // their place. logits() are those of the last call until then. Cost: the tokens forgotten.
  // Errors: kInvalidArgument for a position outside [end of the last prompt, position()], both
  // named; the session is then as before.
  virtual Status Rewind(std::int32_t position) = 0;

  // Logits after the last token seen, [vocab]. Empty before the first prompt.
  virtual std::span<const float> logits() const = 0;

  // Samples and decodes until a stop. `on_text` may be empty.
  // Errors: kInvalidArgument for sampler values outside their range, kCancelled when on_text said
  // so (what was generated stays in the session). The session needs a prompt first.
  virtual Result<GenerateResult> Generate(const GenerateOptions& options,
                                          const TextCallback& on_text) = 0;

  virtual SessionStats stats() const = 0;

  // Rows that (layer, kv_head) holds, as absolute positions; empty when there is no such head.
  virtual std::vector<std::int32_t> KeptPositions(std::int32_t layer,
                                                  std::int32_t kv_head) const = 0;
};

}  // namespace rkv

#endif  // RKV_SESSION_H_
