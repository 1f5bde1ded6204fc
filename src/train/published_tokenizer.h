// The tokenizer of a model that is trained here, in the files that other programs look for beside it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "text/model_tokenizer.h"

namespace ramify::train {

// Copies what a tokenizer's folder or file (Tokenizer::load) is made of into `folder`, which is there, under the names
// that a folder has; and says in tokenizer_config.json which token texts of a decoder begin with: the one that the
// source puts in front of texts, if any. io::Error names what is missing.
void copy_tokenizer(const std::string& source, const std::string& folder);

// Names of the files that copy_tokenizer() may write.
std::vector<std::string> tokenizer_files();

// What a folder of a decoder puts in front of a text.
std::vector<int32_t> tokens_before(const text::ModelTokenizer& tokenizer);

// What is thought to end a text, by its name; -1: none.
int32_t end_token(const text::Tokenizer& tokenizer);

}  // namespace ramify::train
