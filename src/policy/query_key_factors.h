// Factors of the products of a head's queries and keys: for LRQK.
#ifndef RKV_POLICY_QUERY_KEY_FACTORS_H_
#define RKV_POLICY_QUERY_KEY_FACTORS_H_

#include <cstdint>
#include <span>
#include <vector>

namespace rkv::policy {

// Projections [head_dim][rank] such that (q query) . (k key) is close to q . k on average over the
// queries and keys of the Gram matrices.
struct QueryKeyFactors {
  std::vector<float> query;
  std::vector<float> key;
};

// Gram matrices of queries and keys, sum of x x^T, [head_dim][head_dim] each.
struct QueryKeyGrams {
  std::span<const double> query;
  std::span<const double> key;
  std::int32_t head_dim = 0;
};

// The best of all factors of this rank: of Cholesky factors R of both matrices, the singular
// vectors of R_Q R_K^T. O(head_dim^3). A ridge of 1e-6 of the mean diagonal makes any matrix
// invertible. Source: policy specification 2.17 (c), the closed form.
QueryKeyFactors ClosedFactors(const QueryKeyGrams& grams, std::int32_t rank);

// `sweeps` of the paper's alternating least squares in Gram form, from the `rank` channels of the
// largest keys. Source: LRQK, arXiv:2510.23649; policy specification 2.17 (c).
QueryKeyFactors AlternatingFactors(const QueryKeyGrams& grams, std::int32_t rank,
                                   std::int32_t sweeps);

}  // namespace rkv::policy

#endif  // RKV_POLICY_QUERY_KEY_FACTORS_H_
