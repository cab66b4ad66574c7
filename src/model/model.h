// Model: a checked GGUF file with its weights, hyper-parameters and tokenizer.
#ifndef RKV_MODEL_MODEL_H_
#define RKV_MODEL_MODEL_H_

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/mapped_file.h"
#include "model/gguf.h"
#include "model/hyper_params.h"
#include "model/linear.h"
#include "model/rope.h"
#include "model/tokenizer.h"
#include "rkv/status.h"

namespace rkv::model {

struct LayerWeights {
  std::vector<float> attn_norm;  // [embd]
  Linear q, k, v, o;
  std::vector<float> ffn_norm;  // [embd]
  Linear gate, up, down;
};

// Immutable and thread-safe after Load. Weights stay in the mapped file.
class Model {
 public:
  // Errors: those of MappedFile::Open, ParseGguf, CheckTokenizerKeys, ReadHyperParams; kDataLoss
  // names a missing tensor or one whose shape is not what the hyper-parameters say (both shapes).
  static Result<std::unique_ptr<Model>> Load(const std::string& path);
  ~Model();
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;

  const HyperParams& params() const { return params_; }
  const GgufFile& file() const { return gguf_; }
  const std::string& path() const { return path_; }
  const LayerWeights& layer(std::int32_t i) const { return layers_[static_cast<std::size_t>(i)]; }
  const Linear& embedding() const { return embedding_; }
  const std::vector<float>& output_norm() const { return output_norm_; }
  const Linear& output() const { return output_; }  // the embedding when tied
  const Rope& rope() const { return *rope_; }
  const Tokenizer& tokenizer() const { return *tokenizer_; }

  std::size_t file_bytes() const { return mapped_.bytes().size(); }
  std::uint64_t parameter_count() const { return parameters_; }
  // "Q4_1", "Q4_K, Q6_K, F32": types of the matrices, most bytes first.
  std::string weight_types() const;

 private:
  Model() = default;
  Status ReadFile();     // parses and checks mapped_
  Status ReadTensors();  // fills the weights

  std::string path_;
  MappedFile mapped_;
  GgufFile gguf_;
  HyperParams params_;
  std::vector<LayerWeights> layers_;
  Linear embedding_;
  std::vector<float> output_norm_;
  Linear output_;
  std::unique_ptr<Rope> rope_;
  std::unique_ptr<Tokenizer> tokenizer_;
  std::uint64_t parameters_ = 0;
};

}  // namespace rkv::model

#endif  // RKV_MODEL_MODEL_H_
