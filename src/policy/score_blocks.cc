#include "policy/score_blocks.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace rkv::policy {
namespace {

Status TooLarge(std::string_view option, std::int32_t value, std::string_view from,
                std::int32_t most, std::string_view what) {
  return Status(Code::kInvalidArgument, fmt::format("option '{}' is '{}', allowed: {} to {}, {}",
                                                    option, value, from, most, what));
}

}  // namespace

ChunkScores ScoreChunks(const HeadDecode& in, const kv::IndexView& index, std::int32_t channels,
                        bool by_head, Scratch::Frame& frame, Rows& read) {
  Check(index.rows == in.rows.slots, "the chunk index must cover every slot");
  const auto chunks = static_cast<std::size_t>(index.chunks());
  const auto group = static_cast<std::size_t>(in.query.group);
  const std::span<float> u(frame.Array<float>(chunks), chunks);
  float* const heads = by_head ? frame.Array<float>(group * chunks) : nullptr;
  in.backend->chunk_scores(in.query, index, channels, u, heads, *in.scratch);
  read.estimate_bytes +=
      static_cast<double>(chunks) * channels * static_cast<double>(kv::CodecBytes(index.codec));
  return {u, heads};
}

std::span<float> SumOfSoftmaxes(std::span<float> scores, std::int32_t group, std::int32_t slots,
                                Scratch::Frame& frame) {
  const auto n = static_cast<std::size_t>(slots);
  const std::span<float> u(frame.Array<float>(n), n);
  std::ranges::fill(u, 0.0f);
  for (std::size_t g = 0; g < static_cast<std::size_t>(group) && n > 0; ++g) {
    const std::span<float> head = scores.subspan(g * n, n);
    const float top = *std::ranges::max_element(head);
    double sum = 0;
    for (float& score : head) {
      score = std::exp(score - top);
      sum += score;
    }
    for (std::size_t j = 0; j < n; ++j) {
      head[j] = static_cast<float>(head[j] / sum);
      u[j] += head[j];
    }
  }
  return u;
}

void ReadBest(const HeadDecode& in, std::span<const float> scores, std::int32_t k, Rows& read) {
  read.all = false;
  read.list.resize(static_cast<std::size_t>(std::min(k, in.rows.slots)));
  in.backend->top_k(scores, k, read.list.data(), *in.scratch);
}

void ReadBestOfHeads(const HeadDecode& in, std::span<const float> scores, std::int32_t k,
                     Rows& read) {
  const auto n = static_cast<std::size_t>(in.rows.slots);
  read.all = false;
  read.heads.resize(static_cast<std::size_t>(in.query.group));
  for (std::size_t g = 0; g < read.heads.size(); ++g) {
    read.heads[g].resize(static_cast<std::size_t>(std::min(k, in.rows.slots)));
    in.backend->top_k(scores.subspan(g * n, n), k, read.heads[g].data(), *in.scratch);
  }
}

Status CheckAtMost(std::string_view option, std::int32_t value, std::int32_t most,
                   std::string_view what) {
  return value > most ? TooLarge(option, value, "auto or a whole number from 1", most, what)
                      : Status();
}

Status CheckUpTo(std::string_view option, std::int32_t value, std::int32_t most,
                 std::string_view what) {
  return value > most ? TooLarge(option, value, "a whole number from 0", most, what) : Status();
}

}  // namespace rkv::policy
