// The model that is used when none is named.
#ifndef RKV_CLI_DEFAULT_MODEL_H_
#define RKV_CLI_DEFAULT_MODEL_H_

#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "rkv/status.h"

namespace rkv::cli {

// Project folders to search: the one it was built from, and the one two levels above the executable
// (build/<preset>/rkv), in case the tree was moved.
std::vector<std::filesystem::path> ProjectRoots(const std::filesystem::path& source_dir);

// The first model that scripts/setup installed below one of the folders.
// Errors: kNotFound; names scripts/setup and -m.
Result<std::string> FindDefaultModel(std::span<const std::filesystem::path> roots);

}  // namespace rkv::cli

#endif  // RKV_CLI_DEFAULT_MODEL_H_
