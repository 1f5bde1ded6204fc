// Text and numbers as they stand in a page.
#include "report/html.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <limits>
#include <string>

#include "report/html_check.h"
#include "report/page.h"
#include "report/table.h"

namespace ramify::report {
namespace {

TEST(Escape, LeavesPlainTextAlone) {
  EXPECT_EQ(escape("Grüße, 世界 🙂"), "Grüße, 世界 🙂");
  EXPECT_EQ(escape(""), "");
}

TEST(Escape, ReplacesWhatMeansSomethingInHtml) {
  EXPECT_EQ(escape("<a href=\"x\">&amp;'"), "&lt;a href=&quot;x&quot;&gt;&amp;amp;&#39;");
}

TEST(Escape, ControlsAndDirectionsBecomeReplacementCharacters) {
  using namespace std::string_literals;
  EXPECT_EQ(escape("a\0b\x1b"s), "a\uFFFDb\uFFFD");
  EXPECT_EQ(escape("\u202E\u2066x\u2069\u0085\uFFFE"), "\uFFFD\uFFFDx\uFFFD\uFFFD\uFFFD");
  EXPECT_EQ(escape("a\tb\nc\r"), "a b c ");
  EXPECT_EQ(escape("\u200F\u05D0"), "\u200F\u05D0");  // a mark without reach stays
}

TEST(Escape, BrokenUtf8BecomesReplacementCharacters) {
  EXPECT_EQ(escape("\xC3"), "\uFFFD");
  EXPECT_EQ(escape("\xC0\xAF"), "\uFFFD\uFFFD");            // overlong
  EXPECT_EQ(escape("\xED\xA0\x80"), "\uFFFD\uFFFD\uFFFD");  // surrogate
  EXPECT_EQ(escape("\xF4\x90\x80\x80x"), "\uFFFD\uFFFD\uFFFD\uFFFDx");
  EXPECT_EQ(escape("\xE2\x82"
                   "a"),
            "\uFFFD\uFFFDa");
}

TEST(Escape, CutsBetweenCharacters) {
  EXPECT_EQ(escape("äöü", 2), "äö…");
  EXPECT_EQ(escape("äöü", 3), "äöü");
  EXPECT_EQ(escape("&&&", 1), "&amp;…");
}

RC_GTEST_PROP(EscapeLaws, AnyBytesStayText, (const std::string& bytes)) {
  RC_ASSERT(HtmlCheck("<p title=\"" + escape(bytes) + "\">" + isolated(bytes) + "</p>").error() == "");
}

TEST(Numbers, AreReadable) {
  EXPECT_EQ(with_commas(0), "0");
  EXPECT_EQ(with_commas(999), "999");
  EXPECT_EQ(with_commas(-1204332), "-1,204,332");
  EXPECT_EQ(with_commas(std::numeric_limits<int64_t>::min()), "-9,223,372,036,854,775,808");
  EXPECT_EQ(with_unit(1204332), "1.2 M");
  EXPECT_EQ(with_unit(999.7), "1 k");
  EXPECT_EQ(decimal(0.43214), "0.4321");
  EXPECT_EQ(decimal(1.25e-5), "1.250e-05");
  EXPECT_EQ(percent(0.8794), "87.9%");
  EXPECT_EQ(duration(4.24), "4.2 s");
  EXPECT_EQ(duration(59.6), "1 min 00 s");
  EXPECT_EQ(duration(7512), "2 h 05 min");
  EXPECT_EQ(bytes_text(1.5 * (1 << 30)), "1.5 GiB");
}

TEST(Numbers, WhatIsNotFiniteIsADash) {
  for (const double value : {kNan, std::numeric_limits<double>::infinity()}) {
    for (const auto& write : {with_unit, decimal, percent, duration, bytes_text}) EXPECT_EQ(write(value), "–");
  }
  EXPECT_EQ(duration(-1), "–");
}

TEST(Page, IsOneFileThatRunsOnlyItsOwnScript) {
  const std::string html = page_html("a</title><script>x</script>", "<p>body</p>");
  EXPECT_EQ(HtmlCheck(html).error(), "");
  EXPECT_EQ(HtmlCheck(html).count("script"), 1);
  EXPECT_NE(html.find("default-src 'none'"), std::string::npos);
  EXPECT_NE(html.find("script-src 'sha256-"), std::string::npos);
  EXPECT_EQ(html.find("://"), std::string::npos) << "no address of any kind";
  EXPECT_EQ(html.find("url("), std::string::npos);
  EXPECT_EQ(html.find("@import"), std::string::npos);
}

TEST(Table, EscapesEverything) {
  Table table = {"<i>title", {{"<b>column"}, {"number", Align::number}}, {}};
  for (const std::string& text : hostile_texts()) {
    Cell number(text, kNan);
    number.is_best = true;
    number.bar = 7;
    number.colour = 11;
    table.rows.push_back({text, number});
  }
  const std::string html = table_html(table);
  EXPECT_EQ(HtmlCheck(html).error(), "");
  EXPECT_EQ(HtmlCheck(html).count("tr"), static_cast<int64_t>(hostile_texts().size()) + 1);
  EXPECT_EQ(HtmlCheck(html).count("script"), 0);
  EXPECT_LT(html.size(), 50000U) << "long texts are cut";
}

TEST(Table, LongNamesMayBreakAfterTheirParts) {
  const std::string html = table_html({"", {{"a"}}, {{"comp.sys.mac"}}});
  EXPECT_NE(html.find("comp.<wbr>sys.<wbr>mac"), std::string::npos) << html;
}

}  // namespace
}  // namespace ramify::report
