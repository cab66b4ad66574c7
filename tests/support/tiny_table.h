// A head table of the tiny model "llama-f32-gqa3-llama3rope", written where tests may write.
#ifndef RKV_TESTS_SUPPORT_TINY_TABLE_H_
#define RKV_TESTS_SUPPORT_TINY_TABLE_H_

#include <string>

namespace rkv::test {

inline std::string TinyHeadTable() { return std::string(RKV_TINY_MODELS) + "/gqa3-heads.json"; }

}  // namespace rkv::test

#endif  // RKV_TESTS_SUPPORT_TINY_TABLE_H_
