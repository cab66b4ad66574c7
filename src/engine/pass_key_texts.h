// PassKeyTexts: documents that hide pass keys and ask for them at the end.
#ifndef RKV_ENGINE_PASS_KEY_TEXTS_H_
#define RKV_ENGINE_PASS_KEY_TEXTS_H_

#include <cstdint>
#include <string>
#include <vector>

namespace rkv::engine {

// `count` texts of plain English, each with several keys spread over about `words` words of filler
// and, at the end, the questions for them with their answers. The same for the same arguments.
// After the passkey retrieval task of arXiv:2305.16300, as DuoAttention's training uses it.
std::vector<std::string> PassKeyTexts(std::int32_t count, std::int32_t words);

}  // namespace rkv::engine

#endif  // RKV_ENGINE_PASS_KEY_TEXTS_H_
