#include "bitcube/io/sha256.hpp"

#include <gtest/gtest.h>

#include "io/temp_dir.hpp"

namespace bitcube {
namespace {

using namespace test;

// FIPS 180-2, appendix B.
constexpr std::string_view kAbc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
constexpr std::string_view kMillion = "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0";

TEST(Sha256, KnownDigests) {
  const auto abc = sha256(to_bytes("abc"));
  ASSERT_TRUE(succeeds(abc));
  EXPECT_EQ(*abc, kAbc);
  const auto nothing = sha256({});
  ASSERT_TRUE(succeeds(nothing));
  EXPECT_EQ(*nothing, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
}

TEST(Sha256, TakesPieces) {
  Sha256 hash;
  for (int i = 0; i < 1000; ++i) hash.add(std::string(1000, 'a'));
  Sha256 moved(std::move(hash));
  const auto digest = moved.hex();
  ASSERT_TRUE(succeeds(digest));
  EXPECT_EQ(*digest, kMillion);
  EXPECT_FALSE(moved.hex()) << "it is final";
}

}  // namespace
}  // namespace bitcube
