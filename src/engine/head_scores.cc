#include "engine/head_scores.h"

namespace rkv::engine {

std::vector<std::vector<float>> ScoreHeads(const policy::Policy& policy,
                                           const policy::LayerPrefill& layer, ThreadPool& pool) {
  std::vector<std::vector<float>> scores(layer.heads.size());
  pool.ParallelFor(static_cast<std::int64_t>(scores.size()),
                   [&](std::int64_t task, const ThreadPool::Worker& worker) {
                     const auto h = static_cast<std::size_t>(task);
                     policy::LayerPrefill mine = layer;
                     mine.scratch = &worker.scratch;
                     policy.Score(mine, layer.heads[h], scores[h]);
                   });
  return scores;
}

}  // namespace rkv::engine
