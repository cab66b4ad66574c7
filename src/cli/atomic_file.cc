#include "cli/atomic_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

namespace rkv::cli {
namespace {

constexpr mode_t kMode = 0666;  // as the user's umask lets it

}  // namespace

AtomicFile::~AtomicFile() {
  if (fd_ >= 0) {
    close(fd_);
  }
  if (!temporary_.empty()) {
    unlink(temporary_.c_str());
  }
}

Status AtomicFile::Open(const std::string& path) {
  path_ = path;
  struct stat info = {};
  const bool special = stat(path.c_str(), &info) == 0 && !S_ISREG(info.st_mode);
  const std::string name = special ? path : fmt::format("{}.{}.tmp", path, getpid());
  fd_ = open(name.c_str(), O_WRONLY | O_CLOEXEC | (special ? 0 : O_CREAT | O_EXCL), kMode);
  if (fd_ < 0) {
    return Status(Code::kNotFound, fmt::format("cannot write {}: {}", path, std::strerror(errno)));
  }
  temporary_ = special ? "" : name;
  return {};
}

Status AtomicFile::Commit(std::string_view text) {
  bool good = true;
  while (good && !text.empty()) {
    const ssize_t count = write(fd_, text.data(), text.size());
    good = count >= 0 || errno == EINTR;
    text.remove_prefix(count > 0 ? static_cast<std::size_t>(count) : 0);
  }
  good = good && close(fd_) == 0;
  fd_ = good ? -1 : fd_;
  good = good && (temporary_.empty() || std::rename(temporary_.c_str(), path_.c_str()) == 0);
  if (!good) {
    return Status(Code::kDataLoss, fmt::format("cannot write {}: {}", path_, std::strerror(errno)));
  }
  temporary_.clear();
  return {};
}

}  // namespace rkv::cli
