#include "model/gguf.h"

#include <fmt/format.h>
#include <ggml.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "base/text.h"
#include "model/gguf_reader.h"
#include "model/gguf_types.h"

namespace rkv::model {
namespace {

constexpr std::uint32_t kMagic = 0x46554747;  // "GGUF"
constexpr std::size_t kDefaultAlignment = 32;
constexpr std::size_t kMaxAlignment = 65536;
constexpr std::size_t kMaxNameBytes = 65535;
// libllama looks names up by walking all of them for each; more would take it minutes.
constexpr std::uint64_t kMaxEntries = 65536;
// The smallest key (length, one byte, type, one byte of value) and tensor (length, one byte,
// dimension count, one dimension, type, offset).
constexpr std::size_t kMinKeyBytes = 8 + 1 + 4 + 1;
constexpr std::size_t kMinTensorBytes = 8 + 1 + 4 + 8 + 4 + 8;

Status Bad(std::string message) { return {Code::kDataLoss, "GGUF: " + std::move(message)}; }
Status Unsupported(std::string message) {
  return {Code::kUnsupported, "GGUF: " + std::move(message)};
}

// A name fit for a message.
std::string Shown(std::string_view name) {
  constexpr std::size_t kShown = 80;
  return ReplaceInvalidUtf8(name.substr(0, kShown)) + (name.size() > kShown ? "…" : "");
}

Status CheckName(std::string_view what, std::string_view name, std::size_t max_bytes,
                 std::size_t offset) {
  if (name.empty() || name.size() > max_bytes) {
    return Bad(fmt::format("{} at byte {} has {} bytes, allowed are 1 to {}", what, offset,
                           name.size(), max_bytes));
  }
  if (FindInvalidUtf8(name) != std::string_view::npos ||
      name.find('\0') != std::string_view::npos) {
    return Bad(fmt::format("{} '{}' at byte {} is not plain UTF-8", what, Shown(name), offset));
  }
  return {};
}

Status CheckVersion(std::uint32_t version) {
  if (version == 1) {
    return Unsupported("version 1 files are no longer in use; convert the model again");
  }
  if (version != 0 && (version & 0xffffu) == 0) {
    return Unsupported(fmt::format("version 0x{:08x}: the file is big endian", version));
  }
  if (version != 2 && version != 3) {
    return Unsupported(fmt::format("version {}, supported are 2 and 3", version));
  }
  return {};
}

Result<GgufValue> ReadBool(std::uint8_t byte, std::string_view key) {
  if (byte > 1) {
    return Bad(fmt::format("key '{}': {} is no bool", Shown(key), byte));
  }
  return GgufValue(byte == 1);
}

Result<GgufValue> ReadArray(GgufReader& in, std::string_view key) {
  GgufArray array;
  array.type = in.Number<std::uint32_t>();
  array.count = in.Number<std::uint64_t>();
  const auto type = static_cast<GgufType>(array.type);
  const std::size_t element = type == GgufType::kString ? 8 : GgufTypeBytes(type);
  if (in.ok() && element == 0) {
    return Bad(fmt::format("key '{}': array of type {}", Shown(key), array.type));
  }
  if (in.ok() && array.count > in.left() / element) {
    return Bad(fmt::format("key '{}': an array of {} elements, but {} bytes are left", Shown(key),
                           array.count, in.left()));
  }
  if (in.ok() && type == GgufType::kString) {
    array.strings.reserve(array.count);
    for (std::uint64_t i = 0; i < array.count && in.ok(); ++i) {
      array.strings.push_back(in.String());
    }
  } else if (in.ok()) {
    array.bytes = in.Bytes(array.count * element);
  }
  if (type == GgufType::kBool) {
    for (const std::byte b : array.bytes) {
      if (b > std::byte{1}) {
        return Bad(fmt::format("key '{}': an array of bools holds {}", Shown(key),
                               static_cast<unsigned>(b)));
      }
    }
  }
  return GgufValue(std::move(array));
}

Result<GgufValue> ReadValue(GgufReader& in, GgufType type, std::string_view key) {
  switch (type) {
    case GgufType::kU8:
      return GgufValue(std::uint64_t{in.Number<std::uint8_t>()});
    case GgufType::kI8:
      return GgufValue(std::int64_t{in.Number<std::int8_t>()});
    case GgufType::kU16:
      return GgufValue(std::uint64_t{in.Number<std::uint16_t>()});
    case GgufType::kI16:
      return GgufValue(std::int64_t{in.Number<std::int16_t>()});
    case GgufType::kU32:
      return GgufValue(std::uint64_t{in.Number<std::uint32_t>()});
    case GgufType::kI32:
      return GgufValue(std::int64_t{in.Number<std::int32_t>()});
    case GgufType::kF32:
      return GgufValue(double{in.Number<float>()});
    case GgufType::kBool:
      return ReadBool(in.Number<std::uint8_t>(), key);
    case GgufType::kString:
      return GgufValue(in.String());
    case GgufType::kArray:
      return ReadArray(in, key);
    case GgufType::kU64:
      return GgufValue(in.Number<std::uint64_t>());
    case GgufType::kI64:
      return GgufValue(in.Number<std::int64_t>());
    case GgufType::kF64:
      return GgufValue(in.Number<double>());
  }
  return Bad(
      fmt::format("key '{}' has value type {}", Shown(key), static_cast<std::uint32_t>(type)));
}

Status SetAlignment(GgufType type, const GgufValue& value, GgufFile& out) {
  const std::uint64_t* number = std::get_if<std::uint64_t>(&value);
  if (type != GgufType::kU32 || number == nullptr) {
    return Bad("general.alignment is not a 32-bit unsigned integer");
  }
  if (*number < 8 || *number > kMaxAlignment || (*number & (*number - 1)) != 0) {
    return Bad(fmt::format("general.alignment is {}, must be a power of two from 8 to {}", *number,
                           kMaxAlignment));
  }
  out.alignment = static_cast<std::size_t>(*number);
  return {};
}

Status ReadKeys(GgufReader& in, std::uint64_t count, GgufFile& out) {
  for (std::uint64_t i = 0; i < count; ++i) {
    const std::size_t offset = in.offset();
    const std::string_view key = in.String();
    const auto type = static_cast<GgufType>(in.Number<std::uint32_t>());
    if (!in.ok()) {
      return Bad(fmt::format("the file ends inside key {} of {}, which starts at byte {}", i + 1,
                             count, offset));
    }
    if (Status status = CheckName("key", key, kMaxNameBytes, offset); !status.ok()) {
      return status;
    }
    Result<GgufValue> value = ReadValue(in, type, key);
    if (!value) {
      return value.error();
    }
    if (!in.ok()) {
      return Bad(fmt::format("the file ends inside the value of key '{}'", Shown(key)));
    }
    if (key == "general.alignment") {
      if (Status status = SetAlignment(type, *value, out); !status.ok()) {
        return status;
      }
    }
    if (!out.values.emplace(key, *std::move(value)).second) {
      return Bad(fmt::format("key '{}' comes twice", Shown(key)));
    }
  }
  return {};
}

struct TensorInfo {
  GgufTensor tensor;
  std::uint64_t offset = 0;  // from the start of the data section
};

// Fills tensor.bytes. Numbers and bytes are computed in 64 bits with every overflow checked.
Status CheckShape(GgufTensor& tensor) {
  std::int64_t numbers = 1;
  for (const std::int64_t dim : tensor.dims) {
    if (dim <= 0 || __builtin_mul_overflow(numbers, dim, &numbers)) {
      return Bad(
          fmt::format("tensor '{}' has the shape [{}]", tensor.name, fmt::join(tensor.dims, ", ")));
    }
  }
  const auto type = static_cast<ggml_type>(tensor.type);
  if (tensor.type >= GGML_TYPE_COUNT || ggml_blck_size(type) <= 0 || ggml_type_size(type) == 0) {
    return Unsupported(fmt::format("tensor '{}' has type {}, which this build does not know",
                                   tensor.name, tensor.type));
  }
  const std::int64_t block = ggml_blck_size(type);
  if (tensor.dims[0] % block != 0) {
    return Bad(fmt::format("tensor '{}' has rows of {} numbers, not a multiple of {}'s block {}",
                           tensor.name, tensor.dims[0], ggml_type_name(type), block));
  }
  if (__builtin_mul_overflow(static_cast<std::uint64_t>(numbers / block), ggml_type_size(type),
                             &tensor.bytes)) {
    return Bad(fmt::format("tensor '{}' with shape [{}] has more bytes than 64 bits count",
                           tensor.name, fmt::join(tensor.dims, ", ")));
  }
  return {};
}

Status ReadTensorInfo(GgufReader& in, TensorInfo& info) {
  const std::size_t start = in.offset();
  const std::string_view name = in.String();
  const auto dims = in.Number<std::uint32_t>();
  if (in.ok()) {
    if (Status status = CheckName("tensor name", name, GGML_MAX_NAME - 1, start); !status.ok()) {
      return status;
    }
    if (dims < 1 || dims > GGML_MAX_DIMS) {
      return Bad(fmt::format("tensor '{}' has {} dimensions, allowed are 1 to {}", Shown(name),
                             dims, GGML_MAX_DIMS));
    }
    for (std::uint32_t i = 0; i < dims; ++i) {
      info.tensor.dims.push_back(in.Number<std::int64_t>());
    }
  }
  info.tensor.name = name;
  info.tensor.type = in.Number<std::uint32_t>();
  info.offset = in.Number<std::uint64_t>();
  if (!in.ok()) {
    return Bad(fmt::format("the file ends inside the tensor entry at byte {}", start));
  }
  return CheckShape(info.tensor);
}

// Points every tensor at its data.
Status PlaceTensors(std::vector<TensorInfo>& infos, std::span<const std::byte> file,
                    std::size_t info_end, GgufFile& out) {
  const std::size_t data_start = (info_end + out.alignment - 1) / out.alignment * out.alignment;
  const std::size_t data_bytes = data_start < file.size() ? file.size() - data_start : 0;
  for (TensorInfo& info : infos) {
    GgufTensor& tensor = info.tensor;
    if (info.offset % out.alignment != 0) {
      return Bad(fmt::format("tensor '{}' has offset {}, not a multiple of the alignment {}",
                             tensor.name, info.offset, out.alignment));
    }
    if (info.offset > data_bytes || tensor.bytes > data_bytes - info.offset) {
      return Bad(
          fmt::format("tensor '{}' has {} bytes at offset {}, but the file holds {} bytes of data",
                      tensor.name, tensor.bytes, info.offset, data_bytes));
    }
    tensor.data = file.subspan(data_start + static_cast<std::size_t>(info.offset), tensor.bytes);
  }
  std::sort(infos.begin(), infos.end(),
            [](const TensorInfo& a, const TensorInfo& b) { return a.offset < b.offset; });
  for (std::size_t i = 1; i < infos.size(); ++i) {
    if (infos[i].offset - infos[i - 1].offset < infos[i - 1].tensor.bytes) {
      return Bad(fmt::format("tensors '{}' and '{}' overlap", infos[i - 1].tensor.name,
                             infos[i].tensor.name));
    }
  }
  for (TensorInfo& info : infos) {
    const bool is_new = out.tensor_index.emplace(info.tensor.name, out.tensors.size()).second;
    if (!is_new) {
      return Bad(fmt::format("tensor '{}' comes twice", info.tensor.name));
    }
    out.tensors.push_back(std::move(info.tensor));
  }
  return {};
}

Status CheckCount(std::string_view what, std::uint64_t count, std::size_t min_bytes,
                  std::size_t left) {
  if (count > left / min_bytes) {
    return Bad(fmt::format("{} {} are announced, but {} bytes are left", count, what, left));
  }
  if (count > kMaxEntries) {
    return Unsupported(fmt::format("{} {}, at most {} are supported", count, what, kMaxEntries));
  }
  return {};
}

}  // namespace

const GgufTensor* GgufFile::FindTensor(std::string_view name) const {
  const auto found = tensor_index.find(name);
  return found == tensor_index.end() ? nullptr : &tensors[found->second];
}

const GgufValue* GgufFile::FindValue(std::string_view key) const {
  const auto found = values.find(key);
  return found == values.end() ? nullptr : &found->second;
}

Result<GgufFile> ParseGguf(std::span<const std::byte> file) {
  GgufReader in(file);
  GgufFile out;
  out.alignment = kDefaultAlignment;
  const auto magic = in.Number<std::uint32_t>();
  if (!in.ok() || magic != kMagic) {
    return Bad("the file does not start with 'GGUF'");
  }
  out.version = in.Number<std::uint32_t>();
  if (in.ok()) {
    if (Status status = CheckVersion(out.version); !status.ok()) {
      return status;
    }
  }
  const auto tensor_count = in.Number<std::uint64_t>();
  const auto key_count = in.Number<std::uint64_t>();
  if (!in.ok()) {
    return Bad(fmt::format("the file ends after {} bytes, inside its header", file.size()));
  }
  if (Status status = CheckCount("keys", key_count, kMinKeyBytes, in.left()); !status.ok()) {
    return status;
  }
  if (Status status = CheckCount("tensors", tensor_count, kMinTensorBytes, in.left());
      !status.ok()) {
    return status;
  }
  if (Status status = ReadKeys(in, key_count, out); !status.ok()) {
    return status;
  }
  std::vector<TensorInfo> infos(static_cast<std::size_t>(tensor_count));
  for (TensorInfo& info : infos) {
    if (Status status = ReadTensorInfo(in, info); !status.ok()) {
      return status;
    }
  }
  if (Status status = PlaceTensors(infos, file, in.offset(), out); !status.ok()) {
    return status;
  }
  return out;
}

}  // namespace rkv::model
