#include "policy/head_probe.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <vector>

#include "policy/composed.h"
#include "policy/hit_variation.h"
#include "policy/option_string.h"
#include "policy/parts.h"

namespace rkv::policy {
namespace {

constexpr std::int32_t kWindow = 64;  // last queries that are looked at

// Rows between the first and the last ones: at a prompt of 2048 tokens all but 128 and 256, as in
// DuoAttention's training, and as large a part of shorter ones. The window is no part of it.
struct Region {
  std::int32_t begin = 0;
  std::int32_t end = 0;
};

Region Far(const HeadPrefill& in) {
  const std::int32_t sinks = std::min(128, in.view.rows / 16);
  const std::int32_t recent = std::max(std::min(256, in.view.rows / 8), in.window.tokens);
  return {sinks, std::max(sinks, in.view.rows - recent)};
}

float FarShare(const LayerPrefill& layer, const HeadPrefill& in) {
  std::vector<float> mass(static_cast<std::size_t>(std::max(0, in.prefix())));
  const Region far = Far(in);
  if (far.begin == far.end) {
    return 0;
  }
  layer.backend->window_mass(in.window, in.view, mass, *layer.scratch);
  const double sum = std::accumulate(mass.begin() + far.begin, mass.begin() + far.end, 0.0);
  return static_cast<float>(sum / (in.window.tokens * in.window.group));
}

float MinusVariation(const LayerPrefill& layer, const HeadPrefill& in) {
  const Region far = Far(in);
  return -static_cast<float>(
      HitVariation(RegionWeights(layer, in, far.begin, far.end), far.end - far.begin, HitRule{}));
}

using Measure = float (*)(const LayerPrefill& layer, const HeadPrefill& in);

class HeadProbe final : public Evictor {
 public:
  HeadProbe(Measure measure, std::span<float> scores) : measure_(measure), scores_(scores) {}

  Needs needs(const TurnShape&) const override { return {.window = kWindow}; }
  std::int64_t RowsKept(const TurnShape&, std::int64_t rows) const override { return rows; }
  void Score(const LayerPrefill& layer, const HeadPrefill& in,
             std::vector<float>& /*scores*/) const override {
    const std::size_t at = static_cast<std::size_t>(layer.layer) * layer.heads.size() +
                           static_cast<std::size_t>(in.kv_head);
    scores_[at] += measure_(layer, in);
  }
  Status Evict(const LayerPrefill&, std::span<Rows>) const override { return {}; }

 private:
  Measure measure_;
  std::span<float> scores_;
};

struct Probe {
  std::string_view method;
  Measure measure;
};
constexpr std::array kProbes = {Probe{"duo", FarShare}, Probe{"catekv", MinusVariation}};

}  // namespace

Result<std::unique_ptr<const Policy>> MakeHeadProbe(std::string_view method,
                                                    std::span<float> scores) {
  std::vector<std::string_view> names;
  for (const Probe& probe : kProbes) {
    names.push_back(probe.method);
    if (probe.method == method) {
      return std::unique_ptr<const Policy>(std::make_unique<ComposedPolicy>(
          "probe", "probe", Parts{.evictor = std::make_unique<HeadProbe>(probe.measure, scores)}));
    }
  }
  return Status(Code::kInvalidArgument, fmt::format("there is no head table for method '{}'{}",
                                                    method, NearestAndAll(method, names)));
}

}  // namespace rkv::policy
