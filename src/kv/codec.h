// Codec: how numbers of a key or value row are stored.
#ifndef RKV_KV_CODEC_H_
#define RKV_KV_CODEC_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "rkv/status.h"

namespace rkv::kv {

// kQ8: integers from -127 to 127 with f32 scales: of a key one for every kKeyGroup numbers, because
// keys of some models (Qwen2.5) have channels a hundred times the others, which one scale would
// round away; of a value one for all numbers, so that kernels can fold it into the row's weight.
enum class Codec : std::uint8_t { kF32, kF16, kBf16, kQ8 };
enum class Part : std::uint8_t { kKey, kValue };
inline constexpr std::int32_t kKeyGroup = 16;

// Bytes of one number, without scales.
constexpr std::size_t CodecBytes(Codec codec) {
  return codec == Codec::kF32 ? 4 : codec == Codec::kQ8 ? 1 : 2;
}

// Numbers that share a scale.
constexpr std::int32_t ScaleGroup(Part part, std::int32_t width) {
  return part == Part::kKey ? kKeyGroup : width;
}

// kQ8: bytes from the start of a key or value of `width` numbers to its first scale.
constexpr std::size_t ScaleOffset(std::int32_t width) {
  return (static_cast<std::size_t>(width) + 3) / 4 * 4;
}

// Bytes of a stored key or value of `width` numbers. kQ8: the numbers, up to 3 bytes of padding,
// the scales.
constexpr std::size_t StoredBytes(Codec codec, std::int32_t width, Part part = Part::kKey) {
  if (codec != Codec::kQ8 || width == 0) {
    return static_cast<std::size_t>(width) * CodecBytes(codec);
  }
  const std::int32_t group = ScaleGroup(part, width);
  return ScaleOffset(width) + sizeof(float) * static_cast<std::size_t>((width + group - 1) / group);
}

// Bytes of a key with its value.
constexpr std::size_t RowBytes(Codec codec, std::int32_t width) {
  return StoredBytes(codec, width, Part::kKey) + StoredBytes(codec, width, Part::kValue);
}

// The scale for numbers up to `most`, and what they are multiplied by before they are rounded.
// Numbers that are not finite are stored as 0 with the scale NaN, so that they do not go unseen.
inline float Q8Scale(float most) { return most < 1e-30f ? 0.0f : most * (1.0f / 127.0f); }
inline float Q8Inverse(float scale) { return scale == 0.0f ? 0.0f : 1.0f / scale; }

// How minima and maxima of rows in `codec` are stored: as their numbers, of kQ8 in f16.
constexpr Codec IndexCodec(Codec codec) { return codec == Codec::kQ8 ? Codec::kF16 : codec; }

// "f32", "f16", "bf16", "q8".
std::string_view CodecName(Codec codec);
// Errors: kInvalidArgument names the value, the nearest and all allowed names.
Result<Codec> ParseCodec(std::string_view name);

// Plain conversions of a whole key or value, StoredBytes long; round to nearest even. kQ8: all
// numbers of a group become NaN when one is not finite, and 0 when all are below 1e-30.
// REQUIRES: from and to hold equally many numbers.
void EncodeRow(Codec codec, std::span<const float> from, std::byte* to, Part part = Part::kKey);
void DecodeRow(Codec codec, const std::byte* from, std::span<float> to, Part part = Part::kKey);

}  // namespace rkv::kv

#endif  // RKV_KV_CODEC_H_
