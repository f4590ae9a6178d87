// GPT-2 as Hugging Face's `transformers` keeps it: GPT2LMHeadModel with a tied head.
//
// Our names with "transformer." before them. Matrices of linear maps are [in, out] there (Conv1D)
// and [out, in] here; tables, norms and biases are alike.
#pragma once

#include <string>

#include "core/autograd/param.h"
#include "data/tokenizer/tokenizer.h"
#include "runtime/config/config.h"

namespace anabranch {

struct HfName {
  std::string name;  // "transformer.h.0.attn.c_attn.weight"
  bool transposed = false;
};

// What a parameter of a gpt2 model is called there.
HfName hf_gpt2_name(const Param& w);

// The same of a name in a file: a GPT2Model by itself is written without "transformer.".
std::string hf_gpt2_full_name(const std::string& name);

// Whether it is one of the masks that old versions keep beside the weights of `layers` layers.
bool is_hf_gpt2_mask(const std::string& full_name, int64_t layers);

// [out, in] of [in, out], or back.
Tensor transposed(const Tensor& matrix);

// config.json, so far as this runtime knows what to say.
//
//   type  of the weights in the file
//   step  of the run, kept for us under "anabranch"
std::string write_hf_gpt2_config(const Config& config, const Tokenizer& tokenizer, DType type,
                                 int64_t step);

struct HfGpt2Config {
  ModelConfig model;
  int64_t vocabulary = 0;  // rows of the table, padding included
  bool tied = true;
};

// Reads a config.json. Throws Error (data, 65) that names the file and the key if it is of another
// model, or of a GPT-2 that computes something that ours does not.
HfGpt2Config read_hf_gpt2_config(const std::string& path);

// tokenizer_config.json: without it `transformers` would add an <|endoftext|> of its own.
std::string write_hf_tokenizer_config(const Config& config, const Tokenizer& tokenizer);

}  // namespace anabranch
