// How sanitizers run bitcube-mpi: what OpenMPI does is none of our faults.

#ifdef __has_feature  // clang
#if __has_feature(address_sanitizer)
#define __SANITIZE_ADDRESS__ 1
#elif __has_feature(thread_sanitizer)
#define __SANITIZE_THREAD__ 1
#endif
#endif

#ifdef __SANITIZE_ADDRESS__
/// It keeps memory when the program ends. That the commands themselves leak nothing is seen in bitcube.
extern "C" const char* __asan_default_options();
extern "C" const char* __asan_default_options() {
  return "detect_leaks=0";
}
#endif

#ifdef __SANITIZE_THREAD__
/// Its modules (mca_*.so) take their locks in two orders when they begin and when they end.
extern "C" const char* __tsan_default_suppressions();
extern "C" const char* __tsan_default_suppressions() {
  return "deadlock:mca_\n";
}
#endif
