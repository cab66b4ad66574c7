#include "base/mapped_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace rkv {

MappedFile::~MappedFile() {
  if (data_ != nullptr) {
    munmap(const_cast<std::byte*>(data_), size_);
  }
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

Result<MappedFile> MappedFile::Open(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) {
    return Status(Code::kNotFound, fmt::format("cannot open '{}': {}", path, std::strerror(errno)));
  }
  struct stat info {};
  Status status;
  MappedFile file;
  if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
    status = Status(Code::kInvalidArgument, fmt::format("'{}' is not a regular file", path));
  } else if (info.st_size == 0) {
    status = Status(Code::kDataLoss, fmt::format("'{}' is empty", path));
  } else {
    file.size_ = static_cast<std::size_t>(info.st_size);
    void* map = mmap(nullptr, file.size_, PROT_READ, MAP_SHARED, fd, 0);
    if (map == MAP_FAILED) {
      status = Status(Code::kResourceExhausted, fmt::format("cannot map '{}' ({} bytes): {}", path,
                                                            file.size_, std::strerror(errno)));
    } else {
      file.data_ = static_cast<const std::byte*>(map);
    }
  }
  close(fd);
  if (!status.ok()) {
    return status;
  }
  return file;
}

}  // namespace rkv
