// Element-wise operators of the forward pass on f32 rows, vectorised for this CPU at run time.
#ifndef RKV_MODEL_OPS_H_
#define RKV_MODEL_OPS_H_

#include <cstdint>
#include <span>

namespace rkv::model {

// out = x / sqrt(mean(x^2) + eps) * weight. in and out may be the same. [n] each.
void RmsNorm(std::span<const float> x, std::span<const float> weight, float eps,
             std::span<float> out);

// gate = gate * sigmoid(gate) * up.
void SiluMul(std::span<float> gate, std::span<const float> up);

// x += y.
void AddTo(std::span<float> x, std::span<const float> y);

// out = x as bf16, rounded to nearest even; NaN stays NaN. [n] each.
void RoundToBf16(std::span<const float> x, std::span<std::uint16_t> out);

}  // namespace rkv::model

#endif  // RKV_MODEL_OPS_H_
