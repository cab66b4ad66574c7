#include "kv/codec.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>

#include "base/check.h"
#include "base/half.h"
#include "base/text.h"

namespace rkv::kv {
namespace {

constexpr std::array<std::string_view, 4> kNames = {"f32", "f16", "bf16", "q8"};

template <class Convert>
void Encode16(std::span<const float> from, std::byte* to, Convert convert) {
  for (std::size_t i = 0; i < from.size(); ++i) {
    const std::uint16_t bits = convert(from[i]);
    std::memcpy(to + i * sizeof bits, &bits, sizeof bits);
  }
}

template <class Convert>
void Decode16(const std::byte* from, std::span<float> to, Convert convert) {
  for (std::size_t i = 0; i < to.size(); ++i) {
    std::uint16_t bits = 0;
    std::memcpy(&bits, from + i * sizeof bits, sizeof bits);
    to[i] = convert(bits);
  }
}

// The numbers of one scale, which it returns. The fast kernel does the same operations.
float EncodeGroup(std::span<const float> from, std::byte* to) {
  float most = 0.0f;
  bool finite = true;
  for (const float number : from) {
    most = std::max(most, std::fabs(number));
    finite = finite && std::isfinite(number);
  }
  const float scale = finite ? Q8Scale(most) : std::numeric_limits<float>::quiet_NaN();
  const float inverse = finite ? Q8Inverse(scale) : 0.0f;
  for (std::size_t i = 0; i < from.size(); ++i) {
    const float number = finite ? std::nearbyint(from[i] * inverse) : 0.0f;
    to[i] = static_cast<std::byte>(static_cast<std::int8_t>(number));
  }
  return scale;
}

void EncodeQ8(std::span<const float> from, std::byte* to, std::size_t group) {
  std::byte* scales = to + ScaleOffset(static_cast<std::int32_t>(from.size()));
  std::fill(to + from.size(), scales, std::byte{0});
  for (std::size_t x = 0; x < from.size(); x += group, scales += sizeof(float)) {
    const std::size_t count = std::min(group, from.size() - x);
    const float scale = EncodeGroup(from.subspan(x, count), to + x);
    std::memcpy(scales, &scale, sizeof scale);
  }
}

void DecodeQ8(const std::byte* from, std::span<float> to, std::size_t group) {
  const std::byte* scales = from + ScaleOffset(static_cast<std::int32_t>(to.size()));
  for (std::size_t x = 0; x < to.size(); ++x) {
    float scale = 0;
    std::memcpy(&scale, scales + sizeof scale * (x / group), sizeof scale);
    to[x] = scale * static_cast<float>(static_cast<std::int8_t>(from[x]));
  }
}

}  // namespace

std::string_view CodecName(Codec codec) {
  const auto index = static_cast<std::size_t>(codec);
  Check(index < kNames.size(), "codec out of range");
  return kNames[index];
}

Result<Codec> ParseCodec(std::string_view name) {
  for (std::size_t i = 0; i < kNames.size(); ++i) {
    if (kNames[i] == name) {
      return static_cast<Codec>(i);
    }
  }
  const std::string_view nearest = NearestName(name, kNames);
  const std::string hint = nearest.empty() ? "" : fmt::format("did you mean '{}'? ", nearest);
  return Status(Code::kInvalidArgument, fmt::format("unknown KV type '{}'; {}known: {}", name, hint,
                                                    fmt::join(kNames, ", ")));
}

void EncodeRow(Codec codec, std::span<const float> from, std::byte* to, Part part) {
  const std::int32_t group = ScaleGroup(part, static_cast<std::int32_t>(from.size()));
  switch (codec) {
    case Codec::kF32:
      std::ranges::copy(std::as_bytes(from), to);
      return;
    case Codec::kF16:
      Encode16(from, to, F32ToF16);
      return;
    case Codec::kBf16:
      Encode16(from, to, F32ToBf16);
      return;
    case Codec::kQ8:
      EncodeQ8(from, to, static_cast<std::size_t>(group));
      return;
  }
}

void DecodeRow(Codec codec, const std::byte* from, std::span<float> to, Part part) {
  const std::int32_t group = ScaleGroup(part, static_cast<std::int32_t>(to.size()));
  switch (codec) {
    case Codec::kF32:
      std::copy_n(from, to.size_bytes(), std::as_writable_bytes(to).begin());
      return;
    case Codec::kF16:
      Decode16(from, to, F16ToF32);
      return;
    case Codec::kBf16:
      Decode16(from, to, Bf16ToF32);
      return;
    case Codec::kQ8:
      DecodeQ8(from, to, static_cast<std::size_t>(group));
      return;
  }
}

}  // namespace rkv::kv
