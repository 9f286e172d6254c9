// bitcube for SystemVerilog: DPI-C imports of libbitcube.so, numbers and bit vectors only. Every function that returns
// an int returns a status: OK, or why there is no result; bitcube_last_error() then says more. bitcube.h and
// bitcube_dpi.h describe the functions.
package bitcube_pkg;

  typedef enum int {
    OK = 0, BAD_ARGUMENT = 1, UNKNOWN = 2, BAD_SIZE = 3, REFUSED = 4, NO_MEMORY = 5, INTERNAL = 6
  } status_e;

  // Tile data types.
  typedef enum int {
    FP64 = 0, FP32 = 1, TF32 = 2, HF32 = 3, FP16 = 4, BF16 = 5, HIF8 = 6, E4M3 = 7, E5M2 = 8, E3M2 = 9, E2M3 = 10,
    E2M1X2 = 11, E1M2X2 = 12, E8M0 = 13, HIF4X2 = 14, E6M2 = 15, S64 = 16, S32 = 17, S16 = 18, S8 = 19, S4X2 = 20,
    RCPE6M2 = 21, U64 = 24, U32 = 25, U16 = 26, U8 = 27, U4X2 = 28
  } type_e;

  // B.DATR.RMode; DEFAULT is that of the operation.
  typedef enum int {DEFAULT = 0, RNE = 1, RTZ = 2, RTM = 3, RTP = 4, RNA = 5, RTO = 6, RHB = 7} rounding_e;

  typedef enum int {PROFILE_PTO = 0, PROFILE_ASL = 1, PROFILE_OCP = 2} profile_e;
  typedef enum int {ACC_FMA = 0, ACC_TWO_STEP = 1, ACC_GROUP = 2, ACC_EXACT = 3, ACC_RAW_CARRIER = 4} accumulation_e;
  typedef enum int {RELU_NONE = 0, RELU = 1, RELU_SCALAR = 2, RELU_PER_COLUMN = 3} relu_e;

  // PreQuant modes are their codes in B.FPATR.
  localparam int QF322B8_PRE = 24;

  // Status flags.
  typedef struct packed {bit nx, uf, of, dz, nv;} flags_t;

  import "DPI-C" function string bitcube_version();
  import "DPI-C" function string bitcube_last_error();

  // The name of a code in a table of bitcube.h: 0 types, 1 roundings, 2 conversion profiles, 6 PreQuant modes. Only for
  // codes that exist.
  import "DPI-C" function string bitcube_name(input int table_number, input int code);

  // FP32 narrowed to FP19, and the carrier word of a mode from an FP19 scale and an offset.
  import "DPI-C" function int unsigned bitcube_fp32_to_fp19(input int unsigned word);
  import "DPI-C" function int bitcube_scale_carrier(input int mode, input int unsigned fp19_scale, input int offset,
                                                    output longint unsigned carrier);

  // TCVT of one lane.
  import "DPI-C" function int bitcube_dpi_convert(input int from, input int to, input longint unsigned word,
                                                  input int rounding, input int saturate, input int profile,
                                                  output longint unsigned code, output int unsigned flags);

  // B.FPATR of one accumulator. A carrier or an alpha that the mode does not take is 0.
  import "DPI-C" function int bitcube_dpi_postprocess(input int mode, input int accumulator, input int unsigned word,
                                                      input longint unsigned carrier, input int relu,
                                                      input longint unsigned alpha, input int rounding,
                                                      input int saturate, input int profile,
                                                      output longint unsigned code, output int unsigned flags);

  // accumulator + a * b.
  import "DPI-C" function int bitcube_dpi_mac(input int type_a, input longint unsigned a, input int type_b,
                                              input longint unsigned b, input int unsigned accumulator,
                                              input int accumulation, output int unsigned result);

  // One HiF4 group: 64 FP32 lanes, lane 0 lowest, to 64 codes of 4 bits and the scale word.
  import "DPI-C" function int bitcube_dpi_quantize_hif4(input bit [2047:0] lanes, input int hif4_profile,
                                                        output bit [255:0] codes, output int unsigned scale);

  // "OF NX", or "-".
  function automatic string flags_text(input flags_t flags);
    string text = "";
    if (flags.nv) text = {text, " NV"};
    if (flags.dz) text = {text, " DZ"};
    if (flags.of) text = {text, " OF"};
    if (flags.uf) text = {text, " UF"};
    if (flags.nx) text = {text, " NX"};
    return text.len() == 0 ? "-" : text.substr(1, text.len() - 1);
  endfunction

endpackage
