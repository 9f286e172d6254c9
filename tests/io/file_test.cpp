#include "bitcube/io/file.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <thread>

#include <rapidcheck/gtest.h>  // needs gtest before it

#include "io/temp_dir.hpp"

namespace bitcube {
namespace {

namespace fs = std::filesystem;
using namespace test;
using Names = std::set<std::string>;

mode_t mode_of(const fs::path& path) {
  struct stat status {};
  EXPECT_EQ(::stat(path.c_str(), &status), 0) << path;
  return status.st_mode & 07777U;
}

TEST(InputFile, HoldsTheBytesOfAFile) {
  const TempDir dir;
  write_text(dir / "a", "some bytes");
  auto file = InputFile::open(dir / "a");
  ASSERT_TRUE(succeeds(file));
  EXPECT_EQ(file->size(), 10U);
  EXPECT_EQ(to_text(value_of(file->load())), "some bytes");
  EXPECT_EQ(to_text(value_of(file->load(5, 4))), "byte");

  InputFile other = InputFile::from_bytes(to_bytes("other"));
  EXPECT_EQ(to_text(value_of(other.load())), "other");
  other = std::move(*file);
  EXPECT_EQ(to_text(value_of(other.load())), "some bytes");
  const InputFile third(std::move(other));
  EXPECT_EQ(to_text(value_of(third.load())), "some bytes");
}

// A mapping would raise SIGBUS where the file ends early, and show the other half of a change.
TEST(InputFile, SeesThatTheFileWasChanged) {
  const TempDir dir;
  const std::string path = dir / "a";
  const std::string changed = path + ": was changed while it was read; run this again";
  const auto opened = [&] {
    write_text(path, std::string(10'000, 'a'));
    // Later than the tick of the clock for time stamps in which the file was written.
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    auto file = InputFile::open(path);
    EXPECT_TRUE(succeeds(file));
    EXPECT_TRUE(succeeds(file->check_unchanged()));
    return file;
  };
  const auto cut = opened();
  fs::resize_file(path, 5000);
  EXPECT_TRUE(fails_with(cut->check_unchanged(), changed));
  EXPECT_TRUE(fails_with(cut->load(0, 10), changed));
  EXPECT_TRUE(fails_with(cut->load(), path + ": byte 5000 is missing; the file had 10000 bytes when it was opened, and "
                                             "was cut short meanwhile"));
  const auto longer = opened();
  std::ofstream(path, std::ios::app) << "b";
  EXPECT_TRUE(fails_with(longer->load(), changed));

  // Of the same size, and with the old time of change as well.
  const auto rewritten = opened();
  struct stat status {};
  ASSERT_EQ(::stat(path.c_str(), &status), 0);
  std::fstream(path, std::ios::in | std::ios::out) << "b";
  const timespec times[] = {status.st_atim, status.st_mtim};
  ASSERT_EQ(::utimensat(AT_FDCWD, path.c_str(), times, 0), 0);
  EXPECT_TRUE(fails_with(rewritten->load(), changed));

  const auto removed = opened();
  fs::remove(path);
  EXPECT_EQ(to_text(value_of(removed->load())), std::string(10'000, 'a'));
}

TEST(InputFile, KeepsItsBytesWhenTheFileIsReplaced) {
  const TempDir dir;
  write_text(dir / "a", "old");
  const auto file = InputFile::open(dir / "a");
  ASSERT_TRUE(succeeds(file));
  ASSERT_TRUE(succeeds(write_file(dir / "a", to_bytes("new"))));
  EXPECT_EQ(to_text(value_of(file->load())), "old");
}

TEST(InputFile, AnEmptyFileIsNoError) {
  const TempDir dir;
  write_text(dir / "empty", "");
  const auto file = InputFile::open(dir / "empty");
  ASSERT_TRUE(succeeds(file));
  EXPECT_EQ(file->size(), 0U);
  EXPECT_TRUE(value_of(file->load()).empty());
}

TEST(InputFile, ReadsAFileThatHidesItsSize) {
  const auto file = InputFile::open("/proc/self/status");
  ASSERT_TRUE(succeeds(file));
  EXPECT_EQ(to_text(value_of(file->load())).substr(0, 5), "Name:");
}

TEST(InputFile, SaysWhyItCannotOpen) {
  const TempDir dir;
  write_text(dir / "file", "x");
  fs::create_symlink("loop", dir / "loop");
  const std::string at = dir.path().string();
  EXPECT_TRUE(fails_with(InputFile::open(dir / "none"), at + "/none: No such file or directory"));
  EXPECT_TRUE(fails_with(InputFile::open(dir / "file/x"), at + "/file/x: Not a directory"));
  EXPECT_TRUE(fails_with(InputFile::open(dir / "loop"), at + "/loop: Too many levels of symbolic links"));
  EXPECT_TRUE(fails_with(InputFile::open(dir.path()), at + ": is a directory; give the name of a file"));
  EXPECT_TRUE(fails_with(InputFile::open(""), "the name of the input file is empty"));
  EXPECT_TRUE(fails_with(InputFile::open("/proc/self/fd/9999"), "/proc/self/fd/9999: Bad file descriptor"));
  EXPECT_TRUE(fails_with(InputFile::open("/proc/self/fd/0x"), "/proc/self/fd/0x: No such file or directory"));

  ASSERT_EQ(::chmod((dir / "file").c_str(), 0), 0);
  const Unprivileged nobody(dir.path());
  EXPECT_TRUE(fails_with(InputFile::open(dir / "file"), at + "/file: Permission denied"));
}

TEST(InputFile, ReadsAPipeUpToTheLimit) {
  const TempDir dir;
  const std::string fifo = dir / "fifo";
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  const std::string text(200'000, 'x');  // more than a pipe or a first buffer holds
  const auto read_with_limit = [&](std::uint64_t limit) {
    ::signal(SIGPIPE, SIG_IGN);  // the reader gives up early
    std::thread writer([&] {
      std::ofstream stream(fifo, std::ios::binary);
      stream << text;
    });
    auto file = InputFile::open(fifo, limit);
    writer.join();
    return file;
  };
  const auto file = read_with_limit(text.size());
  ASSERT_TRUE(succeeds(file));
  EXPECT_EQ(to_text(value_of(file->load())), text);
  EXPECT_TRUE(fails_with(read_with_limit(text.size() - 1),
                         fifo + ": does not say its size, and is longer than 199999 bytes; save it to a file first"));
}

TEST(InputFile, AnEndlessDeviceMeetsTheLimit) {
  EXPECT_TRUE(fails_with(InputFile::open("/dev/zero", 1000),
                         "/dev/zero: does not say its size, and is longer than 1000 bytes; save it to a file first"));
}

TEST(InputFile, TakesADescriptorOfThisProcessAsItIs) {
  // A socket cannot be opened by name; and it may be non-blocking, with nothing to read yet.
  int ends[2] = {};
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends), 0);
  std::thread writer([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    EXPECT_EQ(::write(ends[1], "sent", 4), 4);
    ::close(ends[1]);
  });
  const auto socket = InputFile::open("/dev/fd/" + std::to_string(ends[0]));
  writer.join();
  ASSERT_TRUE(succeeds(socket));
  EXPECT_EQ(to_text(value_of(socket->load())), "sent");
  ::close(ends[0]);

  // A file that was read in part goes on where that stopped.
  const TempDir dir;
  write_text(dir / "a", "headtail");
  const int fd = ::open((dir / "a").c_str(), O_RDONLY | O_CLOEXEC);
  fs::create_symlink("/proc/self/fd/" + std::to_string(fd), dir / "link");
  const auto whole = InputFile::open(dir / "link");
  ASSERT_TRUE(succeeds(whole));
  EXPECT_EQ(to_text(value_of(whole->load())), "headtail");
  ASSERT_EQ(::lseek(fd, 4, SEEK_SET), 4);
  const auto tail = InputFile::open(dir / "link");
  ASSERT_TRUE(succeeds(tail));
  EXPECT_EQ(to_text(value_of(tail->load())), "tail");
  ::close(fd);
}

TEST(OutputFile, AppearsWithItsCommitAndNotBefore) {
  const TempDir dir;
  auto file = OutputFile::create(dir / "a");
  ASSERT_TRUE(succeeds(file));
  EXPECT_EQ(file->name(), (dir / "a").string());
  ASSERT_TRUE(succeeds(file->append("one ")));
  ASSERT_TRUE(succeeds(file->append(to_bytes("two"))));
  EXPECT_EQ(file->size(), 7U);
  EXPECT_FALSE(fs::exists(dir / "a"));
  ASSERT_TRUE(succeeds(file->commit()));
  EXPECT_EQ(read_text(dir / "a"), "one two");
  EXPECT_EQ(dir.names(), Names{"a"});

  const std::string committed = (dir / "a").string() + ": already committed";
  EXPECT_TRUE(fails_with(file->append("x"), committed));
  EXPECT_TRUE(fails_with(file->commit(), committed));
  EXPECT_EQ(read_text(dir / "a"), "one two");
}

TEST(OutputFile, LeavesNothingWithoutACommit) {
  const TempDir dir;
  write_text(dir / "a", "old");
  {
    auto file = OutputFile::create(dir / "a");
    ASSERT_TRUE(succeeds(file));
    ASSERT_TRUE(succeeds(file->append(std::string(100'000, 'x'))));
    EXPECT_EQ(dir.names(), Names{"a"}) << "without a name until it is complete";
    const OutputFile moved(std::move(*file));
  }
  EXPECT_EQ(dir.names(), Names{"a"});
  EXPECT_EQ(read_text(dir / "a"), "old");
}

// It has no name yet, but others may look into the descriptors of a process.
TEST(OutputFile, IsPrivateUntilComplete) {
  const TempDir dir;
  auto file = OutputFile::create(dir / "a");
  ASSERT_TRUE(succeeds(file));
  EXPECT_EQ(dir.names(), Names{});
  std::size_t found = 0;
  for (const auto& descriptor : fs::directory_iterator("/proc/self/fd")) {
    std::error_code gone;  // that of the iterator itself
    if (!fs::read_symlink(descriptor.path(), gone).string().starts_with(dir.path().string() + "/")) continue;
    EXPECT_EQ(mode_of(descriptor.path()), 0600U);
    ++found;
  }
  EXPECT_EQ(found, 1U);
}

TEST(OutputFile, GetsTheModeThatTheUmaskAllows) {
  const TempDir dir;
  const mode_t before = ::umask(027);
  const auto written = write_file(dir / "a", to_bytes("x"));
  ::umask(before);
  ASSERT_TRUE(succeeds(written));
  EXPECT_EQ(mode_of(dir / "a"), 0640U);
}

TEST(OutputFile, KeepsModeAndOwnerOfAnExistingFile) {
  const TempDir dir;
  write_text(dir / "a", "a long old text");
  if (::geteuid() == 0) {
    ASSERT_EQ(::chown((dir / "a").c_str(), 1234, 5678), 0);
  }
  ASSERT_EQ(::chmod((dir / "a").c_str(), 0606), 0);
  struct stat before {};
  ASSERT_EQ(::stat((dir / "a").c_str(), &before), 0);
  {
    auto file = OutputFile::create(dir / "a");
    ASSERT_TRUE(succeeds(file));
    for (const std::string& name : dir.names()) {
      EXPECT_EQ(mode_of(dir / name), name == "a" ? 0606U : 0600U);
    }
    ASSERT_TRUE(succeeds(file->append("new")));
    ASSERT_TRUE(succeeds(file->commit()));
  }
  struct stat after {};
  ASSERT_EQ(::stat((dir / "a").c_str(), &after), 0);
  EXPECT_EQ(read_text(dir / "a"), "new");
  EXPECT_EQ(after.st_mode, before.st_mode);
  EXPECT_EQ(after.st_uid, before.st_uid);
  EXPECT_EQ(after.st_gid, before.st_gid);
}

TEST(OutputFile, ReplacesWhatALinkPointsTo) {
  const TempDir dir;
  fs::create_directory(dir / "sub");
  write_text(dir / "sub/target", "old");
  fs::create_symlink("sub/second", dir / "first");
  fs::create_symlink("target", dir / "sub/second");
  fs::create_symlink(dir / "sub/fresh", dir / "dangling");

  ASSERT_TRUE(succeeds(write_file(dir / "first", to_bytes("new"))));
  EXPECT_EQ(read_text(dir / "sub/target"), "new");
  EXPECT_TRUE(fs::is_symlink(dir / "first"));
  EXPECT_TRUE(fs::is_symlink(dir / "sub/second"));

  ASSERT_TRUE(succeeds(write_file(dir / "dangling", to_bytes("made"))));
  EXPECT_EQ(read_text(dir / "sub/fresh"), "made");
  EXPECT_TRUE(fs::is_symlink(dir / "dangling"));
}

TEST(OutputFile, TheLongestNameWorks) {
  const TempDir dir;
  const std::string name(255, 'n');
  ASSERT_TRUE(succeeds(write_file(dir / name, to_bytes("x"))));
  EXPECT_EQ(dir.names(), Names{name});
  EXPECT_TRUE(fails_with(OutputFile::create(dir / (name + "n")), (dir / name).string() + "n: File name too long"));
}

TEST(OutputFile, ARelativeNameStaysWhereItWas) {
  const TempDir dir;
  fs::create_directory(dir / "other");
  const fs::path before = fs::current_path();
  fs::current_path(dir.path());
  auto file = OutputFile::create("a");
  fs::current_path(dir / "other");
  ASSERT_TRUE(succeeds(file));
  const auto committed = file->commit();
  fs::current_path(before);
  ASSERT_TRUE(succeeds(committed));
  EXPECT_EQ(dir.names(), (Names{"a", "other"}));
}

TEST(OutputFile, SaysWhyItCannotCreate) {
  const TempDir dir;
  write_text(dir / "file", "x");
  fs::create_symlink("loop", dir / "loop");
  fs::create_directory(dir / "sub");
  const std::string at = dir.path().string();
  EXPECT_TRUE(fails_with(OutputFile::create(dir / "none/a"),
                         at + "/none/a: No such file or directory (directory " + at + "/none)"));
  EXPECT_TRUE(fails_with(OutputFile::create(dir / "file/a"), at + "/file/a: Not a directory"));
  EXPECT_TRUE(fails_with(OutputFile::create(dir / "loop"), at + "/loop: Too many levels of symbolic links"));
  EXPECT_TRUE(fails_with(OutputFile::create(dir / "sub"), at + "/sub: is a directory; give the name of a file"));
  EXPECT_TRUE(fails_with(OutputFile::create(""), "the name of the output file is empty"));
  EXPECT_TRUE(fails_with(OutputFile::create("/proc/self/fd/9999"), "/proc/self/fd/9999: Bad file descriptor"));
  EXPECT_TRUE(fails_with(OutputFile::create("/proc/none"), "/proc/none: No such file or directory"));
  EXPECT_EQ(dir.names(), (Names{"file", "loop", "sub"}));

  // A name with a slash at its end is a directory's, also if there is none; and so is what a link to one leads to.
  fs::create_symlink("sub/none/", dir / "link");
  EXPECT_FALSE(OutputFile::create(dir / "link"));
  EXPECT_TRUE(
      fails_with(OutputFile::create(at + "/new/"), at + "/new/: No such file or directory (directory " + at + "/new)"));
}

TEST(OutputFile, RespectsPermissions) {
  const TempDir dir;
  write_text(dir / "protected", "old");
  ASSERT_EQ(::chmod((dir / "protected").c_str(), 0444), 0);
  fs::create_directory(dir / "closed");
  ASSERT_EQ(::chmod((dir / "closed").c_str(), 0555), 0);
  const std::string at = dir.path().string();
  {
    const Unprivileged nobody(dir.path());
    // Its directory would let the rename happen.
    EXPECT_TRUE(fails_with(OutputFile::create(dir / "protected"), at + "/protected: Permission denied"));
    EXPECT_TRUE(fails_with(OutputFile::create(dir / "closed/a"), at + "/closed/a: Permission denied"));
    // One's own directory may be unreadable: it cannot be synced, and need not be.
    ASSERT_EQ(::chmod(dir.path().c_str(), 0300), 0);
    EXPECT_TRUE(succeeds(write_file(dir / "new", to_bytes("x"))));
    ASSERT_EQ(::chmod(dir.path().c_str(), 0700), 0);
  }
  EXPECT_EQ(dir.names(), (Names{"closed", "new", "protected"}));
  EXPECT_EQ(read_text(dir / "protected"), "old");
}

TEST(OutputFile, ReportsAFullDevice) {
  const Unprivileged nobody;
  const std::string full = "/dev/full: No space left on device";
  auto small = OutputFile::create("/dev/full");
  ASSERT_TRUE(succeeds(small));
  EXPECT_TRUE(succeeds(small->append("x")));
  EXPECT_TRUE(fails_with(small->commit(), full));

  auto large = OutputFile::create("/dev/full");
  ASSERT_TRUE(succeeds(large));
  EXPECT_TRUE(fails_with(large->append(std::string(1'000'000, 'x')), full));
  // The first error stays.
  EXPECT_TRUE(fails_with(large->append("x"), full));
  EXPECT_TRUE(fails_with(large->commit(), full));

  auto many = OutputFile::create("/dev/full");
  ASSERT_TRUE(succeeds(many));
  Expected<void> appended;
  for (int i = 0; i < 100'000 && appended; ++i) appended = many->append("x");
  EXPECT_TRUE(fails_with(appended, full));
}

TEST(OutputFile, AFailedWriteLeavesNothing) {
  const TempDir dir;
  write_text(dir / "old", "old");
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  ::signal(SIGXFSZ, SIG_IGN);
  rlimit limited = before;
  limited.rlim_cur = 100'000;
  for (const char* name : {"old", "new"}) {
    auto file = OutputFile::create(dir / name);
    ASSERT_TRUE(succeeds(file));
    ASSERT_TRUE(succeeds(file->append(std::string(99'999, 'x'))));
    ASSERT_TRUE(succeeds(file->append("yz")));  // in the buffer
    ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &limited), 0);
    const auto committed = file->commit();
    ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
    EXPECT_TRUE(fails_with(committed, (dir / name).string() + ": File too large"));
    EXPECT_EQ(dir.names(), Names{"old"}) << "while the failed file still lives";
  }
  EXPECT_EQ(read_text(dir / "old"), "old");
}

TEST(OutputFile, SaysThatItsDirectoryCannotBeSynced) {
  const TempDir dir;
  auto file = OutputFile::create(dir / "a");
  ASSERT_TRUE(succeeds(file));
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  rlimit limited = before;
  limited.rlim_cur = 0;  // opening the directory is all that needs a new descriptor
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &limited), 0);
  const auto committed = file->commit();
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_TRUE(fails_with(committed, (dir / "a").string() +
                                        ": complete and in place, but its directory cannot be synced: Too many open "
                                        "files"));
  EXPECT_EQ(dir.names(), Names{"a"});
}

TEST(OutputFile, WritesDirectlyToWhatIsNoFile) {
  const TempDir dir;
  const Unprivileged nobody(dir.path());
  EXPECT_TRUE(succeeds(write_file("/dev/null", to_bytes("x"))));
  struct stat status {};
  ASSERT_EQ(::stat("/dev/null", &status), 0);
  EXPECT_TRUE(S_ISCHR(status.st_mode));
  const std::string fifo = dir / "fifo";
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  const std::string text(300'000, 'x');
  std::string received;
  std::thread reader([&] { received = read_text(fifo); });
  EXPECT_TRUE(succeeds(write_file(fifo, to_bytes(text))));
  reader.join();
  EXPECT_EQ(received, text);
  EXPECT_EQ(dir.names(), Names{"fifo"});
}

TEST(OutputFile, WritesDirectlyToADescriptorOfThisProcess) {
  // As when the shell appends a program's output to a file, and /dev/stdout is named as the target.
  const TempDir dir;
  write_text(dir / "log", "before ");
  const int fd = ::open((dir / "log").c_str(), O_WRONLY | O_APPEND | O_CLOEXEC);
  fs::create_symlink("/proc/self/fd/" + std::to_string(fd), dir / "stdout");
  for (const std::string& name : {std::string(dir / "stdout"), "/dev/fd/" + std::to_string(fd)}) {
    EXPECT_TRUE(succeeds(write_file(name, to_bytes("x "))));
  }
  EXPECT_EQ(::write(fd, "after", 5), 5);
  ::close(fd);
  EXPECT_EQ(read_text(dir / "log"), "before x x after");
  EXPECT_EQ(dir.names(), (Names{"log", "stdout"}));
}

TEST(OutputFile, WaitsForASlowReader) {
  int ends[2] = {};
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC | O_NONBLOCK), 0);
  const std::string text(300'000, 'x');
  std::size_t received = 0;
  std::thread reader([&] {
    std::vector<char> buffer(100'000);
    while (received < text.size()) {
      const ssize_t count = ::read(ends[0], buffer.data(), buffer.size());
      if (count > 0) received += static_cast<std::size_t>(count);
      if (count <= 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  });
  EXPECT_TRUE(succeeds(write_file("/dev/fd/" + std::to_string(ends[1]), to_bytes(text))));
  reader.join();
  ::close(ends[0]);
  ::close(ends[1]);
}

TEST(CommitAll, PutsAllInPlace) {
  const TempDir dir;
  const Unprivileged nobody(dir.path());
  auto a = OutputFile::create(dir / "a");
  auto b = OutputFile::create(dir / "b");
  auto null = OutputFile::create("/dev/null");
  ASSERT_TRUE(a && b && null);
  ASSERT_TRUE(a->append("A") && b->append("B") && null->append("N"));
  OutputFile* files[] = {&*a, &*b, &*null};
  ASSERT_TRUE(succeeds(commit_all(files)));
  EXPECT_EQ(read_text(dir / "a"), "A");
  EXPECT_EQ(read_text(dir / "b"), "B");
  EXPECT_EQ(dir.names(), (Names{"a", "b"}));
}

TEST(CommitAll, OneThatFailsStopsAll) {
  const TempDir dir;
  const Unprivileged nobody(dir.path());
  write_text(dir / "a", "old");
  auto a = OutputFile::create(dir / "a");
  auto full = OutputFile::create("/dev/full");
  auto b = OutputFile::create(dir / "b");
  ASSERT_TRUE(a && b && full);
  ASSERT_TRUE(a->append("A") && b->append("B") && full->append("F"));
  OutputFile* files[] = {&*a, &*full, &*b};
  EXPECT_TRUE(fails_with(commit_all(files), "/dev/full: No space left on device"));
  EXPECT_EQ(read_text(dir / "a"), "old");
  EXPECT_EQ(dir.names(), Names{"a"}) << "while the files still live";
  EXPECT_TRUE(fails_with(b->commit(), "/dev/full: No space left on device"));
}

TEST(CommitAll, EachKeepsItsOwnFirstError) {
  const TempDir dir;
  const Unprivileged nobody(dir.path());
  fs::create_symlink("/dev/full", dir / "link");
  auto full = OutputFile::create("/dev/full");
  auto link = OutputFile::create(dir / "link");
  ASSERT_TRUE(full && link);
  const std::string text(1'000'000, 'x');
  const std::string link_error = (dir / "link").string() + ": No space left on device";
  EXPECT_TRUE(fails_with(link->append(text), link_error));
  EXPECT_TRUE(fails_with(full->append(text), "/dev/full: No space left on device"));
  OutputFile* files[] = {&*full, &*link};
  EXPECT_TRUE(fails_with(commit_all(files), "/dev/full: No space left on device"));
  EXPECT_TRUE(fails_with(link->append("x"), link_error));
}

TEST(CommitAll, NamesWhatIsInPlaceWhenARenameFails) {
  const TempDir dir;
  auto a = OutputFile::create(dir / "a");
  auto b = OutputFile::create(dir / "b");
  auto c = OutputFile::create(dir / "c");
  ASSERT_TRUE(a && b && c);
  fs::create_directory(dir / "b");
  OutputFile* files[] = {&*a, &*b, &*c};
  EXPECT_TRUE(fails_with(commit_all(files),
                         (dir / "b").string() + ": Is a directory; already in place: " + (dir / "a").string()));
  EXPECT_EQ(dir.names(), (Names{"a", "b"}));
}

TEST(CommitAll, RefusesTwoOutputsToOneFile) {
  const TempDir dir;
  write_text(dir / "a", "old");
  fs::create_symlink("a", dir / "link");
  auto a = OutputFile::create(dir / "a");
  auto link = OutputFile::create(dir / "link");
  ASSERT_TRUE(a && link);
  OutputFile* files[] = {&*a, &*link};
  EXPECT_TRUE(
      fails_with(commit_all(files), (dir / "link").string() + ": two outputs go to this file; give each its own name"));
  EXPECT_EQ(read_text(dir / "a"), "old");
  EXPECT_EQ(dir.names(), (Names{"a", "link"}));
}

RC_GTEST_PROP(OutputFile, HoldsWhatWasAppended, ()) {
  static const TempDir dir;
  const auto sizes = *rc::gen::container<std::vector<std::size_t>>(
      rc::gen::oneOf(rc::gen::inRange<std::size_t>(0, 100), rc::gen::inRange<std::size_t>(65'000, 66'000)));
  auto file = OutputFile::create(dir / "a");
  RC_ASSERT(static_cast<bool>(file));
  std::string text;
  for (const std::size_t size : sizes) {
    const std::string part(size, static_cast<char>('a' + text.size() % 26));
    RC_ASSERT(static_cast<bool>(file->append(part)));
    text += part;
  }
  RC_ASSERT(file->size() == text.size());
  RC_ASSERT(static_cast<bool>(file->commit()));
  const auto read = InputFile::open(dir / "a");
  RC_ASSERT(static_cast<bool>(read));
  RC_ASSERT(to_text(value_of(read->load())) == text);
}

TEST(InputFile, ReadsPieces) {
  const TempDir dir;
  write_text(dir / "a", "some bytes");
  const auto file = InputFile::open(dir / "a");
  ASSERT_TRUE(succeeds(file));
  EXPECT_EQ(file->name(), (dir / "a").string());
  std::vector<std::byte> bytes(5);
  ASSERT_TRUE(succeeds(file->read(5, bytes)));
  EXPECT_EQ(to_text(bytes), "bytes");

  fs::resize_file(dir / "a", 7);
  EXPECT_TRUE(
      fails_with(file->read(5, bytes), (dir / "a").string() +
                                           ": byte 7 is missing; the file had 10 bytes when it was opened, and was "
                                           "cut short meanwhile"));
  ASSERT_TRUE(succeeds(file->read(2, bytes)));
  EXPECT_EQ(to_text(bytes), "me by");

  const InputFile memory = InputFile::from_bytes(to_bytes("in memory"));
  ASSERT_TRUE(succeeds(memory.read(4, bytes)));
  EXPECT_EQ(to_text(bytes), "emory");
  EXPECT_EQ(memory.name(), "");
}

TEST(InputFile, ClosesWhatItReadsFrom) {
  const TempDir dir;
  write_text(dir / "a", "some bytes");
  const int before = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  ::close(before);
  {
    auto file = InputFile::open(dir / "a");
    ASSERT_TRUE(succeeds(file));
    InputFile other = InputFile::from_bytes({});
    other = std::move(*file);
    std::vector<std::byte> bytes(4);
    ASSERT_TRUE(succeeds(other.read(0, bytes)));
    EXPECT_EQ(to_text(bytes), "some");
  }
  const int after = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  ::close(after);
  EXPECT_EQ(after, before) << "the lowest free descriptor";
}

// A long pipe goes to a file in the directory for temporary files, which has no name there.
TEST(InputFile, KeepsALongPipeInATemporaryFile) {
  const TempDir dir;
  const std::string fifo = dir / "fifo";
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  for (const std::size_t size : {std::size_t{8} << 20, (std::size_t{8} << 20) + 1, std::size_t{20'000'000}}) {
    std::string text(size, 'x');
    for (std::size_t i = 0; i < size; i += 1000) text[i] = static_cast<char>('a' + i / 1000 % 26);
    std::thread writer([&] { write_text(fifo, text); });
    const auto file = InputFile::open(fifo);
    writer.join();
    ASSERT_TRUE(succeeds(file));
    EXPECT_TRUE(to_text(value_of(file->load())) == text);
    std::vector<std::byte> last(10);
    ASSERT_TRUE(succeeds(file->read(size - 10, last)));
    EXPECT_EQ(to_text(last), text.substr(size - 10));
    EXPECT_EQ(dir.names(), Names{"fifo"});
  }
}

TEST(OutputFile, WritesAtAnyPlace) {
  const TempDir dir;
  auto file = OutputFile::create(dir / "a");
  ASSERT_TRUE(succeeds(file));
  ASSERT_TRUE(succeeds(file->append("head ")));
  ASSERT_TRUE(succeeds(file->reserve(100)));
  ASSERT_TRUE(succeeds(file->write_at(10, to_bytes("later"))));
  EXPECT_EQ(file->size(), 15U);
  ASSERT_TRUE(succeeds(file->append(" end")));  // goes on at the end
  ASSERT_TRUE(succeeds(file->write_at(5, to_bytes("soon "))));
  ASSERT_TRUE(succeeds(file->append("." + std::string(100'000, '-'))));
  ASSERT_TRUE(succeeds(file->write_at(0, to_bytes("H"))));
  ASSERT_TRUE(succeeds(file->append("!")));
  EXPECT_EQ(file->size(), 100'021U);
  EXPECT_FALSE(fs::exists(dir / "a"));
  ASSERT_TRUE(succeeds(file->commit()));
  EXPECT_TRUE(read_text(dir / "a") == "Head soon later end." + std::string(100'000, '-') + "!");
  EXPECT_TRUE(fails_with(file->write_at(0, {}), (dir / "a").string() + ": already committed"));
  EXPECT_TRUE(fails_with(file->reserve(1), (dir / "a").string() + ": already committed"));
}

// The same calls, whatever the target can do.
TEST(OutputFile, WritesAtAnyPlaceOfAPipe) {
  const TempDir dir;
  const std::string fifo = dir / "fifo";
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  for (const std::size_t head : {std::size_t{10}, std::size_t{200'000}}) {  // kept back, and gone at once
    std::string text;
    std::thread reader([&] { text = read_text(fifo); });
    {
      auto file = OutputFile::create(fifo);
      ASSERT_TRUE(succeeds(file));
      ASSERT_TRUE(succeeds(file->append(std::string(head, 'h'))));
      ASSERT_TRUE(succeeds(file->reserve(1'000'000)));
      ASSERT_TRUE(succeeds(file->write_at(head + 5, to_bytes("later"))));
      ASSERT_TRUE(succeeds(file->write_at(head, to_bytes("soon "))));
      ASSERT_TRUE(succeeds(file->append(std::string(150'000, '-'))));
      ASSERT_TRUE(succeeds(file->write_at(head, to_bytes("S"))));
      ASSERT_TRUE(succeeds(file->commit()));
    }
    reader.join();
    EXPECT_TRUE(text == std::string(head, 'h') + "Soon later" + std::string(150'000, '-')) << text.size();
  }
  std::string text;
  std::thread reader([&] { text = read_text(fifo); });
  {
    auto file = OutputFile::create(fifo);
    ASSERT_TRUE(succeeds(file));
    ASSERT_TRUE(succeeds(file->append(std::string(100'000, 'h'))));
    EXPECT_TRUE(fails_with(file->write_at(99'999, to_bytes("x")), fifo + ": byte 99999 has been written, and cannot be "
                                                                         "changed"));
  }
  reader.join();
  EXPECT_EQ(dir.names(), Names{"fifo"});
}

TEST(OutputFile, ReserveFailsWhereThereIsNoRoom) {
  const TempDir dir;
  struct rlimit before {};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const struct rlimit small { 1'000'000, before.rlim_max };
  ::signal(SIGXFSZ, SIG_IGN);
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  auto file = OutputFile::create(dir / "a");
  const auto fits = file ? file->reserve(1'000'000) : Expected<void>(file.error());
  const auto beyond = file ? file->reserve(1'000'001) : Expected<void>(file.error());
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  ASSERT_TRUE(succeeds(fits));
  EXPECT_TRUE(fails_with(beyond, (dir / "a").string() + ": File too large"));
  EXPECT_EQ(dir.names(), Names{});
}

}  // namespace
}  // namespace bitcube
