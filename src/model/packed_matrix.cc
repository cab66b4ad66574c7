#include "model/packed_matrix.h"

#include <ggml.h>

#include <algorithm>
#include <cstring>
#include <span>

#include "base/check.h"
#include "base/half.h"

namespace rkv::model {
namespace {

constexpr std::size_t kRows = kPackedRows;
constexpr std::size_t kHalf = sizeof(std::uint16_t);

// The weights and scales of one row in one unit, as numbers.
struct RowUnit {
  std::uint8_t weights[256];
  std::uint16_t scale;      // f16: of the block, or of a K type's unit
  std::uint16_t minimum;    // f16, likewise
  std::uint8_t scales[16];  // of the K types' blocks; Q6_K: signed, one for 16 inputs
  std::uint8_t minima[8];   // of Q4_K's and Q5_K's blocks
};

std::uint16_t ReadU16(const std::uint8_t* from) {
  std::uint16_t bits;
  std::memcpy(&bits, from, sizeof bits);
  return bits;
}

// Q4_0, Q4_1, Q5_0, Q5_1: f16 scale, f16 minimum (the _1 types), 32 fifth bits (the Q5 types), then
// 16 bytes whose low halves are inputs 0 to 15 and high halves 16 to 31.
void ReadNibbles(std::uint32_t type, const std::uint8_t* from, RowUnit& out) {
  out.scale = ReadU16(from);
  from += kHalf;
  if (type == GGML_TYPE_Q4_1 || type == GGML_TYPE_Q5_1) {
    out.minimum = ReadU16(from);
    from += kHalf;
  }
  std::uint32_t fifth = 0;
  if (type == GGML_TYPE_Q5_0 || type == GGML_TYPE_Q5_1) {
    std::memcpy(&fifth, from, sizeof fifth);
    from += sizeof fifth;
  }
  for (std::size_t i = 0; i < 16; ++i) {
    out.weights[i] = static_cast<std::uint8_t>((from[i] & 15u) | (fifth >> i & 1u) << 4);
    out.weights[i + 16] = static_cast<std::uint8_t>(from[i] >> 4 | (fifth >> (i + 16) & 1u) << 4);
  }
}

// Q8_0: f16 scale, 32 signed bytes.
void ReadBytes(const std::uint8_t* from, RowUnit& out) {
  out.scale = ReadU16(from);
  for (std::size_t i = 0; i < 32; ++i) {
    out.weights[i] = static_cast<std::uint8_t>(from[kHalf + i] + 128u);
  }
}

// The 6-bit scales and minima of Q4_K and Q5_K: 12 bytes for 8 blocks.
void ReadSixBitScales(const std::uint8_t* from, RowUnit& out) {
  for (std::size_t i = 0; i < 4; ++i) {
    out.scales[i] = from[i] & 63u;
    out.minima[i] = from[i + 4] & 63u;
    out.scales[i + 4] = static_cast<std::uint8_t>((from[i + 8] & 15u) | (from[i] >> 6) << 4);
    out.minima[i + 4] = static_cast<std::uint8_t>(from[i + 8] >> 4 | (from[i + 4] >> 6) << 4);
  }
}

// Q4_K, Q5_K: f16 scale, f16 scale of the minima, 12 bytes of scales, 32 bytes of fifth bits (Q5_K:
// bit b is block b's), 128 bytes: of each 32, low halves are one block and high halves the next.
void ReadKUnit(std::uint32_t type, const std::uint8_t* from, RowUnit& out) {
  out.scale = ReadU16(from);
  out.minimum = ReadU16(from + kHalf);
  ReadSixBitScales(from + 2 * kHalf, out);
  from += 2 * kHalf + 12;
  const std::uint8_t* fifth = nullptr;
  if (type == GGML_TYPE_Q5_K) {
    fifth = from;
    from += 32;
  }
  for (std::size_t block = 0; block < 8; ++block) {
    for (std::size_t i = 0; i < 32; ++i) {
      const unsigned low = from[block / 2 * 32 + i] >> (block % 2 * 4) & 15u;
      const unsigned high = fifth == nullptr ? 0 : fifth[i] >> block & 1u;
      out.weights[block * 32 + i] = static_cast<std::uint8_t>(low | high << 4);
    }
  }
}

// Q6_K: 128 bytes of low halves, 64 of upper bit pairs, 16 signed scales, f16 scale. Of each 128
// inputs, 64 low bytes and 32 high bytes: input 32 q + l has its low half in byte l + 32 (q % 2),
// the high half of it when q > 1, and its upper bits in pair q of high byte l.
void ReadQ6K(const std::uint8_t* from, RowUnit& out) {
  for (std::size_t i = 0; i < 256; ++i) {
    const std::size_t part = i / 128;
    const std::size_t q = i % 128 / 32;
    const std::size_t l = i % 32;
    const unsigned low = from[part * 64 + l + 32 * (q % 2)] >> (q / 2 * 4) & 15u;
    const unsigned high = from[128 + part * 32 + l] >> (2 * q) & 3u;
    out.weights[i] = static_cast<std::uint8_t>(low | high << 4);
  }
  std::memcpy(out.scales, from + 192, 16);
  out.scale = ReadU16(from + 208);
}

void ReadUnit(std::uint32_t type, const std::byte* from, RowUnit& out) {
  const auto* bytes = reinterpret_cast<const std::uint8_t*>(from);
  switch (type) {
    case GGML_TYPE_Q8_0:
      return ReadBytes(bytes, out);
    case GGML_TYPE_Q4_K:
    case GGML_TYPE_Q5_K:
      return ReadKUnit(type, bytes, out);
    case GGML_TYPE_Q6_K:
      return ReadQ6K(bytes, out);
    default:
      return ReadNibbles(type, bytes, out);
  }
}

bool IsKType(std::uint32_t type) {
  return type == GGML_TYPE_Q4_K || type == GGML_TYPE_Q5_K || type == GGML_TYPE_Q6_K;
}

bool HasMinimum(std::uint32_t type) {
  return type == GGML_TYPE_Q4_1 || type == GGML_TYPE_Q5_1 || type == GGML_TYPE_Q4_K ||
         type == GGML_TYPE_Q5_K;
}

constexpr std::size_t kGroups = kPackedBlock / 4;
constexpr std::size_t kLanes = 4 * kRows;  // bytes of a group
using GroupBytes = std::uint8_t[kGroups][kLanes];

// Folds the bytes of 32 x 16 weights into the planes of a block.
void PutWeights(const PanelLayout& layout, const GroupBytes& bytes, std::uint8_t* block) {
  if (layout.low == kGroups * kLanes) {  // whole bytes
    std::memcpy(block, bytes, sizeof bytes);
    return;
  }
  for (std::size_t g = 0; g < 4; ++g) {
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      block[g * kLanes + lane] =
          static_cast<std::uint8_t>((bytes[g][lane] & 15u) | bytes[g + 4][lane] << 4);
    }
  }
  std::uint8_t* high = block + layout.low;
  const std::size_t planes = layout.high / kLanes;  // of 8 fifth bits, or of 4 upper pairs
  for (std::size_t g = 0; g < kGroups && planes > 0; ++g) {
    const std::size_t shift = planes == 1 ? g : g % 4 * 2;
    std::uint8_t* plane = high + g * planes / kGroups * kLanes;
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      plane[lane] |= static_cast<std::uint8_t>((bytes[g][lane] >> 4) << shift);
    }
  }
}

// The reverse.
void TakeWeights(const PanelLayout& layout, const std::uint8_t* block, GroupBytes& bytes) {
  if (layout.low == kGroups * kLanes) {
    std::memcpy(bytes, block, sizeof bytes);
    return;
  }
  for (std::size_t g = 0; g < 4; ++g) {
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      bytes[g][lane] = block[g * kLanes + lane] & 15u;
      bytes[g + 4][lane] = block[g * kLanes + lane] >> 4;
    }
  }
  const std::uint8_t* high = block + layout.low;
  const std::size_t planes = layout.high / kLanes;
  const unsigned mask = planes == 1 ? 1 : 3;
  for (std::size_t g = 0; g < kGroups && planes > 0; ++g) {
    const std::size_t shift = planes == 1 ? g : g % 4 * 2;
    const std::uint8_t* plane = high + g * planes / kGroups * kLanes;
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      bytes[g][lane] |= static_cast<std::uint8_t>((plane[lane] >> shift & mask) << 4);
    }
  }
}

void PutScales(std::uint32_t type, const PanelLayout& layout, const RowUnit& unit, std::size_t b,
               std::size_t row, std::uint8_t* block) {
  std::uint8_t* scales = block + layout.low + layout.high;
  if (type == GGML_TYPE_Q6_K) {
    scales[row] = unit.scales[2 * b];
    scales[kRows + row] = unit.scales[2 * b + 1];
  } else if (IsKType(type)) {
    scales[row] = unit.scales[b];
    scales[kRows + row] = unit.minima[b];
  } else {
    std::memcpy(scales + row * kHalf, &unit.scale, kHalf);
    if (HasMinimum(type)) {
      std::memcpy(scales + (kRows + row) * kHalf, &unit.minimum, kHalf);
    }
  }
}

// The unit of a panel from what its rows hold.
void PutUnit(std::uint32_t type, const PanelLayout& layout, std::span<const RowUnit> rows,
             std::uint8_t* unit) {
  for (std::size_t row = 0; row < rows.size() && layout.header > 0; ++row) {
    std::memcpy(unit + row * kHalf, &rows[row].scale, kHalf);
    if (HasMinimum(type)) {
      std::memcpy(unit + (kRows + row) * kHalf, &rows[row].minimum, kHalf);
    }
  }
  for (std::size_t b = 0; b < layout.blocks; ++b) {
    std::uint8_t* block = unit + layout.header + b * layout.block_bytes();
    GroupBytes bytes = {};
    for (std::size_t row = 0; row < rows.size(); ++row) {
      for (std::size_t g = 0; g < kGroups; ++g) {
        std::memcpy(&bytes[g][row * 4], rows[row].weights + b * 32 + g * 4, 4);
      }
      PutScales(type, layout, rows[row], b, row, block);
    }
    PutWeights(layout, bytes, block);
  }
}

float HalfAt(const std::uint8_t* from, std::size_t row) {
  return F16ToF32(ReadU16(from + row * kHalf));
}

void UnpackScales(std::uint32_t type, const std::uint8_t* header, const std::uint8_t* scales,
                  std::size_t row, UnpackedBlock& out) {
  float& minimum = out.minimum[row];
  minimum = 0.0f;
  if (type == GGML_TYPE_Q6_K) {
    for (std::size_t half = 0; half < 2; ++half) {
      const auto scale = static_cast<std::int8_t>(scales[half * kRows + row]);
      out.scale[half][row] = HalfAt(header, row) * static_cast<float>(scale);
    }
    return;
  }
  if (IsKType(type)) {
    out.scale[0][row] = HalfAt(header, row) * static_cast<float>(scales[row]);
    minimum = -HalfAt(header + kRows * kHalf, row) * static_cast<float>(scales[kRows + row]);
  } else {
    out.scale[0][row] = HalfAt(scales, row);
    minimum = HasMinimum(type) ? HalfAt(scales + kRows * kHalf, row) : 0.0f;
  }
  out.scale[1][row] = out.scale[0][row];
}

}  // namespace

PanelLayout LayoutOf(std::uint32_t type) {
  constexpr std::size_t kNibbles = 16 * kRows;
  switch (type) {
    case GGML_TYPE_Q4_0:
      return {.low = kNibbles, .scales = kHalf * kRows};
    case GGML_TYPE_Q4_1:
      return {.low = kNibbles, .scales = 2 * kHalf * kRows};
    case GGML_TYPE_Q5_0:
      return {.low = kNibbles, .high = 4 * kRows, .scales = kHalf * kRows};
    case GGML_TYPE_Q5_1:
      return {.low = kNibbles, .high = 4 * kRows, .scales = 2 * kHalf * kRows};
    case GGML_TYPE_Q8_0:
      return {.low = 2 * kNibbles, .scales = kHalf * kRows};
    case GGML_TYPE_Q4_K:
      return {.header = 2 * kHalf * kRows, .low = kNibbles, .scales = 2 * kRows, .blocks = 8};
    case GGML_TYPE_Q5_K:
      return {2 * kHalf * kRows, kNibbles, 4 * kRows, 2 * kRows, 8};
    case GGML_TYPE_Q6_K:
      return {kHalf * kRows, kNibbles, 8 * kRows, 2 * kRows, 8};
    default:
      return {};
  }
}

bool HasPackedLayout(std::uint32_t type, std::int32_t in) {
  const PanelLayout layout = LayoutOf(type);
  return layout.low > 0 && in > 0 && in % layout.unit_inputs() == 0;
}

std::size_t PackedPanelBytes(std::uint32_t type, std::int32_t in) {
  const PanelLayout layout = LayoutOf(type);
  return static_cast<std::size_t>(in / layout.unit_inputs()) * layout.unit_bytes();
}

std::size_t PackedMatrixBytes(std::uint32_t type, std::int32_t in, std::int32_t out) {
  return static_cast<std::size_t>(PanelCount(out)) * PackedPanelBytes(type, in);
}

void PackRows(std::uint32_t type, const std::byte* weights, std::size_t row_bytes,
              std::int32_t rows, std::int32_t in, std::byte* panel) {
  Check(HasPackedLayout(type, in), "weights without a packed layout");
  const PanelLayout layout = LayoutOf(type);
  const std::size_t ggml_unit = ggml_row_size(static_cast<ggml_type>(type), layout.unit_inputs());
  std::memset(panel, 0, PackedPanelBytes(type, in));
  RowUnit numbers[kRows];
  auto* unit = reinterpret_cast<std::uint8_t*>(panel);
  for (std::size_t u = 0; u < static_cast<std::size_t>(in / layout.unit_inputs()); ++u) {
    for (std::size_t row = 0; row < static_cast<std::size_t>(rows); ++row) {
      ReadUnit(type, weights + row * row_bytes + u * ggml_unit, numbers[row]);
    }
    PutUnit(type, layout, {numbers, static_cast<std::size_t>(rows)}, unit);
    unit += layout.unit_bytes();
  }
}

void UnpackBlock(std::uint32_t type, const std::byte* panel, std::size_t block,
                 UnpackedBlock& out) {
  const PanelLayout layout = LayoutOf(type);
  const auto* unit =
      reinterpret_cast<const std::uint8_t*>(panel) + block / layout.blocks * layout.unit_bytes();
  const std::uint8_t* from = unit + layout.header + block % layout.blocks * layout.block_bytes();
  TakeWeights(layout, from, out.bytes);
  for (std::size_t row = 0; row < kRows; ++row) {
    UnpackScales(type, unit, from + layout.low + layout.high, row, out);
  }
}

void UnpackRows(const PackedMatrix& weights, std::int64_t panel, float* out) {
  const auto in = static_cast<std::size_t>(weights.in);
  const std::byte* from =
      weights.panels + static_cast<std::size_t>(panel) * PackedPanelBytes(weights.type, weights.in);
  const std::int32_t centre = PackedCentre(weights.type);
  for (std::size_t b = 0; b < in / kPackedBlock; ++b) {
    UnpackedBlock block;
    UnpackBlock(weights.type, from, b, block);
    for (std::size_t row = 0; row < kRows; ++row) {
      for (std::size_t i = 0; i < kPackedBlock; ++i) {
        const int byte = block.bytes[i / 4][4 * row + i % 4] - centre;
        out[row * in + b * kPackedBlock + i] =
            block.scale[i / 16][row] * static_cast<float>(byte) + block.minimum[row];
      }
    }
  }
}

std::int32_t PackedCentre(std::uint32_t type) {
  switch (type) {
    case GGML_TYPE_Q4_0:
      return 8;
    case GGML_TYPE_Q5_0:
      return 16;
    case GGML_TYPE_Q6_K:
      return 32;
    case GGML_TYPE_Q8_0:
      return 128;
    default:
      return 0;
  }
}

}  // namespace rkv::model
