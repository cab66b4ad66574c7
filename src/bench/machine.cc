#include "bench/machine.h"

#include <fstream>
#include <iterator>

namespace rkv::bench {

std::string ParseCpuName(std::string_view text) {
  const std::size_t key = text.find("model name");
  if (key == std::string_view::npos) {
    return {};
  }
  const std::string_view line = text.substr(key, text.substr(key).find('\n'));
  const std::size_t colon = line.find(": ");
  return colon == std::string_view::npos ? std::string() : std::string(line.substr(colon + 2));
}

std::string CpuName() {
  std::ifstream file("/proc/cpuinfo");
  const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  const std::string name = ParseCpuName(text);
  return name.empty() ? "unknown CPU" : name;
}

}  // namespace rkv::bench
