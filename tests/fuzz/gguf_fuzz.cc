// libFuzzer target: any bytes are parsed as a model, or refused, without a crash.
#include <cstddef>
#include <cstdint>
#include <span>

#include "model/gguf.h"
#include "model/hyper_params.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  const rkv::Result<rkv::model::GgufFile> file = rkv::model::ParseGguf(bytes);
  if (!file) {
    return file.error().message().empty() ? -1 : 0;
  }
  static_cast<void>(rkv::model::CheckTokenizerKeys(*file).ok());
  static_cast<void>(rkv::model::ReadHyperParams(*file).has_value());
  return 0;
}
