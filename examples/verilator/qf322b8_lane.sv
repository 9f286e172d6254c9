// One lane of the post-process in mode QF322B8_PRE, rounding to nearest even: FP32 accumulator times FP19 scale,
// rounded and saturated to 9 bits, plus a 9-bit offset, to S8 with saturation or wrapped. Three stages, one element per
// cycle.
//
// The scale is positive and normal; whoever loads it checks that. Flags: {NX, UF, OF, DZ, NV}.
module qf322b8_lane #(
    // 1 plants a bug for the testbench to find: the offset is added before the rounding.
    parameter bit OFFSET_FIRST = 1'b0
) (
    input  logic              clk,
    input  logic              rst_n,
    input  logic              in_valid,
    input  logic       [31:0] accumulator,
    // The sign is 0.
    // verilator lint_off UNUSEDSIGNAL
    input  logic       [18:0] scale,
    // verilator lint_on UNUSEDSIGNAL
    input  logic signed [8:0] offset,
    input  logic              saturate,
    output logic              out_valid,
    output logic       [ 7:0] code,
    output logic       [ 4:0] flags
);

  localparam logic [4:0] NV = 5'b00001;
  localparam logic [4:0] OF_NX = 5'b10100;
  localparam logic [4:0] NX = 5'b10000;

  // ---- Stage 1: decode, multiply the significands. |product| = significand * 2^exponent.

  logic               s1_valid;
  logic               s1_negative;
  logic               s1_nan;
  logic               s1_infinite;
  logic        [34:0] s1_significand;
  logic signed [ 9:0] s1_exponent;
  logic signed [ 8:0] s1_offset;
  logic               s1_saturate;

  logic               hidden;
  logic               top_exponent;
  logic        [ 7:0] exponent_field;
  assign hidden         = accumulator[30:23] != 8'd0;
  assign top_exponent   = accumulator[30:23] == 8'hFF;
  assign exponent_field = hidden ? accumulator[30:23] : 8'd1;

  always_ff @(posedge clk or negedge rst_n) begin
    if (!rst_n) s1_valid <= 1'b0;
    else s1_valid <= in_valid;
  end

  always_ff @(posedge clk) begin
    s1_negative    <= accumulator[31];
    s1_nan         <= top_exponent && accumulator[22:0] != 23'd0;
    s1_infinite    <= top_exponent && accumulator[22:0] == 23'd0;
    s1_significand <= {11'd0, hidden, accumulator[22:0]} * {24'd0, 1'b1, scale[9:0]};
    // FP32: 2^(e - 127 - 23), FP19: 2^(e - 127 - 10).
    s1_exponent    <= $signed({2'b00, exponent_field}) + $signed({2'b00, scale[17:10]}) - 10'sd287;
    s1_offset      <= offset;
    s1_saturate    <= saturate;
  end

  // ---- Stage 2: align at the binary point, round to nearest even, saturate to 9 bits.

  logic               s2_valid;
  logic               s2_special;
  logic               s2_nan;
  logic               s2_negative;
  logic signed [ 8:0] s2_rounded;
  logic        [ 4:0] s2_flags;
  logic signed [ 8:0] s2_offset;
  logic               s2_saturate;

  // Beyond 37 places to the right only the sticky bit is left, beyond 10 to the left every value is too large.
  logic        [ 5:0] right;
  logic        [ 3:0] left;
  logic        [71:0] window;    // 35 integer bits, guard, 36 bits below it
  logic        [44:0] integral;
  logic               guard;
  logic               sticky;

  always_comb begin
    right = 6'd0;
    left  = 4'd0;
    if (s1_exponent < -10'sd37) right = 6'd37;
    else if (s1_exponent < 10'sd0) right = 6'(-s1_exponent);
    else if (s1_exponent > 10'sd10) left = 4'd10;
    else left = 4'(s1_exponent);
    window   = {s1_significand, 37'd0} >> right;
    integral = {10'd0, window[71:37]} << left;
    guard    = window[36];
    sticky   = |window[35:0];
  end

  logic        [45:0] magnitude;
  logic               negative;
  logic               inexact;

  generate
    if (OFFSET_FIRST) begin : g_offset_first
      logic signed [48:0] product;
      logic signed [48:0] sum;
      logic        [47:0] absolute;
      always_comb begin
        product   = $signed({2'b00, integral, guard, sticky});
        sum       = (s1_negative ? -product : product) + $signed({{38{s1_offset[8]}}, s1_offset, 2'b00});
        negative  = sum < 49'sd0;
        absolute  = 48'(negative ? -sum : sum);
        inexact   = absolute[1:0] != 2'b00;
        magnitude = absolute[47:2] + {45'd0, absolute[1] & (absolute[0] | absolute[2])};
      end
    end else begin : g_offset_last
      always_comb begin
        negative  = s1_negative;
        inexact   = guard | sticky;
        magnitude = {1'b0, integral} + {45'd0, guard & (sticky | integral[0])};
      end
    end
  endgenerate

  logic               too_large;
  assign too_large = magnitude > (negative ? 46'd256 : 46'd255);

  always_ff @(posedge clk or negedge rst_n) begin
    if (!rst_n) s2_valid <= 1'b0;
    else s2_valid <= s1_valid;
  end

  always_ff @(posedge clk) begin
    s2_special  <= s1_nan | s1_infinite;
    s2_nan      <= s1_nan;
    s2_negative <= s1_negative;
    if (too_large) s2_rounded <= negative ? -9'sd256 : 9'sd255;
    else s2_rounded <= negative ? -$signed(magnitude[8:0]) : $signed(magnitude[8:0]);
    s2_flags    <= too_large ? OF_NX : inexact ? NX : 5'd0;
    s2_offset   <= OFFSET_FIRST ? 9'sd0 : s1_offset;
    s2_saturate <= s1_saturate;
  end

  // ---- Stage 3: add the offset, deliver 8 bits. NaN and infinity have rules of their own.

  logic signed [ 9:0] sum;
  logic               above;
  logic               below;
  assign sum   = {s2_rounded[8], s2_rounded} + {s2_offset[8], s2_offset};
  assign above = sum > 10'sd127;
  assign below = sum < -10'sd128;

  always_ff @(posedge clk or negedge rst_n) begin
    if (!rst_n) out_valid <= 1'b0;
    else out_valid <= s2_valid;
  end

  always_ff @(posedge clk) begin
    if (s2_special && !s2_saturate) begin
      code  <= 8'h80;
      flags <= NV;
    end else if (s2_nan) begin
      code  <= 8'h00;
      flags <= NV;
    end else if (s2_special) begin
      code  <= s2_negative ? 8'h80 : 8'h7F;
      flags <= OF_NX;
    end else begin
      code  <= s2_saturate && above ? 8'h7F : s2_saturate && below ? 8'h80 : sum[7:0];
      flags <= s2_flags | (above || below ? OF_NX : 5'd0);
    end
  end

endmodule
