// Reads HTML as strictly as our pages are written: every tag closed, every attribute in double quotes, nothing that
// runs or fetches but the page's own script.
#pragma once

#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace ramify::report {

class HtmlCheck {
 public:
  explicit HtmlCheck(std::string_view html) : html_(html) { read(); }

  const std::string& error() const { return error_; }  // empty: none
  int64_t count(const std::string& tag) const {
    int64_t number = 0;
    for (const std::string& each : tags_) number += each == tag;
    return number;
  }
  size_t depth() const { return depth_; }  // of elements in elements

 private:
  void fail(const std::string& what, size_t at) {
    if (error_.empty()) error_ = what + " at: " + std::string(html_.substr(at, 80));
  }

  void read() {
    size_t at = html_.starts_with("<!doctype html>") ? 15 : 0;
    while (error_.empty() && (at = html_.find_first_of("<>", at)) != std::string_view::npos) {
      if (html_[at] == '>') return fail("a bare >", at);
      at = html_[at + 1] == '/' ? close(at) : open(at);
    }
    if (error_.empty() && !stack_.empty()) error_ = "not closed: " + stack_.back();
  }

  size_t close(size_t at) {
    const size_t end = html_.find('>', at);
    const std::string name(html_.substr(at + 2, end - at - 2));
    if (stack_.empty() || stack_.back() != name) fail("closes " + name, at);
    if (!stack_.empty()) stack_.pop_back();
    return end + 1;
  }

  size_t open(size_t at) {
    static const std::set<std::string> kEmpty = {"meta", "wbr"};
    size_t end = html_.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789", at + 1);
    const std::string name(html_.substr(at + 1, end - at - 1));
    if (name.empty()) fail("a bare <", at);
    tags_.push_back(name);
    end = attributes(end);
    if (!error_.empty()) return end;
    const bool is_closed = html_[end - 1] == '/';
    if (!is_closed && !kEmpty.contains(name)) stack_.push_back(name);
    depth_ = std::max(depth_, stack_.size());
    if (name == "script" || name == "style") return html_.find("</" + name + ">", end);
    return end + 1;
  }

  // To the > of the tag.
  size_t attributes(size_t at) {
    while (true) {
      at = html_.find_first_not_of(" \n/", at);
      if (at == std::string_view::npos) return fail("an open tag", 0), html_.size();
      if (html_[at] == '>') return at;
      const size_t end = html_.find_first_of("= >", at);
      const std::string name(html_.substr(at, end - at));
      static const std::set<std::string> kFetching = {"src", "href", "action", "poster", "srcset", "data"};
      if (name.starts_with("on") || kFetching.contains(name)) return fail("attribute " + name, at), html_.size();
      if (name.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-") !=
          std::string::npos) {
        return fail("attribute " + name, at), html_.size();
      }
      at = end;
      if (html_[at] != '=') continue;
      if (html_[at + 1] != '"') return fail("no quotes", at), html_.size();
      const size_t quote = html_.find('"', at + 2);
      if (html_.substr(at, quote - at).find_first_of("<>") != std::string_view::npos) fail("< in an attribute", at);
      at = quote + 1;
    }
  }

  std::string_view html_;
  std::string error_;
  std::vector<std::string> stack_, tags_;
  size_t depth_ = 0;
};

// Texts that try to leave the place where they are put.
inline std::vector<std::string> hostile_texts() {
  using namespace std::string_literals;
  return {"</script><script>alert(1)</script>",
          "\" onmouseover=\"alert(1)",
          "' autofocus onfocus='x",
          "<!-- --><![CDATA[ ]]>",
          "</bdi></details></main>",
          "\0\x01\x08\x1b[31m\x7f"s,
          "\xff\xfe\xc0\xaf\xed\xa0\x80\xf4\x90\x80\x80",  // not UTF-8
          "\xe2\x80\xae overridden \xe2\x81\xa7 isolated",
          std::string(50000, 'x'),
          "{} {0} %s %n",
          "",
          "\xf0\x9f"};  // cut off
}

}  // namespace ramify::report
