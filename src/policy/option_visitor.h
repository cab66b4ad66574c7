// OptionVisitor: one function of a method shows its options to whoever lists, reads or prints them.
#ifndef RKV_POLICY_OPTION_VISITOR_H_
#define RKV_POLICY_OPTION_VISITOR_H_

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "policy/option_string.h"
#include "policy/policy.h"
#include "rkv/status.h"

namespace rkv::policy {

// Largest budget and the like, far above any model's context; keeps sums within 32 bits.
inline constexpr std::int32_t kMaxTokens = 1 << 24;

// Inclusive bounds of a whole number.
struct IntRange {
  std::int32_t low = 0;
  std::int32_t high = 0;
  bool odd = false;        // only odd values
  bool automatic = false;  // "auto" is allowed too and reads as 0
};

// Inclusive bounds of a number.
struct NumberRange {
  double low = 0;
  double high = 1;
  bool automatic = false;  // "auto" is allowed too and reads as -1
};

// A method calls one of these for every option, in the order in which its string spells them. The
// value is the default before a reader has been there. Help says what it is, without the range.
class OptionVisitor {
 public:
  virtual ~OptionVisitor() = default;
  virtual void Int(std::string_view name, std::int32_t& value, const IntRange& range,
                   std::string_view help) = 0;
  virtual void Number(std::string_view name, double& value, const NumberRange& range,
                      std::string_view help) = 0;
  // `value` is an index into `words`.
  virtual void Choice(std::string_view name, std::size_t& value,
                      std::span<const std::string_view> words, std::string_view help) = 0;
  // Any text without a comma; empty means none and is not spelled out.
  virtual void Text(std::string_view name, std::string& value, std::string_view help) = 0;

  // yes or no.
  void Switch(std::string_view name, bool& value, std::string_view help);
};

// Collects descriptions.
class OptionLister final : public OptionVisitor {
 public:
  void Int(std::string_view name, std::int32_t& value, const IntRange& range,
           std::string_view help) override;
  void Number(std::string_view name, double& value, const NumberRange& range,
              std::string_view help) override;
  void Choice(std::string_view name, std::size_t& value, std::span<const std::string_view> words,
              std::string_view help) override;
  void Text(std::string_view name, std::string& value, std::string_view help) override;

  std::vector<OptionInfo> options;
};

// Prints "name=value,name=value".
class OptionPrinter final : public OptionVisitor {
 public:
  void Int(std::string_view name, std::int32_t& value, const IntRange& range,
           std::string_view help) override;
  void Number(std::string_view name, double& value, const NumberRange& range,
              std::string_view help) override;
  void Choice(std::string_view name, std::size_t& value, std::span<const std::string_view> words,
              std::string_view help) override;
  void Text(std::string_view name, std::string& value, std::string_view help) override;

  std::string text;

 private:
  void Add(std::string_view name, std::string_view value);
};

// Reads the values of a method string. The first error sticks: later calls do nothing. An option
// that is not given leaves its value as is. Every error is kInvalidArgument and names option, value
// and what is allowed.
class OptionReader final : public OptionVisitor {
 public:
  // `given` must outlive the reader.
  explicit OptionReader(const MethodString& given) : given_(given) {}

  void Int(std::string_view name, std::int32_t& value, const IntRange& range,
           std::string_view help) override;
  void Number(std::string_view name, double& value, const NumberRange& range,
              std::string_view help) override;
  void Choice(std::string_view name, std::size_t& value, std::span<const std::string_view> words,
              std::string_view help) override;
  void Text(std::string_view name, std::string& value, std::string_view help) override;

  // After all options: an option that nobody asked for is an error, with the nearest and all names.
  Status Finish() const;

 private:
  // The option's text, or null when it is not given or an error came before.
  const std::string* Find(std::string_view name);
  void Refuse(std::string_view name, std::string_view value, std::string_view allowed);

  const MethodString& given_;
  std::vector<std::string> known_;
  Status status_;
};

}  // namespace rkv::policy

#endif  // RKV_POLICY_OPTION_VISITOR_H_
