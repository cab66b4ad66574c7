// BlockIsa: the instructions that products of block-quantised weights are written for.
#ifndef RKV_MODEL_BLOCK_ISA_H_
#define RKV_MODEL_BLOCK_ISA_H_

#include <cstdint>

namespace rkv::model {

// kVnni: AVX-512 VNNI, sums of products of bytes in 32 bits. kAvx2: AVX2, FMA and F16C, sums in 16
// bits. Best last.
enum class BlockIsa : std::uint8_t { kNone, kAvx2, kVnni };
bool HasBlockIsa(BlockIsa isa);
// The best that this CPU has.
BlockIsa BestBlockIsa();

}  // namespace rkv::model

#endif  // RKV_MODEL_BLOCK_ISA_H_
