#include <algorithm>

#include "policy/parts.h"

namespace rkv::policy {

std::int64_t Evictor::RowsKept(const TurnShape& shape, std::int64_t rows) const {
  return std::min<std::int64_t>(rows, shape.prompt_budget);
}

void Evictor::Score(const LayerPrefill& layer, const HeadPrefill& in,
                    std::vector<float>& scores) const {
  if (in.window.tokens > 0 && in.prefix() > 0) {
    scores.resize(static_cast<std::size_t>(in.prefix()));
    layer.backend->window_mass(in.window, in.view, scores, *layer.scratch);
  }
}

}  // namespace rkv::policy
