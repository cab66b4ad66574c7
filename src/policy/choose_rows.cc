#include "policy/choose_rows.h"

#include <algorithm>
#include <numeric>

#include "policy/scored_rows.h"
#include "policy/stages.h"

namespace rkv::policy {
namespace {

std::size_t Size(std::int64_t n) { return static_cast<std::size_t>(n); }

// The best k of slots [begin, end) to out[0, k).
void BestBetween(const HeadDecode& in, std::span<const float> u, std::int32_t chunk_rows,
                 std::int32_t begin, std::int32_t end, std::int32_t k, std::int32_t* out) {
  Scratch::Frame frame(*in.scratch);
  const std::span<float> scores(frame.Array<float>(Size(end - begin)), Size(end - begin));
  for (std::int32_t slot = begin; slot < end; ++slot) {
    scores[Size(slot - begin)] = u[Size(slot / chunk_rows)];
  }
  const std::int32_t count = in.backend->top_k(scores, k, out, *in.scratch);
  std::for_each_n(out, count, [&](std::int32_t& slot) { slot += begin; });
}

}  // namespace

void ChooseRows(const HeadDecode& in, std::span<const float> u, std::int32_t chunk_rows,
                std::int32_t k, const ForcedRows& forced, std::vector<std::int32_t>& out) {
  const std::int32_t slots = in.rows.slots;
  const std::int32_t wanted = std::min(k, slots);
  const std::int32_t last = std::min(forced.last, wanted);
  const std::int32_t first = std::min(forced.first, wanted - last);
  const std::int32_t end = slots - last;
  if (first == 0) {
    const std::int32_t chunks = (end + chunk_rows - 1) / chunk_rows;
    ExpandChunks(*in.backend, u.first(Size(chunks)), chunk_rows, end, wanted - last, out,
                 *in.scratch);
    out.resize(Size(wanted));
  } else {
    out.resize(Size(wanted));
    std::iota(out.begin(), out.begin() + first, 0);
    BestBetween(in, u, chunk_rows, first, end, wanted - first - last, out.data() + first);
  }
  std::iota(out.end() - last, out.end(), end);
}

void CutAtMass(std::span<const float> u, std::int32_t chunk_rows, std::int32_t slots,
               const ForcedRows& forced, double mass, std::vector<std::int32_t>& rows) {
  const auto score = [&](std::int32_t row) { return NanLast(u[Size(row / chunk_rows)]); };
  const auto others = std::stable_partition(rows.begin(), rows.end(), [&](std::int32_t row) {
    return row < forced.first || row >= slots - forced.last;
  });
  std::stable_sort(others, rows.end(),
                   [&](std::int32_t a, std::int32_t b) { return score(a) > score(b); });
  double sum = std::accumulate(rows.begin(), others, 0.0,
                               [&](double part, std::int32_t row) { return part + score(row); });
  auto stop = others;
  while (stop != rows.end() && (sum < mass || stop == rows.begin())) {
    sum += score(*stop++);
  }
  rows.erase(stop, rows.end());
  std::ranges::sort(rows);
}

void ShareByMass(const float* by_head, std::size_t chunks, std::int32_t chunk_rows,
                 std::int32_t group, Rows& read) {
  for (std::size_t g = 0; g < Size(group); ++g) {
    const float* head = by_head + g * chunks;
    const double mass =
        std::accumulate(read.list.begin(), read.list.end(), 0.0,
                        [&](double sum, std::int32_t row) { return sum + head[row / chunk_rows]; });
    read.share.push_back(static_cast<float>(std::min(mass, 1.0)));
  }
}

void ReadChosen(const HeadDecode& in, const ChunkScores& scores, std::int32_t chunk_rows,
                const Choice& choice, Rows& read) {
  read.all = false;
  ChooseRows(in, scores.u, chunk_rows, choice.k, choice.forced, read.list);
  if (choice.top_p < 1) {
    CutAtMass(scores.u, chunk_rows, in.rows.slots, choice.forced, choice.top_p * in.query.group,
              read.list);
  }
  if (choice.mean_value != nullptr) {
    ShareByMass(scores.by_head, scores.u.size(), chunk_rows, in.query.group, read);
    read.mean_value = choice.mean_value;
  }
}

}  // namespace rkv::policy
