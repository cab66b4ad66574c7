#include "policy/stages.h"

#include <algorithm>
#include <numeric>

#include "base/check.h"
#include "policy/scored_rows.h"

namespace rkv::policy {
namespace {

// Which of `chunks` (ascending) comes last in the order (u descending, chunk ascending).
std::int32_t LastInOrder(std::span<const float> u, std::span<const std::int32_t> chunks) {
  return *std::min_element(chunks.begin(), chunks.end(), [&](std::int32_t a, std::int32_t b) {
    const float left = NanLast(u[static_cast<std::size_t>(a)]);
    const float right = NanLast(u[static_cast<std::size_t>(b)]);
    return left != right ? left < right : a > b;
  });
}

}  // namespace

std::vector<std::int32_t> SnapKvRows(std::span<const float> mass, std::int32_t window,
                                     std::int32_t kernel, std::int32_t prompt_budget) {
  const auto prefix = static_cast<std::int32_t>(mass.size());
  const std::int32_t kept = std::clamp(prompt_budget - window, 0, prefix);
  std::vector<std::int32_t> rows(static_cast<std::size_t>(kept));
  if (kept < prefix) {
    std::vector<ScoredRow> scored = ScoreRows(mass, kernel, 0);
    BestFirst(scored, rows.size());
    std::transform(scored.begin(), scored.begin() + kept, rows.begin(),
                   [](const ScoredRow& best) { return best.row; });
    std::sort(rows.begin(), rows.end());
  } else {
    std::iota(rows.begin(), rows.end(), 0);
  }
  for (std::int32_t i = 0; i < window; ++i) {
    rows.push_back(prefix + i);
  }
  return rows;
}

void ExpandChunks(const attention::Backend& backend, std::span<const float> u,
                  std::int32_t chunk_rows, std::int32_t rows, std::int32_t k,
                  std::vector<std::int32_t>& out, Scratch& scratch) {
  Check(chunk_rows >= 1 && rows >= 0 && k >= 0, "chunks, rows or k out of range");
  Check(static_cast<std::int64_t>(u.size()) == (std::int64_t{rows} + chunk_rows - 1) / chunk_rows,
        "one score a chunk");
  out.clear();
  const std::int32_t wanted = std::min(k, rows);
  if (wanted == 0) {
    return;
  }
  Scratch::Frame frame(scratch);
  auto* const chosen = frame.Array<std::int32_t>(u.size());
  const auto last_chunk = static_cast<std::int32_t>(u.size()) - 1;
  const auto end = [&](std::int32_t chunk) { return std::min(rows, (chunk + 1) * chunk_rows); };
  // Take the fewest chunks that hold `wanted` rows: one more when the short last chunk is among
  // them and its missing rows are needed.
  std::int32_t count = 0;
  std::int32_t held = 0;
  for (std::int32_t want = (wanted + chunk_rows - 1) / chunk_rows; held < wanted; ++want) {
    count = backend.top_k(u, want, chosen, scratch);
    const std::int32_t missing =
        chosen[count - 1] == last_chunk ? (last_chunk + 1) * chunk_rows - rows : 0;
    held = count * chunk_rows - missing;
  }
  const std::span<const std::int32_t> chunks(chosen, static_cast<std::size_t>(count));
  const std::int32_t cut = LastInOrder(u, chunks);
  out.reserve(static_cast<std::size_t>(wanted));
  for (const std::int32_t chunk : chunks) {
    const std::int32_t stop = end(chunk) - (chunk == cut ? held - wanted : 0);
    for (std::int32_t row = chunk * chunk_rows; row < stop; ++row) {
      out.push_back(row);
    }
  }
}

}  // namespace rkv::policy
