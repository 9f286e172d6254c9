// qf322b8_lane in lock step with bitcube: one vector per cycle, every code and flag compared. +vectors=N, +seed=N.
// DPI functions return more than is used.
// verilator lint_off UNUSEDSIGNAL
module lane_tb;
  import bitcube_pkg::*;

  parameter bit OFFSET_FIRST = 1'b0;

  typedef enum int {RANDOM, CORNERS, IN_RANGE, TIES, NEAR_TIES, ENDS, SPECIALS, SUBNORMALS} stratum_e;
  localparam int STRATA = 8;
  localparam int DEPTH = 3;  // stages of the lane

  typedef struct packed {
    bit               valid;
    int               stratum;
    bit        [31:0] accumulator;
    bit        [18:0] scale;
    bit signed [ 8:0] offset;
    bit               saturate;
  } vector_t;

  // ---- The lane

  logic clk = 1'b0;
  logic rst_n = 1'b0;
  vector_t in = '0;
  logic out_valid;
  logic [7:0] code;
  logic [4:0] flags;

  qf322b8_lane #(.OFFSET_FIRST(OFFSET_FIRST)) lane (
      .clk, .rst_n, .in_valid(in.valid), .accumulator(in.accumulator), .scale(in.scale), .offset(in.offset),
      .saturate(in.saturate), .out_valid, .code, .flags
  );

  // ---- Vectors

  longint unsigned state;

  function automatic bit [63:0] random();
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
  endfunction

  function automatic int below(input int n);
    return int'(random() >> 33) % n;
  endfunction

  // An exact small integer as FP32.
  function automatic bit [31:0] fp32_of(input int value);
    longint unsigned word;
    int unsigned ignored;
    void'(bitcube_dpi_convert(S32, FP32, longint'(value), RNE, 0, PROFILE_PTO, word, ignored));
    return word[31:0];
  endfunction

  // accumulator * scale = value / 2, in which value has an odd divisor in the scale.
  function automatic void half_of(input int value, inout vector_t v);
    int divisor = 1;
    int shift = below(200) - 100;
    bit [31:0] word;
    for (int i = 0; i < 8; ++i) begin
      int candidate = 2 * below(16) + 1;
      if (value % candidate == 0) divisor = candidate;
    end
    v.accumulator = fp32_of(value / divisor);
    if (v.accumulator[30:0] != 31'd0) v.accumulator[30:23] = v.accumulator[30:23] + 8'(shift);
    word = fp32_of(divisor);
    v.scale = word[31:13];
    v.scale[17:10] = v.scale[17:10] - 8'd1 - 8'(shift);
  endfunction

  function automatic bit [7:0] corner_exponent();
    bit [7:0] corners[8] = '{8'd0, 8'd1, 8'd2, 8'd126, 8'd127, 8'd128, 8'd253, 8'd254};
    return corners[below(8)];
  endfunction

  function automatic bit [22:0] corner_fraction();
    case (below(5))
      0: return 23'h000000;
      1: return 23'h000001;
      2: return 23'h7FFFFF;
      3: return 23'h400000;
      default: return 23'(random());
    endcase
  endfunction

  function automatic bit signed [8:0] corner_offset();
    bit signed [8:0] corners[8] = '{-9'sd256, -9'sd255, -9'sd129, -9'sd1, 9'sd0, 9'sd1, 9'sd128, 9'sd255};
    return corners[below(8)];
  endfunction

  function automatic vector_t vector_of(input int stratum);
    bit [63:0] bits = random();
    vector_t v;
    v.valid = 1'b1;
    v.stratum = stratum;
    v.accumulator = bits[31:0];
    v.scale = {1'b0, 8'(1 + below(254)), bits[41:32]};  // positive, normal
    v.offset = bits[50:42];
    v.saturate = bits[51];
    case (stratum)
      CORNERS: begin
        v.accumulator = {bits[31], corner_exponent(), corner_fraction()};
        v.scale[17:10] = 8'(corner_exponent());
        if (v.scale[17:10] == 8'd0) v.scale[17:10] = 8'd1;
        v.scale[9:0] = 10'(corner_fraction() >> 13);
        v.offset = corner_offset();
      end
      IN_RANGE: begin  // |product| from 2^-3 to 2^10
        v.accumulator[30:23] = 8'(20 + below(210));
        v.scale[17:10] = 8'(251 + below(13) - int'(v.accumulator[30:23]));
      end
      TIES: half_of((bits[60] ? -1 : 1) * (2 * below(280) + 1), v);
      NEAR_TIES: begin
        half_of((bits[60] ? -1 : 1) * (2 * below(280) + 1), v);
        v.accumulator[22:0] = bits[61] ? v.accumulator[22:0] + 23'd1 : v.accumulator[22:0] - 23'd1;
      end
      ENDS: begin  // the sum is near an end of S8, or the product near one of S9
        int target = bits[60] ? (bits[61] ? 127 : -128) - int'(v.offset) : bits[61] ? 255 : -256;
        half_of(2 * target + below(5) - 2, v);
      end
      SPECIALS: begin
        case (below(6))
          0: v.accumulator = {bits[31], 31'h7F800000};
          1: v.accumulator = {bits[31], 31'h7FC00000} | (bits[31:0] & 32'h003FFFFF);
          2: v.accumulator = {bits[31], 9'h1FE, bits[21:0] | 22'd1};
          3: v.accumulator = {bits[31], 31'd0};
          4: v.accumulator = {bits[31], 31'h7F7FFFFF};
          default: v.accumulator = {bits[31], 31'd1};
        endcase
      end
      SUBNORMALS: begin
        v.accumulator[30:23] = 8'd0;
        v.accumulator[22:0] = 23'(random()) >> below(23);
        if (bits[60]) v.scale[17:10] = 8'(240 + below(15));
      end
      default: ;
    endcase
    return v;
  endfunction

  // ---- Comparison

  vector_t pending[DEPTH];
  int compared = 0;
  int mismatches = 0;
  int count[STRATA], nv[STRATA], of[STRATA], nx[STRATA], wrong[STRATA];
  bit [255:0] codes_seen = '0;

  function automatic void expect_ok(input int status);
    if (status != int'(OK)) $fatal(1, "bitcube: %s", bitcube_last_error());
  endfunction

  function automatic void reference(input vector_t v, output bit [7:0] expected, output flags_t raised);
    longint unsigned carrier, word;
    int unsigned bits;
    expect_ok(bitcube_scale_carrier(QF322B8_PRE, 32'(v.scale), 32'(v.offset), carrier));
    expect_ok(bitcube_dpi_postprocess(QF322B8_PRE, FP32, v.accumulator, carrier, RELU_NONE, 0, RNE, 32'(v.saturate),
                                      PROFILE_PTO, word, bits));
    expected = word[7:0];
    raised = flags_t'(bits[4:0]);
  endfunction

  function automatic real real_of(input bit [31:0] word);
    longint unsigned wide;
    int unsigned ignored;
    expect_ok(bitcube_dpi_convert(FP32, FP64, 64'(word), RNE, 0, PROFILE_PTO, wide, ignored));
    return $bitstoreal(wide);
  endfunction

  // Rounded to the nearest even integer and clamped to 9 bits.
  function automatic int nine_bits(input real x);
    longint unsigned word;
    int unsigned ignored;
    int rounded;
    expect_ok(bitcube_dpi_convert(FP64, S16, $realtobits(x), RNE, 1, PROFILE_PTO, word, ignored));
    rounded = int'($signed(word[15:0]));
    return rounded < -256 ? -256 : rounded > 255 ? 255 : rounded;
  endfunction

  function automatic void explain(input vector_t v, input bit [7:0] expected, input flags_t raised);
    stratum_e stratum = stratum_e'(v.stratum);
    string mode = "wrapping";
    real product = real_of(v.accumulator) * real_of({v.scale, 13'd0});
    if (v.saturate) mode = "saturating";
    $display("first mismatch: vector %0d, stratum %0s", compared, stratum.name());
    $display("  accumulator     %h = %.9g", v.accumulator, real_of(v.accumulator));
    $display("  scale           %h = %.9g", v.scale, real_of({v.scale, 13'd0}));
    $display("  offset          %0d, %0s", v.offset, mode);
    $display("  RTL             %h = %0d, flags %0s", code, $signed(code), flags_text(flags));
    $display("  bitcube         %h = %0d, flags %0s", expected, $signed(expected), flags_text(raised));
    if (code != expected) $display("  differs         the code, by %0d", $signed(code) - $signed(expected));
    if (flags != raised) begin
      $display("  differs         the flags: only RTL %0s, only bitcube %0s", flags_text(flags & ~raised),
               flags_text(raised & ~flags));
    end
    if (v.accumulator[30:23] == 8'hFF) return;
    // The product has 35 bits, so that a real holds it.
    $display("  what is right   %.17g, rounded to 9 bits %0d, plus the offset %0d", product, nine_bits(product),
             nine_bits(product) + int'(v.offset));
    if (8'(nine_bits(product + real'(v.offset))) == code) begin
      $display("  what RTL does   looks like %.17g, rounded %0d: the offset before the rounding",
               product + real'(v.offset), nine_bits(product + real'(v.offset)));
    end
  endfunction

  function automatic void compare(input vector_t v);
    bit [7:0] expected;
    flags_t raised;
    int s = v.stratum;
    reference(v, expected, raised);
    if (code != expected || flags != raised) begin
      if (mismatches == 0) explain(v, expected, raised);
      ++mismatches;
      ++wrong[s];
    end
    ++count[s];
    nv[s] += 32'(raised.nv);
    of[s] += 32'(raised.of);
    nx[s] += 32'(raised.nx);
    codes_seen[expected] = 1'b1;
    ++compared;
  endfunction

  // ---- The other functions of the package, once each

  function automatic void check(input bit right, input string what);
    if (!right) $fatal(1, "%0s", what);
  endfunction

  localparam bit [255:0] CODES = 256'h6666666666555555555544444444777766666555554444436665544433222110;

  task automatic check_package();
    longint unsigned word;
    int unsigned bits;
    bit [2047:0] lanes;
    bit [255:0] codes;
    type_e t;
    rounding_e r;
    profile_e p;
    string name;
    t = t.first();
    for (int i = 0; i < t.num(); ++i, t = t.next()) begin
      name = bitcube_name(0, int'(t));
      check(name.toupper() == t.name(), name);
    end
    r = RNE;
    for (int i = 1; i < r.num(); ++i, r = r.next()) check(bitcube_name(1, int'(r)) == r.name(), r.name());
    p = p.first();
    for (int i = 0; i < p.num(); ++i, p = p.next()) begin
      name = bitcube_name(2, int'(p));
      check({"PROFILE_", name.toupper()} == p.name(), p.name());
    end
    check(bitcube_name(6, QF322B8_PRE) == "QF322B8_PRE", "the mode of the lane");
    expect_ok(bitcube_dpi_convert(FP32, E4M3, 64'h3F880000, RNE, 0, PROFILE_OCP, word, bits));
    check(word == 64'h38 && flags_text(flags_t'(bits[4:0])) == "NX", "1.0625 to E4M3 is a tie");
    check(bitcube_fp32_to_fp19(32'h3F801000) == 32'h1FC00, "a tie to even");
    expect_ok(bitcube_dpi_mac(FP16, 64'h3E00, FP16, 64'h4000, 32'h3F800000, ACC_FMA, bits));
    check(bits == 32'h40800000, "1.5 * 2 + 1 = 4");
    for (int i = 0; i < 64; ++i) lanes[32*i+:32] = fp32_of(i + 1);
    expect_ok(bitcube_dpi_quantize_hif4(lanes, 0, codes, bits));
    check(bits == 32'hFEF0F0CD && codes == CODES, "1 to 64 in HiF4");
    check(bitcube_dpi_convert(FP32, E6M2, 0, RNE, 0, PROFILE_PTO, word, bits) == int'(REFUSED), "not a legal pair");
    check(bitcube_last_error() == "FP32 does not convert to E6M2", bitcube_last_error());
  endtask

  // ---- The run

  int vectors = 1000000;
  int seed = 1;

  initial begin
    void'($value$plusargs("vectors=%d", vectors));
    void'($value$plusargs("seed=%d", seed));
    state = 64'h9E3779B97F4A7C15 ^ 64'(seed);
    check_package();
    for (int i = 0; i < DEPTH; ++i) pending[i] = '0;
    repeat (2) begin
      #1 clk = 1'b1;
      #1 clk = 1'b0;
    end
    rst_n = 1'b1;
    for (int i = 0; i < vectors + DEPTH; ++i) begin
      in = i < vectors ? vector_of(i % STRATA) : '0;
      #1 clk = 1'b1;
      for (int j = DEPTH - 1; j > 0; --j) pending[j] = pending[j-1];
      pending[0] = in;
      #1 clk = 1'b0;
      if (out_valid != pending[DEPTH-1].valid) $fatal(1, "cycle %0d: out_valid is %0d", i, out_valid);
      if (out_valid) compare(pending[DEPTH-1]);
    end

    $display("bitcube %s, QF322B8_PRE, RNE", bitcube_version());
    $display("   stratum    vectors         NV         OF         NX   mismatch");
    for (int s = 0; s < STRATA; ++s) begin
      stratum_e stratum = stratum_e'(s);
      $display("%10s  %9d  %9d  %9d  %9d  %9d", stratum.name(), count[s], nv[s], of[s], nx[s], wrong[s]);
    end
    $display("%0d vectors, %0d of 256 codes, %0d mismatches", compared, $countones(codes_seen), mismatches);
    if (compared != vectors || compared == 0) $fatal(1, "%0d vectors were compared", compared);
    if (mismatches != 0) $fatal(1, "the lane is not what bitcube says");
    $finish;
  end
endmodule
