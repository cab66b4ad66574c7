// MappedFile: a whole file, read-only, in memory.
#ifndef RKV_BASE_MAPPED_FILE_H_
#define RKV_BASE_MAPPED_FILE_H_

#include <cstddef>
#include <span>
#include <string>

#include "rkv/status.h"

namespace rkv {

// Move-only. The bytes stay valid and at one address for the object's life.
class MappedFile {
 public:
  MappedFile() = default;
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  // Errors: kNotFound if it cannot be opened, kInvalidArgument for a folder or another thing that
  // is no regular file, kDataLoss if it is empty.
  static Result<MappedFile> Open(const std::string& path);

  std::span<const std::byte> bytes() const { return {data_, size_}; }

 private:
  const std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace rkv

#endif  // RKV_BASE_MAPPED_FILE_H_
