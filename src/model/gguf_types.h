// Numbers of the GGUF format that parser and checks share.
#ifndef RKV_MODEL_GGUF_TYPES_H_
#define RKV_MODEL_GGUF_TYPES_H_

#include <cstddef>
#include <cstdint>

namespace rkv::model {

// Value types, as stored. Source: ggml, docs/gguf.md.
enum class GgufType : std::uint32_t {
  kU8 = 0,
  kI8 = 1,
  kU16 = 2,
  kI16 = 3,
  kU32 = 4,
  kI32 = 5,
  kF32 = 6,
  kBool = 7,
  kString = 8,
  kArray = 9,
  kU64 = 10,
  kI64 = 11,
  kF64 = 12,
};

// Bytes of a stored number or bool; 0 for strings, arrays and unknown types.
constexpr std::size_t GgufTypeBytes(GgufType type) {
  switch (type) {
    case GgufType::kU8:
    case GgufType::kI8:
    case GgufType::kBool:
      return 1;
    case GgufType::kU16:
    case GgufType::kI16:
      return 2;
    case GgufType::kU32:
    case GgufType::kI32:
    case GgufType::kF32:
      return 4;
    case GgufType::kU64:
    case GgufType::kI64:
    case GgufType::kF64:
      return 8;
    case GgufType::kString:
    case GgufType::kArray:
      break;
  }
  return 0;
}

}  // namespace rkv::model

#endif  // RKV_MODEL_GGUF_TYPES_H_
