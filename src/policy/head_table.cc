#include "policy/head_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <numeric>

namespace rkv::policy {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kFormat = "rkv-head-table";
constexpr std::int32_t kVersion = 1;
constexpr std::int32_t kMaxSide = 65536;           // layers, and KV heads of a layer
constexpr std::size_t kMaxFileBytes = 64U << 20U;  // far above any model's table

Status Bad(std::string what) { return {Code::kInvalidArgument, std::move(what)}; }

Status ReadText(const Json& json, const char* name, std::string& out) {
  const auto found = json.find(name);
  if (found == json.end() || !found->is_string()) {
    return Bad(fmt::format("\"{}\" must be a text", name));
  }
  out = found->get<std::string>();
  return {};
}

Status ReadSide(const Json& json, const char* name, std::int32_t& out) {
  const auto found = json.find(name);
  if (found == json.end() || !found->is_number_integer() || *found < 1 || *found > kMaxSide) {
    return Bad(fmt::format("\"{}\" must be a whole number from 1 to {}", name, kMaxSide));
  }
  out = found->get<std::int32_t>();
  return {};
}

Status ReadScores(const Json& json, HeadTable& table) {
  const auto found = json.find("scores");
  const auto layers = static_cast<std::size_t>(table.layers);
  const auto heads = static_cast<std::size_t>(table.kv_heads);
  if (found == json.end() || !found->is_array() || found->size() != layers) {
    return Bad(fmt::format("\"scores\" must be {} lists, one a layer", layers));
  }
  for (std::size_t l = 0; l < layers; ++l) {
    const Json& layer = (*found)[l];
    if (!layer.is_array() || layer.size() != heads) {
      return Bad(fmt::format("\"scores\" of layer {} must be {} numbers, one a KV head", l, heads));
    }
    for (std::size_t h = 0; h < heads; ++h) {
      const double number = layer[h].is_number() ? layer[h].get<double>() : NAN;
      if (!std::isfinite(static_cast<float>(number))) {
        return Bad(fmt::format("the score of layer {}, KV head {} is no number", l, h));
      }
      table.scores.push_back(static_cast<float>(number));
    }
  }
  return {};
}

// The text of a file. Errors: kNotFound, kInvalidArgument for one that is too large.
Result<std::string> ReadFile(const std::string& path) {
  std::FILE* const file = std::fopen(path.c_str(), "rb");
  if (file == nullptr) {
    return Status(Code::kNotFound, fmt::format("head table '{}' cannot be opened", path));
  }
  std::string text;
  std::vector<char> part(1U << 16U);
  for (std::size_t got = 1; got > 0 && text.size() <= kMaxFileBytes;) {
    got = std::fread(part.data(), 1, part.size(), file);
    text.append(part.data(), got);
  }
  const bool failed = std::ferror(file) != 0;
  std::fclose(file);
  if (failed) {
    return Status(Code::kNotFound, fmt::format("head table '{}' cannot be read", path));
  }
  if (text.size() > kMaxFileBytes) {
    return Status(Code::kInvalidArgument, fmt::format("head table '{}' is too large", path));
  }
  return text;
}

}  // namespace

std::vector<std::int32_t> HeadTable::Ranks() const {
  std::vector<std::size_t> order(scores.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order,
                           [&](std::size_t a, std::size_t b) { return scores[a] > scores[b]; });
  std::vector<std::int32_t> ranks(scores.size());
  for (std::size_t place = 0; place < order.size(); ++place) {
    ranks[order[place]] = static_cast<std::int32_t>(place);
  }
  return ranks;
}

Result<HeadTable> ParseHeadTable(std::string_view text) {
  const Json json = Json::parse(text, nullptr, false);
  if (json.is_discarded() || !json.is_object()) {
    return Bad("it is no JSON object");
  }
  std::string format;
  HeadTable table;
  if (!ReadText(json, "format", format).ok() || format != kFormat) {
    return Bad(fmt::format("\"format\" must be \"{}\"", kFormat));
  }
  const auto version = json.find("version");
  if (version == json.end() || *version != kVersion) {
    return Bad(fmt::format("\"version\" must be {}", kVersion));
  }
  for (const auto& [name, out] :
       {std::pair("method", &table.method), std::pair("model", &table.model)}) {
    if (Status status = ReadText(json, name, *out); !status.ok()) {
      return status;
    }
  }
  for (const auto& [name, out] :
       {std::pair("layers", &table.layers), std::pair("kv_heads", &table.kv_heads)}) {
    if (Status status = ReadSide(json, name, *out); !status.ok()) {
      return status;
    }
  }
  if (Status status = ReadScores(json, table); !status.ok()) {
    return status;
  }
  return table;
}

std::string HeadTableJson(const HeadTable& table) {
  Json scores = Json::array();
  for (std::int32_t l = 0; l < table.layers; ++l) {
    const auto begin = table.scores.begin() + std::ptrdiff_t{l} * table.kv_heads;
    scores.push_back(std::vector<float>(begin, begin + table.kv_heads));
  }
  const Json json = {{"format", kFormat},          {"version", kVersion},
                     {"method", table.method},     {"model", table.model},
                     {"layers", table.layers},     {"kv_heads", table.kv_heads},
                     {"scores", std::move(scores)}};
  return json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

Result<HeadTable> LoadHeadTable(const std::string& path, std::string_view method) {
  const Result<std::string> text = ReadFile(path);
  if (!text) {
    return text.error();
  }
  Result<HeadTable> table = ParseHeadTable(*text);
  if (!table) {
    return Bad(fmt::format("head table '{}': {}", path, table.error().message()));
  }
  if (table->method != method) {
    return Bad(fmt::format("head table '{}' is for method '{}', not for '{}'", path, table->method,
                           method));
  }
  return table;
}

Status LoadRanks(const std::string& path, std::string_view method, HeadTable& table,
                 std::vector<std::int32_t>& ranks) {
  Result<HeadTable> loaded = LoadHeadTable(path, method);
  if (!loaded) {
    return loaded.error();
  }
  table = *std::move(loaded);
  ranks = table.Ranks();
  return {};
}

Status CheckHeadTable(const HeadTable& table, const TurnShape& shape) {
  if (table.model == shape.model && table.layers == shape.layers &&
      table.kv_heads == shape.kv_heads) {
    return {};
  }
  return Bad(
      fmt::format("the head table is of model '{}' ({} layers, {} KV heads), this one is '{}' ({} "
                  "layers, {} KV "
                  "heads); make a table for it with `rkv calibrate {} -m MODEL -o FILE`",
                  table.model, table.layers, table.kv_heads, shape.model, shape.layers,
                  shape.kv_heads, table.method));
}

}  // namespace rkv::policy
