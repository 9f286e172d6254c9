// The program bitcube.
#include <array>

#include "interrupt.hpp"
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
  static const Console console(wants_json(argc, argv));  // the thread that waits for signals has it until the very end
  block_signals();
  const auto result = run_program(argc, argv, program, console);
  if (!result) console.error(result.error().message);
  const Exit exit = result ? *result : Exit::error;
  // A work that was complete before the signal could stop it, with differences or without, stays what it is.
  if (exit == Exit::error) end_by_signal();
  return static_cast<int>(exit);
}
