// HitVariation: whether the last queries of a prompt all look at the same chunks (CateKV).
#ifndef RKV_POLICY_HIT_VARIATION_H_
#define RKV_POLICY_HIT_VARIATION_H_

#include <cstdint>
#include <span>
#include <vector>

#include "policy/policy.h"

namespace rkv::policy {

// Policy specification 2.16. `beta`: quantile of the weights that counts as their maximum, 1 - beta
// as their minimum. `reach`: where between the two a weight begins to be a hit.
struct HitRule {
  std::int32_t chunk = 8;
  double beta = 0.99;
  double reach = 1.0;
};

// weights[i * (end - begin) + j - begin]: the share of attention that window query i pays to row j
// of [begin, end), among those rows alone, mean over the group. end is before the window. Cost:
// Backend::score_rows over the region, once a query.
std::vector<float> RegionWeights(const LayerPrefill& layer, const HeadPrefill& head,
                                 std::int32_t begin, std::int32_t end);

// Coefficient of variation of the numbers of hits of each chunk: sample deviation / mean; a mean of
// 0 counts as 1e-10. 0 for fewer than two chunks.
double CountVariation(std::span<const std::int32_t> hits);

// CountVariation of the queries that hit each chunk of the region, `rows` weights a query. High:
// few chunks are hit, by nearly all queries.
double HitVariation(std::span<const float> weights, std::int32_t rows, const HitRule& rule);

}  // namespace rkv::policy

#endif  // RKV_POLICY_HIT_VARIATION_H_
