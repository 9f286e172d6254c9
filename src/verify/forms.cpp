#include "forms.hpp"

#include <array>
#include <iterator>

namespace bitcube::verify {
namespace {

enum Profiles : std::uint8_t { independent, of_run, by_row };

struct Entry {
  VectorForm form;
  CheckRow check;
};

constexpr Entry form(CheckRow check, std::string_view name, std::string_view columns, std::string_view alias,
                     std::size_t inputs, std::string_view clause, Profiles profiles, std::string_view meaning) {
  const bool open_end = name == "fpatr_modes";  // "nothing after it"
  return {{name, columns, alias, inputs, meaning, clause, profiles == of_run, profiles == by_row, open_end}, check};
}

constexpr std::array kEntries{
    form(check_format_descriptor, "format_descriptors",
         "data_type,encoding,element_bits,element_bytes,is_floating,available,kind,carrier_bits,lane_bits,lanes_per_"
         "carrier,sign_bits,sign_bit,exponent_bits_min,exponent_bits_max,fraction_bits_min,fraction_bits_max,exponent_"
         "bias_available,exponent_bias,required_low_zero_bits,required_high_zero_bits,has_zero,has_signed_zero,has_"
         "subnormal,has_infinity,has_quiet_nan,has_signaling_nan,canonical_nan_available,canonical_nan,signed_zero_"
         "available,positive_zero,negative_zero",
         "", 1, "numerics 1.1", of_run, "what a data type is"),
    form(check_format_value, "formats", "data_type,value,class,decomp_available,negative,significand,exponent", "", 2,
         "numerics 1.3", of_run, "class and exact finite decomposition of one encoding"),
    form(check_fp19_class, "fp19_class", "fp19,class,scale_legal,activation_legal", "", 1, "numerics 4.1", independent,
         "class of an FP19, and whether it may be a scale or an activation parameter"),
    form(check_fp32_to_fp19, "fp32_to_fp19", "fp32,fp19", "", 1, "numerics 4.1", independent,
         "the FP32 to FP19 narrowing helper"),
    form(check_encoder, "encoders", "data_type,rounding,sat,significand,exponent,result,flags", "", 5, "numerics 6",
         of_run, "the real number significand * 2^exponent encoded into a type"),
    form(check_e8m0, "e8m0", "source_type,rounding,sat,value,result,flags", "", 4, "numerics 7.2", independent,
         "TCVT to E8M0"),
    form(check_tcvt, "tcvt", "profile,source_type,destination_type,rounding,sat,value,result,flags", "", 6,
         "numerics 7", by_row, "TCVT of one element, floats and scale types"),
    form(check_tcvt_integer, "tcvt_integer", "source_type,destination_type,sat,value,result", "", 4, "numerics 7.4",
         independent, "TCVT between integer types"),
    form(check_tquant, "tquant", "destination_type,rounding,sat,value,scale,zero_point,result,flags", "", 6,
         "numerics 10.1", independent, "affine TQUANT of one element"),
    form(check_tdequant, "tdequant", "source_type,rounding,value,scale,zero_point,result,flags", "", 5, "numerics 10.2",
         of_run, "affine TDEQUANT of one element"),
    form(check_fpatr_mode, "fpatr_modes",
         "pre_quant_mode,legal,output_type,acc_fp32_legal,acc_s32_legal,acc_u32_legal,uses_scalar,uses_vector,offset_"
         "width,is_shift,fixed_rounding,final_sat_programmable,datr_none_nosat,datr_none_sat,datr_001_nosat,datr_111_"
         "sat,effective_rounding_for_rtz",
         "", 1, "numerics 5.3", independent, "the PreQuantMode codes"),
    form(check_fpatr_fields, "fpatr_fields_legal",
         "pre_quant_mode,relu_mode,group_n_code,flags_rowmax_groupmax_rowinit_maxabs_bits0to3,legal", "", 4,
         "numerics 5.2", independent, "legality of a B.FPATR field combination"),
    form(check_quant_parameter, "fpatr_quant_param_legal", "pre_quant_mode,quant_param,legal",
         "pre_quant_mode,param,legal", 2, "numerics 4.2", independent, "legality of a quantisation carrier"),
    form(check_relu_parameter, "fpatr_relu_param_legal", "relu_param,legal", "param,legal", 1, "numerics 4.2",
         independent, "legality of an activation carrier"),
    form(check_postprocess, "postprocess",
         "pre_quant_mode,relu_mode,output_type,rounding,sat,value,quant_param,relu_param,result,flags", "", 8,
         "numerics 5.5", of_run, "one element through the post-process"),
    form(check_reduction, "reduction", "data_type,max_abs,current,candidate,result,flags", "", 4, "numerics 5.7",
         independent, "one RowMax or GroupMax step"),
    form(check_cube_shape, "cube_shapes",
         "layout,data_type,element_bits,valid_rows,valid_cols,cell_rows,cell_cols,storage_rows,storage_cols,k_repeat,n_"
         "repeat,cell_count,storage_elements,required_bytes,legal_cap65536,legal_cap262144",
         "", 5, "architecture 1.7", independent, "geometry of a CUBE tile"),
    form(check_cube_index, "cube_index",
         "layout,data_type,element_bits,valid_rows,valid_cols,storage_rows,storage_cols,row,col,storage_index", "", 9,
         "architecture 1.7", independent, "where an element of a CUBE tile is stored"),
    form(check_linear_index, "linear_index", "layout,data_type,element_bits,rows,cols,row,col,logical_index", "", 7,
         "architecture 1.6", independent, "where an element of an ordinary tile is stored"),
    form(check_hif4_group, "hif4_groups", "profile,input_bf16,scale_word,codes", "", 2, "numerics 10.3", by_row,
         "one group of 64 quantised to HiF4"),
    form(check_mx_group, "mx_groups", "format,scale_rule,input_type,input,scale,codes", "", 4, "profiles 2",
         independent, "one group quantised to an MX element type or to NVFP4"),
    form(check_accumulate, "accumulate", "profile,a_type,b_type,k,a,a_scales,b,b_scales,c,bias,result", "", 10,
         "profiles 3", by_row, "one output element of a matrix product"),
    form(check_cscale, "cscale", "c,s,result,flags", "", 2, "numerics 9.7", of_run, "the C scale"),
    form(nullptr, "hif4_worked", "hif4_worked v1", "", 0, "numerics 10.3", independent,
         "HiF4 groups with every intermediate value (JSON)"),
};

constexpr auto kForms = []() {
  std::array<VectorForm, kEntries.size()> forms{};
  for (std::size_t i = 0; i < forms.size(); ++i) forms[i] = kEntries[i].form;
  return forms;
}();

}  // namespace

std::span<const VectorForm> vector_forms() noexcept {
  return kForms;
}

const VectorForm* find_vector_form(std::string_view name) noexcept {
  for (const VectorForm& form : kForms) {
    if (equal_ignoring_case(form.name, name)) return &form;
  }
  return nullptr;
}

CheckRow check_of(const VectorForm& form) noexcept {
  return kEntries[static_cast<std::size_t>(&form - kForms.data())].check;
}

}  // namespace bitcube::verify
