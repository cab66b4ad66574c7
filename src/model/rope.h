// Rotary position embedding, equal to ggml's for every supported scaling.
#ifndef RKV_MODEL_ROPE_H_
#define RKV_MODEL_ROPE_H_

#include <cstdint>
#include <span>
#include <vector>

#include "model/hyper_params.h"

namespace rkv::model {

// Thread-safe after construction.
class Rope {
 public:
  explicit Rope(const RopeParams& params);

  // cos_sin: [dims] = cos, sin of pair 0, cos, sin of pair 1, … for `position`. Angles are built by
  // the same f32 recurrence as ggml's, so that long positions agree. O(dims).
  void Angles(std::int32_t position, std::span<float> cos_sin) const;

  // Rotates `heads` heads of `head_dim` numbers at x in place by angles from Angles.
  void Apply(std::span<const float> cos_sin, float* x, std::int32_t heads,
             std::int32_t head_dim) const;

  std::int32_t dims() const { return params_.dims; }

 private:
  RopeParams params_;
};

}  // namespace rkv::model

#endif  // RKV_MODEL_ROPE_H_
