// requantize: a Q8_0 copy of a GGUF model, for engines that cannot read its types.
// usage: requantize IN.gguf OUT.gguf
#include <llama.h>

#include <cstdio>

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: requantize IN.gguf OUT.gguf\n");
    return 2;
  }
  llama_log_set([](ggml_log_level, const char*, void*) {}, nullptr);
  llama_backend_init();
  llama_model_quantize_params params = llama_model_quantize_default_params();
  params.ftype = LLAMA_FTYPE_MOSTLY_Q8_0;
  params.allow_requantize = true;
  params.pure = true;  // one type for every matrix
  if (llama_model_quantize(argv[1], argv[2], &params) != 0) {
    std::fprintf(stderr, "requantize: cannot make %s of %s\n", argv[2], argv[1]);
    return 1;
  }
  return 0;
}
