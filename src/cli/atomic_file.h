// AtomicFile: a file that appears whole or not at all.
#ifndef RKV_CLI_ATOMIC_FILE_H_
#define RKV_CLI_ATOMIC_FILE_H_

#include <string>
#include <string_view>

#include "rkv/status.h"

namespace rkv::cli {

// Written beside the target under another name and then renamed over it: an older file stays until
// then. What is no ordinary file (a device, a pipe) is written to directly. Without Commit nothing
// is left behind.
class AtomicFile {
 public:
  AtomicFile() = default;
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  // Errors: kNotFound names the path and says why it cannot be written.
  Status Open(const std::string& path);
  // Writes `text` and gives the file its name. Errors: kDataLoss.
  Status Commit(std::string_view text);

 private:
  std::string path_;
  std::string temporary_;  // empty: path_ itself is open
  int fd_ = -1;
};

}  // namespace rkv::cli

#endif  // RKV_CLI_ATOMIC_FILE_H_
