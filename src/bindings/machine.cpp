// The C interface: instructions, programs and cores.
#include <algorithm>
#include <cstring>
#include <string>

#include "bindings/call.hpp"
#include "bindings/handles.hpp"
#include "bitcube/isa/codes.hpp"
#include "bitcube/isa/text.hpp"

namespace bitcube::bindings {
namespace {

/// Cut where the room ends.
template <std::size_t N>
void copy_text(char (&room)[N], std::string_view text) noexcept {
  const std::size_t size = std::min(text.size(), N - 1);
  if (size != 0) std::memcpy(room, text.data(), size);
  room[size] = '\0';
}

bitcube_fault no_fault() noexcept {
  bitcube_fault out{};
  out.pe = -1;
  out.class_name = out.rule = "";
  return out;
}

bitcube_fault fault_of(const machine::Fault& fault, const isa::Rejection& rejection) {
  const machine::Rule& rule = machine::rule(fault.id);
  bitcube_fault out = no_fault();
  out.fault_class = static_cast<std::int32_t>(rule.fault);
  out.pe = fault.pe;
  out.class_name = machine::name_of(rule.fault).data();  // literals, so a zero follows
  out.rule = rule.name.data();
  copy_text(out.text, program::explain(fault, rejection));
  return out;
}

bitcube_outcome outcome_of(const machine::Outcome& o) {
  bitcube_outcome out{};
  out.fault = o.fault ? fault_of(*o.fault, o.rejection) : no_fault();
  out.waiting_for = o.waiting_for ? static_cast<std::int32_t>(*o.waiting_for) : -1;
  out.header_changed = o.header_changed;
  out.completed = o.completed;
  out.started = o.started;
  out.flags = static_cast<std::uint32_t>(o.flags);
  out.tiles = o.tiles.size();
  out.stores = o.stores;
  return out;
}

unsigned pe_of(std::int32_t pe) {
  if (pe < 0 || pe >= static_cast<std::int32_t>(machine::pe_count)) {
    fail(BITCUBE_UNKNOWN, "pe: {}, but the PEs are 0 to {}", pe, machine::pe_count - 1);
  }
  return static_cast<unsigned>(pe);
}

unsigned gpr_of(std::int32_t gpr) {
  if (gpr < 0 || gpr >= static_cast<std::int32_t>(machine::gpr_count)) {
    fail(BITCUBE_UNKNOWN, "gpr: {}, but the GPRs are 0 to {}", gpr, machine::gpr_count - 1);
  }
  return static_cast<unsigned>(gpr);
}

/// A register of Tiles by name.
struct Register {
  bool shared;
  unsigned pe;
  unsigned name;
};
Register register_of(std::int32_t pe, const char* name) {
  require(name, "name");
  const bool shared = pe == BITCUBE_SHARED;
  const auto found = shared ? isa::find_shared_tile(name) : isa::find_tile(name);
  if (!found) {
    fail(BITCUBE_UNKNOWN, "'{}' is no {} register; they are {}", name, shared ? "Shared Tile" : "Local Tile",
         shared ? "S0 to S63" : "T#1 to T#16, U#1 to U#16, M#1 to M#16, N#1 to N#16");
  }
  return {shared, shared ? 0 : pe_of(pe), static_cast<unsigned>(*found)};
}

const machine::Tile& tile_at(const bitcube_core* core, const Register& at, const char* name) {
  const machine::State& state = core->core.state();
  const machine::TileRef& tile = at.shared ? state.shared[at.name].tile : state.pe[at.pe].local[at.name];
  if (tile == nullptr) fail(BITCUBE_UNKNOWN, "{} holds no Tile", name);
  return *tile;
}

}  // namespace
}  // namespace bitcube::bindings

using namespace bitcube;
using namespace bitcube::bindings;

bitcube_status bitcube_assemble(const char* text, void* out, size_t* size) {
  return call([&] {
    require(text, "text");
    require(size, "size");
    const std::vector<uint8_t> bytes = isa::to_bytes(value_of(isa::assemble(text)));
    const std::size_t room = *size;
    if (out != nullptr && room < bytes.size()) {
      *size = bytes.size();
      fail(BITCUBE_BAD_SIZE, "out: {} bytes, but {} are needed", room, bytes.size());
    }
    if (out != nullptr && !bytes.empty()) std::memcpy(out, bytes.data(), bytes.size());
    *size = bytes.size();
  });
}

bitcube_status bitcube_disassemble(const void* bytes, size_t size, char* text, size_t room, size_t* length) {
  return call([&] {
    require(bytes, size, "bytes");
    require(text, "text");
    if (size == 0) fail(BITCUBE_BAD_SIZE, "bytes: none");
    const auto* first = static_cast<const uint8_t*>(bytes);
    const std::vector<isa::DisassembledLine> lines = isa::disassemble(std::span(first, std::min<size_t>(size, 8)));
    const isa::DisassembledLine& line = lines.front();
    if (room <= line.text.size())
      fail(BITCUBE_BAD_SIZE, "text: {} bytes, but {} are needed", room, line.text.size() + 1);
    std::memcpy(text, line.text.c_str(), line.text.size() + 1);
    if (length != nullptr) *length = line.word.length;
  });
}

bitcube_status bitcube_core_new(const bitcube_core_options* options, bitcube_core** core) {
  return call([&] {
    require(core, "core");
    const bitcube_core_options o = options_of(options);
    require_zero(o.reserved, "options.reserved");
    if (o.scalar_pe >= machine::pe_count)
      fail(BITCUBE_BAD_ARGUMENT, "scalar_pe: {}, but the PEs are 0 to 3", o.scalar_pe);
    machine::Options chosen;
    chosen.name_policy =
        yes_or_no(o.absolute_names, "absolute_names") ? machine::NamePolicy::absolute : machine::NamePolicy::relative;
    chosen.wait_on_pending = yes_or_no(o.wait_on_pending, "wait_on_pending");
    chosen.coop_exact_columns = yes_or_no(o.coop_exact_columns, "coop_exact_columns");
    chosen.aux_exact_columns = yes_or_no(o.aux_exact_columns, "aux_exact_columns");
    chosen.gemv_hif4 = !yes_or_no(o.no_gemv_hif4, "no_gemv_hif4");
    chosen.strict_reserved_bits = !yes_or_no(o.lenient_bits, "lenient_bits");
    chosen.scalar_pe = o.scalar_pe;
    chosen.accumulation = &row_of(accumulation_profiles, o.accumulation, "accumulation");
    chosen.conversion = &profile_of(o.profile);
    *core = std::make_unique<bitcube_core>(bitcube_core{machine::Core(chosen)}).release();
  });
}

bitcube_status bitcube_core_copy(const bitcube_core* core, bitcube_core** copy) {
  return call([&] {
    require(core, "core");
    require(copy, "copy");
    *copy = std::make_unique<bitcube_core>(*core).release();
  });
}

void bitcube_core_free(bitcube_core* core) {
  delete core;
}

bitcube_status bitcube_core_step(bitcube_core* core, uint64_t word, bitcube_outcome* outcome) {
  return call([&] {
    require(core, "core");
    require(outcome, "outcome");
    *outcome = outcome_of(core->core.step(word));
  });
}

bitcube_status bitcube_core_step_at_tpc(bitcube_core* core, bitcube_outcome* outcome) {
  return call([&] {
    require(core, "core");
    require(outcome, "outcome");
    *outcome = outcome_of(core->core.step());
  });
}

bitcube_status bitcube_program_new(const char* text, const char* name, const char* directory,
                                   bitcube_program** program) {
  return call([&] {
    require(text, "text");
    require(program, "program");
    auto parsed = value_of(
        program::Program::parse(text, name == nullptr ? "program" : name, directory == nullptr ? "" : directory));
    *program = std::make_unique<bitcube_program>(bitcube_program{std::move(parsed)}).release();
  });
}

bitcube_status bitcube_program_from_words(const void* bytes, size_t size, bitcube_program** program) {
  return call([&] {
    require(bytes, size, "bytes");
    require(program, "program");
    auto made = value_of(program::Program::from_bytes({static_cast<const uint8_t*>(bytes), size}, "program"));
    *program = std::make_unique<bitcube_program>(bitcube_program{std::move(made)}).release();
  });
}

bitcube_status bitcube_program_load(const char* path, bitcube_program** program) {
  return call([&] {
    require(path, "path");
    require(program, "program");
    *program = std::make_unique<bitcube_program>(bitcube_program{value_of(program::Program::load(path))}).release();
  });
}

void bitcube_program_free(bitcube_program* program) {
  delete program;
}

bitcube_status bitcube_program_bytes(const bitcube_program* program, const uint8_t** bytes, size_t* size,
                                     uint64_t* origin) {
  return call([&] {
    require(program, "program");
    const program::Program& p = program->program;
    if (bytes != nullptr) *bytes = p.bytes().empty() ? nullptr : p.bytes().data();
    if (size != nullptr) *size = p.bytes().size();
    if (origin != nullptr) *origin = p.origin();
  });
}

bitcube_status bitcube_core_run(bitcube_core* core, const bitcube_program* program, uint64_t max_steps,
                                bitcube_run_result* result) {
  return call([&] {
    require(core, "core");
    require(program, "program");
    require(result, "result");
    program::RunOptions options;
    if (max_steps != 0) options.max_steps = max_steps;
    const program::RunResult r = program::run(program->program, core->core, options);
    bitcube_run_result out{};
    out.end = static_cast<int32_t>(r.end);
    out.ok = r.ok();
    out.steps = r.steps;
    out.bundles = r.bundles;
    out.pc = r.pc;
    out.line = r.position.line;
    out.column = r.position.column;
    out.waiting_for = r.end == program::RunResult::End::waiting ? static_cast<int32_t>(r.waiting_for) : -1;
    out.expectations = r.checks.size();
    out.failed = r.failed;
    out.not_reached = r.not_reached;
    out.fault = r.fault ? fault_of(*r.fault, r.rejection) : no_fault();
    for (const program::CheckResult& check : r.checks) {
      if (check.holds) continue;
      out.failed_line = check.position.line;
      out.failed_column = check.position.column;
      copy_text(out.failed_text, check.message);
      break;
    }
    *result = out;
  });
}

bitcube_status bitcube_core_tile(const bitcube_core* core, int32_t pe, const char* name, bitcube_tile* tile) {
  return call([&] {
    require(core, "core");
    require(tile, "tile");
    const Register at = register_of(pe, name);
    const machine::Tile& t = tile_at(core, at, name);
    const machine::TileDescriptor& d = t.descriptor();
    const machine::SharedRecord* record = at.shared ? &core->core.state().shared[at.name] : nullptr;
    const std::size_t element_bytes = t.format().carrier_bits / 8U;
    *tile = {.type = static_cast<int32_t>(d.type),
             .layout = static_cast<int32_t>(d.layout),
             .valid_rows = d.valid_rows,
             .valid_columns = d.valid_columns,
             .rows = d.rows,
             .columns = d.columns,
             .capacity_bytes = d.capacity_bytes,
             .defined = t.contents_defined(),
             .element_bytes = static_cast<uint32_t>(element_bytes),
             .ready = record == nullptr || (record->whole_parent_ready && record->published),
             .bytes = std::size_t{d.valid_rows} * d.valid_columns * element_bytes};
  });
}

bitcube_status bitcube_core_read_tile(const bitcube_core* core, int32_t pe, const char* name, void* out, size_t bytes) {
  return call([&] {
    require(core, "core");
    const std::vector<std::byte> elements = program::element_bytes(tile_at(core, register_of(pe, name), name));
    require_size(bytes, elements.size(), "out: bytes");
    require(out, bytes, "out");
    if (bytes != 0) std::memcpy(out, elements.data(), bytes);
  });
}

bitcube_status bitcube_core_write_tile(bitcube_core* core, int32_t pe, const char* name, int32_t type, int32_t layout,
                                       uint32_t valid_rows, uint32_t valid_columns, const void* words, size_t bytes) {
  return call([&] {
    require(core, "core");
    const Register at = register_of(pe, name);
    const Format& format = format_of_code(type, "type");
    if (bitcube_name(BITCUBE_LAYOUTS, layout) == nullptr)
      fail(BITCUBE_UNKNOWN, "there is no layout with code {}", layout);
    const auto tile_layout = static_cast<machine::TileLayout>(layout);
    const std::size_t element_bytes = format.carrier_bits / 8U;
    const std::size_t count = product(valid_rows, valid_columns, "words");
    require_size(bytes, product(count, element_bytes, "words"), "words: bytes");
    require(words, bytes, "words");
    std::vector<uint64> elements(count);
    const auto* from = static_cast<const std::byte*>(words);
    for (std::size_t i = 0; i < count; ++i) elements[i] = load_word(from + i * element_bytes, element_bytes);
    machine::Tile tile = value_of(
        machine::is_cube(tile_layout)
            ? machine::make_cube_tile(tile_layout, format.type, valid_rows, valid_columns, elements)
            : machine::make_ordinary_tile(tile_layout, format.type, valid_rows, valid_columns, elements, 0, 0,
                                          at.shared ? machine::shared_capacity_limit : machine::local_capacity_limit));
    if (at.shared) {
      core->core.publish_shared(at.name, std::move(tile));
    } else {
      core->core.set_local(at.pe, at.name, std::move(tile));
    }
  });
}

bitcube_status bitcube_core_map(bitcube_core* core, uint64_t address, uint64_t size) {
  return call([&] {
    require(core, "core");
    core->core.state().memory.map(address, size);
  });
}

bitcube_status bitcube_core_write(bitcube_core* core, uint64_t address, const void* bytes, size_t size) {
  return call([&] {
    require(core, "core");
    require(bytes, size, "bytes");
    core->core.state().memory.write(address, {static_cast<const uint8_t*>(bytes), size});
  });
}

bitcube_status bitcube_core_read(const bitcube_core* core, uint64_t address, void* bytes, size_t size) {
  return call([&] {
    require(core, "core");
    require(bytes, size, "bytes");
    const machine::Memory& memory = core->core.state().memory;
    constexpr uint64 page = machine::Memory::page_bytes;
    for (uint64 done = 0; done < size; done += page - (address + done) % page) {
      if (!memory.mapped(address + done)) fail(BITCUBE_REFUSED, "address 0x{:X} is not mapped", address + done);
    }
    const std::vector<uint8_t> read = memory.read(address, size);
    if (size != 0) std::memcpy(bytes, read.data(), size);
  });
}

bitcube_status bitcube_core_gpr(const bitcube_core* core, int32_t pe, int32_t gpr, uint64_t* value) {
  return call([&] {
    require(core, "core");
    require(value, "value");
    *value = core->core.state().pe[pe_of(pe)].read(gpr_of(gpr));
  });
}

bitcube_status bitcube_core_set_gpr(bitcube_core* core, int32_t pe, int32_t gpr, uint64_t value) {
  return call([&] {
    require(core, "core");
    const unsigned number = gpr_of(gpr);
    auto& registers = core->core.state().pe[pe_of(pe)].gpr;
    if (number != 0) registers[number] = value;
  });
}

bitcube_status bitcube_core_tpc(const bitcube_core* core, uint64_t* tpc) {
  return call([&] {
    require(core, "core");
    require(tpc, "tpc");
    *tpc = core->core.state().tpc;
  });
}

bitcube_status bitcube_core_set_tpc(bitcube_core* core, uint64_t tpc) {
  return call([&] {
    require(core, "core");
    core->core.state().tpc = tpc;
  });
}

bitcube_status bitcube_core_flags(const bitcube_core* core, uint32_t* flags) {
  return call([&] {
    require(core, "core");
    require(flags, "flags");
    *flags = static_cast<uint32_t>(core->core.state().flags);
  });
}

bitcube_status bitcube_core_set_flags(bitcube_core* core, uint32_t flags) {
  return call([&] {
    require(core, "core");
    if (flags > 0x1F) fail(BITCUBE_BAD_ARGUMENT, "flags: 0x{:X}, but they are five bits", flags);
    core->core.state().flags = static_cast<Flags>(flags);
  });
}
