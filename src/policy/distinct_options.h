// DistinctOptions: lets an evictor and a selector that know an option of the same name be composed.
#ifndef RKV_POLICY_DISTINCT_OPTIONS_H_
#define RKV_POLICY_DISTINCT_OPTIONS_H_

#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <string_view>

#include "policy/option_visitor.h"

namespace rkv::policy {

// Passes options on to another visitor; a name that was shown before becomes select_NAME, as the
// evictor shows its options first.
class DistinctOptions final : public OptionVisitor {
 public:
  explicit DistinctOptions(OptionVisitor& to) : to_(to) {}

  void Int(std::string_view name, std::int32_t& value, const IntRange& range,
           std::string_view help) override {
    to_.Int(Distinct(name), value, range, help);
  }
  void Number(std::string_view name, double& value, const NumberRange& range,
              std::string_view help) override {
    to_.Number(Distinct(name), value, range, help);
  }
  void Choice(std::string_view name, std::size_t& value, std::span<const std::string_view> words,
              std::string_view help) override {
    to_.Choice(Distinct(name), value, words, help);
  }
  void Text(std::string_view name, std::string& value, std::string_view help) override {
    to_.Text(Distinct(name), value, help);
  }

 private:
  // The name to show; it lives as long as this object.
  std::string_view Distinct(std::string_view name);

  OptionVisitor& to_;
  std::deque<std::string> shown_;
};

}  // namespace rkv::policy

#endif  // RKV_POLICY_DISTINCT_OPTIONS_H_
