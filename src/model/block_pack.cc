// Reads ggml's blocks of weights into panels.
#include <ggml.h>

#include <array>
#include <cstring>

#include "base/check.h"
#include "base/half.h"
#include "model/block_kernel.h"

namespace rkv::model {
namespace {

// 32 weights: scale * (number - zero) + minimum, with one scale for each half.
struct Block {
  std::array<std::uint8_t, kGemmBlock> numbers;
  std::int32_t zero = 0;
  float scales[2];
  float minimum = 0.0f;
};

float ReadF16(const std::byte* from) {
  std::uint16_t bits;
  std::memcpy(&bits, from, sizeof bits);
  return F16ToF32(bits);
}

std::uint32_t Byte(const std::byte* from, std::size_t i) {
  return static_cast<std::uint32_t>(from[i]);
}

// Types of 32 numbers: f16 scale, f16 minimum (the _1 types), 32 fifth bits (the Q5 types), then 16
// bytes whose low halves are numbers 0 to 15 and high halves 16 to 31. The _0 types are centred.
Block ReadQ4Q5(std::uint32_t type, const std::byte* from) {
  const bool five = type == GGML_TYPE_Q5_0 || type == GGML_TYPE_Q5_1;
  Block block;
  block.scales[0] = block.scales[1] = ReadF16(from);
  from += 2;
  if (type == GGML_TYPE_Q4_0 || type == GGML_TYPE_Q5_0) {
    block.zero = five ? 16 : 8;
  } else {
    block.minimum = ReadF16(from);
    from += 2;
  }
  std::uint32_t fifth = 0;
  if (five) {
    std::memcpy(&fifth, from, sizeof fifth);
    from += 4;
  }
  for (std::size_t i = 0; i < 16; ++i) {
    const std::uint32_t pair = Byte(from, i);
    block.numbers[i] = static_cast<std::uint8_t>((pair & 15u) | (fifth >> i & 1u) << 4);
    block.numbers[i + 16] = static_cast<std::uint8_t>(pair >> 4 | (fifth >> (i + 16) & 1u) << 4);
  }
  return block;
}

// f16 scale, 32 signed bytes.
Block ReadQ8(const std::byte* from) {
  Block block;
  block.scales[0] = block.scales[1] = ReadF16(from);
  block.zero = 128;
  for (std::size_t i = 0; i < block.numbers.size(); ++i) {
    block.numbers[i] = static_cast<std::uint8_t>(Byte(from, 2 + i) ^ 0x80u);
  }
  return block;
}

// Block `part` of 8 in a Q4_K or Q5_K: f16 scale of the scales, f16 scale of the minima, 8 scales
// and 8 minima of 6 bits in 12 bytes, (Q5_K) 32 bytes that hold the fifth bits of number i of every
// part, then 4 x 32 bytes: low halves are an even part, high halves the odd one behind it.
Block ReadQ4KQ5K(std::uint32_t type, const std::byte* from, std::size_t part) {
  const std::byte* six = from + 4;
  std::uint32_t scale;
  std::uint32_t minimum;
  if (part < 4) {
    scale = Byte(six, part) & 63u;
    minimum = Byte(six, part + 4) & 63u;
  } else {
    scale = (Byte(six, part + 4) & 15u) | Byte(six, part - 4) >> 6 << 4;
    minimum = Byte(six, part + 4) >> 4 | Byte(six, part) >> 6 << 4;
  }
  Block block;
  block.scales[0] = block.scales[1] = ReadF16(from) * static_cast<float>(scale);
  block.minimum = -ReadF16(from + 2) * static_cast<float>(minimum);
  const bool five = type == GGML_TYPE_Q5_K;
  const std::byte* fifth = from + 16;
  const std::byte* low = from + (five ? 48 : 16) + part / 2 * 32;
  for (std::size_t i = 0; i < block.numbers.size(); ++i) {
    std::uint32_t number = Byte(low, i) >> (part % 2 * 4) & 15u;
    if (five) {
      number |= (Byte(fifth, i) >> part & 1u) << 4;
    }
    block.numbers[i] = static_cast<std::uint8_t>(number);
  }
  return block;
}

// Block `part` of 8 in a Q6_K: 128 bytes of low halves, 64 bytes of high pairs of bits, 16 signed
// scales (one for 16 numbers), f16 scale of the scales. Each half of the 256 numbers takes 64 and
// 32 of the bytes; its parts 0 to 3 are low halves of bytes 0 and 32, then high halves of the same,
// and bits 2 * part of the pairs.
Block ReadQ6K(const std::byte* from, std::size_t part) {
  const std::size_t half = part / 4;
  const std::size_t quarter = part % 4;
  const std::byte* low = from + half * 64 + quarter % 2 * 32;
  const std::byte* high = from + 128 + half * 32;
  Block block;
  block.zero = 32;
  for (std::size_t i = 0; i < block.numbers.size(); ++i) {
    const std::uint32_t four = Byte(low, i) >> (quarter / 2 * 4) & 15u;
    block.numbers[i] = static_cast<std::uint8_t>(four | (Byte(high, i) >> (2 * quarter) & 3u) << 4);
  }
  for (std::size_t i = 0; i < 2; ++i) {
    const auto scale = static_cast<std::int8_t>(from[192 + 2 * part + i]);
    block.scales[i] = ReadF16(from + 208) * static_cast<float>(scale);
  }
  return block;
}

// Block `index` of a row.
Block ReadBlock(std::uint32_t type, const std::byte* row, std::size_t index) {
  const std::size_t size = ggml_type_size(static_cast<ggml_type>(type));
  switch (type) {
    case GGML_TYPE_Q8_0:
      return ReadQ8(row + index * size);
    case GGML_TYPE_Q4_K:
    case GGML_TYPE_Q5_K:
      return ReadQ4KQ5K(type, row + index / 8 * size, index % 8);
    case GGML_TYPE_Q6_K:
      return ReadQ6K(row + index / 8 * size, index % 8);
    default:
      return ReadQ4Q5(type, row + index * size);
  }
}

// Writes a block as row `row` of the panel's block at `to`.
void PlaceBlock(const Block& block, PanelKind kind, std::size_t row, std::byte* to) {
  const std::int32_t shift = kind == PanelKind::kMinimum ? 0 : 128 - block.zero;
  std::array<std::uint8_t, kGemmBlock> bytes;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    bytes[i] = static_cast<std::uint8_t>(block.numbers[i] + shift);
  }
  for (std::size_t g = 0; g < kBlockGroups; ++g) {
    std::memcpy(to + g * kGroupBytes + row * kGroupInputs, bytes.data() + g * kGroupInputs,
                kGroupInputs);
  }
  auto* floats = reinterpret_cast<float*>(to + kByteCount);
  floats[row] = block.scales[0];
  if (kind == PanelKind::kCentred16) {
    floats[kPanelRows + row] = block.scales[1];
  } else if (kind == PanelKind::kMinimum) {
    floats[kPanelRows + row] = block.minimum - block.scales[0] * static_cast<float>(block.zero);
  }
}

}  // namespace

PanelForm PanelFormFor(std::uint32_t type, BlockIsa isa) {
  const bool avx2 = isa == BlockIsa::kAvx2;
  switch (isa == BlockIsa::kNone ? std::uint32_t{GGML_TYPE_F32} : type) {
    case GGML_TYPE_Q4_0:
      return {isa, avx2 ? PanelKind::kMinimum : PanelKind::kCentred, false};
    case GGML_TYPE_Q5_0:
      return {isa, avx2 ? PanelKind::kMinimum : PanelKind::kCentred, true};
    case GGML_TYPE_Q4_1:
    case GGML_TYPE_Q4_K:
      return {isa, PanelKind::kMinimum, false};
    case GGML_TYPE_Q5_1:
    case GGML_TYPE_Q5_K:
      return {isa, PanelKind::kMinimum, true};
    case GGML_TYPE_Q8_0:
      return {avx2 ? BlockIsa::kNone : isa, PanelKind::kCentred, false};
    case GGML_TYPE_Q6_K:
      return {avx2 ? BlockIsa::kNone : isa, PanelKind::kCentred16, false};
    default:
      return {};
  }
}

void PackPanel(const PanelSource& source, PanelForm form, std::byte* panel) {
  Check(PanelFormFor(source.type, form.isa).isa != BlockIsa::kNone && source.in % kGemmBlock == 0,
        "weights that cannot be packed");
  std::memset(panel, 0, PanelBytes(form.kind, source.in));
  for (std::size_t b = 0; b < static_cast<std::size_t>(source.in / kGemmBlock); ++b) {
    for (std::size_t row = 0; row < static_cast<std::size_t>(source.rows); ++row) {
      const Block block = ReadBlock(source.type, source.weights + row * source.row_bytes, b);
      PlaceBlock(block, form.kind, row, panel);
    }
    panel += PanelBlockBytes(form.kind);
  }
}

}  // namespace rkv::model
