#include "bitcube/team.hpp"

namespace bitcube {
namespace {

class SoloTeam final : public Team {
 public:
  std::size_t rank() const noexcept override { return 0; }
  std::size_t size() const noexcept override { return 1; }
  bool stopped() override { return false; }
  Expected<std::vector<std::string>> gather(std::string_view mine) override {
    return std::vector<std::string>{std::string(mine)};
  }
  Expected<std::vector<std::string>> gather_all(std::string_view mine) override { return gather(mine); }
};

}  // namespace

Team& solo_team() noexcept {
  static SoloTeam team;
  return team;
}

}  // namespace bitcube
