#include "policy/distinct_options.h"

#include <algorithm>

namespace rkv::policy {

std::string_view DistinctOptions::Distinct(std::string_view name) {
  const bool taken = std::ranges::find(shown_, name) != shown_.end();
  shown_.push_back(taken ? "select_" + std::string(name) : std::string(name));
  return shown_.back();
}

}  // namespace rkv::policy
