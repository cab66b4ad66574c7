// How SqueezeAttention shares a budget among layers. Policy specification 2.18.
#ifndef RKV_POLICY_SQUEEZE_H_
#define RKV_POLICY_SQUEEZE_H_

#include <cstdint>
#include <span>
#include <vector>

namespace rkv::policy {

// The lowest value of the highest of three clusters: those with the least sum of squared distances
// from their means (1-D 3-means, exact). Equal values are never parted; with two different values
// only, the higher one. Infinity when all are equal or there are fewer than three. O(n^2).
double HighestOfThree(std::span<const float> values);

// [layers] rows per kv_head that sum up to layers * mean: `low` for layers in the highest cluster
// of `cosine` [layers], equal parts of the rest for the others, but at most `most` each, which
// leaves the former more. All `mean` without such a cluster or without cosines. REQUIRES: low <=
// mean.
std::vector<std::int32_t> SqueezeBudgets(std::span<const float> cosine, std::int32_t layers,
                                         std::int32_t mean, std::int32_t low, std::int32_t most);

}  // namespace rkv::policy

#endif  // RKV_POLICY_SQUEEZE_H_
