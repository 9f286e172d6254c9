#include "bitcube/io/work_directory.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <map>
#include <set>
#include <system_error>
#include <utility>
#include <vector>

#include "bitcube/io/directory.hpp"

namespace bitcube {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kJournal = "journal";
constexpr std::uint64_t kMaxJournal = std::uint64_t{1} << 30;

Error system_error(const fs::path& path, int code) {
  return Error{fmt::format("{}: {}", path.string(), std::generic_category().message(code))};
}

/// Names of the files: their numbers and an ending; and of the journals of members. Nothing else in such a directory is
/// ours.
std::string file_name(std::size_t number) {
  return fmt::format("{}.data", number);
}
std::string member_name(std::size_t number) {
  return fmt::format("{}.journal", number);
}

/// Whether `name_of` gives this name to a number.
bool is_numbered(std::string_view name, std::string (*name_of)(std::size_t)) {
  std::size_t number = 0;
  const auto parsed = std::from_chars(name.data(), name.data() + name.size(), number);
  return parsed.ec == std::errc() && name == name_of(number);
}
bool is_file_name(std::string_view name) {
  return is_numbered(name, file_name);
}
bool is_member_name(std::string_view name) {
  return is_numbered(name, member_name);
}

int write_all(int fd, std::span<const std::byte> bytes, std::uint64_t offset) {
  while (!bytes.empty()) {
    const ssize_t count = ::pwrite(fd, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return count < 0 ? errno : EIO;
    offset += static_cast<std::uint64_t>(count);
    bytes = bytes.subspan(static_cast<std::size_t>(count));
  }
  return 0;
}

/// Returns an error number or 0; EIO where the file ends before.
int read_all(int fd, std::span<std::byte> to, std::uint64_t offset) {
  while (!to.empty()) {
    const ssize_t count = ::pread(fd, to.data(), to.size(), static_cast<off_t>(offset));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return count < 0 ? errno : EIO;
    offset += static_cast<std::uint64_t>(count);
    to = to.subspan(static_cast<std::size_t>(count));
  }
  return 0;
}

int sync_fd(int fd) {
  return ::fsync(fd) != 0 && errno != EINVAL && errno != ENOTSUP && errno != EROFS ? errno : 0;
}

int sync_directory(const fs::path& directory) {
  const int fd = ::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return errno == EACCES ? 0 : errno;
  const int code = sync_fd(fd);
  ::close(fd);
  return code;
}

/// File systems without owners and permissions refuse to set them: so be it.
int unless_unsupported(int result) {
  return result != 0 && errno != EPERM && errno != ENOTSUP ? errno : 0;
}

}  // namespace

struct WorkDirectory::Impl {
  fs::path path;
  bool is_new = false;  // made here, and not in use yet
  int journal_fd = -1;
  std::string journal;
  std::vector<std::string> members;  // their journals
  std::uint64_t journal_size = 0;
  std::map<std::size_t, int> files;  // that are open
  std::set<std::size_t> made;        // by this run
  std::set<fs::path> changed;        // directories into which files were moved

  Impl() = default;
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;
  ~Impl() {
    close_files();
    if (is_new) {
      if (journal_fd >= 0) ::unlink((path / kJournal).c_str());
      ::rmdir(path.c_str());
    }
    if (journal_fd >= 0) ::close(journal_fd);  // and with it the lock is gone
  }

  void close_files() {
    for (const auto& [number, fd] : files) ::close(fd);
    files.clear();
  }

  fs::path file(std::size_t number) const { return path / file_name(number); }
  Error fail(int code) const { return system_error(path, code); }

  Expected<int> open_file(std::size_t number) {
    if (const auto found = files.find(number); found != files.end()) return found->second;
    const int fd = ::open(file(number).c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0) return system_error(file(number), errno);
    files.emplace(number, fd);
    return fd;
  }

  Expected<std::vector<std::string>> names() const { return directory_names(path); }

  Expected<void> remove_all(bool (*chosen)(std::string_view)) {
    const auto all = names();
    if (!all) return all.error();
    for (const std::string& name : *all) {
      if (chosen(name) && ::unlink((path / name).c_str()) != 0) return system_error(path / name, errno);
    }
    return {};
  }
  Expected<void> remove_files() {
    close_files();
    auto removed = remove_all(is_file_name);
    if (!removed) {  // at least those of this run, which are all where the directory was new
      for (const std::size_t number : made) ::unlink(file(number).c_str());
    }
    return removed;
  }

  Expected<void> append(std::string_view line) {
    const std::string text = std::string(line) + "\n";
    if (const int code = write_all(journal_fd, std::as_bytes(std::span(text)), journal_size)) return fail(code);
    journal_size += text.size();
    return {};
  }

  /// Opens and locks a journal; false if another process has removed it meanwhile.
  Expected<bool> lock(const fs::path& name) {
    journal_fd = ::open(name.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (journal_fd < 0) {
      if (errno == ENOENT) return false;
      return system_error(name, errno);
    }
    if (::flock(journal_fd, LOCK_EX | LOCK_NB) != 0) {
      if (errno == EWOULDBLOCK) {
        return Error{fmt::format("{}: another process is writing this output; wait for it, or give another output",
                                 path.string())};
      }
      if (errno != ENOTSUP && errno != ENOLCK) return system_error(name, errno);  // no locks here: go on without
    }
    struct stat status {};
    if (::fstat(journal_fd, &status) != 0) return system_error(name, errno);
    if (status.st_nlink > 1) {
      return Error{fmt::format("{}: has another name as well, so it is no journal of unfinished output; remove it",
                               name.string())};
    }
    if (status.st_nlink == 1) return true;
    ::close(std::exchange(journal_fd, -1));
    return false;
  }

  /// Reads what members have left. None of them may be alive.
  Expected<void> read_members(std::string_view kind) {
    const auto all = names();
    if (!all) return all.error();
    for (const std::string& name : *all) {
      if (!is_member_name(name)) continue;
      Impl member;
      member.path = path;
      const auto locked = member.lock(path / name);
      if (!locked) return locked.error();
      if (auto read = member.read_journal(kind); !read) return read;
      members.push_back(std::move(member.journal));
    }
    return {};
  }

  /// Changes nothing of a journal that is not of this kind. One that was killed as it began has less of it.
  Expected<void> read_journal(std::string_view kind) {
    struct stat status {};
    if (::fstat(journal_fd, &status) != 0) return fail(errno);
    const auto size = static_cast<std::uint64_t>(status.st_size);
    if (!S_ISREG(status.st_mode) || size > kMaxJournal) {
      return Error{fmt::format("{}: its journal is none; remove this directory", path.string())};
    }
    journal.resize(size);
    for (std::size_t at = 0; at < journal.size();) {
      const ssize_t count = ::pread(journal_fd, journal.data() + at, journal.size() - at, static_cast<off_t>(at));
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) return fail(errno);
      if (count == 0) journal.resize(at);
      at += static_cast<std::size_t>(count);
    }
    if (!journal.starts_with(kind) && !kind.starts_with(journal)) {
      return Error{
          fmt::format("{}: this directory is for unfinished output, but its journal is of something else; "
                      "remove it or rename it",
                      path.string())};
    }
    const auto last = journal.rfind('\n');
    journal.resize(last == std::string::npos ? 0 : last + 1);
    journal_size = journal.size();
    if (::ftruncate(journal_fd, static_cast<off_t>(journal_size)) != 0) return fail(errno);
    return {};
  }
};

WorkDirectory::WorkDirectory(std::unique_ptr<Impl> impl) noexcept : impl_(std::move(impl)) {}
WorkDirectory::WorkDirectory(WorkDirectory&&) noexcept = default;
WorkDirectory& WorkDirectory::operator=(WorkDirectory&&) noexcept = default;
WorkDirectory::~WorkDirectory() = default;

Expected<WorkDirectory> WorkDirectory::open(const fs::path& path, std::string_view kind) {
  constexpr int kTries = 100;  // how often can others begin and end between two lines of this function?
  auto impl = std::make_unique<Impl>();
  impl->path = path;
  for (int i = 0; i < kTries; ++i) {
    struct stat status {};
    impl->is_new = ::mkdir(path.c_str(), 0700) == 0;
    if (!impl->is_new) {
      if (errno != EEXIST) return system_error(path, errno);
      if (::lstat(path.c_str(), &status) != 0) continue;
      if (!S_ISDIR(status.st_mode)) {
        return Error{fmt::format("{}: is in the way of the unfinished output; remove it or rename it", path.string())};
      }
      // Where owners are made up (vfat, NFS without root), all in a directory are of one.
      struct stat parent {};
      if (status.st_uid != ::geteuid() &&
          (::stat((path / "..").c_str(), &parent) != 0 || parent.st_uid != status.st_uid)) {
        return Error{
            fmt::format("{}: this directory is for unfinished output, but belongs to another user; remove it "
                        "or rename it",
                        path.string())};
      }
    }
    const auto names = impl->names();
    if (!names) {
      if (::access(path.c_str(), F_OK) != 0) continue;
      return names.error();
    }
    const auto strange = std::ranges::find_if(*names, [](const std::string& name) {
      return name != kJournal && !is_file_name(name) && !is_member_name(name);
    });
    if (strange != names->end()) {
      return Error{fmt::format("{}: this directory is for unfinished output, but holds {}; remove it or rename it",
                               path.string(), *strange)};
    }
    const auto locked = impl->lock(path / kJournal);
    if (!locked) return locked.error();
    if (!*locked) continue;
    if (auto read = impl->read_journal(kind); !read) return read.error();
    if (auto read = impl->read_members(kind); !read) return read.error();
    impl->is_new = false;
    return WorkDirectory(std::move(impl));
  }
  return Error{fmt::format("{}: other processes make and remove it all the time", path.string())};
}

Expected<WorkDirectory> WorkDirectory::join(const fs::path& path, std::size_t member) {
  auto impl = std::make_unique<Impl>();
  impl->path = path;
  const auto locked = impl->lock(path / member_name(member));
  if (!locked) return locked.error();
  if (!*locked) return system_error(path, ENOENT);
  if (::ftruncate(impl->journal_fd, 0) != 0) return impl->fail(errno);
  return WorkDirectory(std::move(impl));
}

const std::vector<std::string>& WorkDirectory::member_journals() const noexcept {
  return impl_->members;
}

Expected<void> WorkDirectory::forget_members() {
  impl_->members.clear();
  return impl_->remove_all(is_member_name);
}

const fs::path& WorkDirectory::path() const noexcept {
  return impl_->path;
}

fs::path WorkDirectory::file(std::size_t number) const {
  return impl_->file(number);
}

const std::string& WorkDirectory::journal() const noexcept {
  return impl_->journal;
}

Expected<void> WorkDirectory::restart(std::string_view line) {
  // The lines go first: without them the files mean nothing.
  if (auto forgotten = forget_members(); !forgotten) return forgotten;
  if (::ftruncate(impl_->journal_fd, 0) != 0) return impl_->fail(errno);
  impl_->journal_size = 0;
  impl_->journal.clear();
  if (auto removed = impl_->remove_files(); !removed) return removed;
  return record(line);
}

Expected<void> WorkDirectory::record(std::string_view line) {
  return impl_->append(line);
}

bool WorkDirectory::has_file(std::size_t number, std::uint64_t size) const {
  struct stat status {};
  return ::lstat(impl_->file(number).c_str(), &status) == 0 && S_ISREG(status.st_mode) &&
         static_cast<std::uint64_t>(status.st_size) == size;
}

Expected<void> WorkDirectory::make_file(std::size_t number, std::uint64_t size) {
  const fs::path name = impl_->file(number);
  if (const auto found = impl_->files.find(number); found != impl_->files.end()) {
    ::close(found->second);
    impl_->files.erase(found);
  }
  if (::unlink(name.c_str()) != 0 && errno != ENOENT) return system_error(name, errno);
  const int fd = ::open(name.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0666);
  if (fd < 0) return system_error(name, errno);
  impl_->files.emplace(number, fd);
  impl_->made.insert(number);
  // Where room cannot be taken in advance, the writes will tell.
  if (size != 0 && ::fallocate(fd, 0, 0, static_cast<off_t>(size)) != 0 &&
      (errno == ENOSPC || errno == EFBIG || errno == EDQUOT)) {
    return system_error(name, errno);
  }
  if (::ftruncate(fd, static_cast<off_t>(size)) != 0) return system_error(name, errno);
  return {};
}

Expected<void> WorkDirectory::write_at(std::size_t number, std::uint64_t offset, std::span<const std::byte> bytes) {
  const auto fd = impl_->open_file(number);
  if (!fd) return fd.error();
  if (const int code = write_all(*fd, bytes, offset)) return system_error(impl_->file(number), code);
  return {};
}

Expected<void> WorkDirectory::read_at(std::size_t number, std::uint64_t offset, std::span<std::byte> to) {
  const auto fd = impl_->open_file(number);
  if (!fd) return fd.error();
  if (const int code = read_all(*fd, to, offset)) return system_error(impl_->file(number), code);
  return {};
}

Expected<void> WorkDirectory::sync(std::size_t number, std::string_view line) {
  const auto fd = impl_->open_file(number);
  if (!fd) return fd.error();
  if (const int code = sync_fd(*fd)) return system_error(impl_->file(number), code);
  if (auto recorded = record(line); !recorded) return recorded;
  if (const int code = sync_fd(impl_->journal_fd)) return impl_->fail(code);
  if (const int code = sync_directory(impl_->path)) return impl_->fail(code);
  return {};
}

Expected<void> WorkDirectory::move_file(std::size_t number, const fs::path& target) {
  const auto fd = impl_->open_file(number);
  if (!fd) return fd.error();
  struct stat existing {};
  if (::stat(target.c_str(), &existing) == 0) {
    if (const int code = unless_unsupported(::fchown(*fd, existing.st_uid, existing.st_gid))) {
      return system_error(target, code);
    }
    if (const int code = unless_unsupported(::fchmod(*fd, existing.st_mode & 0777U))) return system_error(target, code);
  }
  if (const int code = sync_fd(*fd)) return system_error(impl_->file(number), code);
  if (::rename(impl_->file(number).c_str(), target.c_str()) != 0) return system_error(target, errno);
  ::close(*fd);
  impl_->files.erase(number);
  impl_->changed.insert(target.parent_path());
  return {};
}

Expected<void> WorkDirectory::remove() {
  // Without a list of its files the directory can still be one that has no more of them.
  auto removed = impl_->remove_files();
  if (auto forgotten = forget_members(); removed && !forgotten) removed = std::move(forgotten);
  const fs::path journal = impl_->path / kJournal;
  if (::unlink(journal.c_str()) != 0) return system_error(journal, errno);
  if (::rmdir(impl_->path.c_str()) != 0) return removed ? Expected<void>(impl_->fail(errno)) : removed;
  impl_->changed.insert(impl_->path.parent_path());
  for (const fs::path& directory : impl_->changed) {
    if (const int code = sync_directory(directory)) return system_error(directory, code);
  }
  return {};
}

}  // namespace bitcube
