// The Highway kernels behind CpuBackend, dispatched once a call to this CPU's instruction set.
#ifndef RKV_ATTENTION_CPU_KERNELS_H_
#define RKV_ATTENTION_CPU_KERNELS_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "attention/backend.h"

namespace rkv::attention::cpu {

// Contracts: the fields of the same name in Backend.
void StoreRows(kv::Codec codec, std::int32_t head_dim, const float* keys, const float* values,
               std::size_t stride, std::span<std::byte* const> rows);
void PrefillTileRows(const PrefillTile& tile, const kv::HeadView& head, Scratch& scratch);
void DecodeRows(const GroupQuery& query, const kv::HeadView& head, const RowList& rows, float scale,
                const PartialSoftmax& out);
void ScoreRows(const GroupQuery& query, const kv::HeadView& head, const RowList& rows, float scale,
               float* scores);
void WindowMass(const WindowQuery& window, const kv::HeadView& head, std::span<float> mass,
                Scratch& scratch);
void ColumnMass(const PrefillTile& tile, const kv::HeadView& head, std::int32_t band, float* all,
                float* near, Scratch& scratch);
void ChunkScores(const GroupQuery& query, const kv::IndexView& index, std::int32_t channels,
                 std::span<float> u, float* by_head, Scratch& scratch);
std::int32_t TopK(std::span<const float> scores, std::int32_t k, std::int32_t* out,
                  Scratch& scratch);

}  // namespace rkv::attention::cpu

#endif  // RKV_ATTENTION_CPU_KERNELS_H_
