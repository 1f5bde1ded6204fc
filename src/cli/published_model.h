// The published model that a command's options name.
#pragma once

#include "model_commands.h"
#include "models/text_model.h"

namespace ramify::cli {

models::TextModel open_model(const ModelOptions& options);
models::TextModel open_decoder(const ModelOptions& options);  // std::invalid_argument: it is an encoder
models::TextModel open_encoder(const ModelOptions& options);  // std::invalid_argument: it is a decoder
models::AttentionPlan plan_of(const ModelOptions& options, int64_t num_layers);
// The same; where the options say nothing, the attention that the decoder was trained with, unless `exact` is wanted.
models::AttentionPlan decoder_plan(const ModelOptions& options, bool exact, const models::TextModel& model);
std::string describe(const models::AttentionPlan& plan);  // "exact", "hierarchical 16*, tie none, window 32"
// What the model takes, or less. std::invalid_argument if more was asked for.
int64_t max_tokens_of(const ModelOptions& options, const models::ModelConfig& config);

}  // namespace ramify::cli
