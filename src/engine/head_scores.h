// ScoreHeads: what a policy makes of each kv_head of a finished layer.
#ifndef RKV_ENGINE_HEAD_SCORES_H_
#define RKV_ENGINE_HEAD_SCORES_H_

#include <vector>

#include "base/thread_pool.h"
#include "policy/policy.h"

namespace rkv::engine {

// Policy::Score of every head of `layer` in parallel, in the threads' own scratch memory:
// [kv_head].
std::vector<std::vector<float>> ScoreHeads(const policy::Policy& policy,
                                           const policy::LayerPrefill& layer, ThreadPool& pool);

}  // namespace rkv::engine

#endif  // RKV_ENGINE_HEAD_SCORES_H_
