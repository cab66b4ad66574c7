#include "cli/plain_args.h"

#include <fmt/format.h>

#include <array>
#include <cstddef>
#include <map>
#include <optional>
#include <string_view>

#include "base/text.h"

namespace rkv::cli {
namespace {

using Names = std::map<std::string_view, const Flag*>;

Names AllNames(std::span<const Flag* const> flags) {
  Names names;
  for (const Flag* flag : flags) {
    for (std::string_view rest = flag->names; !rest.empty();) {
      const std::size_t comma = rest.find(',');
      names[rest.substr(0, comma)] = flag;
      rest = comma == std::string_view::npos ? std::string_view{} : rest.substr(comma + 1);
    }
    if (!flag->alias.empty()) {
      names[flag->alias] = flag;
    }
  }
  return names;
}

// One flag as written: its name and, when joined to it, its value.
struct Written {
  std::string_view name;
  std::optional<std::string_view> value;
};

// "--flag=value" and "-n5" carry their value; -sys and -fa do not.
Written Split(std::string_view arg, const Names& names) {
  if (arg.starts_with("--")) {
    const std::size_t equals = arg.find('=');
    if (equals == std::string_view::npos) {
      return {arg, std::nullopt};
    }
    return {arg.substr(0, equals), arg.substr(equals + 1)};
  }
  const std::string_view number = "-0123456789";
  if (arg.size() > 2 && !names.contains(arg) && number.find(arg[2]) != std::string_view::npos) {
    return {arg.substr(0, 2), arg.substr(2)};
  }
  return {arg, std::nullopt};
}

class Rewriter {
 public:
  Rewriter(std::span<const Flag* const> flags, Command command, std::span<const std::string> args)
      : names_(AllNames(flags)), command_(command), args_(args) {}

  Result<std::vector<std::string>> Run() {
    bool only_bare = false;  // after "--"
    while (next_ < args_.size()) {
      const std::string& arg = args_[next_++];
      Status status;
      if (!only_bare && arg == "--") {
        only_bare = true;
      } else if (!only_bare && (arg == "-h" || arg == "--help")) {
        out_.emplace_back("--help");
      } else if (only_bare || arg.size() < 2 || arg[0] != '-') {
        status = Bare(arg);
      } else {
        status = OneFlag(arg);
      }
      if (!status.ok()) {
        return status;
      }
    }
    return out_;
  }

 private:
  static Status Usage(std::string message) {
    return Status(Code::kInvalidArgument, std::move(message));
  }

  Status Bare(const std::string& arg) {
    const bool model = arg.ends_with(".gguf") || command_ == Command::kInfo;
    if (!model || !names_.contains("--model")) {
      return Usage(fmt::format(
          "'{}' belongs to no flag{}", arg,
          names_.contains("--prompt") ? "; -f FILE gives a document, -p TEXT a question" : ""));
    }
    out_.emplace_back("--model");
    out_.push_back(arg);
    return {};
  }

  Status OneFlag(const std::string& arg) {
    const Written written = Split(arg, names_);
    const auto found = names_.find(written.name);
    if (found == names_.end()) {
      return Unknown(written.name);
    }
    const Flag& flag = *found->second;
    out_.emplace_back(LongName(flag));
    if (flag.value == FlagValue::kNone) {
      return written.value ? Usage(fmt::format("{} takes no value", written.name)) : Status();
    }
    if (written.value) {
      out_.emplace_back(*written.value);
    } else if (flag.value == FlagValue::kOptional) {
      out_.push_back(NextIsSetting() ? args_[next_++] : "on");
    } else if (next_ < args_.size()) {
      out_.push_back(args_[next_++]);
    } else {
      return Usage(fmt::format("{} needs a value: {}", written.name, flag.placeholder));
    }
    return {};
  }

  bool NextIsSetting() const {
    return next_ < args_.size() &&
           (args_[next_] == "on" || args_[next_] == "off" || args_[next_] == "auto");
  }

  Status Unknown(std::string_view name) const {
    std::vector<std::string_view> candidates;
    for (const auto& [known, flag] : names_) {
      candidates.push_back(known);
    }
    // "-temp" is as near to "-t" as to "--temp", but nobody who wrote it meant "-t".
    const std::string doubled = fmt::format("-{}", name);
    if (names_.contains(doubled)) {
      candidates = {doubled};
    }
    std::string message = fmt::format("there is no flag {}", name);
    const std::string_view nearest = NearestName(name, candidates);
    if (!nearest.empty()) {
      message += fmt::format("; did you mean {}?", nearest);
    }
    return Usage(message);
  }

  Names names_;
  Command command_;
  std::span<const std::string> args_;
  std::size_t next_ = 0;
  std::vector<std::string> out_;
};

}  // namespace

Result<std::vector<std::string>> PlainArgs(std::span<const Flag* const> flags, Command command,
                                           std::span<const std::string> args) {
  return Rewriter(flags, command, args).Run();
}

}  // namespace rkv::cli
