#include "bench/roofline.h"

namespace rkv::bench {

std::optional<double> MethodKvBytes(std::string_view method, const ExplainShape& cache,
                                    const TestShape& test) {
  ExplainShape shape = cache;
  shape.context = test.depth + test.new_tokens;
  shape.max_new_tokens = test.new_tokens;
  const Result<PolicyNumbers> numbers = ExplainPolicy(method, shape);
  return numbers ? std::optional(numbers->bytes_read) : std::nullopt;
}

double RooflineRate(double bytes, double gb_per_second) {
  return bytes > 0 ? gb_per_second * 1e9 / bytes : 0;
}

}  // namespace rkv::bench
