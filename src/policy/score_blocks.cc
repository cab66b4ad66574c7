#include "policy/score_blocks.h"

#include <fmt/format.h>

#include "base/check.h"

namespace rkv::policy {

std::span<float> ScoreChunks(const HeadDecode& in, const kv::IndexView& index,
                             std::int32_t channels, Scratch::Frame& frame, Rows& read) {
  Check(index.rows == in.rows.slots, "the chunk index must cover every slot");
  const auto chunks = static_cast<std::size_t>(index.chunks());
  const std::span<float> u(frame.Array<float>(chunks), chunks);
  in.backend->chunk_scores(in.query, index, channels, u, *in.scratch);
  read.estimate_bytes +=
      static_cast<double>(chunks) * channels * static_cast<double>(kv::CodecBytes(index.codec));
  return u;
}

Status CheckAtMost(std::string_view option, std::int32_t value, std::int32_t most,
                   std::string_view what) {
  if (value > most) {
    return Status(
        Code::kInvalidArgument,
        fmt::format("option '{}' is '{}', allowed: auto or a whole number from 1 to {}, {}", option,
                    value, most, what));
  }
  return {};
}

}  // namespace rkv::policy
