// Markup of any text, and pictures that show their numbers.
#include "report/charts.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>

#include "quote_text.hpp"
#include "report/markup.hpp"

namespace bitcube::report {
namespace {

const std::string kBad = "\xEF\xBF\xBD";  // U+FFFD

TEST(Markup, ReplacesWhatIsNoText) {
  EXPECT_EQ(clean_text("a\tb\nc é ☃ 😀"), "a\tb\nc é ☃ 😀");
  const std::pair<std::string, std::string> cases[] = {
      {"\xFF", kBad},
      {"a\x80z", "a" + kBad + "z"},
      {"\xC3", kBad},                                   // ends too early
      {"\xC3(", kBad + "("},                            // goes on otherwise
      {"\xC0\xAF", kBad + kBad},                        // longer than it must be
      {"\xE0\x80\xAF", kBad + kBad + kBad},             // ...
      {"\xED\xA0\x80", kBad + kBad + kBad},             // half of a pair
      {"\xF4\x90\x80\x80", kBad + kBad + kBad + kBad},  // beyond U+10FFFF
      {std::string("\0\x01\x1B\r\x7F", 5), kBad + kBad + kBad + kBad + kBad},
      {"\xC2\x85", kBad + kBad},             // U+0085, a control
      {"\xEF\xBF\xBE", kBad + kBad + kBad},  // U+FFFE
      {"\xEF\xBF\xBD", kBad},
      {"\xF4\x8F\xBF\xBD", "\xF4\x8F\xBF\xBD"}};
  for (const auto& [from, to] : cases) EXPECT_EQ(clean_text(from), to) << testing::PrintToString(from);
}

TEST(Markup, EscapesTextAndAttributes) {
  EXPECT_EQ(escape_text("<script>&\"'"), "&lt;script&gt;&amp;&quot;&#39;");
  Markup out;
  out.open("b", {{"title", "\"><script>"}}).text("</b>").close();
  EXPECT_EQ(std::move(out).take(), "<b title=\"&quot;&gt;&lt;script&gt;\">&lt;/b&gt;</b>");
}

TEST(Markup, ShortensInTheMiddle) {
  EXPECT_EQ(shorten_text("abcdef", 6), "abcdef");
  EXPECT_EQ(shorten_text("abcdefg", 6), "ab…efg");
  EXPECT_EQ(shorten_text("äöüßäöü", 4), "ä…öü");
  EXPECT_EQ(shorten_text("a\xFFz", 3), "a" + kBad + "z");
}

TEST(Markup, LabelsAreDifferent) {
  const auto labels = [](const std::vector<std::string>& names, std::size_t most) {
    return distinct_labels(names, most);
  };
  using Labels = std::vector<std::string>;
  EXPECT_EQ(labels({}, 10), Labels());
  EXPECT_EQ(labels({"a.b", "a.c"}, 10), (Labels{"a.b", "a.c"}));
  EXPECT_EQ(labels({"model.layers.0.out.weight", "model.layers.11.out.weight"}, 14),
            (Labels{"…layers.0.out…", "…11.out.weight"}));
  // Some share more than all do.
  EXPECT_EQ(
      labels({"model.language.layers.0.self.out.weight", "model.language.layers.1.self.out.weight", "head.weight"}, 14),
      (Labels{"…0.self.out…", "…1.self.out…", "head.weight"}));
  // One that ends where the other goes on.
  EXPECT_EQ(labels({"aaaaaaaa.bbbbbbbb", "aaaaaaaa.bbbbbbbb.c"}, 11), (Labels{"…bbbbbbbb", "…bbbbbbbb.c"}));
  EXPECT_EQ(labels({"same", "same", "same"}, 10), (Labels{"same", "same #2", "same #3"}));
  EXPECT_EQ(labels({"same", "same", "same #2"}, 10), (Labels{"same", "same #3", "same #2"}));
  const Labels long_words = labels({"aaaaaaaaaa1bbbbbbbbbb", "aaaaaaaaaa2bbbbbbbbbb"}, 10);
  EXPECT_EQ(long_words, (Labels{"aaaa…bbbbb", "aaa…bbb #2"}));
}

TEST(Names, AreQuotedWhereTheyCannotBeSeen) {
  EXPECT_EQ(name_text("layer.0 \xC3\xA9\xE2\x98\x83"), "layer.0 \xC3\xA9\xE2\x98\x83");
  EXPECT_EQ(name_text(""), R"("")");
  EXPECT_EQ(name_text(" a"), R"(" a")");
  EXPECT_EQ(name_text("a "), R"("a ")");
  EXPECT_EQ(name_text("\"a\""), R"("\"a\"")");
  EXPECT_EQ(name_text(std::string_view("a\0b", 3)), R"("a\u0000b")");
  EXPECT_EQ(name_text("a\x7F"), R"("a\u007f")");
  EXPECT_EQ(name_text("a\xC2\x85"), R"("a\u0085")");
  EXPECT_EQ(name_text("a\xC2\xA0z"), "a\xC2\xA0z");
  for (const int code : {0x061C, 0x200E, 0x200F, 0x2028, 0x2029, 0x202A, 0x202E, 0x2066, 0x2069, 0xFEFF}) {
    std::string name = "a";
    if (code < 0x800) {
      name += {static_cast<char>(0xC0 | code >> 6), static_cast<char>(0x80 | (code & 0x3F))};
    } else {
      name += {static_cast<char>(0xE0 | code >> 12), static_cast<char>(0x80 | (code >> 6 & 0x3F)),
               static_cast<char>(0x80 | (code & 0x3F))};
    }
    EXPECT_EQ(name_text(name), fmt::format("\"a\\u{:04x}\"", code));
    EXPECT_EQ(quote_text(name), fmt::format("\"a\\u{:04x}\"", code));
  }
  EXPECT_EQ(name_text("abcdef", 3), "\"abc\"...");
}

TEST(Numbers, AreReadable) {
  EXPECT_EQ(count_text(0), "0");
  EXPECT_EQ(count_text(999), "999");
  EXPECT_EQ(count_text(1000), "1,000");
  EXPECT_EQ(count_text(1234567), "1,234,567");
  EXPECT_EQ(share_text(0, 10), "0 %");
  EXPECT_EQ(share_text(1, 3), "33.3 %");
  EXPECT_EQ(share_text(1, 80), "1.25 %");
  EXPECT_EQ(share_text(1, 1000000), "< 0.01 %");
  EXPECT_EQ(share_text(999999, 1000000), "> 99.9 %");
  EXPECT_EQ(share_text(7, 7), "100.0 %");
  EXPECT_EQ(share_text(0, 0), "0 %");
  EXPECT_EQ(short_number(-0.5), "−0.5");
  EXPECT_EQ(short_number(std::nan("")), "–");
  EXPECT_EQ(power_text(-16), "2⁻¹⁶");
}

TEST(Heat, ClassesGoFromLowestToHighest) {
  EXPECT_EQ(heat_class(0, 0, 9, false), 0U);
  EXPECT_EQ(heat_class(0.999, 0, 9, false), 0U);
  EXPECT_EQ(heat_class(1, 0, 9, false), 1U);
  EXPECT_EQ(heat_class(8.5, 0, 9, false), 8U);
  EXPECT_EQ(heat_class(9, 0, 9, false), 8U);
  EXPECT_EQ(heat_class(3, 3, 3, false), 4U);
  EXPECT_EQ(heat_class(0, 0, 128, true), 0U);
  EXPECT_EQ(heat_class(1, 0, 128, true), 1U);
  EXPECT_EQ(heat_class(2, 0, 128, true), 2U);
  EXPECT_EQ(heat_class(127, 0, 128, true), 7U);
  EXPECT_EQ(heat_class(128, 0, 128, true), 8U);
  EXPECT_EQ(heat_class(1, 0, 1, true), 8U);
}

/// x, y, width and height of every rectangle in the paths of a class.
std::vector<std::array<double, 4>> rectangles(const std::string& markup, const std::string& cls) {
  std::vector<std::array<double, 4>> out;
  const std::string start = "class=\"" + cls + "\" d=\"";
  for (std::size_t at = markup.find(start); at != std::string::npos; at = markup.find(start, at + 1)) {
    std::string path = markup.substr(at + start.size());
    path = path.substr(0, path.find('"'));
    for (std::size_t m = path.find('M'); m != std::string::npos; m = path.find('M', m + 1)) {
      std::array<double, 4> r{};
      double back = 0;
      EXPECT_EQ(std::sscanf(path.c_str() + m, "M%lf %lfh%lfv%lfh%lfz", &r[0], &r[1], &r[2], &r[3], &back), 5);
      EXPECT_EQ(back, -r[2]);
      out.push_back(r);
    }
  }
  return out;
}

const Caption kCaption{.id = "f1", .title = "T", .name = "T <name>", .text = "t", .description = "d"};
const Table kTable{.header = {"h", "n"}, .rows = {{"a", "1"}}, .right_aligned = {1}};

TEST(Columns, AreAsHighAsTheirShares) {
  Markup out;
  ColumnChart chart{.columns = {{100, false}, {50, false}, {0, false}, {25, true}}, .axis = "x", .share_of = 175};
  put_columns(out, kCaption, chart, kTable);
  const std::string markup = std::move(out).take();
  const auto inner = rectangles(markup, "bar");
  const auto outer = rectangles(markup, "bar outer");
  ASSERT_EQ(inner.size(), 2U);
  ASSERT_EQ(outer.size(), 1U);
  EXPECT_NEAR(inner[1][3] / inner[0][3], 0.5, 0.01);
  EXPECT_NEAR(outer[0][3] / inner[0][3], 0.25, 0.01);
  EXPECT_NEAR(outer[0][0] - inner[0][0], 3 * (inner[1][0] - inner[0][0]), 0.2);
  for (const auto& r : {inner[0], inner[1], outer[0]}) EXPECT_NEAR(r[1] + r[3], inner[0][1] + inner[0][3], 0.2);
  // Its words are there.
  EXPECT_NE(markup.find("<title id=\"f1-t\">T &lt;name&gt;</title><desc id=\"f1-d\">d</desc>"), std::string::npos);
  EXPECT_NE(markup.find("<th scope=\"row\"><bdi>a</bdi></th><td class=\"n\">1</td>"), std::string::npos);
}

TEST(Columns, OnALogarithmicScaleADecadeIsADecade) {
  Markup out;
  put_columns(out, kCaption, {.columns = {{10, false}, {100, false}, {1000, false}}, .axis = "x"}, kTable);
  const auto r = rectangles(std::move(out).take(), "bar");
  ASSERT_EQ(r.size(), 3U);
  EXPECT_NEAR(r[2][3] - r[1][3], r[1][3] - r[0][3], 0.2);
  EXPECT_GT(r[1][3] - r[0][3], 20);
}

TEST(Heat, DrawsEveryCellInItsColour) {
  Markup out;
  HeatChart chart{.rows = 2,
                  .columns = 3,
                  .values = {0.0, 0.0, 9.0, std::nullopt, 4.5, 4.5},
                  .row_axis = "r",
                  .column_axis = "c",
                  .scale_axis = "s"};
  chart.number = short_number;
  put_heat(out, kCaption, chart, kTable);
  const std::string markup = std::move(out).take();
  const auto low = rectangles(markup, "h0");
  const auto middle = rectangles(markup, "h4");
  const auto high = rectangles(markup, "h8");
  const auto none = rectangles(markup, "none");
  ASSERT_EQ(low.size(), 1U);
  ASSERT_EQ(middle.size(), 1U);
  ASSERT_EQ(high.size(), 1U);
  ASSERT_EQ(none.size(), 1U);
  EXPECT_NEAR(low[0][2], 2 * high[0][2], 0.2);  // two neighbours of a colour are one rectangle
  EXPECT_NEAR(low[0][0] + low[0][2], high[0][0], 0.2);
  EXPECT_NEAR(none[0][0], low[0][0], 0.2);
  EXPECT_NEAR(middle[0][0], none[0][0] + none[0][2], 0.2);
  EXPECT_NEAR(middle[0][1], low[0][1] + low[0][3], 0.2);
}

TEST(Bars, AreAsLongAsTheirLogarithms) {
  Markup out;
  put_bars(out, kCaption, {.bars = {{"a", 10}, {"b", 100}, {"c", 0}, {"d", 1000}}}, kTable);
  const auto r = rectangles(std::move(out).take(), "bar");
  ASSERT_EQ(r.size(), 3U);
  EXPECT_NEAR(r[2][2] - r[1][2], r[1][2] - r[0][2], 0.2);
}

}  // namespace
}  // namespace bitcube::report
