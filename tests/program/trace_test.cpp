// The trace, line by line.
#include "bitcube/program/trace.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "bitcube/program/program.hpp"

namespace bitcube::program {
namespace {

using Json = nlohmann::ordered_json;

std::vector<std::string> trace_of(const Program& program, const TraceOptions& options = {}) {
  std::vector<std::string> lines;
  machine::Core core;
  run(program, core, {.observer = [&](const Event& e) { lines.push_back(trace_line(e, options)); }});
  return lines;
}

std::vector<std::string> trace_of(std::string_view text, const TraceOptions& options = {}) {
  const auto program = Program::parse(text, "p.s");
  EXPECT_TRUE(program) << program.error().message;
  return program ? trace_of(*program, options) : std::vector<std::string>();
}

TEST(Trace, W1) {
  const auto program = Program::load(std::string(BITCUBE_SOURCE_DIR) + "/examples/programs/w1.s");
  ASSERT_TRUE(program);
  const std::vector<std::string> lines = trace_of(*program);
  // The digest is that of 128 FP32 words, 16 * 2^(i mod 3) * (j even ? 0.5 : 2) + j, computed without this library.
  const std::vector<std::string> golden{
      R"({"event":"start","trace":1,"origin":"0x0","bytes":36,"options":{"name_policy":"relative","wait_on_pe)"
      R"(nding":false,"coop_exact_columns":false,"aux_exact_columns":false,"gemv_hif4":true,"strict_reserved_)"
      R"(bits":true,"scalar_pe":0,"accumulation":"fma","conversion":"pto"}})",
      R"({"event":"check","line":10,"text":".expect pool 0 == 1152","holds":true,"message":""})",
      R"({"event":"step","step":0,"line":12,"pc":"0x0","word":"0x38531181","bytes":"81 11 53 38","text":"BSTA)"
      R"(RT.TMATMULMX.BIAS E4M3","result":"started","next":"0x4","header":{"active":true,"operation":"TMATMUL)"
      R"(_MX_BIAS","unit":6,"type":"E4M3"},"tiles":[],"stores":0,"raised":[],"flags":[],"fault":null,"waiting)"
      R"(_for":null})",
      R"({"event":"step","step":1,"line":13,"pc":"0x4","word":"0x00002023","bytes":"23 20 00 00","text":"B.FP)"
      R"(ATR NoQuant, 0, 0, 0, 0, 0, 0, 0, 0, 0","result":"header","next":"0x8","header":{"fpatr":{"prequant")"
      R"(:0,"relu":0,"group_n_code":0,"row_max":false,"group_max":false,"row_max_init":false,"max_abs":false,)"
      R"("trans_a":false,"trans_b":false,"c_scale":false}},"tiles":[],"stores":0,"raised":[],"flags":[],"faul)"
      R"(t":null,"waiting_for":null})",
      R"({"event":"step","step":2,"line":14,"pc":"0x8","word":"0x01000043","bytes":"43 00 00 01","text":"B.DI)"
      R"(M zero, 16, ->LB0","result":"header","next":"0xC","header":{"lb0":16},"tiles":[],"stores":0,"raised")"
      R"(:[],"flags":[],"fault":null,"waiting_for":null})",
      R"({"event":"step","step":3,"line":15,"pc":"0xC","word":"0x00801043","bytes":"43 10 80 00","text":"B.DI)"
      R"(M zero, 8, ->LB1","result":"header","next":"0x10","header":{"lb1":8},"tiles":[],"stores":0,"raised":)"
      R"([],"flags":[],"fault":null,"waiting_for":null})",
      R"({"event":"step","step":4,"line":16,"pc":"0x10","word":"0x02002043","bytes":"43 20 00 02","text":"B.D)"
      R"(IM zero, 32, ->LB2","result":"header","next":"0x14","header":{"lb2":32},"tiles":[],"stores":0,"raise)"
      R"(d":[],"flags":[],"fault":null,"waiting_for":null})",
      R"({"event":"step","step":5,"line":17,"pc":"0x14","word":"0x04004213","bytes":"13 42 00 04","text":"B.I)"
      R"(OT T#1, T#2, mask=1000","result":"header","next":"0x18","header":{"locals":[{"sources":["T#1","T#2"])"
      R"(,"destination":null,"size_code":0,"mask":"1000","last":false}]},"tiles":[],"stores":0,"raised":[],"f)"
      R"(lags":[],"fault":null,"waiting_for":null})",
      R"({"event":"step","step":6,"line":18,"pc":"0x18","word":"0x0C204213","bytes":"13 42 20 0C","text":"B.I)"
      R"(OT T#3, T#4, mask=1000","result":"header","next":"0x1C","header":{"locals":[{"sources":["T#1","T#2"])"
      R"(,"destination":null,"size_code":0,"mask":"1000","last":false},{"sources":["T#3","T#4"],"destination")"
      R"(:null,"size_code":0,"mask":"1000","last":false}]},"tiles":[],"stores":0,"raised":[],"flags":[],"faul)"
      R"(t":null,"waiting_for":null})",
      R"({"event":"step","step":7,"line":19,"pc":"0x1C","word":"0x0049D293","bytes":"93 D2 49 00","text":"B.I)"
      R"(OT T#5, mask=1000, <last>, ->U<3>","result":"header","next":"0x20","header":{"locals":[{"sources":[")"
      R"(T#1","T#2"],"destination":null,"size_code":0,"mask":"1000","last":false},{"sources":["T#3","T#4"],"d)"
      R"(estination":null,"size_code":0,"mask":"1000","last":false},{"sources":["T#5"],"destination":"U","siz)"
      R"(e_code":3,"mask":"1000","last":true}]},"tiles":[],"stores":0,"raised":[],"flags":[],"fault":null,"wa)"
      R"(iting_for":null})",
      R"({"event":"step","step":8,"line":20,"pc":"0x20","word":"0x00000001","bytes":"01 00 00 00","text":"BST)"
      R"(OP","result":"completed","next":"0x24","header":{"active":false,"operation":null,"unit":0,"type":nul)"
      R"(l,"lb0":null,"lb1":null,"lb2":null,"fpatr":null,"locals":[]},"tiles":[{"pe":0,"tile":"U#1","role":"D)"
      R"(","type":"FP32","layout":"CUBE_M16","rows":16,"columns":8,"physical":[16,8],"capacity":512,"sha256":)"
      R"("6a9b646499830cf572919fe5db1bca35a69defee0a3c257b81532400af4661b9"}],"stores":0,"raised":[],"flags":)"
      R"([],"fault":null,"waiting_for":null})",
      R"({"event":"check","line":22,"text":".expect tile 0 U#1 CUBE_M16 FP32 16 8 capacity=512 == 8 33 10 35 )"
      R"(12 37 14 39 16 65 18 67 20 69 22 71 32 129 34 131 36 133 38 135 ...","holds":true,"message":""})",
      R"({"event":"check","line":24,"text":".expect tile 0 T#1 CUBE_M16 E4M3 16 32 == all 1.0","holds":true,")"
      R"(message":""})",
      R"({"event":"check","line":25,"text":".expect pool 0 == 1664","holds":true,"message":""})",
      R"({"event":"check","line":26,"text":".expect flags none","holds":true,"message":""})",
      R"({"event":"end","result":"completed","pc":"0x24","steps":9,"bundles":1,"checks":5,"failed":0,"not_rea)"
      R"(ched":0})",
  };
  ASSERT_EQ(lines.size(), golden.size());
  for (std::size_t i = 0; i < lines.size(); ++i) EXPECT_EQ(lines[i], golden[i]) << i;
}

TEST(Trace, Fault) {
  const auto lines = trace_of("BSTOP\n");
  ASSERT_EQ(lines.size(), 3U);
  EXPECT_EQ(
      Json::parse(lines[1])["fault"].dump(),
      R"x({"class":"BundleControl","rule":"A14","operand":"command","pe":null,"found":"no active bundle",)x"
      R"x("legal":"a BSTART before the stop","text":"BundleControl A14, command: found no active bundle; legal: )x"
      R"x(a BSTART before the stop (a stop command, and every completion, needs an active bundle)"})x");
  EXPECT_EQ(Json::parse(lines[1])["result"], "fault");
  EXPECT_EQ(Json::parse(lines[2])["result"], "fault");
}

TEST(Trace, UndefinedWord) {
  const auto lines = trace_of(".word 0x0F000001\n");
  const Json step = Json::parse(lines[1]);
  EXPECT_EQ(step["text"], ".word 0x0F000001");
  EXPECT_EQ(step["word"], "0x0F000001");
  EXPECT_EQ(step["bytes"], "01 00 00 0F");
  EXPECT_EQ(step["fault"]["rule"], "A1");
}

TEST(Trace, Checks) {
  const auto lines = trace_of("BSTART.TMATMUL FP16\nB.FPATR 0,0,0,0,0,0,0,0,0,0\nB.IOT T#1, T#2, mask=1000\nBSTOP\n",
                              {.checks = true});
  EXPECT_EQ(Json::parse(lines[2])["checks"].dump(),
            R"({"rules":["A17","A1","A2","A3","A4","A5","P1","P2","P3"],"failed":null})");
  const Json last = Json::parse(lines[4])["checks"];
  EXPECT_EQ(last["failed"], Json::parse(lines[4])["fault"]["rule"]);
  const auto& rules = last["rules"];
  EXPECT_NE(std::find(rules.begin(), rules.end(), last["failed"]), rules.end());
  EXPECT_FALSE(Json::parse(trace_of("BSTOP\n")[1]).contains("checks"));
}

/// Whatever fails is one of the rules that the trace names as asked.
TEST(Trace, TheFailedRuleIsAmongTheAsked) {
  for (const std::string_view text :
       {"BSTOP\n", "B.IOR a0\n", "BSTART.TLOAD FP32\nB.IOT mask=1000, ->T<1>\nBSTOP\n",
        "BSTART.TLOAD FP32\nB.IOT mask=1000, <last>, ->T<1>\nBSTOP\n", "BSTART.VEC TCVT, FP32\nBSTOP\n",
        "BSTART.SFU TQUANT, FP32\nB.IOT T#1, mask=1000, <last>, ->T<1>\nBSTOP\n", "BSTART.TMATMUL FP16\nBSTOP\n",
        "BSTART.TMATMUL FP16\nB.CATR DR=1\nBSTART.TLOAD FP32\n", "BSTART.TLOAD FP32\nB.FPATR 0,0,0,0,0,0,0,0,0,0\n",
        "BSTART.TEPL 1, 1, FP32\nBSTOP\n", ".word 0x0F000001\n"}) {
    bool failed = false;
    for (const std::string& line : trace_of(text, {.checks = true})) {
      const Json json = Json::parse(line);
      if (json["event"] != "step" || json["fault"].is_null()) continue;
      failed = true;
      const auto& rules = json["checks"]["rules"];
      EXPECT_NE(std::find(rules.begin(), rules.end(), json["checks"]["failed"]), rules.end()) << line;
    }
    EXPECT_TRUE(failed) << text;
  }
}

}  // namespace
}  // namespace bitcube::program
