// Paths of fields, and the tree of all of them, in which a record is followed while it is read.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace ramify::signal {

struct PathStep {
  std::string key;
  bool is_item = false;  // `[]` instead of a key

  bool operator==(const PathStep&) const = default;
};

// std::invalid_argument for an empty key or a lone bracket.
std::vector<PathStep> parse_path(std::string_view path);
std::string write_path(const std::vector<PathStep>& steps);

// Nodes are numbered from 0, the record itself, in the order in which they are added.
class FieldTree {
 public:
  static constexpr int32_t kNone = -1;

  enum class Use {
    kept,
    partly,  // something below is kept, nothing else
    left_out,
  };

  // Only `only` (all, if it is empty), and nothing of `left_out`.
  FieldTree(const std::vector<std::string>& only, const std::vector<std::string>& left_out);

  int32_t size() const { return static_cast<int32_t>(nodes_.size()); }
  Use use(int32_t node) const { return nodes_[node].use; }

  // kNone if it is not in the tree; for what is not kept, see use_of_new.
  int32_t find_member(int32_t node, std::string_view key) const {
    const auto found = nodes_[node].members.find(key);
    return found == nodes_[node].members.end() ? kNone : found->second;
  }
  // The items of an array inside an array are those of the outer one.
  int32_t find_item(int32_t node) const { return nodes_[node].is_item ? node : nodes_[node].item; }
  // What becomes of a child that is not in the tree.
  Use use_of_new(int32_t parent) const { return use(parent) == Use::kept ? Use::kept : Use::left_out; }

  int32_t add_member(int32_t node, std::string_view key);
  int32_t add_item(int32_t node);
  int32_t add(std::string_view path);
  int32_t find(std::string_view path) const;

  const std::string& key(int32_t node) const { return nodes_[node].key; }
  bool is_item(int32_t node) const { return nodes_[node].is_item; }
  std::string path(int32_t node) const;

 private:
  struct Hash {
    using is_transparent = void;
    size_t operator()(std::string_view key) const { return std::hash<std::string_view>{}(key); }
  };
  struct Node {
    int32_t parent = kNone;
    std::string key;
    bool is_item = false;
    Use use = Use::kept;
    int32_t item = kNone;
    std::unordered_map<std::string, int32_t, Hash, std::equal_to<>> members;
  };

  int32_t add_node(int32_t parent, Node node);

  std::vector<Node> nodes_;
};

}  // namespace ramify::signal
