// What an encoder is made of, and how that is written as JSON. The defaults are those of configs/default.json.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ramify/options.h"

namespace ramify::nn {

enum class Attention {
  hierarchical,  // over the forest of the batch; a forest of flat trees makes it softmax attention
  none,          // no mixing: every leaf keeps its own value (DeepSet)
};

// What becomes of the leaves behind a layer.
struct LocalPooling {
  enum class Kind { none, collapse, merge };
  Kind kind = Kind::none;
  int64_t group = 0;  // of merge: how many neighbours make one leaf
  bool operator==(const LocalPooling&) const = default;
};

struct LayerConfig {
  int64_t heads = 4;
  int64_t head_dim = 32;
  int64_t width = 128;            // of what the layer gives
  int64_t position_head_dim = 0;  // of positions, a head; 0: head_dim
  Attention attention = Attention::hierarchical;
  Tie tie = Tie::block;
  bool include_self = false;
  std::optional<double> alpha = 1;  // 1 is softmax, up to 2 sparse; none: learned, one a level (JSON: "learned")
  int64_t favor_features = 0;       // 0: exact attention inside families (JSON: "inner": "exact" or "favor:N")
  bool normalize_values = false;    // LayerNorm on v, as on q and k
  LocalPooling pooling;             // JSON: "none", "collapse" or "merge:N"
  bool operator==(const LayerConfig&) const = default;
};

enum class Frequencies { fixed, learned };  // of the Fourier features of places and cells
enum class Keys { learned, tokens };        // a vector a key, or the mean of the vectors of its words
enum class Activation { gelu, relu, none };

struct EncoderConfig {
  int64_t token_width = 128;  // of the vectors of ids and numbers
  int64_t position_width = 64;
  bool positions = true;  // false: siblings are told apart by nothing but what they hold
  Frequencies fourier = Frequencies::fixed;
  Keys keys = Keys::learned;
  std::vector<LayerConfig> layers = std::vector<LayerConfig>(2);
  std::optional<int64_t> pooling_leaf;  // which leaf stands for a range, from the end if negative; none: the mean
                                        // (JSON: "pooling": "mean" or "leaf:N")
  int64_t mlp_width = 128;              // of the hidden layer of the head; 0: no hidden layer
  Activation activation = Activation::gelu;
  double dropout = 0.1;      // of pooled vectors and of the hidden layer of the head
  double token_dropout = 0;  // how many leaves lose their vector in training
  bool operator==(const EncoderConfig&) const = default;

  // What is not said has its default. Throws std::invalid_argument that names the key and what was expected, as in
  // `NAME: layers[0].heads is -3; expected a whole number from 1 to 1024`.
  static EncoderConfig from_json(std::string_view text, std::string_view name = "config");
  std::string to_json() const;  // every key, indented

  void set_attention(Attention attention);  // of all layers
};

}  // namespace ramify::nn
