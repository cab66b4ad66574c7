// PoolRows: 1-D max pooling of row scores (SnapKV's smoothing).
#ifndef RKV_ATTENTION_POOL_ROWS_H_
#define RKV_ATTENTION_POOL_ROWS_H_

#include <cstdint>
#include <span>

namespace rkv::attention {

// out[j] = max of in[i] for |i - j| <= (kernel - 1) / 2, indices outside ignored.
// REQUIRES: kernel odd and >= 1; in and out of one length, not overlapping. O(n) (van Herk).
// Source: SnapKV, arXiv:2404.14469; kernel 63: RocketKV, arXiv:2502.14051.
void MaxPoolRows(std::span<const float> in, std::int32_t kernel, std::span<float> out);

}  // namespace rkv::attention

#endif  // RKV_ATTENTION_POOL_ROWS_H_
