// Median and spread of repetitions.
#ifndef RKV_BENCH_BENCH_STATS_H_
#define RKV_BENCH_BENCH_STATS_H_

#include <vector>

namespace rkv::bench {

struct Spread {
  double median = 0;  // the mean of the middle two when their number is even
  double min = 0;
  double max = 0;
};

// All 0 without values. Pure.
Spread SpreadOf(std::vector<double> values);

}  // namespace rkv::bench

#endif  // RKV_BENCH_BENCH_STATS_H_
