// Model: a checked GGUF file with its weights, hyper-parameters and tokenizer.
#ifndef RKV_MODEL_MODEL_H_
#define RKV_MODEL_MODEL_H_

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/buffer.h"
#include "base/mapped_file.h"
#include "base/thread_pool.h"
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

// Immutable and thread-safe once made. Weights stay in the mapped file, or in the memory given.
class Model {
 public:
  // Errors: those of MappedFile::Open, ParseGguf, CheckTokenizerKeys, ReadHyperParams; kDataLoss
  // names a missing tensor or one whose shape is not what the hyper-parameters say (both shapes).
  static Result<std::unique_ptr<Model>> Load(const std::string& path);
  // A model without a file: the same checks of tensors against `params`. `memory` holds their data.
  // Errors: those of Load about tensors.
  static Result<std::unique_ptr<Model>> FromTensors(HyperParams params,
                                                    std::vector<GgufTensor> tensors, Buffer memory,
                                                    std::unique_ptr<Tokenizer> tokenizer);
  ~Model();
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;

  const HyperParams& params() const { return params_; }
  const GgufFile& file() const { return gguf_; }
  const std::string& path() const { return path_; }  // empty without a file
  const LayerWeights& layer(std::int32_t i) const { return layers_[static_cast<std::size_t>(i)]; }
  const Linear& embedding() const { return embedding_; }
  const std::vector<float>& output_norm() const { return output_norm_; }
  const Linear& output() const { return output_; }  // the embedding when tied
  const Rope& rope() const { return *rope_; }
  const Tokenizer& tokenizer() const { return *tokenizer_; }

  // Packs the matrices that this CPU has a product for, once, before the model is used; their old
  // bytes leave memory, but for rows of the embedding. Errors: kResourceExhausted.
  Status Pack(ThreadPool& pool);
  std::size_t packed_bytes() const { return packed_.size(); }
  // What Pack would take.
  std::size_t BytesToPack();

  // Of the file, or of the memory that the weights are in.
  std::size_t file_bytes() const { return mapped_.bytes().size() + memory_.size(); }
  std::uint64_t parameter_count() const { return parameters_; }
  // "Q4_1", "Q4_K, Q6_K, F32": types of the matrices, most bytes first.
  std::string weight_types() const;

 private:
  Model() = default;
  Status ReadFile();                // parses and checks mapped_
  Status ReadTensors();             // fills the weights
  std::vector<Linear*> Matrices();  // that decode multiplies with
  void ReleasePages(std::span<const std::byte> bytes);

  std::string path_;
  MappedFile mapped_;
  Buffer memory_;  // the weights of a model without a file
  Buffer packed_;
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
