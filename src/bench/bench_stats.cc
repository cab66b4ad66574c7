#include "bench/bench_stats.h"

#include <algorithm>
#include <cstddef>

namespace rkv::bench {

Spread SpreadOf(std::vector<double> values) {
  if (values.empty()) {
    return {};
  }
  std::ranges::sort(values);
  const std::size_t middle = values.size() / 2;
  const double median =
      values.size() % 2 == 1 ? values[middle] : 0.5 * (values[middle - 1] + values[middle]);
  return {median, values.front(), values.back()};
}

}  // namespace rkv::bench
