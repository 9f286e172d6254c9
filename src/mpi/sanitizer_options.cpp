// How the address sanitizer runs bitcube-mpi: OpenMPI keeps memory when the program ends, which is none of our leaks.
// That the commands themselves leak nothing is seen in bitcube.
extern "C" const char* __asan_default_options();
extern "C" const char* __asan_default_options() {
  return "detect_leaks=0";
}
