// Expands packed weights into panels of bytes.
#include <ggml.h>

#include <cstring>

#include "base/check.h"
#include "model/block_kernel.h"

namespace rkv::model {
namespace {

// Writes one block of a panel.
void PlaceBlock(const UnpackedBlock& block, std::int32_t centre, PanelKind kind, std::byte* to) {
  const std::int32_t shift = kind == PanelKind::kMinimum ? 0 : 128 - centre;
  const auto* from = reinterpret_cast<const std::uint8_t*>(block.bytes);
  auto* bytes = reinterpret_cast<std::uint8_t*>(to);
  for (std::size_t i = 0; i < kByteCount; ++i) {
    bytes[i] = static_cast<std::uint8_t>(from[i] + shift);
  }
  auto* floats = reinterpret_cast<float*>(to + kByteCount);
  for (std::size_t row = 0; row < kPackedRows; ++row) {
    floats[row] = block.scale[0][row];
    if (kind == PanelKind::kCentred16) {
      floats[kPackedRows + row] = block.scale[1][row];
    } else if (kind == PanelKind::kMinimum) {
      floats[kPackedRows + row] =
          block.minimum[row] - block.scale[0][row] * static_cast<float>(centre);
    }
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

void ExpandPanel(std::uint32_t type, const std::byte* packed, std::int32_t in, PanelForm form,
                 std::byte* panel) {
  Check(PanelFormFor(type, form.isa).isa != BlockIsa::kNone && HasPackedLayout(type, in),
        "weights that have no panels");
  for (std::size_t b = 0; b < static_cast<std::size_t>(in / kPackedBlock); ++b) {
    UnpackedBlock block;
    UnpackBlock(type, packed, b, block);
    PlaceBlock(block, PackedCentre(type), form.kind, panel);
    panel += PanelBlockBytes(form.kind);
  }
}

}  // namespace rkv::model
