#include "bitcube/io/file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/mman.h>
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
    const fs::path directory = fs::canonical(path.has_parent_path() ? path.parent_path() : ".", code);
    if (code) return Error{fmt::format("{}: {} (directory {})", name, code.message(), path.parent_path().string())};
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

/// A file without a name that vanishes with its descriptor, or the error number.
int open_unnamed(Descriptor& fd) {
  std::error_code code;
  const fs::path directory = fs::temp_directory_path(code);
  if (code) return code.value();
  fd = Descriptor(::open(directory.c_str(), O_RDWR | O_TMPFILE | O_CLOEXEC, 0600));
  if (fd.is_open()) return 0;
  std::string name = directory / ".bitcube-XXXXXX";  // not every file system knows O_TMPFILE
  fd = Descriptor(::mkostemp(name.data(), O_CLOEXEC));
  if (!fd.is_open()) return errno;
  ::unlink(name.c_str());
  return 0;
}

/// Reads until the end, into memory and from kMemoryLimit on into `spool`. Returns an error number, or 0 with all bytes
/// in one of the two; EFBIG if there are more than `limit`.
int read_stream(int fd, std::uint64_t limit, std::vector<std::byte>& bytes, Descriptor& spool, std::uint64_t& size) {
  constexpr std::size_t kMemoryLimit = std::size_t{8} << 20;
  std::size_t used = 0;  // of `bytes`
  while (true) {
    if (used == kMemoryLimit) {
      if (!spool.is_open()) {
        if (const int code = open_unnamed(spool)) return code;
      }
      if (const int code = write_all(spool.get(), bytes)) return code;
      used = 0;
    }
    if (used == bytes.size()) bytes.resize(std::clamp(2 * used, kBufferSize, kMemoryLimit));
    const ssize_t count = ::read(fd, bytes.data() + used, bytes.size() - used);
    if (count < 0) {
      if (retry(fd, POLLIN)) continue;
      return errno;
    }
    if (count == 0) break;
    used += static_cast<std::size_t>(count);
    size += static_cast<std::uint64_t>(count);
    if (size > limit) return EFBIG;
  }
  bytes.resize(used);
  bytes.shrink_to_fit();
  if (!spool.is_open()) return 0;
  const int code = write_all(spool.get(), bytes);
  std::vector<std::byte>().swap(bytes);
  return code;
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

}  // namespace

Expected<MappedFile> MappedFile::open(const fs::path& path, std::uint64_t stream_limit) {
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

  MappedFile file;
  file.name_ = name;
  if (S_ISREG(status.st_mode) && ::lseek(fd.get(), 0, SEEK_CUR) == 0 &&
      file.map(fd.get(), static_cast<std::uint64_t>(status.st_size))) {
    fd.release();
    return file;
  }
  // mmap refuses a regular file that is empty, or says so (/proc), or lies on a file system that cannot map.
  try {
    Descriptor spool;
    std::uint64_t size = 0;
    const int code = read_stream(fd.get(), stream_limit, file.memory_, spool, size);
    if (code == EFBIG) {
      return Error{fmt::format("{}: not a file that can be mapped, and longer than {} bytes; save it to a file first",
                               name, stream_limit)};
    }
    if (code != 0) return system_error(name, code);
    if (spool.is_open()) {
      if (!file.map(spool.get(), size)) return system_error(name, errno);
      spool.release();
    }
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

MappedFile MappedFile::from_bytes(std::vector<std::byte> bytes) {
  MappedFile file;
  file.memory_ = std::move(bytes);
  return file;
}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  MappedFile taken(std::move(other));
  swap(taken);
  return *this;
}

MappedFile::~MappedFile() {
  // munmap takes a pointer to non-const, though it writes nothing.
  if (!mapped_.empty()) ::munmap(const_cast<std::byte*>(mapped_.data()), mapped_.size());
  if (fd_ >= 0) ::close(fd_);
}

std::optional<FileStamp> MappedFile::stamp() const {
  struct stat open {};
  struct stat named {};
  if (fd_ < 0 || ::fstat(fd_, &open) != 0 || ::stat(name_.c_str(), &named) != 0) return std::nullopt;
  if (open.st_dev != named.st_dev || open.st_ino != named.st_ino) return std::nullopt;
  const auto nanoseconds = [](const timespec& time) {
    return std::int64_t{time.tv_sec} * 1'000'000'000 + std::int64_t{time.tv_nsec};
  };
  return FileStamp{static_cast<std::uint64_t>(open.st_size), open.st_ino, nanoseconds(open.st_mtim),
                   nanoseconds(open.st_ctim)};
}

Expected<void> MappedFile::read(std::uint64_t offset, std::span<std::byte> to) const {
  if (fd_ < 0) {
    std::copy_n(bytes().begin() + static_cast<std::ptrdiff_t>(offset), to.size(), to.begin());
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
                      name_, offset, mapped_.size())};
    }
    offset += static_cast<std::uint64_t>(count);
    to = to.subspan(static_cast<std::size_t>(count));
  }
  return {};
}

bool MappedFile::map(int fd, std::uint64_t size) noexcept {
  const void* address = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd, 0);
  if (address == MAP_FAILED) return false;
  mapped_ = {static_cast<const std::byte*>(address), size};
  fd_ = fd;
  return true;
}

void MappedFile::swap(MappedFile& other) noexcept {
  name_.swap(other.name_);
  std::swap(fd_, other.fd_);
  std::swap(mapped_, other.mapped_);
  std::swap(memory_, other.memory_);
}

struct OutputFile::Impl {
  struct Owner {
    uid_t user;
    gid_t group;
  };

  std::string name;
  fs::path target;             // what commit() replaces; empty if written directly
  fs::path temporary;          // exists while not empty
  mode_t mode = 0;             // that the target gets
  std::optional<Owner> owner;  // that an existing target had
  Descriptor fd;
  std::vector<std::byte> buffer;
  std::uint64_t buffered_from = 0;  // where the buffer belongs
  std::uint64_t size = 0;
  Descriptor spool;              // what write_at() writes where the target takes bytes in order only
  std::uint64_t spool_from = 0;  // bytes that the target had before
  std::optional<Error> failure;

  Impl() = default;
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;
  ~Impl() { discard(); }

  void discard() {
    fd.close();
    spool.close();
    if (!temporary.empty()) ::unlink(temporary.c_str());
    temporary.clear();
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

  /// `existing` is null if there is no target yet.
  Expected<void> make_temporary(const struct stat* existing) {
    std::uint64_t random = 0;
    if (::getrandom(&random, sizeof random, 0) != ssize_t{sizeof random}) return system_error(name, errno);
    // The name does not contain the target's: that may be as long as names can be.
    const fs::path path = target.parent_path() / fmt::format(".bitcube-{:016x}.tmp", random);
    // For a new file the kernel turns 0666 into what the umask and the directory's ACL allow, which cannot be asked
    // for without a race. Until the file is complete it is private.
    const mode_t mode_at_birth = existing != nullptr ? 0600 : 0666;
    fd = Descriptor(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, mode_at_birth));
    if (!fd.is_open()) return system_error(name, errno);
    temporary = path;

    struct stat created {};
    if (::fstat(fd.get(), &created) != 0) return system_error(name, errno);
    if (const int code = unless_unsupported(::fchmod(fd.get(), 0600))) return system_error(name, code);
    mode = (existing != nullptr ? existing->st_mode : created.st_mode) & 0777U;
    if (existing != nullptr) owner = Owner{existing->st_uid, existing->st_gid};
    return {};
  }

  /// Returns an error number or 0.
  int write(std::uint64_t offset, std::span<const std::byte> bytes) {
    if (spool.is_open()) return write_all(spool.get(), bytes, offset - spool_from);
    if (!temporary.empty()) return write_all(fd.get(), bytes, offset);
    return write_all(fd.get(), bytes);
  }

  int flush() {
    const int code = write(buffered_from, buffer);
    buffered_from += buffer.size();
    buffer.clear();
    return code;
  }

  /// Brings what write_at() has written to a target that takes bytes in order.
  int copy_spool() {
    std::vector<std::byte> piece(kBufferSize);
    for (std::uint64_t offset = 0; offset < size - spool_from;) {
      const ssize_t count = ::pread(spool.get(), piece.data(), piece.size(), static_cast<off_t>(offset));
      if (count < 0 && errno == EINTR) continue;
      if (count <= 0) return count < 0 ? errno : EIO;
      const std::span bytes(piece.data(), static_cast<std::size_t>(count));
      if (const int code = write_all(fd.get(), bytes)) return code;
      offset += bytes.size();
    }
    return 0;
  }

  /// Everything short of the rename.
  Expected<void> finish() {
    if (auto open = check_open(); !open) return open;
    if (const int code = flush()) return fail(code);
    if (spool.is_open()) {
      if (const int code = copy_spool()) return fail(code);
    }
    if (!temporary.empty()) {
      // Only root may give a file away; for others the new file is their own, as if they had deleted the old one.
      if (owner) {
        if (const int code = unless_unsupported(::fchown(fd.get(), owner->user, owner->group))) return fail(code);
      }
      if (const int code = unless_unsupported(::fchmod(fd.get(), mode))) return fail(code);
    }
    if (const int code = sync(fd.get())) return fail(code);
    if (const int code = fd.close()) return fail(code);
    return {};
  }

  Expected<void> rename() {
    if (temporary.empty()) return {};
    if (::rename(temporary.c_str(), target.c_str()) != 0) return fail(errno);
    temporary.clear();
    return {};
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
    if (const int code = impl_->flush()) return impl_->fail(code);
    impl_->buffered_from = impl_->size;
  }
  if (bytes.size() >= kBufferSize) {
    if (const int code = impl_->write(impl_->size, bytes)) return impl_->fail(code);
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
  if (impl.temporary.empty() && !impl.spool.is_open()) {
    if (const int code = open_unnamed(impl.spool)) {
      return impl.fail(
          Error{fmt::format("{}: takes bytes in order only, and no temporary file can be made for them: {}", impl.name,
                            std::generic_category().message(code))});
    }
    impl.spool_from = impl.buffered_from;
  }
  if (const int code = impl.flush()) return impl.fail(code);  // a later write to the same place counts
  if (offset < impl.spool_from) {
    return impl.fail(Error{fmt::format("{}: byte {} has been written, and cannot be changed", impl.name, offset)});
  }
  if (const int code = impl.write(offset, bytes)) return impl.fail(code);
  impl.size = std::max(impl.size, offset + bytes.size());
  return {};
}

Expected<void> OutputFile::reserve(std::uint64_t size) {
  if (auto open = impl_->check_open(); !open) return open;
  if (impl_->temporary.empty() || size == 0) return {};
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
  std::string in_place;
  for (OutputFile* file : files) {
    if (auto renamed = file->impl_->rename(); !renamed) {
      Error error = renamed.error();
      if (!in_place.empty()) error.message += "; already in place:" + in_place;
      return abandon(std::move(error));
    }
    in_place += " " + file->name();
  }
  Expected<void> result;
  for (OutputFile* file : files) {
    if (auto synced = file->impl_->sync_target_directory(); !synced && result) result = synced;
  }
  return result;
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
