// The machine: programs in, Tiles and faults out.
#include <array>
#include <filesystem>

#include "bindings.hpp"
#include "bitcube/io/array.hpp"
#include "bitcube/isa/codes.hpp"
#include "bitcube/isa/text.hpp"
#include "bitcube/machine/core.hpp"
#include "bitcube/program/program.hpp"
#include "bitcube/program/state_file.hpp"
#include "bitcube/program/trace.hpp"

namespace bitcube::python {
namespace {

using machine::Core;
using machine::Tile;
using machine::TileLayout;
using program::Program;

machine::Options options_of(const py::dict& arguments) {
  machine::Options options;
  const auto policy = arguments["name_policy"].cast<std::string>();
  if (policy != "relative" && policy != "absolute") {
    throw py::value_error(fmt::format("name_policy: '{}' is neither relative nor absolute", policy));
  }
  options.name_policy = policy == "relative" ? machine::NamePolicy::relative : machine::NamePolicy::absolute;
  options.wait_on_pending = arguments["wait_on_pending"].cast<bool>();
  options.coop_exact_columns = arguments["coop_exact_columns"].cast<bool>();
  options.aux_exact_columns = arguments["aux_exact_columns"].cast<bool>();
  options.gemv_hif4 = arguments["gemv_hif4"].cast<bool>();
  options.strict_reserved_bits = arguments["strict_reserved_bits"].cast<bool>();
  const auto pe = arguments["scalar_pe"].cast<unsigned>();
  if (pe >= machine::pe_count) throw py::value_error(fmt::format("scalar_pe: there is no PE{}", pe));
  options.scalar_pe = pe;
  options.accumulation = &look_up("accumulate", arguments["accumulate"].cast<std::string>(), accumulation_profiles,
                                  find_accumulation_profile);
  options.conversion =
      &look_up("profile", arguments["profile"].cast<std::string>(), conversion_profiles, find_conversion_profile);
  return options;
}

py::dict fault_dict(const machine::Fault& fault, const isa::Rejection& rejection) {
  const machine::Rule& rule = machine::rule(fault.id);
  py::dict d;
  d["fault_class"] = machine::name_of(rule.fault);
  d["rule"] = rule.name;
  d["operand"] = machine::name_of(fault.role);
  d["pe"] = fault.pe < 0 ? py::object(py::none()) : py::cast(static_cast<int>(fault.pe));
  d["found"] = program::text_of(fault.found);
  d["legal"] = program::text_of(fault.legal);
  d["message"] = program::explain(fault, rejection);
  return d;
}

py::object optional_fault(const std::optional<machine::Fault>& fault, const isa::Rejection& rejection) {
  return fault ? py::object(fault_dict(*fault, rejection)) : py::object(py::none());
}

py::dict outcome_dict(const machine::Outcome& outcome) {
  py::dict d;
  d["fault"] = optional_fault(outcome.fault, outcome.rejection);
  d["waiting_for"] = outcome.waiting_for;
  d["completed"] = outcome.completed;
  d["started"] = outcome.started;
  py::list tiles;
  for (const machine::PublishedTile& t : outcome.tiles) {
    tiles.append(py::make_tuple(t.pe, isa::tile_name(static_cast<int>(t.name)), machine::name_of(t.role)));
  }
  d["tiles"] = py::tuple(tiles);
  d["shared"] = outcome.shared ? std::optional(outcome.shared->id) : std::nullopt;
  d["stores"] = outcome.stores;
  d["flags"] = static_cast<unsigned>(outcome.flags);
  return d;
}

unsigned pe_of(unsigned pe) {
  if (pe < machine::pe_count) return pe;
  throw py::value_error(fmt::format("pe: there is no PE{}; it goes from 0 to {}", pe, machine::pe_count - 1));
}

unsigned tile_of(const std::string& name) {
  if (const auto code = isa::find_tile(name)) return static_cast<unsigned>(*code);
  throw py::value_error(fmt::format("name: '{}' is no Tile; Tiles are T#1 to N#16", name));
}

unsigned shared_of(const std::string& name) {
  if (const auto code = isa::find_shared_tile(name)) return static_cast<unsigned>(*code);
  throw py::value_error(fmt::format("name: '{}' is no Shared Tile; they are S0 to S63", name));
}

unsigned gpr_of(const std::string& name) {
  if (const auto code = isa::find_gpr(name)) return static_cast<unsigned>(*code);
  throw py::value_error(fmt::format("name: '{}' is no register; registers are zero, a0 and so on", name));
}

py::object tile_dict(const machine::TileRef& tile) {
  if (!tile) return py::none();
  const machine::TileDescriptor& t = tile->descriptor();
  const Format& format = tile->format();
  py::array data = new_array(format, {t.valid_rows, t.valid_columns});
  const auto bytes = program::element_bytes(*tile);
  const auto out = writable<std::byte>(data);
  std::copy(bytes.begin(), bytes.end(), out.begin());
  if (format.type == DataType::s4x2) {
    for (std::byte& lane : out) {
      lane = static_cast<std::byte>(sign_extend(std::to_integer<uint64>(lane), format.lane_bits));
    }
  }
  py::array_t<bool> defined({t.valid_rows, t.valid_columns});
  for (std::uint32_t r = 0; r < t.valid_rows; ++r) {
    for (std::uint32_t c = 0; c < t.valid_columns; ++c) defined.mutable_at(r, c) = tile->defined(r, c);
  }
  py::dict d;
  d["type"] = format.name;
  d["layout"] = machine::name_of(t.layout);
  d["capacity"] = t.capacity_bytes;
  d["data"] = std::move(data);
  d["defined"] = std::move(defined);
  d["text"] = program::describe(*tile);
  d["sha256"] = program::element_digest(*tile);
  return d;
}

Tile make_tile(const py::array& words, std::string_view type, std::string_view layout, std::uint32_t columns,
               std::uint32_t capacity, std::uint32_t limit) {
  const Format& format = format_named("type", type);
  std::optional<TileLayout> found;
  std::vector<std::string_view> names;
  for (auto i = static_cast<std::uint8_t>(TileLayout::row_major); i <= static_cast<std::uint8_t>(TileLayout::cube_n8);
       ++i) {
    const auto candidate = static_cast<TileLayout>(i);
    names.push_back(machine::name_of(candidate));
    if (equal_ignoring_case(names.back(), layout)) found = candidate;
  }
  if (!found) {
    throw py::value_error(fmt::format("layout: no such thing as '{}'; choose from {}", layout, fmt::join(names, ", ")));
  }
  const auto limited = [](py::ssize_t n) { return static_cast<std::uint32_t>(std::min<py::ssize_t>(n, 0x10000)); };
  const std::uint32_t rows = limited(words.shape(0));
  const std::uint32_t cols = limited(words.shape(1));
  const auto span = words_of<uint64>(words);
  if (!machine::is_cube(*found)) {
    return value_of(machine::make_ordinary_tile(*found, format.type, rows, cols, span, columns, capacity, limit));
  }
  if (columns != 0) throw py::value_error("columns: is for ordinary layouts; a CUBE layout derives it");
  return value_of(machine::make_cube_tile(*found, format.type, rows, cols, span, capacity));
}

/// Every page of a range, whose addresses wrap as those of the machine do.
void check_mapped(const machine::Memory& memory, uint64 address, uint64 size) {
  for (uint64 i = 0; i < size; i += machine::Memory::page_bytes) {
    if (!memory.mapped(address + i)) throw py::value_error(fmt::format("address 0x{:X} is not mapped", address + i));
  }
  if (size != 0 && !memory.mapped(address + size - 1)) {
    throw py::value_error(fmt::format("address 0x{:X} is not mapped", address + size - 1));
  }
}

constexpr uint64 kMostBytes = uint64{1} << 32;

void check_size(uint64 size) {
  if (size > kMostBytes) throw py::value_error(fmt::format("size: {} bytes at once are more than 2^32", size));
}

py::dict run_program(Core& core, const Program& program, uint64 max_steps, bool trace) {
  std::vector<std::string> lines;
  program::RunOptions options{.max_steps = max_steps};
  if (trace) {
    options.observer = [&](const program::Event& event) { lines.push_back(program::trace_line(event)); };
  }
  const program::RunResult r = without_gil([&] { return program::run(program, core, options); });
  constexpr std::array<std::string_view, 5> ends{"completed", "fault", "waiting", "limit", "cut_off"};
  py::dict d;
  d["end"] = ends[static_cast<std::size_t>(r.end)];
  d["steps"] = r.steps;
  d["bundles"] = r.bundles;
  d["pc"] = r.pc;
  d["line"] = r.position.line == 0 ? std::nullopt : std::optional(r.position.line);
  d["fault"] = optional_fault(r.fault, r.rejection);
  d["waiting_for"] =
      r.end == program::RunResult::End::waiting ? std::optional(r.waiting_for) : std::optional<unsigned>();
  py::list checks;
  for (const program::CheckResult& check : r.checks) {
    checks.append(py::make_tuple(check.position.line, check.text, check.holds, check.message));
  }
  d["checks"] = py::tuple(checks);
  d["failed"] = r.failed;
  d["not_reached"] = r.not_reached;
  d["ok"] = r.ok();
  d["trace"] = py::tuple(py::cast(lines));
  return d;
}

std::span<const std::uint8_t> octets(const std::string& bytes) {
  return {reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size()};
}

}  // namespace

void add_machine(py::module_& module) {
  module.def("assemble", [](const std::string& text) {
    std::vector<uint64> words;
    for (const isa::Word& word : value_of(isa::assemble(text))) words.push_back(word.bits);
    return words;
  });
  module.def("assemble_bytes", [](const std::string& text) {
    const auto bytes = isa::to_bytes(value_of(isa::assemble(text)));
    return py::bytes(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  });
  module.def("disassemble", [](const std::string& bytes) {
    std::vector<std::string> lines;
    for (const auto& line : isa::disassemble(octets(bytes))) lines.push_back(line.text);
    return lines;
  });

  py::class_<Program> program_class(module, "Program");
  only_from_functions(program_class);
  program_class.def_static("load", [](const std::string& path) { return value_of(Program::load(path)); })
      .def_static("parse", [](const std::string& text, const std::string& name,
                              const std::string& directory) { return value_of(Program::parse(text, name, directory)); })
      .def_property_readonly("name", &Program::name)
      .def_property_readonly("origin", &Program::origin)
      .def_property_readonly("expectations", &Program::expectations)
      .def_property_readonly(
          "bytes",
          [](const Program& p) { return py::bytes(reinterpret_cast<const char*>(p.bytes().data()), p.bytes().size()); })
      .def_property_readonly("lines", [](const Program& p) {
        py::list lines;
        for (const program::Line& line : p.lines())
          lines.append(py::make_tuple(line.address, line.word.bits, line.text));
        return lines;
      });

  py::class_<Core> core_class(module, "Core");
  only_from_functions(core_class);
  core_class.def_static("make", [](const py::dict& arguments) { return Core(options_of(arguments)); })
      .def("copy", [](const Core& core) { return Core(core); })
      .def("__eq__", [](const Core& a, const Core& b) { return a == b; })
      .def("step", [](Core& core) { return outcome_dict(without_gil([&] { return core.step(); })); })
      .def("step_word",
           [](Core& core, uint64 word) { return outcome_dict(without_gil([&] { return core.step(word); })); })
      .def("run", run_program)
      .def("tile", [](const Core& core, unsigned pe,
                      const std::string& name) { return tile_dict(core.state().pe[pe_of(pe)].local[tile_of(name)]); })
      .def("set_tile",
           [](Core& core, unsigned pe, const std::string& name, const py::array& words, std::string_view type,
              std::string_view layout, std::uint32_t columns, std::uint32_t capacity) {
             core.set_local(pe_of(pe), tile_of(name),
                            make_tile(words, type, layout, columns, capacity, machine::local_capacity_limit));
           })
      .def("shared", [](const Core& core,
                        const std::string& name) { return tile_dict(core.state().shared[shared_of(name)].tile); })
      .def("shared_ready",
           [](const Core& core, const std::string& name) {
             return core.state().shared[shared_of(name)].whole_parent_ready;
           })
      .def("set_shared",
           [](Core& core, const std::string& name, const py::array& words, std::string_view type,
              std::string_view layout, std::uint32_t columns, std::uint32_t capacity) {
             core.publish_shared(shared_of(name),
                                 make_tile(words, type, layout, columns, capacity, machine::shared_capacity_limit));
           })
      .def("set_pending", [](Core& core, const std::string& name) { core.set_pending(shared_of(name)); })
      .def("gpr", [](const Core& core, unsigned pe,
                     const std::string& name) { return core.state().pe[pe_of(pe)].read(gpr_of(name)); })
      .def("set_gpr",
           [](Core& core, unsigned pe, const std::string& name, uint64 value) {
             const unsigned code = gpr_of(name);
             if (code == 0) throw py::value_error("name: the register zero is always 0");
             core.state().pe[pe_of(pe)].gpr[code] = value;
           })
      .def("map",
           [](Core& core, uint64 address, uint64 size) {
             check_size(size);
             core.state().memory.map(address, size);
           })
      .def("read",
           [](const Core& core, uint64 address, uint64 size) {
             check_size(size);
             check_mapped(core.state().memory, address, size);
             const auto bytes = core.state().memory.read(address, size);
             return py::bytes(reinterpret_cast<const char*>(bytes.data()), bytes.size());
           })
      .def("write", [](Core& core, uint64 address,
                       const std::string& bytes) { core.state().memory.write(address, octets(bytes)); })
      .def_property(
          "pc", [](const Core& core) { return core.state().tpc; }, [](Core& core, uint64 pc) { core.state().tpc = pc; })
      .def_property_readonly("bundle_open", [](const Core& core) { return core.state().header.active; })
      .def_property_readonly("flags", [](const Core& core) { return static_cast<unsigned>(core.state().flags); })
      .def("local_pool", [](const Core& core, unsigned pe) { return core.state().local_pool(pe_of(pe)); })
      .def("shared_pool", [](const Core& core) { return core.state().shared_pool(); })
      .def("save", [](const Core& core) { return value_of(program::write_state(core.state())); })
      .def("restore", [](Core& core, const std::string& text, const std::string& name) {
        core.state() = value_of(program::read_state(text, name));
      });
}

}  // namespace bitcube::python
