// ExplainPolicy: what a method comes to for a shape, without a model.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <memory>
#include <utility>

#include "engine/engine_impl.h"
#include "kv/codec.h"
#include "policy/policy.h"
#include "rkv/engine.h"

namespace rkv {
namespace {

constexpr std::int32_t kMaxContext = 1 << 30;  // policies count up to twice an answer in 32 bits
constexpr std::int32_t kMaxWidth = 65536;

struct Field {
  std::string_view name;
  std::int64_t value;
  std::int64_t low;
  std::int64_t high;
};

Status CheckFields(const ExplainShape& shape) {
  const std::int64_t longest = std::int64_t{shape.context} - 1;  // the prompt has the rest
  const std::array<Field, 6> fields = {{{"context", shape.context, 2, kMaxContext},
                                        {"max_new_tokens", shape.max_new_tokens, 1, longest},
                                        {"layers", shape.layers, 1, kMaxWidth},
                                        {"kv_heads", shape.kv_heads, 1, kMaxWidth},
                                        {"group", shape.group, 1, kMaxWidth},
                                        {"head_dim", shape.head_dim, 1, kMaxWidth}}};
  for (const Field& field : fields) {
    if (field.value < field.low || field.value > field.high) {
      return {Code::kInvalidArgument, fmt::format("{} must be from {} to {}, got {}", field.name,
                                                  field.low, field.high, field.value)};
    }
  }
  return {};
}

double NumberOr(const PolicyNumbers& of, std::string_view name, double otherwise) {
  const auto found =
      std::ranges::find_if(of.numbers, [name](const auto& pair) { return pair.first == name; });
  return found == of.numbers.end() ? otherwise : found->second;
}

// The method states its traffic at the last step, over max_rows rows; what it does not state is as
// if it read all of them. From one step to the next the rows grow evenly from those that the prompt
// left, or not at all where a window slides: the step in the middle has `fewer` rows, and an
// estimate grows with the rows.
void FillReads(std::int32_t max_new_tokens, PolicyNumbers& out) {
  const double rows = NumberOr(out, "max_rows", out.rows_held);
  const double first = NumberOr(out, "rows_in_view", NumberOr(out, "rows_kept", rows));
  const double fewer = 0.5 * (rows - first) * (max_new_tokens - 1) / max_new_tokens;
  const double total = NumberOr(out, "total_traffic", rows);
  const double estimate = NumberOr(out, "estimation_traffic", 0);
  if (NumberOr(out, "reads_all", total >= rows ? 1 : 0) != 0) {
    out.rows_estimate = estimate;
    out.rows_read = total - fewer;
    return;
  }
  out.rows_estimate = estimate * (1 - fewer / rows);
  out.rows_read = total - estimate + out.rows_estimate;
}

void FillBytes(const ExplainShape& shape, const policy::Policy& method,
               const policy::TurnShape& turn, PolicyNumbers& out) {
  const kv::Codec codec = engine::CodecOf(shape.kv_type);
  const double heads = static_cast<double>(shape.layers) * shape.kv_heads;
  const auto row_bytes = static_cast<double>(kv::RowBytes(codec, shape.head_dim));
  // An estimate counts in rows of 2 * head_dim numbers, which it reads from the index.
  const double index_row_bytes =
      2.0 * shape.head_dim * static_cast<double>(kv::CodecBytes(kv::IndexCodec(codec)));
  out.bytes_held = heads * out.rows_held * row_bytes;
  out.bytes_index = heads * static_cast<double>(method.StateBytes(
                                turn, codec, static_cast<std::int64_t>(out.rows_held)));
  out.bytes_read = heads * ((out.rows_read - out.rows_estimate) * row_bytes +
                            out.rows_estimate * index_row_bytes);
}

}  // namespace

Result<PolicyNumbers> ExplainPolicy(std::string_view policy, const ExplainShape& shape) {
  if (Status status = CheckFields(shape); !status.ok()) {
    return status;
  }
  const Result<std::unique_ptr<const policy::Policy>> method = policy::MakePolicy(policy);
  if (!method) {
    return method.error();
  }
  const policy::TurnShape bare = {.prompt_tokens = shape.context - shape.max_new_tokens,
                                  .max_new_tokens = shape.max_new_tokens,
                                  .head_dim = shape.head_dim,
                                  .group = shape.group,
                                  .kv_heads = shape.kv_heads,
                                  .layers = shape.layers};
  const policy::TurnShape turn = (*method)->Plan(bare);
  if (Status status = (*method)->CheckShape(turn); !status.ok()) {
    return status;
  }
  PolicyNumbers out;
  out.policy = (*method)->spec();
  out.numbers = (*method)->Explain(turn);
  const bool park = (*method)->needs(turn).park;
  out.rows_held = park ? shape.context : NumberOr(out, "max_rows", shape.context);
  FillReads(shape.max_new_tokens, out);
  FillBytes(shape, **method, turn, out);
  return out;
}

}  // namespace rkv
