// What a bundle is made from before it is words. Private to the room.
#pragma once

#include <array>
#include <functional>
#include <vector>

#include "bitcube/cube/prequant.hpp"
#include "bitcube/stimulus/bundle.hpp"
#include "verify/operands.hpp"

namespace bitcube::stimulus {

using verify::Random;

/// The choices of a bundle that the coverage crosses with each other, and those that a rule forces.
struct Head {
  isa::Operation operation = isa::Operation::none;
  DataType a = DataType::none;
  DataType b = DataType::none;
  isa::TransferLayout layout = isa::TransferLayout::norm;  // TLOAD, TSTORE, TMOV
};

/// B.FPATR's conversion and activation with B.DATR's rounding and saturation; of conversions only the latter.
struct Post {
  const PreQuantMode* mode = &no_quant;
  std::uint8_t relu = 0;
  std::uint8_t rmode = 0;  // 0: none asked for
  bool saturate = false;
};

/// Where an extent lies in the cells of its layout.
enum class DimClass : std::uint8_t { one, aligned, below, above, other };
inline constexpr std::array<std::string_view, 5> dim_class_names{"1", "aligned", "aligned-1", "aligned+1", "other"};
/// Rows of CUBE_M16, columns of CUBE_N8, lanes of K that share an E8M0 scale.
inline constexpr std::array<std::uint32_t, 3> dim_units{16, 8, 32};
DimClass dim_class(std::uint32_t value, std::uint32_t unit) noexcept;
/// Whether a value of 1..limit has this class.
bool dim_class_reachable(DimClass c, std::uint32_t unit, std::uint32_t limit) noexcept;

enum class Sharing : std::uint8_t { local, right, all };
inline constexpr std::array<std::string_view, 3> sharing_names{"Local", "right Shared", "all Shared"};

struct Recipe {
  Head head{};
  Post post{};
  std::array<DimClass, 3> dims{};  // M, N, K; rows, columns
  Sharing sharing = Sharing::local;

  // What a rule may ask for.
  std::optional<bool> c_scale{};
  std::optional<bool> row_max_init{};
  std::optional<bool> group_max{};
  std::array<std::uint32_t, 3> exact_dims{};  // 0: by class; never more than max_dim
  bool c_name_is_hand = false;                // F8
  bool c_scale_name_is_hand = false;          // F9
  bool several_bindings = false;              // at least two B.IOT, the first without L
  std::optional<bool> shared_transfer{};      // TLOAD into, TSTORE from a Shared Tile
};

/// A bundle whose words can still be changed.
struct Draft {
  Recipe recipe{};
  machine::State state{};
  std::vector<isa::Instruction> code{};  // BSTART to the stop
  std::optional<isa::Word> raw{};        // stands for the last of `code`
  std::vector<Source> sources{};
  std::vector<MemoryRange> memory{};
  std::uint32_t m = 0, n = 0, k = 0;
  unsigned mask = 0;
  std::uint32_t used_registers = 1;  // one bit each

  /// The first instruction of a command, or npos.
  std::size_t find(isa::Command command, std::size_t from = 0) const noexcept;
  static constexpr std::size_t npos = static_cast<std::size_t>(-1);
  void insert(std::size_t at, const isa::Instruction& i) {
    code.insert(code.begin() + static_cast<std::ptrdiff_t>(at), i);
  }
  /// Changes a Tile in its register.
  void replace(const Source& source, machine::Tile tile);
};

/// Elements of Tiles by type.
class Elements {
 public:
  Elements(Random& random, unsigned corners) : random_(random), corners_(corners) {}
  /// A tenth of the matrices are wild; the others are numbers whose sums stay finite, with corners in between.
  std::vector<uint64> matrix(const Format& f, std::size_t count);
  uint64 tame(const Format& f);
  uint64 corner(const Format& f);

 private:
  Random& random_;
  unsigned corners_;
};

template <typename T, std::size_t N>
const T& pick(Random& random, const T (&options)[N]) {
  return options[random.below(N)];
}

// ---- Parts of words

/// The PEMode of an encodable mask.
std::int32_t pe_mode_of(unsigned mask) noexcept;
/// The smallest SizeCode of at least so many bytes.
std::int32_t size_code_for(std::uint32_t bytes) noexcept;
isa::Form start_form(isa::Operation operation) noexcept;
/// A register that nothing uses yet; 0 where there is none.
unsigned take_register(Draft& draft, Random& random) noexcept;
/// A B.DIM or C.B.DIMI that gives LB `lb` this value, sometimes with a part of it in a register of PE0.
isa::Instruction dimension(Draft& draft, Random& random, int lb, std::uint32_t value);
/// Adds what changes no result: B.HINT, B.CATR; then puts `header` in any order behind BSTART.
void add_header(Draft& draft, Random& random, std::vector<isa::Instruction> header);
isa::Instruction stop(Random& random);
/// Makes a Tile and puts it into a register of a PE. Tiles that cannot exist are a defect of the caller: an error.
void set_local(Draft& draft, unsigned pe, unsigned name, const Expected<machine::Tile>& tile);

/// The bundle of a recipe, legal unless the recipe is not. An error is a defect of the generator.
Expected<Draft> make_cube(const Recipe& recipe, const BundleOptions& options, Random& random);
Expected<Draft> make_transfer(const Recipe& recipe, const BundleOptions& options, Random& random);
Expected<Draft> make_conversion(const Recipe& recipe, const BundleOptions& options, Random& random);
Expected<Draft> make_draft(const Recipe& recipe, const BundleOptions& options, Random& random);

// ---- Rules

struct RuleBreaker {
  machine::RuleId rule = machine::RuleId::count;
  std::string_view why{};  // why no bundle breaks it
  bool (*applies)(isa::Operation) = nullptr;
  /// Chooses a recipe that can break the rule; false: not with this head.
  bool (*prepare)(Recipe&, Random&) = nullptr;
  /// Breaks it; false: not in this bundle.
  bool (*spoil)(Draft&, Random&) = nullptr;
};
const RuleBreaker& breaker_of(machine::RuleId rule) noexcept;

// ---- The plan

/// Steps through 0..size-1 in an order that mixes near and far: multiples of a number coprime to the size.
class Walk {
 public:
  explicit Walk(uint64 size = 0) noexcept;
  uint64 operator[](uint64 i) const noexcept;
  uint64 size() const noexcept { return size_; }

 private:
  uint64 size_;
  uint64 step_ = 1;
};

/// The accumulator of a CUBE head.
DataType accumulator_of(const Head& head) noexcept;
bool is_conversion(isa::Operation operation) noexcept;
bool is_transfer(isa::Operation operation) noexcept;

}  // namespace bitcube::stimulus

namespace bitcube::stimulus {

struct BundleGenerator::Plan {
  BundleOptions options;
  std::vector<Head> heads;  // with those of rarer accumulators repeated
  Walk head_walk;
  /// Posts by class of head, and the number of each head within its class.
  struct PostClass {
    std::vector<Post> posts;
    Walk walk;
    uint64 heads = 0;  // of one cycle
  };
  std::vector<PostClass> classes;
  std::vector<std::size_t> class_of;  // by head
  std::vector<uint64> rank_of;        // by head
  std::vector<std::array<DimClass, 3>> dims;
  Walk dim_walk;
  std::vector<std::vector<Head>> heads_of;  // by operation, without repetition
  std::vector<RuleReach> reach;
  std::vector<std::vector<isa::Operation>> rule_operations;  // by options.rules

  Recipe legal_recipe(uint64 index) const;
  Recipe random_recipe(isa::Operation operation, Random& random) const;
};

/// The posts that a head can have.
std::vector<Post> posts_of(const Head& head);
/// A key by which heads have the same posts.
std::size_t post_class(const Head& head) noexcept;

}  // namespace bitcube::stimulus
