// Status and Result<T>: how every function of the project reports failure. Nothing of ours throws.
#ifndef RKV_STATUS_H_
#define RKV_STATUS_H_

#include <cassert>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

namespace rkv {

enum class Code : int {
  kOk = 0,
  kInvalidArgument,  // the caller can fix the request: a flag, an option, a prompt that is too long
  kNotFound,         // a file, tensor, model or session does not exist
  kDataLoss,         // a file is truncated or corrupt
  kUnsupported,      // valid, but this build cannot do it
  kResourceExhausted,  // memory or KV blocks ran out; retry later or smaller
  kCancelled,          // the caller asked to stop
  kInternal,           // a bug of ours that did not justify an abort
};

// Success, or a code with one line of text that names the bad value and the allowed range.
// Cheap to copy when ok.
class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(Code code, std::string message) : code_(code), message_(std::move(message)) {}

  bool ok() const { return code_ == Code::kOk; }
  Code code() const { return code_; }
  const std::string& message() const { return message_; }

 private:
  Code code_ = Code::kOk;
  std::string message_;
};

// Either a T or a Status that is not ok. Member names follow std::expected, so that it can become
// an alias later.
template <class T>
class [[nodiscard]] Result {
 public:
  // NOLINTNEXTLINE(google-explicit-constructor)
  Result(T value) : state_(std::move(value)) {}
  // NOLINTNEXTLINE(google-explicit-constructor)
  Result(Status status) : state_(std::move(status)) { assert(!error().ok()); }

  bool has_value() const { return std::holds_alternative<T>(state_); }
  explicit operator bool() const { return has_value(); }
  T& operator*() & { return std::get<T>(state_); }
  const T& operator*() const& { return std::get<T>(state_); }
  T&& operator*() && { return std::get<T>(std::move(state_)); }
  T* operator->() { return &std::get<T>(state_); }
  const T* operator->() const { return &std::get<T>(state_); }
  const Status& error() const { return std::get<Status>(state_); }

 private:
  std::variant<T, Status> state_;
};

}  // namespace rkv

#endif  // RKV_STATUS_H_
