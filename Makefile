# The two commands a newcomer needs: `make demo` and `make test`. `make help` lists the others.
BUILD ?= build
JOBS ?= $(shell nproc)

.PHONY: all demo test test-exhaustive test-reproducible bench check coverage deb sbom bootstrap fuzz \
  fuzz-build fuzz-long format tidy cppcheck clean help

all: $(BUILD)/build.ninja
	@cmake --build $(BUILD) -j $(JOBS) --target bitcube_program

demo: bootstrap all
	@$(BUILD)/bitcube demo

test: bootstrap $(BUILD)/build.ninja
	@cmake --build $(BUILD) -j $(JOBS)
	@ctest --test-dir $(BUILD) -j $(JOBS) --output-on-failure $(CTEST_FLAGS)

# All 2^32 FP32 encodings into the short formats; an hour or two.
test-exhaustive: bootstrap $(BUILD)/build.ninja
	@cmake --build $(BUILD) -j $(JOBS) --target fp32_sources
	@$(BUILD)/tests/fp32_sources --kernels
	@$(BUILD)/tests/fp32_sources

# The Debian packages, in build-deb: the same bytes from the same source wherever and whenever it lies.
deb: export SOURCE_DATE_EPOCH := $(shell tools/source-date)
deb: bootstrap
	@cmake --preset release -B build-deb -DBITCUBE_TESTS=OFF -DCMAKE_INSTALL_PREFIX=/usr \
	  -DCMAKE_C_FLAGS=-ffile-prefix-map=$(CURDIR)=. -DCMAKE_CXX_FLAGS=-ffile-prefix-map=$(CURDIR)=. $(CMAKE_FLAGS)
	@umask 022 && cmake --build build-deb -j $(JOBS)
	@umask 022 && cd build-deb && cpack

# Two builds in two folders, compared byte for byte; ten minutes or more.
test-reproducible: bootstrap
	@tests/package/reproducible

# The bill of materials of this build, SPDX 2.3.
sbom: bootstrap $(BUILD)/build.ninja
	@cmake --build $(BUILD) -j $(JOBS) --target bitcube_program bitcube_c bitcube_python_package
	@tools/sbom $(BUILD) $(BUILD)/sbom.spdx.json

# Lines and branches of the five rooms that decide bits, counted by their own tests; docs/reliability.md says how.
coverage: bootstrap
	@cmake --preset coverage $(CMAKE_FLAGS) > /dev/null
	@tools/coverage build-coverage --run $(JOBS) --missing

$(BUILD)/build.ninja: CMakeLists.txt CMakePresets.json | bootstrap
	@cmake --preset release -B $(BUILD) $(CMAKE_FLAGS)

# Every claim of speed against its peer, in one process; a table of ratios, and $(BUILD)/bench.json.
bench: $(BUILD)/build.ninja
	@scripts/bootstrap bench
	@cmake --preset release -B $(BUILD) -DBITCUBE_BENCH=ON $(CMAKE_FLAGS) > /dev/null
	@cmake --build $(BUILD) -j $(JOBS) --target bitcube_bench
	@$(BUILD)/bitcube_bench --json $(BUILD)/bench.json $(BENCH_FLAGS)

# Installs what is missing, says nothing where nothing is.
bootstrap:
	@scripts/bootstrap

# The whole suite under a sanitizer: make check PRESET=dev (address, undefined), tsan, or clang.
PRESET ?= dev
check: bootstrap
	@[ $(PRESET) != clang ] || scripts/bootstrap clang
	@cmake --preset $(PRESET)
	@cmake --build --preset $(PRESET) -j $(JOBS)
	@ctest --preset $(PRESET) -j $(JOBS)

# Every fuzz target in turn: a minute each (FUZZ_SECONDS), or an hour. FUZZ_TARGETS="npy state" takes only these.
FUZZ_SECONDS ?= 60
fuzz: fuzz-build
	@fuzz/run build-fuzz $(FUZZ_SECONDS) $(FUZZ_TARGETS)

fuzz-long: FUZZ_SECONDS = 3600
fuzz-long: fuzz

fuzz-build:
	@scripts/bootstrap fuzz
	@cmake --preset fuzz $(CMAKE_FLAGS) > /dev/null
	@cmake --build --preset fuzz -j $(JOBS) --target fuzz_targets

format:
	@scripts/bootstrap format
	@git ls-files '*.hpp' '*.cpp' '*.h' '*.c' | xargs clang-format -i

# clang-tidy reads what clang would be told: no options of g++, no precompiled headers.
tidy:
	@scripts/bootstrap tidy
	@cmake --preset clang -B build-tidy -DCMAKE_DISABLE_PRECOMPILE_HEADERS=ON > /dev/null
	@git ls-files '*.cpp' | xargs -P $(JOBS) -n 1 clang-tidy --quiet -p build-tidy

# What cannot be mended stands in the suppressions, with the reason.
cppcheck:
	@scripts/bootstrap cppcheck
	@cppcheck --std=c++20 --language=c++ --enable=warning,performance,portability --inline-suppr --quiet --error-exitcode=1 \
	  --suppressions-list=tools/cppcheck-suppressions -j $(JOBS) -I include -I src src tools

clean:
	@rm -rf build build-*

help:
	@echo 'make demo       install what is missing, build, run the digits demo'
	@echo 'make test       install what is missing, build, run every test'
	@echo 'make test-exhaustive  all 2^32 FP32 encodings, an hour or two'
	@echo 'make bench      speed against memcpy and OpenBLAS, a few minutes'
	@echo 'make coverage   lines and branches that the tests reach, 20 minutes'
	@echo 'make deb        the Debian packages, in build-deb'
	@echo 'make test-reproducible  builds them twice and compares the bytes'
	@echo 'make sbom       $(BUILD)/sbom.spdx.json, what the build is made of'
	@echo 'make            build build/bitcube'
	@echo 'make check PRESET=dev|tsan|clang   the test suite in that build'
	@echo 'make fuzz       every fuzz target for a minute; make fuzz-long for an hour'
	@echo 'make format | tidy | cppcheck | clean'
