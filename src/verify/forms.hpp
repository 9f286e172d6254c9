// The forms of vector files as data: name, columns, and the function that checks or writes a row.
#pragma once

#include "record.hpp"

namespace bitcube::verify {

/// Computes the columns after form.inputs from those before, and compares them or fills them in.
using CheckRow = void (*)(Record&);

/// The function of a form of vector_forms(); nullptr for JSON.
CheckRow check_of(const VectorForm& form) noexcept;

// numeric
void check_format_descriptor(Record& r);
void check_format_value(Record& r);
void check_fp19_class(Record& r);
void check_fp32_to_fp19(Record& r);
void check_encoder(Record& r);
void check_e8m0(Record& r);
void check_tcvt(Record& r);
void check_tcvt_integer(Record& r);
// quantize
void check_tquant(Record& r);
void check_tdequant(Record& r);
void check_hif4_group(Record& r);
void check_mx_group(Record& r);
// cube
void check_fpatr_mode(Record& r);
void check_fpatr_fields(Record& r);
void check_quant_parameter(Record& r);
void check_relu_parameter(Record& r);
void check_postprocess(Record& r);
void check_reduction(Record& r);
void check_accumulate(Record& r);
void check_cscale(Record& r);
// machine
void check_cube_shape(Record& r);
void check_cube_index(Record& r);
void check_linear_index(Record& r);

/// hif4_worked.json: fills the report. `first` as in ConformOptions.
void check_hif4_worked(std::string_view text, std::size_t first, FileReport& report);

}  // namespace bitcube::verify
