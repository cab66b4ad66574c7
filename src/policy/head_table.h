// HeadTable: a number for every KV head of one model, found once by `rkv calibrate`.
#ifndef RKV_POLICY_HEAD_TABLE_H_
#define RKV_POLICY_HEAD_TABLE_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "policy/policy.h"
#include "rkv/status.h"

namespace rkv::policy {

struct HeadTable {
  std::string method;  // whose scores these are: "duo", "catekv"
  std::string model;   // TurnShape::model
  std::int32_t layers = 0;
  std::int32_t kv_heads = 0;
  std::vector<float> scores;  // [layers][kv_heads], finite

  // [layers][kv_heads] places in the order (score descending, layer, kv_head): 0 is the highest.
  std::vector<std::int32_t> Ranks() const;
};

// The table in `text`, a JSON object {"format":"rkv-head-table","version":1,"method":...,
// "model":...,"layers":L,"kv_heads":H,"scores":[[H numbers], L of them]}.
// Errors: kInvalidArgument says what is wrong.
Result<HeadTable> ParseHeadTable(std::string_view text);
// As ParseHeadTable; ends in a newline.
std::string HeadTableJson(const HeadTable& table);

// Reads a table for `method` from a file. Errors: kNotFound when it cannot be opened,
// kInvalidArgument when it is no table or another method's. Each names the file.
Result<HeadTable> LoadHeadTable(const std::string& path, std::string_view method);

// LoadHeadTable and HeadTable::Ranks; after an error both are as before.
Status LoadRanks(const std::string& path, std::string_view method, HeadTable& table,
                 std::vector<std::int32_t>& ranks);

// Errors: kInvalidArgument when `table` is of another model than `shape`: names both.
Status CheckHeadTable(const HeadTable& table, const TurnShape& shape);

}  // namespace rkv::policy

#endif  // RKV_POLICY_HEAD_TABLE_H_
