#include "kv/codec.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <string>

#include "base/check.h"
#include "base/half.h"
#include "base/text.h"

namespace rkv::kv {
namespace {

constexpr std::array<std::string_view, 3> kNames = {"f32", "f16", "bf16"};

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

void EncodeRow(Codec codec, std::span<const float> from, std::byte* to) {
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
  }
}

void DecodeRow(Codec codec, const std::byte* from, std::span<float> to) {
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
  }
}

}  // namespace rkv::kv
