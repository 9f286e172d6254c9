#include "bitcube/io/work_directory.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <optional>

#include "io/temp_dir.hpp"

namespace bitcube {
namespace {

using namespace test;

std::string text_of(const std::filesystem::path& path) {
  return read_text(path);
}

TEST(WorkDirectory, OutlivesItsProcess) {
  const TempDir dir;
  {
    auto work = WorkDirectory::open(dir / "w");
    ASSERT_TRUE(succeeds(work));
    EXPECT_EQ(work->journal(), "");
    EXPECT_TRUE(succeeds(work->restart("first")));
    EXPECT_FALSE(work->has_file(0, 8));
    EXPECT_TRUE(succeeds(work->make_file(0, 8)));
    EXPECT_TRUE(work->has_file(0, 8));
    EXPECT_FALSE(work->has_file(0, 9));
    EXPECT_TRUE(succeeds(work->write_at(0, 4, to_bytes("abcd"))));
    EXPECT_TRUE(succeeds(work->sync(0, "second")));
  }
  write_text(dir / "w/journal", text_of(dir / "w/journal") + "cut by a ki");
  auto work = WorkDirectory::open(dir / "w");
  ASSERT_TRUE(succeeds(work));
  EXPECT_EQ(work->journal(), "first\nsecond\n");
  EXPECT_TRUE(succeeds(work->record("third")));
  EXPECT_EQ(text_of(dir / "w/journal"), "first\nsecond\nthird\n");
  EXPECT_TRUE(work->has_file(0, 8));
  EXPECT_TRUE(succeeds(work->write_at(0, 0, to_bytes("ABCD"))));
  write_text(dir / "target", "old");
  std::filesystem::permissions(dir / "target", std::filesystem::perms(0640));
  EXPECT_TRUE(succeeds(work->move_file(0, dir / "target")));
  EXPECT_EQ(text_of(dir / "target"), "ABCDabcd");
  EXPECT_EQ(std::filesystem::status(dir / "target").permissions(), std::filesystem::perms(0640));
  EXPECT_TRUE(succeeds(work->make_file(1, 3)));
  EXPECT_TRUE(succeeds(work->remove()));
  EXPECT_EQ(dir.names(), std::set<std::string>{"target"});
}

TEST(WorkDirectory, HasMembers) {
  const TempDir dir;
  EXPECT_FALSE(WorkDirectory::join(dir / "w", 1));
  {
    auto opened = WorkDirectory::open(dir / "w");
    ASSERT_TRUE(succeeds(opened));
    std::optional<WorkDirectory> work = std::move(*opened);
    EXPECT_TRUE(succeeds(work->restart("first")));
    EXPECT_TRUE(succeeds(work->make_file(0, 8)));
    auto member = WorkDirectory::join(dir / "w", 2);
    ASSERT_TRUE(succeeds(member));
    EXPECT_TRUE(succeeds(member->write_at(0, 2, to_bytes("xyz"))));
    EXPECT_TRUE(succeeds(member->sync(0, "of a member")));
    EXPECT_FALSE(WorkDirectory::join(dir / "w", 2));
    work.reset();
    const auto early = WorkDirectory::open(dir / "w");
    ASSERT_FALSE(early);
    EXPECT_NE(early.error().message.find("another process"), std::string::npos);
  }
  auto work = WorkDirectory::open(dir / "w");
  ASSERT_TRUE(succeeds(work));
  EXPECT_EQ(work->journal(), "first\n");
  EXPECT_EQ(work->member_journals(), std::vector<std::string>{"of a member\n"});
  EXPECT_EQ(text_of(dir / "w/0.data").substr(2, 3), "xyz");
  EXPECT_TRUE(succeeds(work->forget_members()));
  EXPECT_FALSE(std::filesystem::exists(dir / "w/2.journal"));
  ASSERT_TRUE(succeeds(WorkDirectory::join(dir / "w", 1)));
  EXPECT_TRUE(succeeds(work->remove()));
  EXPECT_TRUE(dir.names().empty());
}

TEST(WorkDirectory, RestartForgetsAll) {
  const TempDir dir;
  auto work = WorkDirectory::open(dir / "w");
  ASSERT_TRUE(succeeds(work));
  EXPECT_TRUE(succeeds(work->restart("a")));
  EXPECT_TRUE(succeeds(work->make_file(3, 5)));
  EXPECT_TRUE(succeeds(work->restart("b")));
  EXPECT_FALSE(work->has_file(3, 5));
  EXPECT_EQ(text_of(dir / "w/journal"), "b\n");
}

TEST(WorkDirectory, BelongsToOne) {
  const TempDir dir;
  std::optional<Expected<WorkDirectory>> first(WorkDirectory::open(dir / "w"));
  ASSERT_TRUE(succeeds(*first));
  EXPECT_TRUE(fails_with(
      WorkDirectory::open(dir / "w"),
      (dir / "w").string() + ": another process is writing this output; wait for it, or give another output"));
  first.reset();
  EXPECT_TRUE(succeeds(WorkDirectory::open(dir / "w")));
}

TEST(WorkDirectory, TouchesNothingElse) {
  const TempDir dir;
  write_text(dir / "file", "x");
  EXPECT_TRUE(fails_with(WorkDirectory::open(dir / "file"),
                         (dir / "file").string() + ": is in the way of the unfinished output; remove it or rename it"));
  std::filesystem::create_directory(dir / "w");
  write_text(dir / "w/thesis.tex", "x");
  EXPECT_TRUE(fails_with(WorkDirectory::open(dir / "w"),
                         (dir / "w").string() + ": this directory is for unfinished output, but holds thesis.tex; "
                                                "remove it or rename it"));
  EXPECT_EQ(text_of(dir / "w/thesis.tex"), "x");
  EXPECT_FALSE(WorkDirectory::open(dir / "none/w"));
}

TEST(WorkDirectory, ADirectoryOfSomethingElseIsLeftAsItIs) {
  const TempDir dir;
  constexpr std::string_view kKind = "work ";
  std::filesystem::create_directory(dir / "w");
  for (const char* name : {"w/journal", "w/3.journal"}) {
    write_text(dir / "w/journal", "");
    write_text(dir / name, "my diary");
    write_text(dir / "w/7.data", "precious");
    EXPECT_TRUE(fails_with(WorkDirectory::open(dir / "w", kKind),
                           std::string(dir / "w") + ": this directory is for unfinished output, but its journal is of "
                                                    "something else; remove it or rename it"))
        << name;
    EXPECT_EQ(text_of(dir / name), "my diary");
    EXPECT_EQ(text_of(dir / "w/7.data"), "precious");
    std::filesystem::remove(dir / name);
  }
  // A journal that is another file as well would be written through.
  write_text(dir / "victim", "work of another");
  std::filesystem::remove(dir / "w/journal");
  std::filesystem::create_hard_link(dir / "victim", dir / "w/journal");
  EXPECT_TRUE(fails_with(WorkDirectory::open(dir / "w", kKind),
                         std::string(dir / "w/journal") +
                             ": has another name as well, so it is no journal of unfinished output; remove it"));
  EXPECT_EQ(text_of(dir / "victim"), "work of another");
  std::filesystem::remove(dir / "w/journal");
  // A kill as the first line was written.
  write_text(dir / "w/journal", "wo");
  EXPECT_TRUE(succeeds(WorkDirectory::open(dir / "w", kKind)));
}

TEST(WorkDirectory, ADirectoryOfAnotherUserIsLeftAsItIs) {
  const TempDir dir;
  std::filesystem::create_directory(dir / "w");
  if (::chown(std::string(dir / "w").c_str(), 65534, 65534) != 0) {  // only root gives files away
    EXPECT_NE(::geteuid(), 0U);
    return;
  }
  EXPECT_TRUE(fails_with(WorkDirectory::open(dir / "w"),
                         std::string(dir / "w") + ": this directory is for unfinished output, but belongs to another "
                                                  "user; remove it or rename it"));
}

}  // namespace
}  // namespace bitcube
