// Every method on real documents, teacher-forced: how far its distribution is from Full-KV's, how
// much attention its choice catches, what it reads and holds. One JSON object a line.
//
//   method_table MODEL TOKENS STEPS BUDGETS METHODS DOCUMENT…
//
// BUDGETS: "128,256". METHODS: method strings separated by ';', with {} where the budget goes. Of
// each document TOKENS tokens (fewer if it is shorter) are the prompt and the next STEPS are
// decoded. All methods of a budget share one prefill. Decoding goes on with the method's own rows
// (KL, top-1, bytes); recall is measured beside it with Full-KV's queries, which nothing disturbs.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/thread_pool.h"
#include "engine/model_info.h"
#include "engine/prefill.h"
#include "engine/session_impl.h"
#include "shadow_policy.h"
#include "support/distribution.h"

namespace rkv::bench {
namespace {

using Logits = std::vector<std::vector<float>>;

struct Contestant {
  std::string method;
  std::unique_ptr<engine::SessionImpl> session;
  std::unique_ptr<engine::SessionImpl> shadow;
  Recall recall;
};

struct Task {
  std::string document;
  std::vector<Token> prompt;
  std::vector<Token> next;
  std::int32_t budget = 0;
};

std::vector<std::string> Split(std::string_view text, char by) {
  std::vector<std::string> parts;
  for (std::size_t end = 0; end != std::string_view::npos; text.remove_prefix(end + 1)) {
    end = text.find(by);
    parts.emplace_back(text.substr(0, end));
    if (end == std::string_view::npos) {
      break;
    }
  }
  return parts;
}

std::string WithBudget(std::string method, std::int32_t budget) {
  if (const std::size_t at = method.find("{}"); at != std::string::npos) {
    method.replace(at, 2, std::to_string(budget));
  }
  return method;
}

Status Stop(const Status& status, std::string_view what) {
  return status.ok() ? status
                     : Status(status.code(), fmt::format("{}: {}", what, status.message()));
}

class Table {
 public:
  explicit Table(const model::Model& model) : model_(model), pool_(DefaultThreads()) {
    runtime_.model = &model;
    runtime_.pool = &pool_;
    runtime_.backend = &attention::CpuBackend();
    runtime_.context = model.params().context;
    runtime_.identity = engine::ModelIdentity(engine::DescribeModel(model, runtime_.codec));
  }

  Status Run(const Task& task, std::span<const std::string> methods) {
    std::vector<Contestant> contestants(methods.size());
    std::vector<engine::SessionImpl*> all;
    const auto steps = static_cast<std::int32_t>(task.next.size());
    for (std::size_t i = 0; i < methods.size(); ++i) {
      Contestant& contestant = contestants[i];
      contestant.method = WithBudget(methods[i], task.budget);
      auto method = policy::MakePolicy(contestant.method);
      auto again = policy::MakePolicy(contestant.method);
      if (!method || !again) {
        return Stop(method.error(), contestant.method);
      }
      contestant.session =
          std::make_unique<engine::SessionImpl>(runtime_, *std::move(method), steps);
      contestant.shadow = std::make_unique<engine::SessionImpl>(
          runtime_, std::make_unique<ShadowPolicy>(*std::move(again), &contestant.recall), steps);
      all.push_back(contestant.session.get());
      all.push_back(contestant.shadow.get());
    }
    engine::SessionImpl full(runtime_, *policy::MakePolicy("full"), steps);
    all.push_back(&full);
    if (Status status = Prefill(all, task.prompt); !status.ok()) {
      return status;
    }
    const Logits expected = Decode(full, task.next);
    for (Contestant& contestant : contestants) {
      const Logits got = Decode(*contestant.session, task.next);
      Decode(*contestant.shadow, task.next);
      Print(task, contestant, expected, got);
    }
    return {};
  }

 private:
  Status Prefill(std::span<engine::SessionImpl* const> sessions, std::span<const Token> prompt) {
    std::vector<engine::SessionState*> states;
    for (engine::SessionImpl* session : sessions) {
      states.push_back(&session->state());
      Status status = states.back()->BeginTurn(static_cast<std::int32_t>(prompt.size()), runtime_);
      if (!status.ok()) {
        return Stop(status, session->policy());
      }
    }
    Status status =
        engine::Prefill(runtime_, states, prompt.first(prompt.size() - 1), false).Run({});
    for (std::size_t i = 0; i < sessions.size() && status.ok(); ++i) {
      status = sessions[i]->FinishPrompt(prompt.back());
    }
    return status;
  }

  // Logits after every token but the last, whose next token nobody knows.
  static Logits Decode(engine::SessionImpl& session, std::span<const Token> next) {
    Logits logits;
    for (const Token token : next) {
      if (const auto row = session.Decode(token)) {
        logits.emplace_back(row->begin(), row->end());
      }
    }
    return logits;
  }

  void Print(const Task& task, const Contestant& contestant, const Logits& expected,
             const Logits& got) const {
    double kl = 0;
    double top = 0;
    for (std::size_t i = 0; i < expected.size(); ++i) {
      kl += test::KlDivergence(expected[i], got[i]);
      top += test::ArgMax(expected[i]) == test::ArgMax(got[i]) ? 1 : 0;
    }
    const auto steps = static_cast<double>(expected.size());
    const SessionStats stats = contestant.session->stats();
    fmt::print(
        "{{\"model\":\"{}\",\"document\":\"{}\",\"tokens\":{},\"steps\":{},\"budget\":{},"
        "\"method\":\"{}\",\"kl\":{:.6g},\"top1\":{:.4f},\"recall\":{:.5f},\"tokens_read\":{:.1f},"
        "\"tokens_kept\":{:.1f},\"bytes_read\":{:.0f},\"bytes_kept\":{},\"bytes_index\":{},"
        "\"bytes_full\":{}}}\n",
        model_.params().name, task.document, task.prompt.size(), task.next.size(), task.budget,
        contestant.method, kl / steps, top / steps, contestant.recall.mean(),
        stats.tokens_read_per_step, stats.tokens_kept, stats.kv_bytes_read_per_step,
        stats.kv_bytes_kept, stats.kv_bytes_index, stats.kv_bytes_full);
    std::fflush(stdout);
  }

  const model::Model& model_;
  ThreadPool pool_;
  engine::Runtime runtime_;
};

std::int32_t Number(std::string_view text) {
  std::int32_t value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

Status Main(std::span<char*> args) {
  if (args.size() < 7) {
    return {Code::kInvalidArgument,
            "usage: method_table MODEL TOKENS STEPS BUDGETS METHODS DOCUMENT…"};
  }
  auto model = model::Model::Load(args[1]);
  if (!model) {
    return model.error();
  }
  Table table(**model);
  const std::vector<std::string> methods = Split(args[5], ';');
  const auto tokens = static_cast<std::size_t>(Number(args[2]));
  const auto steps = static_cast<std::size_t>(Number(args[3]));
  for (const char* path : args.subspan(6)) {
    std::ifstream file(path);
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    const auto ids = (*model)->tokenizer().Encode(text, true, false);
    if (!ids) {
      return Stop(ids.error(), path);
    }
    if (ids->size() < steps + 2 || tokens < 2 || steps < 1) {
      return {Code::kInvalidArgument,
              fmt::format("{} has {} tokens, too few for {} steps behind a prompt", path,
                          ids->size(), steps)};
    }
    const std::size_t prompt = std::min(tokens, ids->size() - steps);
    Task task;
    task.document = path;
    task.prompt.assign(ids->begin(), ids->begin() + static_cast<std::ptrdiff_t>(prompt));
    task.next.assign(ids->begin() + static_cast<std::ptrdiff_t>(prompt),
                     ids->begin() + static_cast<std::ptrdiff_t>(prompt + steps));
    for (const std::string& budget : Split(args[4], ',')) {
      task.budget = Number(budget);
      if (Status status = table.Run(task, methods); !status.ok()) {
        return status;
      }
    }
  }
  return {};
}

}  // namespace
}  // namespace rkv::bench

int main(int argc, char** argv) {
  const rkv::Status status = rkv::bench::Main({argv, static_cast<std::size_t>(argc)});
  if (!status.ok()) {
    fmt::print(stderr, "method_table: {}\n", status.message());
    return 1;
  }
  return 0;
}
