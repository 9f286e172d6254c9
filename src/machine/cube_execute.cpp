// Stage H of a CUBE bundle: the sources as operands of the cube room, its results as Tiles (architecture 6).
#include <cstring>
#include <new>

#include "bitcube/cube/matmul.hpp"
#include "bitcube/cube/postprocess_matrix.hpp"
#include "cube_plan.hpp"

namespace bitcube::machine {

namespace {

/// One side as the product reads it. Shared Tiles are viewed in place, transposed or not; Local ones are gathered out
/// of their cells.
class SideOperand {
 public:
  /// `lines` is M or N. Lines of a Shared A start at `first`.
  SideOperand(const CubeSide& side, const Tile* local, const Tile* local_scale, std::size_t lines, std::size_t k,
              std::size_t first, bool lines_are_rows) {
    operand.format = side.format;
    operand.lines = lines;
    operand.k = k;
    // Stored row-major, a line is a row of the Tile if the operand's lines are its rows, or if it is transposed but
    // its lines are its columns.
    const bool along_rows = lines_are_rows != side.transposed;
    operand.lanes = side.shared ? shared_view(*side.primary, first, along_rows) : gather(*local, lanes_);
    if (side.scaled) {
      operand.scales = side.shared ? shared_view(*side.scale, first, along_rows) : gather(*local_scale, scales_);
    }
  }

  bitcube::Operand operand;

 private:
  static LaneView shared_view(const Tile& tile, std::size_t first, bool along_rows) {
    const std::size_t columns = tile.descriptor().columns;
    return along_rows ? row_major_view(tile, first * columns, columns, 1) : row_major_view(tile, first, 1, columns);
  }
  static LaneView gather(const Tile& tile, LaneImage& image) {
    image = gather_lines(tile);
    return image.view;
  }

  LaneImage lanes_;
  LaneImage scales_;
};

std::vector<uint64> carriers(const Tile* tile) {
  return tile == nullptr ? std::vector<uint64>{} : tile->valid_words();
}

TileRef filled(const TileDescriptor& descriptor, std::span<const std::uint8_t> elements, std::size_t element_bytes) {
  Tile tile(descriptor);
  scatter(tile, elements, element_bytes);
  return std::make_shared<const Tile>(std::move(tile));
}

std::span<const std::uint8_t> bytes_of(const std::vector<std::uint32_t>& words) {
  return {reinterpret_cast<const std::uint8_t*>(words.data()), words.size() * 4};
}

/// C, scaled row by row where CScale asks for it (numerics 9.7).
std::vector<std::uint32_t> accumulator_input(const State& state, const CubePlan& plan, const PePlan& pe, Flags& flags) {
  auto c = gather_words(*pe[Role::c]);
  if (const Tile* scale = pe[Role::c_scale]) {
    for (std::uint32_t i = 0; i < pe.m; ++i) {
      const auto shift = static_cast<unsigned>(scale->element(i, 0));
      for (std::uint32_t j = 0; j < plan.n; ++j) {
        std::uint32_t& word = c[std::size_t{i} * plan.n + j];
        const Encoded e = scale_c(word, shift, *state.options.conversion);
        word = static_cast<std::uint32_t>(e.bits);
        flags |= e.flags;
      }
    }
  }
  return c;
}

}  // namespace

void run_pe(const State& state, const CubePlan& plan, const PePlan& pe, Effects& effects) {
  const std::size_t first = plan.first_row(pe.pe);
  const SideOperand a(plan.a, pe[Role::a], pe[Role::a_scale], pe.m, plan.k, first, true);
  const SideOperand b(plan.b, pe[Role::b], pe[Role::b_scale], plan.n, plan.k, 0, false);

  MatmulOptions product;
  product.profile = state.options.accumulation;
  if (!plan.mx) product.group = 16;  // profiles 3: FP16 and BF16 alone do not tell an ordinary operation
  product.execution.threads = 1;     // a machine runs on the thread that steps it
  std::vector<std::uint32_t> c;
  std::vector<std::uint32_t> bias;
  if (plan.accumulates) {
    c = accumulator_input(state, plan, pe, effects.flags);
    product.c = c;
  }
  if (plan.has_bias) {
    bias = gather_words(*pe[Role::bias]);
    product.bias = bias;
  }
  const auto accumulators = matmul(a.operand, b.operand, product);
  if (!accumulators) throw std::bad_alloc();  // the plan is legal, so nothing else can be missing

  PostprocessOptions post;
  post.mode = plan.mode;
  post.relu = plan.relu;
  post.rounding = plan.rounding;
  post.saturate = plan.saturate;
  post.profile = state.options.conversion;
  post.row_max = plan.post.row_max;
  post.group_n = plan.group_n();
  post.max_abs = plan.post.max_abs;
  post.execution.threads = 1;
  std::vector<uint64> quant = carriers(pe[Role::quant_vector]);
  std::vector<uint64> alpha = carriers(pe[Role::relu_vector]);
  if (plan.scalar_quant()) quant = {pe.quant_word};
  if (plan.relu == Relu::scalar) alpha = {pe.relu_word};
  // A shift has no activation: the parameter is checked and then ignored (numerics 11, point 13).
  if (plan.mode->carrier == CarrierKind::shift) {
    post.relu = Relu::none;
    alpha.clear();
  }
  post.quant_carriers = quant;
  post.activation_carriers = alpha;
  std::vector<std::uint32_t> row_max_in;
  if (const Tile* tile = pe[Role::row_max_in]) {
    row_max_in = gather_words(*tile);
    post.row_max_init = row_max_in;
  }
  const auto result = postprocess(*accumulators, post);
  if (!result) throw std::bad_alloc();
  effects.flags |= result->flags;

  for (std::size_t i = 0; i < plan.destinations.size(); ++i) {
    const CubeDestination& destination = plan.destinations[i];
    const TileDescriptor& descriptor = pe.destinations[i];
    TileRef tile;
    if (destination.role == Role::d) {
      tile = filled(descriptor, result->d, result->element_bytes);
    } else {
      tile =
          filled(descriptor, bytes_of(destination.role == Role::row_max_out ? result->row_max : result->group_max), 4);
    }
    effects.locals.push_back({pe.pe, destination.hand, destination.role, std::move(tile)});
  }
}

Completion execute_cube(const State& state) {
  Completion out;
  const Planned planned = plan_cube(state);
  out.fault = planned.fault;
  out.waiting_for = planned.waiting_for;
  if (out.fault || out.waiting_for) return out;
  const CubePlan& plan = planned.plan;

  // Every PE passes before the first one computes, so all of them take effect or none (architecture 9.2, OP-27).
  std::vector<PePlan> pes;
  for (unsigned pe = 0; pe < pe_count; ++pe) {
    if ((plan.mask & pe_bit(pe)) == 0) continue;
    if (plan.rows(pe) == 0) continue;  // E: no Local effect
    PePlanned p = plan_pe(state, plan, pe);
    if (p.fault) {
      out.fault = p.fault;
      return out;
    }
    pes.push_back(std::move(p.plan));
  }
  for (const PePlan& pe : pes) run_pe(state, plan, pe, out.effects);
  return out;
}

}  // namespace bitcube::machine
