#include "model/packed_matrix.h"

#include <ggml.h>

#include <algorithm>
#include <cstring>

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

// Puts 32 weights of a row into the planes of a block.
void PutWeights(const PanelLayout& layout, const std::uint8_t* weights, std::size_t row,
                std::uint8_t* block) {
  for (std::size_t i = 0; i < 32; ++i) {
    const std::size_t group = i / 4;
    const std::size_t lane = row * 4 + i % 4;
    const unsigned w = weights[i];
    if (layout.low == 32 * kRows) {  // whole bytes
      block[group * 4 * kRows + lane] = static_cast<std::uint8_t>(w);
      continue;
    }
    block[group % 4 * 4 * kRows + lane] |= static_cast<std::uint8_t>((w & 15u) << (group / 4 * 4));
    std::uint8_t* high = block + layout.low;
    if (layout.high == 4 * kRows) {
      high[lane] |= static_cast<std::uint8_t>((w >> 4) << group);
    } else if (layout.high == 8 * kRows) {
      high[group / 4 * 4 * kRows + lane] |= static_cast<std::uint8_t>((w >> 4) << (group % 4 * 2));
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

float HalfAt(const std::uint8_t* from, std::size_t row) {
  return F16ToF32(ReadU16(from + row * kHalf));
}

std::uint8_t WeightAt(const PanelLayout& layout, const std::uint8_t* block, std::size_t group,
                      std::size_t lane) {
  if (layout.low == 32 * kRows) {
    return block[group * 4 * kRows + lane];
  }
  const unsigned low = block[group % 4 * 4 * kRows + lane] >> (group / 4 * 4) & 15u;
  const std::uint8_t* high = block + layout.low;
  unsigned top = 0;
  if (layout.high == 4 * kRows) {
    top = high[lane] >> group & 1u;
  } else if (layout.high == 8 * kRows) {
    top = high[group / 4 * 4 * kRows + lane] >> (group % 4 * 2) & 3u;
  }
  return static_cast<std::uint8_t>(low | top << 4);
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
  return static_cast<std::size_t>((out + kPackedRows - 1) / kPackedRows) *
         PackedPanelBytes(type, in);
}

void PackRows(std::uint32_t type, const std::byte* weights, std::size_t row_bytes,
              std::int32_t rows, std::int32_t in, std::byte* panel) {
  Check(HasPackedLayout(type, in), "weights without a packed layout");
  const PanelLayout layout = LayoutOf(type);
  const std::size_t ggml_unit = ggml_row_size(static_cast<ggml_type>(type), layout.unit_inputs());
  std::memset(panel, 0, PackedPanelBytes(type, in));
  auto* unit = reinterpret_cast<std::uint8_t*>(panel);
  for (std::size_t u = 0; u < static_cast<std::size_t>(in / layout.unit_inputs()); ++u) {
    for (std::size_t row = 0; row < static_cast<std::size_t>(rows); ++row) {
      RowUnit numbers;
      ReadUnit(type, weights + row * row_bytes + u * ggml_unit, numbers);
      if (layout.header > 0) {
        std::memcpy(unit + row * kHalf, &numbers.scale, kHalf);
        if (HasMinimum(type)) {
          std::memcpy(unit + (kRows + row) * kHalf, &numbers.minimum, kHalf);
        }
      }
      for (std::size_t b = 0; b < layout.blocks; ++b) {
        std::uint8_t* block = unit + layout.header + b * layout.block_bytes();
        PutWeights(layout, numbers.weights + b * 32, row, block);
        PutScales(type, layout, numbers, b, row, block);
      }
    }
    unit += layout.unit_bytes();
  }
}

void UnpackBlock(std::uint32_t type, const std::byte* panel, std::size_t block,
                 UnpackedBlock& out) {
  const PanelLayout layout = LayoutOf(type);
  const auto* unit =
      reinterpret_cast<const std::uint8_t*>(panel) + block / layout.blocks * layout.unit_bytes();
  const std::uint8_t* from = unit + layout.header + block % layout.blocks * layout.block_bytes();
  for (std::size_t row = 0; row < kRows; ++row) {
    for (std::size_t group = 0; group < 8; ++group) {
      for (std::size_t j = 0; j < 4; ++j) {
        out.bytes[group][row][j] = WeightAt(layout, from, group, row * 4 + j);
      }
    }
    UnpackScales(type, unit, from + layout.low + layout.high, row, out);
  }
  out.centre = type == GGML_TYPE_Q4_0   ? 8
               : type == GGML_TYPE_Q5_0 ? 16
               : type == GGML_TYPE_Q6_K ? 32
               : type == GGML_TYPE_Q8_0 ? 128
                                        : 0;
}

}  // namespace rkv::model
