// bitcube report. How its pages look and behave in a browser is for tests/report/browser.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "cli/program.hpp"
#include "stream/files.hpp"
#include "support/checkpoints.hpp"

namespace bitcube::test {
namespace {

class ReportProgram : public testing::Test {
 protected:
  std::string path(std::string_view name) const { return dir_ / name; }
  std::string page() const { return read_text(dir_ / "r.html"); }
  static std::string example(std::string_view name) {
    return std::string(BITCUBE_SOURCE_DIR "/examples/mnist-mlp/") + std::string(name);
  }

  TempDir dir_{memory_directory()};
};

std::size_t occurrences(const std::string& text, std::string_view part) {
  std::size_t count = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

TEST_F(ReportProgram, ErrorsAreThoseOfQuantize) {
  const Outcome outcome = run({"report", example("w1.npy"), "--axis", "0", "--formats",
                               "hif4,hif4:paper,mxfp4:rceil,nvfp4:tensor-scale", "-o", path("r.html"), "--json"});
  ASSERT_TRUE(succeeds(outcome));
  const Json json = outcome.json();
  EXPECT_EQ(json["bytes"], page().size());
  ASSERT_EQ(json["tensors"].size(), 1U);
  const Json& formats = json["tensors"][0]["formats"];
  const std::vector<Arguments> ways{{"-f", "hif4"},
                                    {"-f", "hif4", "--profile", "paper"},
                                    {"-f", "mxfp4", "--scale", "rceil"},
                                    {"-f", "nvfp4", "--tensor-scale"}};
  const Arguments labels{"hif4", "hif4:paper", "mxfp4:rceil", "nvfp4:tensor-scale"};
  ASSERT_EQ(formats.size(), ways.size());
  for (std::size_t i = 0; i < ways.size(); ++i) {
    Arguments arguments{"quantize", example("w1.npy"), "--axis", "0", "-o", path("w.safetensors"), "--json"};
    arguments.insert(arguments.end(), ways[i].begin(), ways[i].end());
    const Outcome quantized = run(arguments);
    ASSERT_TRUE(succeeds(quantized));
    EXPECT_EQ(formats[i]["error"], quantized.json()["error"]);
    EXPECT_EQ(formats[i]["bytes"], quantized.json()["bytes"]);
    // The row of all tensors together, which are one here.
    const Json& bytes = formats[i]["bytes"];
    const std::string row = fmt::format(
        "<bdi>{}</bdi></th><td class=\"n\">{:.3f}</td><td class=\"n\">{:.2f}</td>", labels[i],
        (bytes["codes"].get<double>() + bytes["scales"].get<double>()) * 8 / formats[i]["error"]["lanes"].get<double>(),
        quantized.json()["error"]["sqnr_db"].get<double>());
    EXPECT_NE(page().find(row), std::string::npos) << row;
  }
  EXPECT_EQ(occurrences(page(), "<figure "), 3 + 5 * ways.size());
  EXPECT_EQ(occurrences(page(), "<figure "), occurrences(page(), "<desc "));
}

TEST_F(ReportProgram, TheSameInputGivesTheSameBytes) {
  const auto make = [&](const Arguments& more, const std::string& variable = "LC_ALL=C") {
    Arguments arguments{"report", example("w1.npy"), example("w2.npy"), "--axis", "0", "-o", path("r.html")};
    arguments.insert(arguments.end(), more.begin(), more.end());
    EXPECT_TRUE(succeeds(run(arguments, {.environment = variable})));
    return page();
  };
  const std::string first = make({"--threads", "1"});
  EXPECT_EQ(make({"--threads", "4"}), first);
  EXPECT_EQ(first.find("UTC"), std::string::npos);
  EXPECT_NE(make({}, "SOURCE_DATE_EPOCH=86400").find("1970-01-02 00:00 UTC"), std::string::npos);
  EXPECT_NE(make({"--date", "a <day>"}, "SOURCE_DATE_EPOCH=86400").find("a &lt;day&gt;"), std::string::npos);
  EXPECT_TRUE(refuses({"report", example("w1.npy"), "-o", path("r.html")}, "is no number of seconds",
                      {.environment = "SOURCE_DATE_EPOCH=soon"}));
}

TEST_F(ReportProgram, TheCommandInThePageMakesThePage) {
  ASSERT_TRUE(succeeds(run({"report", example("w2.npy"), "--axis", "-2", "--formats", "mxfp4:even", "--title",
                            "it's <b>", "-o", path("r.html")})));
  EXPECT_NE(page().find("<span>--formats</span> <span>mxfp4:even</span> "
                        "<span>--title</span> <span>&#39;it&#39;\\&#39;&#39;s</span> <span>&lt;b&gt;&#39;</span> "
                        "<span>--axis</span> <span>-2</span> <span>-o</span> <span>report.html</span>"),
            std::string::npos);
}

TEST_F(ReportProgram, NamesOfStrangersAreText) {
  const std::string name = "<script>alert(1)</script>\" onload=\"x";
  write_checkpoint(path("in.safetensors"), {{name, "F32", {64, 128}}, {"<i>small", "F32", {4, 4}}});
  ASSERT_TRUE(succeeds(run({"report", path("in.safetensors"), "-o", path("r.html")})));
  EXPECT_EQ(page().find("<script"), std::string::npos);
  EXPECT_EQ(page().find("<i>"), std::string::npos);
  EXPECT_EQ(page().find("\" onload"), std::string::npos);
  EXPECT_NE(page().find("&lt;script&gt;alert(1)&lt;/script&gt;&quot; onload=&quot;x"), std::string::npos);
  EXPECT_NE(page().find("<bdi>&lt;i&gt;small</bdi>"), std::string::npos);
  EXPECT_NE(page().find("dimension 4 &lt; 64"), std::string::npos);

  const std::string file = path("a\xFF\x01.npy");
  save(file, DType::kF32, {64}, std::vector<float>(64, 1));
  ASSERT_TRUE(succeeds(run({"report", file, "-o", path("r.html")})));
  EXPECT_EQ(page().find('\xFF'), std::string::npos);
  EXPECT_EQ(page().find('\x01'), std::string::npos);
  EXPECT_NE(page().find("a\\ufffd\\u0001.npy"), std::string::npos);
}

TEST_F(ReportProgram, TensorsOfCheckpointsAreSelected) {
  write_checkpoint(path("in.safetensors"),
                   {{"a.w", "BF16", {64, 64}}, {"b.w", "F32", {64, 64}}, {"c", "F32", {64}}, {"d", "U8", {64, 64}}});
  const Outcome outcome =
      run({"report", path("in.safetensors"), "--exclude", "^b", "-o", path("r.html"), "--formats", "hif4", "--json"});
  ASSERT_TRUE(succeeds(outcome));
  const Json json = outcome.json();
  EXPECT_TRUE(json["tensors"][0].contains("formats"));
  EXPECT_EQ(json["tensors"][1]["left_out"], "excluded");
  EXPECT_EQ(json["tensors"][2]["left_out"], "1 dimension, fewer than 2");
  EXPECT_EQ(json["tensors"][3]["left_out"], "U8 is not quantised");
  const Outcome warned = run({"report", path("in.safetensors"), "--exclude", "zzz", "-o", path("r.html")});
  EXPECT_EQ(warned.exit, 0);
  EXPECT_NE(warned.err.find("matches no tensor"), std::string::npos);
  EXPECT_NE(page().find("matches no tensor"), std::string::npos);
}

TEST_F(ReportProgram, OnlyTheWorstTensorsHavePictures) {
  std::vector<TestTensor> tensors;
  for (int i = 0; i < 5; ++i) tensors.push_back({fmt::format("w{}", i), "F32", {64, 64}});
  write_checkpoint(path("in.safetensors"), tensors);
  const Outcome outcome =
      run({"report", path("in.safetensors"), "--formats", "mxfp4", "--pictures", "2", "-o", path("r.html"), "--json"});
  ASSERT_TRUE(succeeds(outcome));
  std::vector<std::pair<double, std::string>> order;
  const Json report = outcome.json();
  for (const Json& tensor : report["tensors"]) {
    order.emplace_back(tensor["formats"][0]["error"]["sqnr_db"], tensor["name"]);
  }
  std::ranges::sort(order);
  for (std::size_t i = 0; i < order.size(); ++i) {
    EXPECT_EQ(
        occurrences(page(), fmt::format("<title id=\"f4-t\">Relative error, mxfp4, {}</title>", order[i].second)) +
            occurrences(page(), fmt::format("<title id=\"f9-t\">Relative error, mxfp4, {}</title>", order[i].second)),
        i < 2 ? 1U : 0U);
  }
  EXPECT_NE(page().find("Pictures of their own have the 2 tensors"), std::string::npos);
}

/// The texts of the labels of the rows in the first picture.
std::vector<std::string> row_labels(const std::string& page) {
  const std::string svg = page.substr(page.find("<svg"), page.find("</svg>") - page.find("<svg"));
  std::vector<std::string> out;
  for (std::size_t at = svg.find("class=\"over\">"); at != std::string::npos;
       at = svg.find("class=\"over\">", at + 1)) {
    const std::size_t from = at + std::string_view("class=\"over\">").size();
    std::string label = svg.substr(from, svg.find("</text>", from) - from);
    if (const std::size_t title = label.find("</title>"); title != std::string::npos) label = label.substr(title + 8);
    out.push_back(label);
  }
  return out;
}

TEST_F(ReportProgram, LabelsTellLayersApart) {
  std::vector<TestTensor> tensors;
  for (int i = 0; i < 30; ++i) {
    tensors.push_back({fmt::format("model.language_model.layers.{}.self_attn.out_proj.weight", i), "F32", {2, 64}});
  }
  write_checkpoint(path("in.safetensors"), tensors);
  ASSERT_TRUE(
      succeeds(run({"report", path("in.safetensors"), "--formats", "mxfp4", "--min-dim", "1", "-o", path("r.html")})));
  std::vector<std::string> labels = row_labels(page());
  ASSERT_EQ(labels.size(), 30U);
  EXPECT_EQ(labels[0], "…layers.0.self_attn.out_proj.weight");
  std::ranges::sort(labels);
  EXPECT_EQ(std::adjacent_find(labels.begin(), labels.end()), labels.end());
  // The whole name is there, for a pointer that rests on it.
  EXPECT_NE(page().find("<title>model.language_model.layers.17.self_attn.out_proj.weight</title>"), std::string::npos);
  // The links of the contents, which are narrower.
  const std::string contents = page().substr(page().find("<nav"), page().find("</nav>") - page().find("<nav"));
  std::size_t links = 0;
  for (int i = 0; i < 30; ++i) links += occurrences(contents, fmt::format("<bdi>…layers.{}.self_attn…</bdi>", i));
  EXPECT_EQ(links, 12U);
  EXPECT_EQ(occurrences(contents, ".self_attn.out_proj.weight\">"), 12U);
}

TEST_F(ReportProgram, WhereThereIsNothingThereIsNoPicture) {
  const auto make = [&](const Arguments& inputs) {
    Arguments arguments{"report", "--formats", "hif4,mxfp4", "-o", path("r.html")};
    arguments.insert(arguments.end(), inputs.begin(), inputs.end());
    EXPECT_TRUE(succeeds(run(arguments)));
    return page();
  };
  save(path("nan.npy"), DType::kF32, {4, 64}, std::vector<float>(256, std::nanf("")));
  save(path("empty.npy"), DType::kF32, {0, 64}, std::vector<float>());
  save(path("ones.npy"), DType::kF32, {4, 64}, std::vector<float>(256, 1));
  save(path("zeros.npy"), DType::kF32, {4, 64}, std::vector<float>(256, 0));
  const std::string nan = make({path("nan.npy")});
  EXPECT_EQ(occurrences(nan, "<svg"), 0U);
  EXPECT_NE(nan.find("<dt>Magnitudes</dt><dd><bdi>no finite lanes</bdi>"), std::string::npos);
  EXPECT_EQ(nan.find("mean 0"), std::string::npos);
  EXPECT_EQ(nan.find("within half a step"), std::string::npos);
  EXPECT_NE(nan.find("4 groups with scale NaN"), std::string::npos);
  const std::string empty = make({path("empty.npy")});
  EXPECT_EQ(occurrences(empty, "<svg"), 0U);
  EXPECT_NE(empty.find("<dt>Magnitudes</dt><dd><bdi>no lanes</bdi>"), std::string::npos);
  EXPECT_EQ(empty.find("0 %"), std::string::npos);
  // Beside others they have a row that says so.
  const std::string both = make({path("nan.npy"), path("empty.npy"), path("ones.npy")});
  EXPECT_EQ(occurrences(both, ">no finite lanes</text>"), 3U);
  EXPECT_EQ(occurrences(both, ">no lanes</text>"), 3U);
  EXPECT_EQ(occurrences(both, "<svg"), 3U + 10);
  // Zeros have errors in steps and scales only.
  const std::string zeros = make({path("zeros.npy")});
  EXPECT_EQ(occurrences(zeros, "every finite lane is 0"), 4U);
  EXPECT_NE(zeros.find("<dt>Magnitudes</dt><dd><bdi>0</bdi> <span class=\"note\">in every finite lane"),
            std::string::npos);
}

TEST_F(ReportProgram, NamesThatCannotBeSeenAreQuoted) {
  write_checkpoint(path("in.safetensors"), {{"", "F32", {64, 64}},
                                            {"a\x01", "F32", {64, 64}},
                                            {"a\x02", "F32", {64, 64}},
                                            {"right \u202E left", "F32", {64, 64}},
                                            {"\u2067small", "F32", {4, 4}}});
  const Outcome outcome = run({"report", path("in.safetensors"), "--formats", "mxfp4", "-o", path("r.html")});
  ASSERT_TRUE(succeeds(outcome));
  for (const std::string name : {R"("")", R"("a\u0001")", R"("a\u0002")", R"("right \u202e left")"}) {
    EXPECT_NE(outcome.out.find(name), std::string::npos) << name;
    std::string shown = name;
    for (std::size_t at = 0; (at = shown.find('"', at)) != std::string::npos;) shown.replace(at, 1, "&quot;");
    EXPECT_NE(page().find("<th scope=\"row\"><bdi>" + shown + "</bdi>"), std::string::npos) << shown;
    EXPECT_NE(page().find("<a href=\"#t"), std::string::npos);
    EXPECT_EQ(occurrences(page(), "<bdi>" + shown + "</bdi></a>"), 1U) << shown;
  }
  EXPECT_NE(page().find("<bdi>&quot;\\u2067small&quot;</bdi>"), std::string::npos);
  EXPECT_EQ(page().find("\u202E"), std::string::npos);
  EXPECT_EQ(page().find("<bdi></bdi>"), std::string::npos);
}

TEST_F(ReportProgram, AnEmptyTensorAndZeros) {
  save(path("empty.npy"), DType::kF32, {0, 64}, std::vector<float>());
  save(path("zeros.npy"), DType::kF64, {3, 70}, std::vector<double>(210));
  ASSERT_TRUE(succeeds(run({"report", path("empty.npy"), path("zeros.npy"), "-o", path("r.html")})));
  EXPECT_NE(page().find("no lanes"), std::string::npos);
  EXPECT_EQ(page().find("nan"), std::string::npos);
}

TEST_F(ReportProgram, TwoResults) {
  // 130 rows of 70 columns; one element of row 3 is a neighbour, two of row 129 have the other sign.
  std::vector<float> golden(130 * 70, 1.5F);
  std::vector<float> dut = golden;
  dut[3 * 70 + 5] = std::nextafter(1.5F, 2.0F);
  dut[129 * 70] = dut[129 * 70 + 1] = -1.5F;
  save(path("g.npy"), DType::kF32, {130, 70}, golden);
  save(path("d.npy"), DType::kF32, {130, 70}, dut);
  const Outcome outcome = run({"report", "--golden", path("g.npy"), "--dut", path("d.npy"), "-o", path("r.html")});
  EXPECT_EQ(outcome.exit, 1);
  EXPECT_EQ(outcome.err, "");
  const std::string text = page();
  EXPECT_NE(text.find("3 of 9,100 elements differ, 0.03 %"), std::string::npos);
  const auto row = [](std::string_view name, std::string_view count) {
    return fmt::format("<th scope=\"row\"><bdi>{}</bdi></th><td class=\"n\">{}</td>", name, count);
  };
  EXPECT_NE(text.find(row("equal", "9,097")), std::string::npos);
  EXPECT_NE(text.find(row("1 ulp", "1")), std::string::npos);
  EXPECT_NE(text.find(row("sign", "2")), std::string::npos);
  EXPECT_NE(text.find(row("1", "1")), std::string::npos);  // of the distances
  // 130 rows in cells of 3 rows, 70 columns in cells of 2: row 3 is in the second cell, column 5 in the third.
  EXPECT_NE(text.find(row("3 to 5", "0") + "<td class=\"n\">0</td><td class=\"n\">1</td>"), std::string::npos);
  EXPECT_NE(text.find(row("129", "2") + "<td class=\"n\">0</td>"), std::string::npos);
  EXPECT_NE(text.find("<bdi>3, 5</bdi>"), std::string::npos);
  EXPECT_EQ(occurrences(text, "<figure "), 3U);

  // The page of `diff` is the same, but for the command.
  const Outcome diff = run({"diff", path("g.npy"), path("d.npy"), "--report", path("s.html")});
  EXPECT_EQ(diff.exit, 1);
  EXPECT_EQ(diff.out, outcome.out);
  std::string other = read_text(path("s.html"));
  const auto without_command = [](std::string page) {
    const std::size_t from = page.find("<p class=\"command\">");
    return page.erase(from, page.find("</p>", from) - from);
  };
  EXPECT_EQ(without_command(other), without_command(text));
  EXPECT_NE(other.find("<span>diff</span>"), std::string::npos);

  // 1.5 and -1.5 are 2 * 0x3FC00000 apart.
  EXPECT_NE(text.find("up to 2,139,095,040 ulp"), std::string::npos);

  EXPECT_TRUE(succeeds(run({"diff", path("g.npy"), path("g.npy"), "--report", path("s.html")})));
  EXPECT_NE(read_text(path("s.html")).find("the same bits"), std::string::npos);
  EXPECT_TRUE(refuses({"report", "--golden", path("g.npy"), "-o", path("r.html")}, "give both"));
  EXPECT_TRUE(refuses({"report", path("g.npy"), "--golden", path("g.npy"), "-o", path("r.html")}, "one or the other"));
  EXPECT_TRUE(refuses({"report", "-o", path("r.html")}, "nothing to report"));
  EXPECT_TRUE(refuses({"diff", path("g.npy"), path("d.npy"), "--report", path("d.npy")}, "is also an input"));
  write_checkpoint(path("two.safetensors"), {{"a", "F32", {4, 4}}, {"b", "F32", {4, 4}}});
  EXPECT_TRUE(refuses({"diff", path("two.safetensors"), path("two.safetensors"), "--report", path("t.html")},
                      "a report is of one tensor"));
}

TEST_F(ReportProgram, WhatIsWrongIsSaidBeforeAnythingIsWritten) {
  const std::string w = example("w2.npy");
  const auto no = [&](Arguments more, std::string_view message) {
    more.insert(more.begin(), "report");
    more.insert(more.end(), {"-o", path("r.html")});
    EXPECT_TRUE(refuses(more, message));
    EXPECT_FALSE(std::filesystem::exists(path("r.html")));
  };
  no({w, "--formats", "hif5"}, "did you mean hif4?");
  no({w, "--formats", "hif4:papr"}, "did you mean paper?");
  no({w, "--formats", "mxfp4:"}, "nothing follows the colon");
  no({w, "--formats", "nvfp4:x"}, "nvfp4:tensor-scale");
  no({w, "--formats", "hif4,hif4:pto"}, "hif4 stands twice");
  no({w, "--formats", "hif4,hif4:paper,hif4:bench,mxfp4,mxfp4:ceil,mxfp4:even,mxfp4:rceil,nvfp4,nvfp4:tensor-scale"},
     "9 are too many");
  no({w, "--axis", "2"}, "no axis 2");
  no({w, w}, "stands twice");
  no({w, "--include", "("}, "regular expression");
  no({w, "--exclude", "w2"}, "no tensor is selected");
  no({path("none.npy")}, "none.npy");
  save(path("ints.npy"), DType::kI32, {4}, std::vector<std::int32_t>(4));
  no({path("ints.npy")}, "ints.npy: int32 elements; accepted are float16, float32, float64, bfloat16, uint16");
  no({w, path("ints.npy")}, "ints.npy: int32 elements; accepted are");
  EXPECT_TRUE(refuses({"report", w, "-o", w}, "is also an input"));
  EXPECT_TRUE(refuses({"report", w}, "--output is required"));
}

}  // namespace
}  // namespace bitcube::test
