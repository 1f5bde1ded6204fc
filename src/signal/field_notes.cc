#include "signal/field_notes.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <iterator>

#include "signal/counted.h"

namespace ramify::signal {
namespace {

constexpr std::array kSorts = {Kind::number, Kind::text, Kind::boolean};
constexpr std::array<std::string_view, 3> kSortNames = {"number", "string", "boolean"};

size_t sort_of(Value::Type type) {
  return type == Value::Type::string ? 1 : type == Value::Type::boolean ? 2 : 0;
}

bool is_image_name(std::string_view text) {
  const auto ends_in = [&](std::string_view ending) {
    const auto same = [](char a, char b) { return a == b || (a >= 'A' && a <= 'Z' && a - 'A' + 'a' == b); };
    return text.size() > ending.size() &&
           std::equal(text.end() - static_cast<int64_t>(ending.size()), text.end(), ending.begin(), same);
  };
  return ends_in(".jpg") || ends_in(".jpeg") || ends_in(".png");
}

// Values are told apart by their hashes: the first ones only, so that memory is bounded, and that field after field.
constexpr size_t kFewestIdentifiers = 100, kMostIdentifiers = 1000;
constexpr size_t kLongestIdentifier = 64;

bool has_duplicates(std::vector<uint64_t> hashes) {
  std::sort(hashes.begin(), hashes.end());
  return std::adjacent_find(hashes.begin(), hashes.end()) != hashes.end();
}

}  // namespace

void ScalarMixture::add(Value::Type type, const RecordPlace& place) {
  Sort& sort = sorts_[sort_of(type)];
  if (sort.count++ == 0 && place.line > 0) sort.first = fmt::format("{}:{}", place.file, place.line);
}

int64_t ScalarMixture::count(Kind kind) const {
  return sorts_[static_cast<size_t>(std::find(kSorts.begin(), kSorts.end(), kind) - kSorts.begin())].count;
}

Kind ScalarMixture::prevailing() const {
  const int64_t all = sorts_[0].count + sorts_[1].count + sorts_[2].count;
  for (const Kind kind : {Kind::number, Kind::boolean}) {
    if (count(kind) < all && 2 * count(kind) > all) return kind;
  }
  return Kind::null;
}

std::string ScalarMixture::text() const {
  std::array<size_t, kSorts.size()> order = {0, 1, 2};
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return sorts_[a].count > sorts_[b].count; });
  std::string text;
  size_t rarest = 0;
  for (const size_t sort : order) {
    if (sorts_[sort].count == 0) continue;
    text += (text.empty() ? "" : ", ") + counted(sorts_[sort].count, kSortNames[sort]);
    rarest = sort;
  }
  return sorts_[rarest].first.empty() ? text : fmt::format("{} ({})", text, sorts_[rarest].first);
}

void FieldNotes::add(const Document& document, const Value& value, const RecordPlace& place) {
  mixture_.add(value.type, place);
  const bool is_string = value.type == Value::Type::string;
  if (is_string) image_names_ += is_image_name(document.text(value));
  if (!may_be_identifiers_) return;
  if (is_string) return add_identifier(document.text(value));
  may_be_identifiers_ = value.type == Value::Type::integer;
  if (!may_be_identifiers_) return;
  std::string buffer;
  add_identifier(document.written(value, buffer));
}

void FieldNotes::add_identifier(std::string_view written) {
  ++identifiers_;
  if (hashes_.size() == kMostIdentifiers) return;
  may_be_identifiers_ =
      written.size() <= kLongestIdentifier && written.find_first_of(" \t\r\n") == std::string_view::npos;
  if (may_be_identifiers_) hashes_.push_back(std::hash<std::string_view>{}(written));
  const bool is_time_to_look = hashes_.size() == kFewestIdentifiers || hashes_.size() == kMostIdentifiers;
  if (may_be_identifiers_ && is_time_to_look) may_be_identifiers_ = !has_duplicates(hashes_);
  if (!may_be_identifiers_) std::vector<uint64_t>().swap(hashes_);
}

bool FieldNotes::are_identifiers() const {
  return may_be_identifiers_ && hashes_.size() >= kFewestIdentifiers && !has_duplicates(hashes_);
}

std::vector<std::string> FieldNotes::notes(const std::string& path, Kind kind) const {
  std::vector<std::string> notes;
  if (const Kind prevailing = mixture_.prevailing(); prevailing != Kind::null && prevailing != kind) {
    notes.push_back(fmt::format("{}: {}: read as {}; --schema can say {}", path, mixture_.text(), name_of(kind),
                                name_of(prevailing)));
  }
  constexpr double kMost = 0.9;
  const auto strings = static_cast<double>(mixture_.count(Kind::text));
  if (strings > 0 && static_cast<double>(image_names_) >= kMost * strings) {
    notes.push_back(fmt::format("{}: these look like image files; --schema can say image", path));
  } else if (are_identifiers()) {
    const bool are_all = identifiers_ == static_cast<int64_t>(hashes_.size());
    notes.push_back(
        are_all ? fmt::format("{}: every value is different; --ignore {}?", path, path)
                : fmt::format("{}: the first {} values are all different; --ignore {}?", path, hashes_.size(), path));
  }
  return notes;
}

}  // namespace ramify::signal
