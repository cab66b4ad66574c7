// Reading the document of -f.
#ifndef RKV_CLI_DOCUMENT_H_
#define RKV_CLI_DOCUMENT_H_

#include <string>
#include <string_view>

#include "rkv/status.h"

namespace rkv::cli {

// The whole text of a file, or of descriptor `stdin_fd` for "-", without a byte order mark.
// Errors: kNotFound when it cannot be opened, kInvalidArgument for a folder, for text that is not
// UTF-8 (names the byte) and for an empty document, kDataLoss when reading fails, kCancelled on
// Ctrl-C. Each names the file.
Result<std::string> ReadDocument(const std::string& path, int stdin_fd);

// Document first, then a blank line, then the question; either may be empty.
std::string JoinDocument(std::string_view document, std::string_view question);

}  // namespace rkv::cli

#endif  // RKV_CLI_DOCUMENT_H_
