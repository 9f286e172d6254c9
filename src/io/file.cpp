#include "bitcube/io/file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <new>
#include <optional>
#include <set>
#include <system_error>
#include <utility>

namespace bitcube {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kBufferSize = std::size_t{1} << 16;
constexpr int kMaxLinks = 40;  // as the kernel allows

/// Unfinished files of this process that have a name. Whoever holds the lock keeps all of them as they are, and no
/// output can be put in place.
struct Unfinished {
  std::recursive_mutex mutex;  // memory may run out while a signal's message is made
  std::set<std::string> names;
};
/// Never destroyed, and made without allocation: abandon_outputs() may be called while the process ends, also where it
/// ends for want of memory.
Unfinished& unfinished() {
  alignas(Unfinished) static std::byte room[sizeof(Unfinished)];
  static auto* const files = new (room) Unfinished;
  return *files;
}

Error system_error(std::string_view name, int code) {
  return Error{fmt::format("{}: {}", name, std::generic_category().message(code))};
}

Error is_directory(std::string_view name) {
  return Error{fmt::format("{}: is a directory; give the name of a file", name)};
}

/// Owns a descriptor.
class Descriptor {
 public:
  explicit Descriptor(int fd = -1) noexcept : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Descriptor() { close(); }

  bool is_open() const noexcept { return fd_ >= 0; }
  int get() const noexcept { return fd_; }
  int release() noexcept { return std::exchange(fd_, -1); }
  /// Returns the error number or 0. After EINTR the descriptor is closed all the same, and nothing was lost.
  int close() noexcept {
    const int fd = std::exchange(fd_, -1);
    return fd >= 0 && ::close(fd) != 0 && errno != EINTR ? errno : 0;
  }

 private:
  int fd_;
};

/// After a failed read or write: is it worth another try? Waits if the descriptor was inherited as non-blocking.
bool retry(int fd, short events) {
  if (errno == EINTR) return true;
  if (errno != EAGAIN) return false;
  pollfd wait{fd, events, 0};
  return ::poll(&wait, 1, -1) >= 0 || errno == EINTR;
}

/// Where a path leads once its last component is no link: to a descriptor of this process, or to a file.
struct Resolved {
  std::optional<int> descriptor;
  fs::path file;  // absolute, directories canonical
};

Expected<Resolved> resolve(const std::string& name) {
  const fs::path own_descriptors = fmt::format("/proc/{}/fd", ::getpid());
  fs::path path = name;
  for (int links = 0; links < kMaxLinks; ++links) {
    std::error_code code;
    const fs::path parent = path.has_parent_path() ? path.parent_path() : ".";
    const fs::path directory = fs::canonical(parent, code);
    if (code) return Error{fmt::format("{}: {} (directory {})", name, code.message(), parent.string())};
    const std::string base = path.filename().string();

    if (int descriptor = -1; directory == own_descriptors) {
      const char* const end = base.data() + base.size();
      const auto [stop, error] = std::from_chars(base.data(), end, descriptor);
      if (error == std::errc{} && stop == end) return Resolved{descriptor, {}};
    }
    const fs::path link = fs::read_symlink(directory / base, code);
    if (code) return Resolved{std::nullopt, directory / base};  // no link, or nothing there yet
    path = directory / link;                                    // an absolute link replaces the directory
  }
  return system_error(name, ELOOP);
}

/// Writes at the position of the descriptor, or at an offset. Returns an error number or 0.
int write_all(int fd, std::span<const std::byte> bytes, std::optional<std::uint64_t> offset = {}) {
  while (!bytes.empty()) {
    const ssize_t count = offset ? ::pwrite(fd, bytes.data(), bytes.size(), static_cast<off_t>(*offset))
                                 : ::write(fd, bytes.data(), bytes.size());
    if (count < 0) {
      if (retry(fd, POLLOUT)) continue;
      return errno;
    }
    if (count == 0) return EIO;  // a device that takes nothing: do not spin
    bytes = bytes.subspan(static_cast<std::size_t>(count));
    if (offset) *offset += static_cast<std::uint64_t>(count);
  }
  return 0;
}

/// A file without a name that vanishes with its descriptor, in the directory for temporary files.
struct Spool {
  Descriptor fd;
  fs::path directory;

  /// Returns an error number or 0.
  int open() {
    std::error_code code;
    directory = fs::temp_directory_path(code);
    if (code) {
      directory = "$TMPDIR";
      return code.value();
    }
    fd = Descriptor(::open(directory.c_str(), O_RDWR | O_TMPFILE | O_CLOEXEC, 0600));
    if (fd.is_open()) return 0;
    std::string name = directory / ".bitcube-XXXXXX";  // not every file system knows O_TMPFILE
    fd = Descriptor(::mkostemp(name.data(), O_CLOEXEC));
    if (!fd.is_open()) return errno;
    ::unlink(name.c_str());
    return 0;
  }
  /// What to say when it fails; `name` is that of the file whose bytes pass through it.
  Error error(std::string_view name, int code) const {
    return Error{fmt::format("{}: no temporary copy can be kept in {}: {}; set TMPDIR to another directory", name,
                             directory.string(), std::generic_category().message(code))};
  }
};

/// Reads until the end, into memory and from kMemoryLimit on into `spool`: then all bytes are there.
Expected<void> read_stream(std::string_view name, int fd, std::uint64_t limit, std::vector<std::byte>& bytes,
                           Spool& spool, std::uint64_t& size) {
  constexpr std::size_t kMemoryLimit = std::size_t{8} << 20;
  std::size_t used = 0;  // of `bytes`
  while (true) {
    if (used == kMemoryLimit) {
      if (!spool.fd.is_open()) {
        if (const int code = spool.open()) return spool.error(name, code);
      }
      if (const int code = write_all(spool.fd.get(), bytes)) return spool.error(name, code);
      used = 0;
    }
    if (used == bytes.size()) bytes.resize(std::clamp(2 * used, kBufferSize, kMemoryLimit));
    const ssize_t count = ::read(fd, bytes.data() + used, bytes.size() - used);
    if (count < 0) {
      if (retry(fd, POLLIN)) continue;
      return system_error(name, errno);
    }
    if (count == 0) break;
    used += static_cast<std::size_t>(count);
    size += static_cast<std::uint64_t>(count);
    if (size > limit) {
      return Error{
          fmt::format("{}: does not say its size, and is longer than {} bytes; save it to a file first", name, limit)};
    }
  }
  bytes.resize(used);
  bytes.shrink_to_fit();
  if (!spool.fd.is_open()) return {};
  if (const int code = write_all(spool.fd.get(), bytes)) return spool.error(name, code);
  std::vector<std::byte>().swap(bytes);
  return {};
}

/// Returns an error number or 0. Pipes, terminals and some file systems cannot sync; there is nothing more to do there.
int sync(int fd) {
  return ::fsync(fd) != 0 && errno != EINVAL && errno != ENOTSUP && errno != EROFS ? errno : 0;
}

/// The error number of a call that sets owner or mode, or 0. File systems without permissions refuse it: so be it.
int unless_unsupported(int result) {
  return result != 0 && errno != EPERM && errno != ENOTSUP ? errno : 0;
}

/// Makes a rename in this directory durable. Returns an error number or 0.
int sync_directory(const fs::path& directory) {
  const Descriptor fd(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd.is_open()) return errno == EACCES ? 0 : errno;  // may be written but not read: it cannot be synced
  return sync(fd.get());
}

FileStamp stamp_of(const struct stat& status) noexcept {
  const auto nanoseconds = [](const timespec& time) {
    return std::int64_t{time.tv_sec} * 1'000'000'000 + std::int64_t{time.tv_nsec};
  };
  return {static_cast<std::uint64_t>(status.st_size), status.st_ino, nanoseconds(status.st_mtim),
          nanoseconds(status.st_ctim)};
}

}  // namespace

Expected<InputFile> InputFile::open(const fs::path& path, std::uint64_t stream_limit) {
  const std::string name = path.string();
  if (name.empty()) return Error{"the name of the input file is empty"};

  // A descriptor of this process is used as it is: opening /dev/stdin anew fails if it is a socket, and would go back
  // to the start of a file that somebody has read from.
  const Expected<Resolved> resolved = resolve(name);
  const bool inherited = resolved && resolved->descriptor;
  Descriptor fd(inherited ? ::fcntl(*resolved->descriptor, F_DUPFD_CLOEXEC, 0)
                          : ::open(name.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY));
  struct stat status {};
  if (!fd.is_open() || ::fstat(fd.get(), &status) != 0) return system_error(name, errno);
  if (S_ISDIR(status.st_mode)) return is_directory(name);

  InputFile file;
  file.name_ = name;
  // A regular file that says that it is empty may only hide its size, as those of /proc do.
  if (S_ISREG(status.st_mode) && status.st_size != 0 && ::lseek(fd.get(), 0, SEEK_CUR) == 0) {
    file.size_ = static_cast<std::uint64_t>(status.st_size);
    file.stamp_ = stamp_of(status);
    file.fd_ = fd.release();
    return file;
  }
  try {
    Spool spool;
    if (auto read = read_stream(name, fd.get(), stream_limit, file.memory_, spool, file.size_); !read) {
      return read.error();
    }
    file.fd_ = spool.fd.release();
  } catch (const std::bad_alloc&) {
    return system_error(name, ENOMEM);
  }
  return file;
}

Expected<void> check_regular(const fs::path& path) {
  const std::string name = path.string();
  struct stat status {};
  if (::stat(name.c_str(), &status) != 0 || S_ISREG(status.st_mode) || S_ISDIR(status.st_mode)) return {};
  const Expected<Resolved> resolved = resolve(name);
  if (resolved && resolved->descriptor) return {};
  return Error{
      fmt::format("{}: is {}; a regular file is needed", name, S_ISFIFO(status.st_mode) ? "a named pipe" : "no file")};
}

InputFile InputFile::from_bytes(std::vector<std::byte> bytes) {
  InputFile file;
  file.size_ = bytes.size();
  file.memory_ = std::move(bytes);
  return file;
}

InputFile& InputFile::operator=(InputFile&& other) noexcept {
  InputFile taken(std::move(other));
  swap(taken);
  return *this;
}

InputFile::~InputFile() {
  if (fd_ >= 0) ::close(fd_);
}

std::optional<FileStamp> InputFile::stamp() const {
  struct stat open {};
  struct stat named {};
  if (!stamp_ || ::fstat(fd_, &open) != 0 || ::stat(name_.c_str(), &named) != 0) return std::nullopt;
  if (open.st_dev != named.st_dev || open.st_ino != named.st_ino) return std::nullopt;
  return stamp_of(open);
}

Expected<void> InputFile::read(std::uint64_t offset, std::span<std::byte> to) const {
  if (fd_ < 0) {
    std::copy_n(memory_.begin() + static_cast<std::ptrdiff_t>(offset), to.size(), to.begin());
    return {};
  }
  while (!to.empty()) {
    const ssize_t count = ::pread(fd_, to.data(), to.size(), static_cast<off_t>(offset));
    if (count < 0) {
      if (retry(fd_, POLLIN)) continue;
      return system_error(name_, errno);
    }
    if (count == 0) {
      return Error{
          fmt::format("{}: byte {} is missing; the file had {} bytes when it was opened, and was cut short "
                      "meanwhile",
                      name_, offset, size_)};
    }
    offset += static_cast<std::uint64_t>(count);
    to = to.subspan(static_cast<std::size_t>(count));
  }
  return {};
}

Expected<Buffer<std::byte>> InputFile::load(std::uint64_t offset, std::uint64_t size) const {
  try {
    Buffer<std::byte> bytes(size);
    if (auto done = read(offset, bytes); !done) return done.error();
    if (auto same = check_unchanged(); !same) return same.error();
    return bytes;
  } catch (const std::bad_alloc&) {
  } catch (const std::length_error&) {
  }
  return Error{fmt::format("{}: not enough memory for {} bytes", name_.empty() ? "input" : name_, size)};
}

Expected<void> InputFile::check_unchanged() const {
  if (!stamp_) return {};
  struct stat status {};
  if (::fstat(fd_, &status) != 0) return system_error(name_, errno);
  FileStamp now = stamp_of(status);
  if (status.st_nlink == 0) now.changed = stamp_->changed;  // that it has no name any more is the change
  if (now == *stamp_) return {};
  return Error{fmt::format("{}: was changed while it was read; run this again", name_)};
}

void InputFile::swap(InputFile& other) noexcept {
  name_.swap(other.name_);
  std::swap(size_, other.size_);
  std::swap(memory_, other.memory_);
  std::swap(stamp_, other.stamp_);
  std::swap(fd_, other.fd_);
}

struct OutputFile::Impl {
  struct Owner {
    uid_t user;
    gid_t group;
  };

  std::string name;
  fs::path target;             // what commit() replaces; empty if written directly
  std::string temporary;       // a name for the file until then, among the unfinished while not empty
  bool has_name = false;       // whether the file has that name
  mode_t mode = 0;             // that the target gets
  std::string link_from;       // what linkat() calls a file without a name
  std::optional<Owner> owner;  // that an existing target had
  Descriptor fd;
  std::vector<std::byte> buffer;
  std::uint64_t buffered_from = 0;  // where the buffer belongs
  std::uint64_t size = 0;
  Spool spool;                   // what write_at() writes where the target takes bytes in order only
  std::uint64_t spool_from = 0;  // bytes that the target had before
  std::optional<Error> failure;

  Impl() = default;
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;
  ~Impl() { discard(); }

  void discard() {
    fd.close();
    spool.fd.close();
    if (temporary.empty()) return;
    const std::lock_guard lock(unfinished().mutex);
    remove_temporary();
  }
  /// Precondition: the lock of the unfinished files.
  void remove_temporary() {
    if (has_name) ::unlink(temporary.c_str());
    forget_temporary();
  }
  void forget_temporary() {
    unfinished().names.erase(temporary);
    temporary.clear();
    has_name = false;
  }

  Error fail(Error error) {
    if (!failure) failure = std::move(error);
    discard();
    return *failure;
  }
  Error fail(int code) { return fail(system_error(name, code)); }

  Expected<void> check_open() const {
    if (failure) return *failure;
    if (!fd.is_open()) return Error{fmt::format("{}: already committed", name)};
    return {};
  }

  /// A name for the file beside the target; not the target's own with something added: that may be as long as names can
  /// be. It is among the unfinished before there is such a file. Precondition: the lock of these. Returns an error
  /// number or 0.
  int choose_temporary() {
    std::uint64_t random = 0;
    if (::getrandom(&random, sizeof random, 0) != ssize_t{sizeof random}) return errno;
    temporary = target.parent_path() / fmt::format(".bitcube-{:016x}.tmp", random);
    unfinished().names.insert(temporary);
    return 0;
  }

  /// `existing` is null if there is no target yet.
  Expected<void> make_temporary(const struct stat* existing) {
    // For a new file the kernel turns 0666 into what the umask and the directory's ACL allow, which cannot be asked
    // for without a race. Until the file is complete it is private.
    const mode_t mode_at_birth = existing != nullptr ? 0600 : 0666;
    fd = Descriptor(::open(target.parent_path().c_str(), O_WRONLY | O_TMPFILE | O_CLOEXEC, mode_at_birth));
    if (!fd.is_open() || ::access(fmt::format("/proc/self/fd/{}", fd.get()).c_str(), F_OK) != 0) {
      // Not every file system knows files without a name, and without /proc such a file cannot be given one.
      const std::lock_guard lock(unfinished().mutex);
      if (const int code = choose_temporary()) return system_error(name, code);
      fd = Descriptor(::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, mode_at_birth));
      if (!fd.is_open()) {
        const int code = errno;
        forget_temporary();
        return system_error(name, code);
      }
      has_name = true;
    }

    struct stat created {};
    if (::fstat(fd.get(), &created) != 0) return system_error(name, errno);
    if (const int code = unless_unsupported(::fchmod(fd.get(), 0600))) return system_error(name, code);
    mode = (existing != nullptr ? existing->st_mode : created.st_mode) & 0777U;
    if (existing != nullptr) owner = Owner{existing->st_uid, existing->st_gid};
    return {};
  }

  /// Returns an error number or 0.
  int write(std::uint64_t offset, std::span<const std::byte> bytes) {
    if (spool.fd.is_open()) return write_all(spool.fd.get(), bytes, offset - spool_from);
    if (!target.empty()) return write_all(fd.get(), bytes, offset);
    return write_all(fd.get(), bytes);
  }
  Error write_error(int code) const { return spool.fd.is_open() ? spool.error(name, code) : system_error(name, code); }

  int flush() {
    const int code = write(buffered_from, buffer);
    buffered_from += buffer.size();
    buffer.clear();
    return code;
  }

  /// Brings what write_at() has written to a target that takes bytes in order.
  Expected<void> copy_spool() {
    std::vector<std::byte> piece(kBufferSize);
    for (std::uint64_t offset = 0; offset < size - spool_from;) {
      const ssize_t count = ::pread(spool.fd.get(), piece.data(), piece.size(), static_cast<off_t>(offset));
      if (count < 0 && errno == EINTR) continue;
      if (count <= 0) return spool.error(name, count < 0 ? errno : EIO);
      const std::span bytes(piece.data(), static_cast<std::size_t>(count));
      if (const int code = write_all(fd.get(), bytes)) return system_error(name, code);
      offset += bytes.size();
    }
    return {};
  }

  /// Everything short of the place.
  Expected<void> finish() {
    if (auto open = check_open(); !open) return open;
    if (const int code = flush()) return fail(write_error(code));
    if (spool.fd.is_open()) {
      if (auto copied = copy_spool(); !copied) return fail(copied.error());
    }
    if (!target.empty()) {
      // Only root may give a file away; for others the new file is their own, as if they had deleted the old one.
      if (owner) {
        if (const int code = unless_unsupported(::fchown(fd.get(), owner->user, owner->group))) return fail(code);
      }
      if (const int code = unless_unsupported(::fchmod(fd.get(), mode))) return fail(code);
    }
    if (const int code = sync(fd.get())) return fail(code);
    if (target.empty() || has_name) {
      if (const int code = fd.close()) return fail(code);
      return {};
    }
    // Only with its descriptor can a file without a name get one. All that may fail for lack of memory comes before the
    // first of several files is in place.
    link_from = fmt::format("/proc/self/fd/{}", fd.get());
    const std::lock_guard lock(unfinished().mutex);
    if (const int code = choose_temporary()) return system_error(name, code);
    return {};
  }

  int link(const char* to) const noexcept {
    return ::linkat(AT_FDCWD, link_from.c_str(), AT_FDCWD, to, AT_SYMLINK_FOLLOW) == 0 ? 0 : errno;
  }

  /// Precondition: the lock of the unfinished files. Returns an error number or 0.
  int put_in_place() noexcept {
    if (target.empty()) return 0;
    // A link does not replace a file, a rename does.
    int code = has_name ? EEXIST : link(target.c_str());
    if (code == EEXIST && !has_name) {
      code = link(temporary.c_str());
      has_name = code == 0;
    }
    if (has_name) code = ::rename(temporary.c_str(), target.c_str()) == 0 ? 0 : errno;
    if (code != 0) return code;
    forget_temporary();
    fd.close();
    return 0;
  }

  Expected<void> sync_target_directory() {
    const int code = target.empty() ? 0 : sync_directory(target.parent_path());
    if (code == 0) return {};
    return fail(Error{fmt::format("{}: complete and in place, but its directory cannot be synced: {}", name,
                                  std::generic_category().message(code))});
  }
};

OutputFile::OutputFile(std::unique_ptr<Impl> impl) noexcept : impl_(std::move(impl)) {}
OutputFile::OutputFile(OutputFile&&) noexcept = default;
OutputFile& OutputFile::operator=(OutputFile&&) noexcept = default;
OutputFile::~OutputFile() = default;

Expected<OutputFile> OutputFile::create(const fs::path& path) {
  auto impl = std::make_unique<Impl>();
  impl->name = path.string();
  const std::string& name = impl->name;
  if (name.empty()) return Error{"the name of the output file is empty"};

  struct stat status {};
  const bool exists = ::stat(name.c_str(), &status) == 0;
  if (!exists && errno != ENOENT) return system_error(name, errno);
  if (exists && S_ISDIR(status.st_mode)) return is_directory(name);

  Expected<Resolved> resolved = resolve(name);
  if (!resolved) return resolved.error();
  if (resolved->descriptor) {
    impl->fd = Descriptor(::fcntl(*resolved->descriptor, F_DUPFD_CLOEXEC, 0));
    if (!impl->fd.is_open()) return system_error(name, errno);
  } else if (exists && !S_ISREG(status.st_mode)) {
    impl->fd = Descriptor(::open(name.c_str(), O_WRONLY | O_CLOEXEC | O_NOCTTY));
    if (!impl->fd.is_open()) return system_error(name, errno);
  } else {
    // A rename asks only for the right to write the directory; write protection of the file counts too.
    if (exists && ::faccessat(AT_FDCWD, name.c_str(), W_OK, AT_EACCESS) != 0) return system_error(name, errno);
    impl->target = std::move(resolved->file);
    if (auto made = impl->make_temporary(exists ? &status : nullptr); !made) return made.error();
  }
  impl->buffer.reserve(kBufferSize);
  return OutputFile(std::move(impl));
}

Expected<void> OutputFile::append(std::span<const std::byte> bytes) {
  if (auto open = impl_->check_open(); !open) return open;
  const bool continues = impl_->buffered_from + impl_->buffer.size() == impl_->size;
  if (!continues || impl_->buffer.size() + bytes.size() > kBufferSize) {
    if (const int code = impl_->flush()) return impl_->fail(impl_->write_error(code));
    impl_->buffered_from = impl_->size;
  }
  if (bytes.size() >= kBufferSize) {
    if (const int code = impl_->write(impl_->size, bytes)) return impl_->fail(impl_->write_error(code));
    impl_->buffered_from += bytes.size();
  } else {
    impl_->buffer.insert(impl_->buffer.end(), bytes.begin(), bytes.end());
  }
  impl_->size += bytes.size();
  return {};
}

Expected<void> OutputFile::append(std::string_view text) {
  return append(std::as_bytes(std::span(text)));
}

Expected<void> OutputFile::write_at(std::uint64_t offset, std::span<const std::byte> bytes) {
  Impl& impl = *impl_;
  if (auto open = impl.check_open(); !open) return open;
  if (impl.target.empty() && !impl.spool.fd.is_open()) {
    if (const int code = impl.spool.open()) return impl.fail(impl.spool.error(impl.name, code));
    impl.spool_from = impl.buffered_from;
  }
  // A later write to the same place counts.
  if (const int code = impl.flush()) return impl.fail(impl.write_error(code));
  if (offset < impl.spool_from) {
    return impl.fail(Error{fmt::format("{}: byte {} has been written, and cannot be changed", impl.name, offset)});
  }
  if (const int code = impl.write(offset, bytes)) return impl.fail(impl.write_error(code));
  impl.size = std::max(impl.size, offset + bytes.size());
  return {};
}

Expected<void> OutputFile::reserve(std::uint64_t size) {
  if (auto open = impl_->check_open(); !open) return open;
  if (impl_->target.empty() || size == 0) return {};
  // Where it is not supported, the writes will tell.
  if (::fallocate(impl_->fd.get(), 0, 0, static_cast<off_t>(size)) != 0 &&
      (errno == ENOSPC || errno == EFBIG || errno == EDQUOT)) {
    return impl_->fail(errno);
  }
  return {};
}

Expected<void> OutputFile::commit() {
  OutputFile* self[] = {this};
  return commit_all(self);
}

const std::string& OutputFile::name() const noexcept {
  return impl_->name;
}
std::uint64_t OutputFile::size() const noexcept {
  return impl_->size;
}

Expected<void> commit_all(std::span<OutputFile* const> files) {
  const auto abandon = [&](Error error) {
    for (OutputFile* file : files) file->impl_->fail(error);
    return error;
  };

  std::set<fs::path> targets;
  for (OutputFile* file : files) {
    const OutputFile::Impl& impl = *file->impl_;
    if (!impl.target.empty() && !targets.insert(impl.target).second) {
      return abandon(Error{fmt::format("{}: two outputs go to this file; give each its own name", impl.name)});
    }
  }
  for (OutputFile* file : files) {
    if (auto finished = file->impl_->finish(); !finished) return abandon(finished.error());
  }
  // All or none, also if the process is about to end.
  std::unique_lock lock(unfinished().mutex);
  for (std::size_t i = 0; i < files.size(); ++i) {
    const int code = files[i]->impl_->put_in_place();
    if (code == 0) continue;
    lock.unlock();
    Error error = system_error(files[i]->name(), code);
    if (i != 0) error.message += "; already in place:";
    for (OutputFile* file : files.first(i)) error.message += " " + file->name();
    return abandon(std::move(error));
  }
  lock.unlock();
  Expected<void> result;
  for (OutputFile* file : files) {
    if (auto synced = file->impl_->sync_target_directory(); !synced && result) result = synced;
  }
  return result;
}

std::unique_lock<std::recursive_mutex> abandon_outputs() noexcept {
  std::unique_lock lock(unfinished().mutex);
  for (const std::string& name : unfinished().names) ::unlink(name.c_str());
  return lock;
}

Expected<fs::path> output_target(const fs::path& path) {
  const std::string name = path.string();
  if (name.empty()) return Error{"the name of the output file is empty"};
  struct stat status {};
  const bool exists = ::stat(name.c_str(), &status) == 0;
  if (!exists && errno != ENOENT) return system_error(name, errno);
  if (exists && S_ISDIR(status.st_mode)) return is_directory(name);
  Expected<Resolved> resolved = resolve(name);
  if (!resolved) return resolved.error();
  if (resolved->descriptor || (exists && !S_ISREG(status.st_mode))) {
    return Error{
        fmt::format("{}: is no file that can be written piece by piece and over several runs; give the name of "
                    "one",
                    name)};
  }
  if (exists && ::faccessat(AT_FDCWD, name.c_str(), W_OK, AT_EACCESS) != 0) return system_error(name, errno);
  return std::move(resolved->file);
}

Expected<void> write_file(const fs::path& path, std::span<const std::byte> bytes) {
  auto file = OutputFile::create(path);
  if (!file) return file.error();
  if (auto appended = file->append(bytes); !appended) return appended;
  return file->commit();
}

}  // namespace bitcube
