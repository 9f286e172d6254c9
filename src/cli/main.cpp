// The program bitcube.
#include <array>

#include "program.hpp"

int main(int argc, char** argv) {
  using namespace bitcube::cli;
  constexpr std::array<AddCommand, 19> commands{add_formats, add_convert,     add_quantize, add_dequantize, add_inspect,
                                                add_matmul,  add_postprocess, add_diff,     add_report,     add_demo,
                                                add_conform, add_vectors,     add_gen,      add_study,      add_explain,
                                                add_asm,     add_disasm,      add_run,      add_completion};
  const Program program{.name = "bitcube",
                        .summary = "a bit-exact model of the PTO CUBE matrix unit and its number formats",
                        .examples =
                            "  bitcube formats                        list the number formats\n"
                            "  bitcube convert --to e4m3 1.0625       convert one value, with its flags\n"
                            "  bitcube demo                           run a real network in HiFloat4\n"
                            "  bitcube COMMAND --help                 options and examples of a command",
                        .commands = commands};
  const Console console(wants_json(argc, argv));
  const auto result = run_program(argc, argv, program, console);
  if (!result) console.error(result.error().message);
  return static_cast<int>(result ? *result : Exit::error);
}
