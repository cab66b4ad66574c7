#include "model/rope.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numbers>

namespace rkv::model {
namespace {

// The pair index at which a rotation makes `turns` turns over the original context.
float CorrectionPair(const RopeParams& p, float turns) {
  const float pi = std::numbers::pi_v<float>;
  return static_cast<float>(p.dims) *
         std::log(static_cast<float>(p.original_context) / (turns * 2.0f * pi)) /
         (2.0f * std::log(p.freq_base));
}

}  // namespace

Rope::Rope(const RopeParams& params) : params_(params) {}

// Source: YaRN, arXiv:2309.00071; order of operations as in ggml, so that f32 rounding agrees.
void Rope::Angles(std::int32_t position, std::span<float> cos_sin) const {
  const float theta_scale = std::pow(params_.freq_base, -2.0f / static_cast<float>(params_.dims));
  const bool yarn = params_.ext_factor != 0.0f;
  float low = 0.0f;
  float high = 0.0f;
  float magnitude = params_.attn_factor;
  if (yarn) {
    low = std::max(0.0f, std::floor(CorrectionPair(params_, params_.beta_fast)));
    high = std::min(static_cast<float>(params_.dims - 1),
                    std::ceil(CorrectionPair(params_, params_.beta_slow)));
    magnitude *= 1.0f + 0.1f * std::log(1.0f / params_.freq_scale);
  }
  float theta = static_cast<float>(position);
  for (std::size_t pair = 0; pair < static_cast<std::size_t>(params_.dims / 2); ++pair) {
    const float extrapolated =
        params_.freq_factors.empty() ? theta : theta / params_.freq_factors[pair];
    const float interpolated = params_.freq_scale * extrapolated;
    float angle = interpolated;
    if (yarn) {
      const float ramp = (static_cast<float>(pair) - low) / std::max(0.001f, high - low);
      const float mix = (1.0f - std::min(1.0f, std::max(0.0f, ramp))) * params_.ext_factor;
      angle = interpolated * (1.0f - mix) + extrapolated * mix;
    }
    cos_sin[2 * pair] = std::cos(angle) * magnitude;
    cos_sin[2 * pair + 1] = std::sin(angle) * magnitude;
    theta *= theta_scale;
  }
}

void Rope::Apply(std::span<const float> cos_sin, float* x, std::int32_t heads,
                 std::int32_t head_dim) const {
  const auto half = static_cast<std::size_t>(params_.dims / 2);
  const bool neox = params_.order == RopeOrder::kNeox;
  const std::size_t step = neox ? 1 : 2;    // from a pair to the next
  const std::size_t gap = neox ? half : 1;  // inside a pair
  for (std::int32_t head = 0; head < heads; ++head, x += head_dim) {
    for (std::size_t pair = 0; pair < half; ++pair) {
      float& first = x[pair * step];
      float& second = x[pair * step + gap];
      const float c = cos_sin[2 * pair];
      const float s = cos_sin[2 * pair + 1];
      const float rotated = first * c - second * s;
      second = first * s + second * c;
      first = rotated;
    }
  }
}

}  // namespace rkv::model
