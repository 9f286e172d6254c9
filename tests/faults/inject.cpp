// A library for LD_PRELOAD that lets one system call or allocation of a program fail, or kills the program before it.
//
//   FAULT=KIND:N         the N-th call of this kind since main() began; see `kinds`
//   FAULT=KIND:N:on      that and every later one
//   FAULT_NAMED=1        files without a name cannot be made, as on some file systems
//   FAULT_LOG=FILE       gets "CALLS FIRED" when the program ends: how many calls of the kind there were, and how many
//                        of them failed
//
// fsync() is counted, but not done: nothing here loses power, and a disk would take most of the time.
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>

namespace {

/// What a call is to the kinds of faults.
enum Call : unsigned {
  changes = 1,  // what others see; no error is made up for those that are only this
  takes_room = 2,
  stores = 4,
  reads = 8,
  moves = 16,  // copies bytes, and may copy fewer
  allocates = 32,
};

struct Kind {
  const char* name;
  unsigned calls;
  int error;  // 0: none; the call is done by halves. Of the first two: the signal that comes
};
constexpr Kind kinds[] = {
    {"kill", changes | takes_room | stores | reads, SIGKILL},    // before the call
    {"signal", changes | takes_room | stores | reads, SIGTERM},  // likewise; the call is done
    {"full", takes_room, ENOSPC},                                // the disk is full
    {"store", stores, EIO},                                      // writing or syncing fails
    {"read", reads, EIO},
    {"interrupt", moves, EINTR},
    {"short", moves, 0},  // half of the bytes
    {"memory", allocates, ENOMEM},
};

const Kind* kind = nullptr;
unsigned long fault_at = 0;
bool goes_on = false;
std::atomic<bool> armed{false};
std::atomic<unsigned long> calls{0};
std::atomic<unsigned long> fired{0};

/// Whether this call is the one. Sets errno.
bool fails(unsigned call) {
  if (!armed.load(std::memory_order_relaxed) || (kind->calls & call) == 0) return false;
  const unsigned long number = calls.fetch_add(1) + 1;
  if (number != fault_at && !(goes_on && number > fault_at)) return false;
  fired.fetch_add(1);
  if (kind <= &kinds[1]) {
    syscall(SYS_kill, syscall(SYS_getpid), kind->error);
    return false;
  }
  errno = kind->error;
  return true;
}

/// Without standard error nothing can be told, so it works.
unsigned unless_message(int fd, unsigned call) {
  return fd == STDERR_FILENO ? call & moves : call;
}

template <typename Function>
Function next(const char* name) {
  return reinterpret_cast<Function>(dlsym(RTLD_NEXT, name));
}

void write_log() {
  armed.store(false);
  const char* path = std::getenv("FAULT_LOG");
  if (path == nullptr) return;
  char text[64];
  const int size = std::snprintf(text, sizeof text, "%lu %lu\n", calls.load(), fired.load());
  const long fd = syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
  syscall(SYS_write, fd, text, size);
  syscall(SYS_close, fd);
}

int (*real_main)(int, char**, char**);
int main_with_faults(int argc, char** argv, char** environment) {
  const char* fault = std::getenv("FAULT");
  if (fault == nullptr) return real_main(argc, argv, environment);
  for (const Kind& k : kinds) {
    const std::size_t length = std::strlen(k.name);
    if (std::strncmp(fault, k.name, length) != 0 || fault[length] != ':') continue;
    char* end = nullptr;
    fault_at = std::strtoul(fault + length + 1, &end, 10);
    goes_on = std::strcmp(end, ":on") == 0;
    kind = &k;
  }
  if (kind == nullptr) std::abort();
  armed.store(true);
  const int code = real_main(argc, argv, environment);
  write_log();
  return code;
}

}  // namespace

extern "C" {

void* __libc_malloc(std::size_t size);
void* __libc_calloc(std::size_t count, std::size_t size);
void* __libc_realloc(void* memory, std::size_t size);
void* __libc_memalign(std::size_t alignment, std::size_t size);

int __libc_start_main(int (*main)(int, char**, char**), int argc, char** argv, void (*init)(), void (*fini)(),
                      void (*at_exit)(), void* stack) {
  real_main = main;
  using Start = int (*)(int (*)(int, char**, char**), int, char**, void (*)(), void (*)(), void (*)(), void*);
  return next<Start>("__libc_start_main")(main_with_faults, argc, argv, init, fini, at_exit, stack);
}

void* malloc(std::size_t size) {
  return fails(allocates) ? nullptr : __libc_malloc(size);
}
void* calloc(std::size_t count, std::size_t size) {
  return fails(allocates) ? nullptr : __libc_calloc(count, size);
}
void* realloc(void* memory, std::size_t size) {
  return fails(allocates) ? nullptr : __libc_realloc(memory, size);
}
void* memalign(std::size_t alignment, std::size_t size) {
  return fails(allocates) ? nullptr : __libc_memalign(alignment, size);
}
void* aligned_alloc(std::size_t alignment, std::size_t size) {
  return memalign(alignment, size);
}
int posix_memalign(void** to, std::size_t alignment, std::size_t size) {
  void* memory = memalign(alignment, size);
  if (memory == nullptr) return ENOMEM;
  *to = memory;
  return 0;
}

void* mmap(void* address, std::size_t size, int protection, int flags, int fd, off_t offset) {
  if (fails(allocates)) return MAP_FAILED;
  return reinterpret_cast<void*>(syscall(SYS_mmap, address, size, protection, flags, fd, offset));
}
void* mmap64(void* address, std::size_t size, int protection, int flags, int fd, off_t offset) {
  return mmap(address, size, protection, flags, fd, offset);
}

ssize_t write(int fd, const void* bytes, std::size_t size) {
  if (fails(unless_message(fd, stores | moves | takes_room | changes))) {
    if (errno != 0) return -1;
    size = (size + 1) / 2;
  }
  return syscall(SYS_write, fd, bytes, size);
}
ssize_t pwrite(int fd, const void* bytes, std::size_t size, off_t offset) {
  if (fails(stores | moves | takes_room | changes)) {
    if (errno != 0) return -1;
    size = (size + 1) / 2;
  }
  return syscall(SYS_pwrite64, fd, bytes, size, offset);
}
ssize_t pwrite64(int fd, const void* bytes, std::size_t size, off_t offset) {
  return pwrite(fd, bytes, size, offset);
}
ssize_t read(int fd, void* bytes, std::size_t size) {
  if (fails(reads | moves)) {
    if (errno != 0) return -1;
    size = (size + 1) / 2;
  }
  return syscall(SYS_read, fd, bytes, size);
}
ssize_t pread(int fd, void* bytes, std::size_t size, off_t offset) {
  if (fails(reads | moves)) {
    if (errno != 0) return -1;
    size = (size + 1) / 2;
  }
  return syscall(SYS_pread64, fd, bytes, size, offset);
}
ssize_t pread64(int fd, void* bytes, std::size_t size, off_t offset) {
  return pread(fd, bytes, size, offset);
}

int openat(int directory, const char* path, int flags, ...) {
  mode_t mode = 0;
  if ((flags & O_CREAT) != 0 || (flags & O_TMPFILE) == O_TMPFILE) {
    std::va_list arguments;
    va_start(arguments, flags);
    mode = va_arg(arguments, mode_t);
    va_end(arguments);
    if ((flags & O_TMPFILE) == O_TMPFILE && armed.load() && std::getenv("FAULT_NAMED") != nullptr) {
      errno = EOPNOTSUPP;
      return -1;
    }
    if (fails(takes_room | changes)) return -1;
  } else if (fails(reads)) {
    return -1;
  }
  return static_cast<int>(syscall(SYS_openat, directory, path, flags, mode));
}
int openat64(int directory, const char* path, int flags, ...) __attribute__((alias("openat")));
int open(const char* path, int flags, ...) {
  mode_t mode = 0;
  if ((flags & O_CREAT) != 0 || (flags & O_TMPFILE) == O_TMPFILE) {
    std::va_list arguments;
    va_start(arguments, flags);
    mode = va_arg(arguments, mode_t);
    va_end(arguments);
  }
  return openat(AT_FDCWD, path, flags, mode);
}
int open64(const char* path, int flags, ...) __attribute__((alias("open")));
int mkostemp(char* name, int flags) {
  return fails(takes_room | changes) ? -1 : next<int (*)(char*, int)>("mkostemp")(name, flags);
}
int mkostemp64(char* name, int flags) {
  return mkostemp(name, flags);
}

int fsync(int) {
  return fails(stores | changes) ? -1 : 0;
}
int close(int fd) {
  // The descriptor is closed whatever is said of it.
  const bool fail = fails(stores | changes);
  const int error = errno;
  const int result = static_cast<int>(syscall(SYS_close, fd));
  if (!fail) return result;
  errno = error;
  return -1;
}
int rename(const char* from, const char* to) {
  return fails(takes_room | changes) ? -1 : static_cast<int>(syscall(SYS_rename, from, to));
}
int linkat(int from_at, const char* from, int to_at, const char* to, int flags) {
  return fails(takes_room | changes) ? -1 : static_cast<int>(syscall(SYS_linkat, from_at, from, to_at, to, flags));
}
int mkdir(const char* path, mode_t mode) {
  return fails(takes_room | changes) ? -1 : static_cast<int>(syscall(SYS_mkdir, path, mode));
}
int ftruncate(int fd, off_t size) {
  return fails(takes_room | changes) ? -1 : static_cast<int>(syscall(SYS_ftruncate, fd, size));
}
int ftruncate64(int fd, off_t size) {
  return ftruncate(fd, size);
}
int fallocate(int fd, int mode, off_t offset, off_t size) {
  return fails(takes_room | changes) ? -1 : static_cast<int>(syscall(SYS_fallocate, fd, mode, offset, size));
}
int fallocate64(int fd, int mode, off_t offset, off_t size) {
  return fallocate(fd, mode, offset, size);
}

// These make room, or change what is there already; only the end of the process between them is of interest.
int unlink(const char* path) {
  return fails(changes) ? -1 : static_cast<int>(syscall(SYS_unlink, path));
}
int rmdir(const char* path) {
  return fails(changes) ? -1 : static_cast<int>(syscall(SYS_rmdir, path));
}
int fchmod(int fd, mode_t mode) {
  return fails(changes) ? -1 : static_cast<int>(syscall(SYS_fchmod, fd, mode));
}
int fchown(int fd, uid_t user, gid_t group) {
  return fails(changes) ? -1 : static_cast<int>(syscall(SYS_fchown, fd, user, group));
}
}
