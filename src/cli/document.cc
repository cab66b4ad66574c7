#include "cli/document.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <vector>

#include "base/text.h"
#include "cli/signals.h"

namespace rkv::cli {
namespace {

constexpr std::size_t kReadBytes = std::size_t{1} << 20;
constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";

Result<std::string> ReadAll(int fd, std::string_view name) {
  std::string text;
  std::vector<char> bytes(kReadBytes);
  while (!Interrupted()) {
    const ssize_t count = read(fd, bytes.data(), bytes.size());
    if (count == 0) {
      return text;
    }
    if (count > 0) {
      text.append(bytes.data(), static_cast<std::size_t>(count));
    } else if (errno == EISDIR) {
      return Status(Code::kInvalidArgument, fmt::format("{} is a folder, not a document", name));
    } else if (errno != EINTR) {
      return Status(Code::kDataLoss, fmt::format("cannot read {}: {}", name, std::strerror(errno)));
    }
  }
  return Status(Code::kCancelled, "interrupted");
}

Result<std::string> ReadNamed(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) {
    return Status(Code::kNotFound, fmt::format("cannot open {}: {}", path, std::strerror(errno)));
  }
  Result<std::string> text = ReadAll(fd, path);
  close(fd);
  return text;
}

}  // namespace

Result<std::string> ReadDocument(const std::string& path, int stdin_fd) {
  const bool standard = path == "-";
  const std::string name = standard ? "standard input" : path;
  Result<std::string> text = standard ? ReadAll(stdin_fd, name) : ReadNamed(path);
  if (!text) {
    return text;
  }
  const std::size_t bad = FindInvalidUtf8(*text);
  if (bad != std::string::npos) {
    return Status(Code::kInvalidArgument,
                  fmt::format("{} is not UTF-8: byte 0x{:02x} at offset {}", name,
                              static_cast<unsigned char>((*text)[bad]), bad));
  }
  if (text->starts_with(kByteOrderMark)) {
    text->erase(0, kByteOrderMark.size());
  }
  if (text->empty()) {
    return Status(Code::kInvalidArgument, fmt::format("{} is empty", name));
  }
  return text;
}

std::string JoinDocument(std::string_view document, std::string_view question) {
  std::string text(document);
  if (!document.empty() && !question.empty()) {
    text += document.ends_with('\n') ? "\n" : "\n\n";
  }
  return text.append(question);
}

}  // namespace rkv::cli
