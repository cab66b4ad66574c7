// Codec: how numbers of a key or value row are stored.
#ifndef RKV_KV_CODEC_H_
#define RKV_KV_CODEC_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "rkv/status.h"

namespace rkv::kv {

enum class Codec : std::uint8_t { kF32, kF16, kBf16 };

// Bytes of one number.
constexpr std::size_t CodecBytes(Codec codec) { return codec == Codec::kF32 ? 4 : 2; }

// "f32", "f16", "bf16".
std::string_view CodecName(Codec codec);
// Errors: kInvalidArgument names the value, the nearest and all allowed names.
Result<Codec> ParseCodec(std::string_view name);

// Plain conversions of whole rows; round to nearest even. REQUIRES: equal lengths.
void EncodeRow(Codec codec, std::span<const float> from, std::byte* to);
void DecodeRow(Codec codec, const std::byte* from, std::span<float> to);

}  // namespace rkv::kv

#endif  // RKV_KV_CODEC_H_
