# libqwen36: everything is built, tested and installed from here. `make help` lists targets and variables.
#
# Sources are found by name: lib/*/*.c and kernels/$(BACKEND)/*.c make the library, kernels/reference/*.c judges it
# in the tests; tests/unit/test_*.c (other files there are shared by all), tests/bench/bench_*.c, tests/fuzz/fuzz_*.c,
# examples/*.c and examples/*.cpp make one program each. Objects lie under build/$(BACKEND)/, those of the sanitizer and fuzz variants
# under build/$(BACKEND)-asan/ and so on.

MAKEFLAGS += --no-builtin-rules
# A make that another one called takes its jobs from there.
ifeq ($(MAKELEVEL),0)
ifeq (,$(findstring -j,$(MAKEFLAGS)))
MAKEFLAGS += -j$(shell nproc)
endif
endif
.DELETE_ON_ERROR:
.SUFFIXES:

# ---- variables for the caller --------------------------------------------------------------------------------

BACKEND ?= cpu
ifeq ($(origin CC),default)
CC = gcc
endif
CFLAGS ?=
LDFLAGS ?=
V ?= 0
DEPS ?= install
PYTHON ?= python3
FUZZ_CC ?= clang
FUZZ_SECONDS ?= 60
BENCH ?= $(notdir $(BENCHES))
BENCH_ARGS ?=

DESTDIR ?=
prefix = /usr/local
exec_prefix = $(prefix)
libdir = $(exec_prefix)/lib
includedir = $(prefix)/include
datarootdir = $(prefix)/share
docdir = $(datarootdir)/doc/libqwen36
pkgconfigdir = $(libdir)/pkgconfig
INSTALL = install

# ---- what is built -------------------------------------------------------------------------------------------

BACKENDS = cpu cuda-simt
ifeq (,$(filter $(BACKEND),$(BACKENDS)))
$(error BACKEND=$(BACKEND) is none of $(BACKENDS))
endif

version_part = $(shell sed -n 's/^.define QWEN36_VERSION_$(1) //p' include/qwen36.h)
MAJOR := $(call version_part,MAJOR)
VERSION := $(MAJOR).$(call version_part,MINOR).$(call version_part,PATCH)
SONAME := libqwen36.so.$(MAJOR)

TARGET := $(shell $(CC) -dumpmachine 2>/dev/null)
CROSS := $(patsubst %gcc,%,$(filter %-gcc,$(notdir $(CC))))
ifeq ($(origin CXX),default)
CXX = $(CROSS)g++
endif
AR = $(CROSS)ar
OBJCOPY = $(CROSS)objcopy

BUILD = build/$(BACKEND)$(VARIANT)
# The CPU kernels are in every build; which backend the library opens is decided by its open.c.
LIB_SOURCES := $(sort $(wildcard lib/*/*.c kernels/cpu/*.c))
ifneq ($(BACKEND),cpu)
LIB_SOURCES := $(filter-out kernels/cpu/open.c,$(LIB_SOURCES))
endif
JUDGE_SOURCES := $(sort $(wildcard kernels/reference/*.c))
TEST_SOURCES := $(sort $(wildcard tests/unit/test_*.c))
TEST_SHARED := $(sort $(filter-out $(TEST_SOURCES),$(wildcard tests/unit/*.c)))
EXAMPLE_SOURCES := $(sort $(wildcard examples/*.c))
CXX_EXAMPLE_SOURCES := $(sort $(wildcard examples/*.cpp))
BENCH_SOURCES := $(sort $(wildcard tests/bench/bench_*.c))
BENCH_SHARED := $(sort $(filter-out $(BENCH_SOURCES),$(wildcard tests/bench/*.c)))
FUZZ_SOURCES := $(sort $(wildcard tests/fuzz/fuzz_*.c))

# Kernels for an instruction set lie in files named after it. Elsewhere than on x86-64 they are left out, and
# the macros by which the CPU backend fills its tables are not defined.
TIERS = avx2 avx512 avx512bf16
FLAGS_avx2 = -mavx2 -mfma -mf16c -mbmi2
FLAGS_avx512 = -mavx512f -mavx512bw -mavx512dq -mavx512vl -mavx512cd -mfma -mf16c
FLAGS_avx512bf16 = $(FLAGS_avx512) -mavx512bf16 -mavx512vnni
tier_flags = $(FLAGS_$(lastword $(subst _, ,$(basename $(notdir $(1))))))
ifneq (,$(filter x86_64-%,$(TARGET)))
TIER_DEFINES = -DQW_HAVE_AVX2=1 -DQW_HAVE_AVX512=1 -DQW_HAVE_AVX512BF16=1
else
LIB_SOURCES := $(filter-out $(TIERS:%=\%_%.c),$(LIB_SOURCES))
endif

# The CUDA backend on the SIMT machine of tests/simt: slow, for tests.
CUDA_SOURCES := $(sort $(wildcard kernels/cuda/*.cu))
# These speak to the CUDA runtime; the SIMT machine has its own in their place.
CUDA_DEVICE_ONLY = kernels/cuda/runtime.cu kernels/cuda/blas.cu
SIMT_TESTS := $(sort $(wildcard tests/simt/test_*.c))
SIMT_SHARED := $(sort $(filter-out $(SIMT_TESTS),$(wildcard tests/simt/*.c tests/simt/*.cpp tests/simt/*.cu)))
simt_objects = $(patsubst %,build/$(1)/%.o,$(basename $(filter-out $(CUDA_DEVICE_ONLY),$(CUDA_SOURCES)) \
    $(filter-out $(if $(filter %-plain,$(1)),%_checked.cpp,%_plain.cpp),$(SIMT_SHARED))))
ifeq ($(BACKEND),cuda-simt)
BACKEND_OBJECTS := $(call simt_objects,simt-plain)
BACKEND_LIBS = -lstdc++ -lm
endif

OBJECTS := $(LIB_SOURCES:%.c=$(BUILD)/%.o) $(BACKEND_OBJECTS)
JUDGE_OBJECTS := $(JUDGE_SOURCES:%.c=$(BUILD)/%.o)
TESTS := $(TEST_SOURCES:tests/unit/%.c=$(BUILD)/tests/%)
EXAMPLES := $(EXAMPLE_SOURCES:examples/%.c=$(BUILD)/examples/%)
CXX_EXAMPLES := $(CXX_EXAMPLE_SOURCES:examples/%.cpp=$(BUILD)/examples/%)
BENCHES := $(BENCH_SOURCES:tests/bench/%.c=$(BUILD)/bench/%)
FUZZERS := $(FUZZ_SOURCES:tests/fuzz/%.c=$(BUILD)/fuzz/%)

# ---- flags ---------------------------------------------------------------------------------------------------

CXX_WARNINGS = -Wall -Wextra -Wconversion -Wshadow -Wcast-qual -Werror
WARNINGS = $(CXX_WARNINGS) -Wmissing-prototypes
LANGUAGE = -std=c11 -D_POSIX_C_SOURCE=200809L -pthread

# These come after the caller's CFLAGS, because the library's promises rest on them. Results are defined bit by
# bit: no contraction to FMA, no fast math. (That sqrt leaves errno alone changes no bit, and saves libm.) The
# library never ends the process: no fortified calls (__*_chk) and no stack protector (__stack_chk_fail), for both
# abort it; tests/gates/symbols.py looks for them.
FIXED = -ffp-contract=off -fno-fast-math -fno-math-errno -U_FORTIFY_SOURCE -fno-stack-protector

# SANITIZE is a list for -fsanitize; SANITIZE_LINK the list for programs where it differs.
comma = ,
recover = -fno-omit-frame-pointer -fno-sanitize-recover=all
SANITIZE_C = $(if $(SANITIZE),-fsanitize=$(SANITIZE) $(recover))
SANITIZE_L = $(if $(SANITIZE),-fsanitize=$(or $(SANITIZE_LINK),$(SANITIZE)))

INCLUDES = -Iinclude -I.
COMPILE = $(CC) $(LANGUAGE) -MMD -MP $(WARNINGS)
PLAIN_FLAGS = -g -fPIC -fvisibility=hidden $(INCLUDES) $(TIER_DEFINES)
LIB_FLAGS = $(PLAIN_FLAGS) $(SANITIZE_C) $(CFLAGS)
# Fuzzers look at parsers. Their kernels are linked but not instrumented: clang would take minutes for each tier.
KERNEL_FLAGS = $(if $(findstring fuzzer,$(SANITIZE)),$(PLAIN_FLAGS) $(CFLAGS),$(LIB_FLAGS))
TEST_FLAGS = -O1 -g $(INCLUDES) $(TIER_DEFINES) -DQW_TEST_BUILD='"build/$(BACKEND)"' $(SANITIZE_C) \
    $(if $(INPROCESS),-DQW_TEST_INPROCESS) $(CFLAGS)
EXAMPLE_FLAGS = -O2 -g -Iinclude -Iexamples $(CFLAGS)
EXAMPLE_LINK = $(LDFLAGS) -L$(BUILD) -lqwen36 -Wl,-rpath,'$$ORIGIN/..' -Wl,--as-needed
LINK = $(CC) -pthread $(SANITIZE_L) $(CFLAGS) $(LDFLAGS) -Wl,--as-needed
LIBS = -lcjson -lpcre2-8 -lutf8proc -lmd -lpthread $(BACKEND_LIBS)

ifeq ($(V),1)
say = @:
Q =
else
say = @printf '  %-5s %s\n' $(1) $(2)
Q = @
endif

# ---- library -------------------------------------------------------------------------------------------------

.PHONY: all lib static shared examples unit cdef install uninstall dist prepare test demo bench asan ubsan tsan fuzz \
    fuzzers simt cuda-objects check-abi check-symbols check-header check-style clean help FORCE

all: lib examples
lib: static shared
static: $(BUILD)/libqwen36.a
shared: $(BUILD)/libqwen36.so

# The flags of the last build: everything is made anew when they change. The first time is also the moment to
# say which packages are missing.
$(BUILD)/flags: FORCE
	@mkdir -p $(@D)
	@test -f $@ || CC='$(CC)' tests/deps.sh build
	@echo '$(COMPILE) $(LIB_FLAGS) $(FIXED) $(INPROCESS)' | cmp -s - $@ || \
	    echo '$(COMPILE) $(LIB_FLAGS) $(FIXED) $(INPROCESS)' >$@

$(BUILD)/lib/%.o: lib/%.c $(BUILD)/flags
	$(call say,CC,$<)
	@mkdir -p $(@D)
	$(Q)$(COMPILE) -O2 $(LIB_FLAGS) $(FIXED) -c -o $@ $<

$(BUILD)/kernels/%.o: kernels/%.c $(BUILD)/flags
	$(call say,CC,$<)
	@mkdir -p $(@D)
	$(Q)$(COMPILE) -O3 $(KERNEL_FLAGS) $(call tier_flags,$<) $(FIXED) -c -o $@ $<

# The version script: the names of lib/exports.list are exported, nothing else is.
$(BUILD)/qwen36.map: lib/exports.list
	@mkdir -p $(@D)
	@{ echo 'QWEN36_$(MAJOR) {'; echo '  global:'; sed 's/.*/    &;/' $<; echo '  local: *;'; echo '};'; } >$@

$(BUILD)/libqwen36.so.$(VERSION): $(OBJECTS) $(BUILD)/qwen36.map
	$(call say,LINK,$@)
	$(Q)$(LINK) -shared -Wl,-soname,$(SONAME) -Wl,--version-script=$(BUILD)/qwen36.map \
	    $(if $(SANITIZE),,-Wl$(comma)-z$(comma)defs) -o $@ $(OBJECTS) $(LIBS)

$(BUILD)/libqwen36.so: $(BUILD)/libqwen36.so.$(VERSION)
	@ln -sf $(notdir $<) $(BUILD)/$(SONAME)
	@ln -sf $(SONAME) $@

# One object in which only the exported names are global, so that a static link cannot collide with ours.
$(BUILD)/libqwen36.a: $(OBJECTS) lib/exports.list
	$(call say,AR,$@)
	$(Q)$(CC) -nostdlib -r -o $(BUILD)/qwen36.o $(OBJECTS)
	$(Q)$(OBJCOPY) --keep-global-symbols=lib/exports.list $(BUILD)/qwen36.o
	$(Q)rm -f $@ && $(AR) rcs $@ $(BUILD)/qwen36.o

# The same objects with their internal names, and the reference kernels, for tests and benchmarks.
$(BUILD)/internal.a: $(OBJECTS) $(JUDGE_OBJECTS)
	@rm -f $@ && $(AR) rcsT $@ $^

# The header as cffi and bindgen read it: no directives but plain #define, no attributes.
cdef: $(BUILD)/qwen36.cdef.h
$(BUILD)/qwen36.cdef.h: include/qwen36.h tests/gates/make_cdef.py
	@mkdir -p $(@D)
	$(Q)CC='$(CC)' $(PYTHON) tests/gates/make_cdef.py include/qwen36.h >$@

# ---- programs ------------------------------------------------------------------------------------------------

# An example sees what an installed library shows, and finds the shared library beside it.
# Those in C++ are built where there is a compiler for them.
ifeq (,$(shell command -v $(firstword $(CXX)) 2>/dev/null))
examples: $(EXAMPLES)
	@echo 'not built, for $(CXX) is missing: $(CXX_EXAMPLE_SOURCES)'
else
examples: $(EXAMPLES) $(CXX_EXAMPLES)
endif

$(EXAMPLES): $(BUILD)/examples/%: examples/%.c $(BUILD)/libqwen36.so $(BUILD)/flags
	$(call say,CC,$<)
	@mkdir -p $(@D)
	$(Q)$(COMPILE) $(EXAMPLE_FLAGS) -o $@ $< $(EXAMPLE_LINK) -lcjson -lpthread -lm

$(CXX_EXAMPLES): $(BUILD)/examples/%: examples/%.cpp $(BUILD)/libqwen36.so $(BUILD)/flags
	$(call say,CXX,$<)
	@mkdir -p $(@D)
	$(Q)$(CXX) -std=c++17 -MMD -MP $(CXX_WARNINGS) $(EXAMPLE_FLAGS) -o $@ $< $(EXAMPLE_LINK)

TEST_COMMON := $(BUILD)/tests/harness.o $(BUILD)/tests/shared.a
TEST_LIBS = $(LIBS) $(if $(INPROCESS),,-lcriterion) -lm

# A test in a file test_*_malloc.c sees every allocation of its process, those of third-party libraries' inline
# callers included: it defines __wrap_malloc, __wrap_calloc and __wrap_realloc, which may call __real_malloc ...
WRAP = $(if $(filter %_malloc,$(1)),$(foreach name,malloc calloc realloc,-Wl$(comma)--wrap=$(name)))

# Some tests make checkpoints of random weights, by the example that does so.
unit: $(TESTS) $(if $(VARIANT),,$(filter %/make-model,$(EXAMPLES)))
$(BUILD)/tests/%.o: tests/unit/%.c $(BUILD)/flags
	$(call say,CC,$<)
	@mkdir -p $(@D)
	$(Q)$(COMPILE) $(TEST_FLAGS) $(FIXED) -c -o $@ $<

$(BUILD)/tests/harness.o: tests/harness.c $(BUILD)/flags
	$(call say,CC,$<)
	@mkdir -p $(@D)
	$(Q)$(COMPILE) $(TEST_FLAGS) $(FIXED) -c -o $@ $<

# An archive: a test links those of the shared files that it names.
$(BUILD)/tests/shared.a: $(TEST_SHARED:tests/unit/%.c=$(BUILD)/tests/%.o)
	@mkdir -p $(@D)
	@rm -f $@ && $(AR) rcsT $@ $^

$(TESTS): $(BUILD)/tests/%: $(BUILD)/tests/%.o $(TEST_COMMON) $(BUILD)/internal.a
	$(call say,LINK,$@)
	$(Q)$(LINK) $(call WRAP,$@) -o $@ $< $(TEST_COMMON) $(BUILD)/internal.a $(TEST_LIBS)

BENCH_FLAGS = -O2 -g $(INCLUDES) $(TIER_DEFINES) $(CFLAGS) $(FIXED)
$(BENCHES): $(BUILD)/bench/%: tests/bench/%.c $(BENCH_SHARED) $(BUILD)/internal.a $(BUILD)/flags
	$(call say,CC,$<)
	@mkdir -p $(@D)
	$(Q)$(COMPILE) $(BENCH_FLAGS) -o $@ $< $(BENCH_SHARED) $(BUILD)/internal.a $(LDFLAGS) $(LIBS) -lm

bench: $(BENCHES) examples
	$(Q)set -e; for program in $(BENCH); do $(BUILD)/bench/$$program $(BENCH_ARGS); done

fuzzers: $(FUZZERS)
$(FUZZERS): $(BUILD)/fuzz/%: tests/fuzz/%.c $(BUILD)/internal.a $(BUILD)/flags
	$(call say,CC,$<)
	@mkdir -p $(@D)
	$(Q)$(COMPILE) $(TEST_FLAGS) $(FIXED) -o $@ $< $(BUILD)/internal.a $(SANITIZE_L) $(LDFLAGS) $(LIBS) -lm

# ---- CUDA kernels --------------------------------------------------------------------------------------------

# Without a GPU: the kernels, compiled by the host's C++ compiler for the SIMT machine of tests/simt, once for each
# warp width and once unchecked, make test programs build/simt32/test_*, build/simt64/test_* and build/simt-plain/test_*.
SIMT_MACHINES = simt32 simt64 simt-plain
simt32_FLAGS = -O2 -DQW_WARP_WIDTH=32
simt64_FLAGS = -O2 -DQW_WARP_WIDTH=64
simt-plain_FLAGS = -O3 -DQW_WARP_WIDTH=32 -DQW_SIMT_UNCHECKED
SIMT_PROGRAMS := $(foreach machine,$(SIMT_MACHINES),$(SIMT_TESTS:tests/simt/%.c=build/$(machine)/%))
SIMT_FLAGS = $(INCLUDES) -g -fPIC -ffp-contract=off $($(word 2,$(subst /, ,$@))_FLAGS)
SIMT_CXX = $(CXX) -std=c++17 -pthread -MMD -MP -Wall -Wextra -Wconversion -Wshadow -Wcast-qual -Werror \
    -fno-exceptions -fno-rtti -fno-threadsafe-statics -DQW_DEVICE_SHIM='"tests/simt/simt_device.h"' $(SIMT_FLAGS)
SIMT_C = $(COMPILE) -DQW_TEST_INPROCESS $(SIMT_FLAGS)

simt: $(SIMT_PROGRAMS)
define simt_rules
build/$(1)/%.o: %.c
	$$(call say,CC,$$<)
	@mkdir -p $$(@D)
	$$(Q)$$(SIMT_C) -c -o $$@ $$<
build/$(1)/%.o: %.cpp
	$$(call say,CXX,$$<)
	@mkdir -p $$(@D)
	$$(Q)$$(SIMT_CXX) -c -o $$@ $$<
build/$(1)/%.o: %.cu
	$$(call say,CXX,$$<)
	@mkdir -p $$(@D)
	$$(Q)$$(SIMT_CXX) -x c++ -c -o $$@ $$<
build/$(1)/machine.a: $(call simt_objects,$(1)) build/$(1)/tests/harness.o
	@rm -f $$@ && $$(AR) rcsT $$@ $$^
build/$(1)/test_%: build/$(1)/tests/simt/test_%.o build/$(1)/machine.a $$(BUILD)/internal.a
	$$(call say,LINK,$$@)
	$$(Q)$$(CXX) -pthread -o $$@ $$^ $$(LDFLAGS) $$(LIBS) -lm
endef
$(foreach machine,$(SIMT_MACHINES),$(eval $(call simt_rules,$(machine))))
.SECONDARY: $(foreach machine,$(SIMT_MACHINES),$(SIMT_TESTS:%.c=build/$(machine)/%.o))

# With nvcc, still without a GPU: the kernels (and those that try the device header) compile for every architecture of CUDA_ARCHS without a warning.
NVCC ?= $(or $(shell command -v nvcc 2>/dev/null),/usr/local/cuda/bin/nvcc)
CUDA_ARCHS ?= 75 80 86 89 90a 100 120
CUDA_CHECKED := $(CUDA_SOURCES) $(wildcard tests/simt/*.cu)
CUDA_OBJECTS := $(foreach arch,$(CUDA_ARCHS),$(CUDA_CHECKED:%.cu=build/cuda-sm_$(arch)/%.o))
NVCC_FLAGS = -std=c++17 -O2 $(INCLUDES) -Werror all-warnings --fmad=true \
    -Xcompiler -Wall,-Wextra,-fno-exceptions,-fno-rtti,-fno-threadsafe-statics,-fPIC,-fvisibility=hidden

cuda-objects: $(CUDA_OBJECTS)
define nvcc_rules
build/cuda-sm_$(1)/%.o: %.cu
	$$(call say,NVCC,'$$< (sm_$(1))')
	@mkdir -p $$(@D)
	$$(Q)$$(NVCC) $$(NVCC_FLAGS) -gencode arch=compute_$(1),code=sm_$(1) -MMD -MP -MF $$(@:.o=.d) -c -o $$@ $$<
endef
$(foreach arch,$(CUDA_ARCHS),$(eval $(call nvcc_rules,$(arch))))

# ---- tests ---------------------------------------------------------------------------------------------------

# The runner starts builds of its own, with these variables and its own jobs. One runs at a time in a tree, also when
# several targets are asked for at once.
RUN = @mkdir -p build && MAKE='$(MAKE)' BACKEND='$(BACKEND)' CC='$(CC)' CXX='$(CXX)' CFLAGS='$(CFLAGS)' \
    LDFLAGS='$(LDFLAGS)' FUZZ_CC='$(FUZZ_CC)' FUZZ_SECONDS='$(FUZZ_SECONDS)' V='$(V)' PYTHON='$(PYTHON)' \
    MAKELEVEL=0 MAKEFLAGS= MFLAGS= MAKEOVERRIDES= flock -o build/lock $(PYTHON) tests/run.py
PREPARE = @CC='$(CC)' CXX='$(CXX)' FUZZ_CC='$(FUZZ_CC)' PYTHON='$(PYTHON)' DEPS='$(DEPS)' tests/deps.sh

prepare:
	$(PREPARE) test

test: prepare
	$(RUN)

asan ubsan tsan fuzz check-abi check-symbols check-header check-style: prepare
	$(RUN) $@

demo:
	$(PREPARE) build
	@$(MAKE) --no-print-directory examples
	@tests/demo.sh $(BUILD)/examples/chat

# ---- installation --------------------------------------------------------------------------------------------

in_prefix = $(patsubst $(prefix)/%,$${prefix}/%,$(1))
$(BUILD)/qwen36.pc: pkgconfig/qwen36.pc.in FORCE
	@mkdir -p $(@D)
	@sed -e 's|@prefix@|$(prefix)|' -e 's|@exec_prefix@|$(patsubst $(prefix),$${prefix},$(exec_prefix))|' \
	    -e 's|@libdir@|$(call in_prefix,$(libdir))|' -e 's|@includedir@|$(call in_prefix,$(includedir))|' \
	    -e 's|@version@|$(VERSION)|' -e 's|@libs@|$(LIBS)|' $< >$@

install: lib $(BUILD)/qwen36.pc
	$(INSTALL) -d '$(DESTDIR)$(libdir)' '$(DESTDIR)$(includedir)' '$(DESTDIR)$(pkgconfigdir)' '$(DESTDIR)$(docdir)'
	$(INSTALL) -m 644 include/qwen36.h '$(DESTDIR)$(includedir)'
	$(INSTALL) -m 755 $(BUILD)/libqwen36.so.$(VERSION) '$(DESTDIR)$(libdir)'
	ln -sf libqwen36.so.$(VERSION) '$(DESTDIR)$(libdir)/$(SONAME)'
	ln -sf $(SONAME) '$(DESTDIR)$(libdir)/libqwen36.so'
	$(INSTALL) -m 644 $(BUILD)/libqwen36.a '$(DESTDIR)$(libdir)'
	$(INSTALL) -m 644 $(BUILD)/qwen36.pc '$(DESTDIR)$(pkgconfigdir)'
	$(INSTALL) -m 644 LICENSE NOTICE '$(DESTDIR)$(docdir)'

uninstall:
	rm -f '$(DESTDIR)$(includedir)/qwen36.h' '$(DESTDIR)$(libdir)/libqwen36.so.$(VERSION)' \
	    '$(DESTDIR)$(libdir)/$(SONAME)' '$(DESTDIR)$(libdir)/libqwen36.so' '$(DESTDIR)$(libdir)/libqwen36.a' \
	    '$(DESTDIR)$(pkgconfigdir)/qwen36.pc' '$(DESTDIR)$(docdir)/LICENSE' '$(DESTDIR)$(docdir)/NOTICE'
	-rmdir '$(DESTDIR)$(docdir)'

# The tracked files, as they are in the working tree.
dist:
	@mkdir -p dist
	@git ls-files -z | tar --null --files-from=- --sort=name --owner=0 --group=0 --numeric-owner \
	    --transform='s,^,libqwen36-$(VERSION)/,' -czf dist/libqwen36-$(VERSION).tar.gz
	@echo dist/libqwen36-$(VERSION).tar.gz

clean:
	rm -rf build dist

help:
	@sed -n 's/^#: \{0,1\}//p' Makefile

-include $(shell find $(wildcard $(BUILD) build/simt* build/cuda-sm_*) /dev/null -name '*.d')

#: libqwen36, an inference library for the Qwen3.6 model family
#:
#: build     all              library and examples (the default)
#:           lib              the shared and the static library; also: static, shared
#:           examples         the programs of examples/
#:           cdef             build/$(BACKEND)/qwen36.cdef.h, the header for cffi and bindgen
#:           install          into $(DESTDIR)$(prefix); undone by uninstall
#:           dist             dist/libqwen36-VERSION.tar.gz of the tracked files
#:           clean            removes build/ and dist/
#: run       demo             installs what is missing, builds, shows a conversation, and on a terminal holds one
#:           bench            benchmarks
#: test      test             installs what is missing, runs all tests
#:           unit             builds the unit test programs, build/$(BACKEND)/tests/test_*
#:           simt             builds the tests of the CUDA kernels on a SIMT machine: build/simt32, build/simt64, build/simt-plain
#:           cuda-objects     compiles the CUDA kernels for each of CUDA_ARCHS with NVCC; no GPU is needed
#:           asan ubsan tsan  the unit tests under a sanitizer (address + undefined, undefined, thread)
#:           fuzz             each fuzzer for FUZZ_SECONDS
#:           check-abi        exported names, sizes, offsets, constants, types against the baseline
#:           check-symbols    what the release library imports and exports
#:           check-header     the header as C11, C17, C++11, C++17, and as cffi reads it
#:           check-style      format, lengths, include rule, names in the documentation
#:
#: BACKEND=cpu              the backend to build
#: CC= CXX= CFLAGS= LDFLAGS=    CC=aarch64-linux-gnu-gcc cross-compiles
#: NVCC= CUDA_ARCHS="80 90a"    for cuda-objects
#: V=1                      shows the commands
#: DEPS=check               demo and test never install, but say what to install
#: prefix= exec_prefix= libdir= includedir= docdir= pkgconfigdir= DESTDIR=    for install
#: FUZZ_SECONDS=60
#: BENCH=bench_model BENCH_ARGS=    one benchmark, and its arguments
