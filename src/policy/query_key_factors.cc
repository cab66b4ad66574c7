#include "policy/query_key_factors.h"

#include <Eigen/Cholesky>
#include <Eigen/Dense>
#include <Eigen/SVD>
#include <algorithm>
#include <numeric>

namespace rkv::policy {
namespace {

using Eigen::MatrixXd;
using RowMajor = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

constexpr double kRidge = 1e-6;

// x plus the ridge; the unit matrix where x is zero.
MatrixXd Ridged(const MatrixXd& x) {
  const double mean = x.trace() / static_cast<double>(x.rows());
  return x + (mean > 0 ? kRidge * mean : 1.0) * MatrixXd::Identity(x.rows(), x.cols());
}

MatrixXd Gram(std::span<const double> numbers, std::int32_t d) {
  return Ridged(Eigen::Map<const RowMajor>(numbers.data(), d, d));
}

std::vector<float> Numbers(const MatrixXd& m) {
  std::vector<float> out(static_cast<std::size_t>(m.size()));
  Eigen::Map<Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>>(
      out.data(), m.rows(), m.cols()) = m.cast<float>();
  return out;
}

// The `rank` columns of the unit matrix where the diagonal of `gram` is largest.
MatrixXd LargestChannels(const MatrixXd& gram, std::int32_t rank) {
  std::vector<Eigen::Index> order(static_cast<std::size_t>(gram.rows()));
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order,
                           [&](Eigen::Index a, Eigen::Index b) { return gram(a, a) > gram(b, b); });
  MatrixXd out = MatrixXd::Zero(gram.rows(), rank);
  for (Eigen::Index i = 0; i < rank; ++i) {
    out(order[static_cast<std::size_t>(i)], i) = 1;
  }
  return out;
}

// right * inverse of the symmetric `system`.
MatrixXd Solve(const MatrixXd& system, const MatrixXd& right) {
  return Ridged(system).ldlt().solve(right.transpose()).transpose();
}

}  // namespace

QueryKeyFactors ClosedFactors(const QueryKeyGrams& grams, std::int32_t rank) {
  const MatrixXd rq = Gram(grams.query, grams.head_dim).llt().matrixU();
  const MatrixXd rk = Gram(grams.key, grams.head_dim).llt().matrixU();
  const Eigen::BDCSVD<MatrixXd> svd(rq * rk.transpose(), Eigen::ComputeFullU | Eigen::ComputeFullV);
  const MatrixXd root = svd.singularValues().head(rank).cwiseSqrt().asDiagonal();
  const MatrixXd left = svd.matrixU().leftCols(rank) * root;
  const MatrixXd right = svd.matrixV().leftCols(rank) * root;
  return {Numbers(rq.triangularView<Eigen::Upper>().solve(left)),
          Numbers(rk.triangularView<Eigen::Upper>().solve(right))};
}

QueryKeyFactors AlternatingFactors(const QueryKeyGrams& grams, std::int32_t rank,
                                   std::int32_t sweeps) {
  const MatrixXd sq = Gram(grams.query, grams.head_dim);
  const MatrixXd sk = Gram(grams.key, grams.head_dim);
  MatrixXd mk = LargestChannels(sk, rank);
  MatrixXd mq = mk;
  for (std::int32_t i = 0; i < sweeps; ++i) {
    const MatrixXd key_codes = mk.transpose() * sk * mk;  // A_K^T A_K
    // B^T = Gram M (A^T A)^-1
    const MatrixXd bq = Solve(mq.transpose() * sq * mq, sq * mq);
    const MatrixXd bk = Solve(key_codes, sk * mk);
    mq = Solve(key_codes + bq.transpose() * bq, sk * mk + bq);
    mk = Solve(mq.transpose() * sq * mq + bk.transpose() * bk, sq * mq + bk);
  }
  return {Numbers(mq), Numbers(mk)};
}

}  // namespace rkv::policy
