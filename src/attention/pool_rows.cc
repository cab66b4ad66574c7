#include "attention/pool_rows.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "base/check.h"

namespace rkv::attention {

// van Herk: cut the padded sequence into segments of `kernel`; any window of that width is a suffix
// of one segment and a prefix of the next, so two running maxima give every answer.
void MaxPoolRows(std::span<const float> in, std::int32_t kernel, std::span<float> out) {
  Check(kernel >= 1 && kernel % 2 == 1, "pooling needs an odd kernel");
  Check(in.size() == out.size(), "pooling needs in and out of one length");
  if (in.empty()) {
    return;
  }
  // A window wider than the data sees all of it; this also bounds the padding.
  const std::size_t width = std::min(static_cast<std::size_t>(kernel), 2 * in.size() - 1);
  const std::size_t half = width / 2;
  const std::size_t segments = (in.size() + 2 * half + width - 1) / width;
  std::vector<float> prefix(segments * width, -std::numeric_limits<float>::infinity());
  std::copy(in.begin(), in.end(), prefix.begin() + static_cast<std::ptrdiff_t>(half));
  std::vector<float> suffix = prefix;
  for (std::size_t i = 1; i < prefix.size(); ++i) {
    if (i % width != 0) {
      prefix[i] = std::max(prefix[i], prefix[i - 1]);
    }
    const std::size_t j = prefix.size() - 1 - i;
    if ((j + 1) % width != 0) {
      suffix[j] = std::max(suffix[j], suffix[j + 1]);
    }
  }
  for (std::size_t j = 0; j < out.size(); ++j) {
    out[j] = std::max(suffix[j], prefix[j + width - 1]);
  }
}

}  // namespace rkv::attention
