// Members of a struct from the members of a JSON object. The struct lists them once, by visit(key, member), for reading
// and for writing.
#pragma once

#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>

namespace ramify::train {

// `list(visit)` calls visit(key, member) for each. What is not in the object keeps its value. std::invalid_argument
// "PART: ..." for a value of another type, and for a key that there is no member of.
template <class List>
void read_members(const std::string& part, nlohmann::json json, const List& list) {
  if (!json.is_object()) throw std::invalid_argument(part + " is " + json.dump() + "; expected an object");
  list([&](const char* key, auto& member) {
    const auto found = json.find(key);
    if (found == json.end()) return;
    try {
      found->get_to(member);
    } catch (const nlohmann::json::exception&) {
      throw std::invalid_argument(part + ": " + key + " is " + found->dump() + ", which is of another type");
    }
    json.erase(found);
  });
  if (!json.empty()) throw std::invalid_argument(part + ": there is no setting " + json.begin().key());
}

template <class List>
nlohmann::json written_members(const List& list) {
  nlohmann::json json = nlohmann::json::object();
  list([&](const char* key, const auto& member) { json[key] = member; });
  return json;
}

}  // namespace ramify::train
