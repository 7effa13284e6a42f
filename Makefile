# libqwen36: everything is built, tested and installed from here. `make help` lists targets and variables.
#
# Sources are found by name: lib/*/*.c and kernels/*/*.c or .cu of the backend make the library, kernels/reference/*.c
# judges it in the tests; tests/unit/test_*.c (other files there are shared by all), with BACKEND=cuda-simt
# tests/cuda/test_*.c, tests/bench/bench_*.c, tests/fuzz/fuzz_*.c, examples/*.c and examples/*.cpp make one program each.
# Objects lie under build/$(BACKEND)/, those of the sanitizer and fuzz variants under build/$(BACKEND)-asan/ and so on.

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
pkglibdir = $(libdir)$(VARIETY:%=/qwen36%)
includedir = $(prefix)/include
datarootdir = $(prefix)/share
docdir = $(datarootdir)/doc/libqwen36
pkgconfigdir = $(libdir)/pkgconfig
INSTALL = install

# ---- what is built -------------------------------------------------------------------------------------------

# The folders of kernels/ that make a backend. The CUDA builds link the CPU kernels too; the library opens the backend of
# the last folder, whose open.c or open.cu is linked. cuda-simt is the CUDA backend on the SIMT machine of tests/simt: on
# the CPU, slow, for tests. VARIETY tells installed packages apart.
FOLDERS_cpu = cpu
FOLDERS_cuda = cpu cuda
FOLDERS_cuda-simt = cpu cuda
FOLDERS := $(FOLDERS_$(BACKEND))
ifeq (,$(FOLDERS))
$(error BACKEND=$(BACKEND) is not there: the backends are cpu and cuda, and for tests cuda-simt)
endif
VARIETY = $(addprefix -,$(filter-out cpu,$(BACKEND)))
PACKAGE = qwen36$(VARIETY)

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
OPENERS := $(filter-out kernels/$(lastword $(FOLDERS))/%,$(wildcard kernels/*/open.c kernels/*/open.cu))
LIB_SOURCES := $(sort $(wildcard lib/*/*.c) $(filter-out $(OPENERS),$(wildcard $(FOLDERS:%=kernels/%/*.c))))
DEVICE_SOURCES := $(sort $(filter-out $(OPENERS),$(wildcard $(FOLDERS:%=kernels/%/*.cu))))
JUDGE_SOURCES := $(sort $(wildcard kernels/reference/*.c))
TEST_SOURCES := $(sort $(wildcard tests/unit/test_*.c))
TEST_SHARED := $(sort $(filter-out $(TEST_SOURCES),$(wildcard tests/unit/*.c)))
# Of the library with the CUDA backend on the SIMT machine: tests/cuda.
ifeq ($(BACKEND),cuda-simt)
DEVICE_TEST_SOURCES := $(sort $(wildcard tests/cuda/test_*.c))
DEVICE_TEST_SHARED := $(sort $(filter-out $(DEVICE_TEST_SOURCES),$(wildcard tests/cuda/*.c)))
endif
EXAMPLE_SOURCES := $(sort $(wildcard examples/*.c))
CXX_EXAMPLE_SOURCES := $(sort $(wildcard examples/*.cpp))
BENCH_SHARED := $(sort $(filter-out tests/bench/bench_%,$(wildcard tests/bench/*.c)))
# Of whole models for every backend; the others look into the CPU's.
BENCH_OF_MODELS = tests/bench/bench_model.c tests/bench/bench_sessions.c
BENCH_SOURCES := $(if $(filter cpu,$(BACKEND)),$(sort $(wildcard tests/bench/bench_*.c)),$(BENCH_OF_MODELS))
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

CUDA_SOURCES := $(sort $(wildcard kernels/cuda/*.cu))
# These speak to the CUDA runtime; the SIMT machine has its own in their place.
CUDA_DEVICE_ONLY = kernels/cuda/runtime.cu kernels/cuda/blas.cu
SIMT_TESTS := $(sort $(wildcard tests/simt/test_*.c))
SIMT_SHARED := $(sort $(filter-out $(SIMT_TESTS),$(wildcard tests/simt/*.c tests/simt/*.cpp tests/simt/*.cu)))
simt_objects = $(patsubst %,build/$(1)/%.o,$(basename $(filter-out $(CUDA_DEVICE_ONLY),$(CUDA_SOURCES)) \
    $(filter-out $(if $(filter %-plain,$(1)),%_checked.cpp,%_plain.cpp),$(SIMT_SHARED))))
DEVICE_OBJECTS_cuda = $(DEVICE_SOURCES:%.cu=$(BUILD)/%.o)
DEVICE_OBJECTS_cuda-simt = $(call simt_objects,simt-plain)
LIBS_cuda-simt = -lstdc++ -lm

OBJECTS := $(LIB_SOURCES:%.c=$(BUILD)/%.o) $(DEVICE_OBJECTS_$(BACKEND))
JUDGE_OBJECTS := $(JUDGE_SOURCES:%.c=$(BUILD)/%.o)
TESTS := $(TEST_SOURCES:tests/unit/%.c=$(BUILD)/tests/%) $(DEVICE_TEST_SOURCES:tests/cuda/%.c=$(BUILD)/tests/%)
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
LIBS = -lcjson -lpcre2-8 -lutf8proc -lmd $(LIBS_$(BACKEND)) -lpthread

# ---- CUDA ----------------------------------------------------------------------------------------------------

# nvcc, found by its name, at its usual place, or among the Python packages of tests/cuda/requirements.txt; and beside
# it the static runtime, so that the library loads where there is no CUDA at all.
NVCC ?= $(shell command -v nvcc || \
    ls /usr/local/cuda/bin/nvcc build/cuda-toolkit/lib/*/site-packages/nvidia/cu*/bin/nvcc 2>/dev/null | head -n 1)
ifeq ($(BACKEND),cuda)
NVCC := $(NVCC)
TOOLKIT := $(patsubst %/bin/,%,$(dir $(realpath $(shell command -v $(NVCC)))))
CUDART := $(firstword $(wildcard $(TOOLKIT)/lib64/libcudart_static.a $(TOOLKIT)/lib/libcudart_static.a))
LIBS_cuda = $(patsubst %/libcudart_static.a,-L%,$(CUDART)) -lcudart_static -ldl -lrt
endif

# Code for each of these devices, and PTX, which the driver compiles for others. PTX serves its own architecture and all
# later ones, that of an `a` architecture this one alone. That of 8.0 fits whatever is newer, also what lies between those
# listed; it has the instructions that kernels use outside of rows for one architecture, and costs no further pass.
CUDA_ARCHS ?= 75 80 86 89 90a 100 120
CUDA_PTX ?= 80
GENCODE = $(foreach arch,$(CUDA_ARCHS),-gencode arch=compute_$(arch),code=sm_$(arch)) \
    $(foreach arch,$(CUDA_PTX),-gencode arch=compute_$(arch),code=compute_$(arch))

# No exceptions, guards of statics or type information: nothing of libstdc++ is needed. No -rdc: every object registers
# its own kernels, so that a plain linker makes the library and the archive.
NVCC_FLAGS = -std=c++17 -O2 $(INCLUDES) -ccbin $(CXX) -Werror all-warnings -Xptxas -v -compress-mode=size $(GENCODE) \
    $(patsubst %,-Xcompiler %,-Wall -Wextra -g -fPIC -fvisibility=hidden -fno-exceptions -fno-rtti \
    -fno-threadsafe-statics $(CFLAGS) $(FIXED)) $(CUDA_FLAGS)

ifeq ($(V),1)
say = @:
Q =
else
say = @printf '  %-5s %s\n' $(1) $(2)
Q = @
endif

# ---- library -------------------------------------------------------------------------------------------------

.PHONY: all lib static shared examples unit cdef install uninstall dist prepare test demo bench asan ubsan tsan fuzz \
    fuzzers simt cuda-objects cuda-tests test-cuda check-abi check-symbols check-header check-style clean help FORCE

all: lib examples
lib: static shared
static: $(BUILD)/libqwen36.a
shared: $(BUILD)/libqwen36.so

# The flags of the last build: everything is made anew when they change. The first time is also the moment to
# say which packages are missing.
FLAGS = $(COMPILE) $(LIB_FLAGS) $(FIXED) $(INPROCESS) $(if $(DEVICE_SOURCES),$(NVCC) $(NVCC_FLAGS))
$(BUILD)/flags: FORCE
	@mkdir -p $(@D)
	@test -f $@ || CC='$(CC)' CXX='$(CXX)' BACKEND='$(BACKEND)' NVCC='$(NVCC)' tests/deps.sh build
	@echo '$(FLAGS)' | cmp -s - $@ || echo '$(FLAGS)' >$@

$(BUILD)/lib/%.o: lib/%.c $(BUILD)/flags
	$(call say,CC,$<)
	@mkdir -p $(@D)
	$(Q)$(COMPILE) -O2 $(LIB_FLAGS) $(FIXED) -c -o $@ $<

$(BUILD)/kernels/%.o: kernels/%.c $(BUILD)/flags
	$(call say,CC,$<)
	@mkdir -p $(@D)
	$(Q)$(COMPILE) -O3 $(KERNEL_FLAGS) $(call tier_flags,$<) $(FIXED) -c -o $@ $<

# What the assembler says of each kernel lies beside the object.
$(BUILD)/%.o: %.cu $(BUILD)/flags
	$(call say,NVCC,$<)
	@mkdir -p $(@D)
	$(Q)$(NVCC) $(NVCC_FLAGS) -MMD -MP -MF $(@:.o=.d) -c -o $@ $< >$(@:.o=.log) 2>&1 || { cat $(@:.o=.log) >&2; exit 1; }

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

$(BUILD)/tests/%.o: tests/cuda/%.c $(BUILD)/flags
	$(call say,CC,$<)
	@mkdir -p $(@D)
	$(Q)$(COMPILE) $(TEST_FLAGS) $(FIXED) -c -o $@ $<

$(BUILD)/tests/harness.o: tests/harness.c $(BUILD)/flags
	$(call say,CC,$<)
	@mkdir -p $(@D)
	$(Q)$(COMPILE) $(TEST_FLAGS) $(FIXED) -c -o $@ $<

# An archive: a test links those of the shared files that it names.
$(BUILD)/tests/shared.a: $(TEST_SHARED:tests/unit/%.c=$(BUILD)/tests/%.o) $(DEVICE_TEST_SHARED:tests/cuda/%.c=$(BUILD)/tests/%.o)
	@mkdir -p $(@D)
	@rm -f $@ && $(AR) rcsT $@ $^

$(TESTS): $(BUILD)/tests/%: $(BUILD)/tests/%.o $(TEST_COMMON) $(BUILD)/internal.a
	$(call say,LINK,$@)
	$(Q)$(LINK) $(call WRAP,$@) -o $@ $< $(TEST_COMMON) $(BUILD)/internal.a $(TEST_LIBS)

BENCH_FLAGS = -O2 -g $(INCLUDES) $(TIER_DEFINES) -DQW_BENCH_EXAMPLES='"$(BUILD)/examples"' $(CFLAGS) $(FIXED)
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
INSTRUCTIONS = instructions material instruction_kernels
simt32_FLAGS = -O2 -DQW_WARP_WIDTH=32
simt64_FLAGS = -O2 -DQW_WARP_WIDTH=64
simt-plain_FLAGS = -O3 -DQW_WARP_WIDTH=32 -DQW_SIMT_UNCHECKED
SIMT_PROGRAMS := $(foreach machine,$(SIMT_MACHINES),$(SIMT_TESTS:tests/simt/%.c=build/$(machine)/%)) \
    build/simt32/instructions build/simt-plain/instructions
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
build/$(1)/instructions: $(INSTRUCTIONS:%=build/$(1)/tests/gpu/%.o) build/$(1)/machine.a $$(BUILD)/internal.a
	$$(call say,LINK,$$@)
	$$(Q)$$(CXX) -pthread -o $$@ $$^ $$(LDFLAGS) $$(LIBS) -lm
endef
$(foreach machine,$(SIMT_MACHINES),$(eval $(call simt_rules,$(machine))))
.SECONDARY: $(foreach machine,$(SIMT_MACHINES),$(SIMT_TESTS:%.c=build/$(machine)/%.o) \
    $(INSTRUCTIONS:%=build/$(machine)/tests/gpu/%.o))

# With nvcc, still without a GPU: registers, spills and shared memory of each kernel on each architecture. Together with
# the library's kernels, those that try the device header.
CUDA_OBJECTS := $(patsubst %.cu,$(BUILD)/%.o,$(DEVICE_SOURCES) $(if $(DEVICE_SOURCES),$(wildcard tests/simt/*.cu) \
    tests/gpu/instruction_kernels.cu))

cuda-objects: $(BUILD)/kernels.txt
$(BUILD)/kernels.txt: $(CUDA_OBJECTS) tests/tools/kernel_report.py
	@mkdir -p $(@D)
	$(Q)$(PYTHON) tests/tools/kernel_report.py $(CUDA_OBJECTS:.o=.log) >$@

# With nvcc, for a GPU: the same tests of operations, with tests/gpu/device.cu in place of the SIMT machine, the program
# that compares instructions with those that the SIMT machine has kept, and one that describes the device. `make
# test-cuda` runs them.
GPU_TESTS := $(patsubst tests/simt/%.c,$(BUILD)/gpu/%,$(filter tests/simt/test_cuda_%,$(SIMT_TESTS)))
GPU_DEVICE = $(BUILD)/tests/gpu/device.o
ifeq ($(BACKEND),cuda)
cuda-tests: $(GPU_TESTS) $(BUILD)/gpu/instructions $(BUILD)/gpu/describe
$(BUILD)/gpu/%.o: %.c $(BUILD)/flags
	$(call say,CC,$<)
	@mkdir -p $(@D)
	$(Q)$(COMPILE) $(TEST_FLAGS) -DQW_TEST_INPROCESS $(FIXED) -c -o $@ $<

$(GPU_TESTS): $(BUILD)/gpu/%: $(BUILD)/gpu/tests/simt/%.o $(BUILD)/gpu/tests/harness.o $(GPU_DEVICE) $(BUILD)/internal.a
	$(call say,LINK,$@)
	$(Q)$(LINK) -o $@ $^ $(LIBS) -lm

$(BUILD)/gpu/instructions: $(BUILD)/gpu/tests/gpu/instructions.o $(BUILD)/gpu/tests/gpu/material.o \
    $(BUILD)/tests/gpu/instruction_kernels.o $(GPU_DEVICE) $(BUILD)/internal.a
	$(call say,LINK,$@)
	$(Q)$(LINK) -o $@ $^ $(LIBS) -lm

$(BUILD)/gpu/describe: $(BUILD)/tests/gpu/describe.o $(BUILD)/internal.a
	$(call say,LINK,$@)
	$(Q)$(LINK) -o $@ $^ $(LIBS) -lm
else
cuda-tests:
	$(error $@ is of BACKEND=cuda)
endif

# ---- tests ---------------------------------------------------------------------------------------------------

# The runner starts builds of its own, with these variables and its own jobs. One runs at a time in a tree, also when
# several targets are asked for at once.
RUN = @mkdir -p build && MAKE='$(MAKE)' BACKEND='$(BACKEND)' CC='$(CC)' CXX='$(CXX)' CFLAGS='$(CFLAGS)' \
    NVCC='$(NVCC)' CUDA_ARCHS='$(CUDA_ARCHS)' CUDA_PTX='$(CUDA_PTX)' LDFLAGS='$(LDFLAGS)' FUZZ_CC='$(FUZZ_CC)' \
    FUZZ_SECONDS='$(FUZZ_SECONDS)' V='$(V)' PYTHON='$(PYTHON)' \
    MAKELEVEL=0 MAKEFLAGS= MFLAGS= MAKEOVERRIDES= flock -o build/lock $(PYTHON) tests/run.py
PREPARE = @CC='$(CC)' CXX='$(CXX)' BACKEND='$(BACKEND)' NVCC='$(NVCC)' \
    FUZZ_CC='$(FUZZ_CC)' PYTHON='$(PYTHON)' DEPS='$(DEPS)' tests/deps.sh

prepare:
	$(PREPARE) test

test: prepare
	$(RUN)

# Asked for by itself, where there is a GPU: nothing else runs it.
test-cuda: prepare
	$(RUN) $@

asan ubsan tsan fuzz check-abi check-symbols check-header check-style: prepare
	$(RUN) $@

demo:
	$(PREPARE) build
	@$(MAKE) --no-print-directory examples
	@tests/demo.sh $(BUILD)/examples/chat

# ---- installation --------------------------------------------------------------------------------------------

in_prefix = $(patsubst $(prefix)/%,$${prefix}/%,$(1))
$(BUILD)/$(PACKAGE).pc: pkgconfig/qwen36.pc.in FORCE
	@mkdir -p $(@D)
	@sed -e 's|@prefix@|$(prefix)|' -e 's|@exec_prefix@|$(patsubst $(prefix),$${prefix},$(exec_prefix))|' \
	    -e 's|@libdir@|$(call in_prefix,$(pkglibdir))|' -e 's|@includedir@|$(call in_prefix,$(includedir))|' \
	    -e 's|@version@|$(VERSION)|' -e 's|@libs@|$(LIBS)|' -e 's|@package@|$(PACKAGE)|' -e 's|@backend@|$(BACKEND)|' \
	    -e 's|@rpath@|$(if $(VARIETY),-Wl$(comma)-rpath$(comma)$${libdir} )|' $< >$@

# Packages of several backends lie side by side: they share the header, and each has a library directory and a .pc file.
install: lib $(BUILD)/$(PACKAGE).pc
	$(INSTALL) -d '$(DESTDIR)$(pkglibdir)' '$(DESTDIR)$(includedir)' '$(DESTDIR)$(pkgconfigdir)' '$(DESTDIR)$(docdir)'
	$(INSTALL) -m 644 include/qwen36.h '$(DESTDIR)$(includedir)'
	$(INSTALL) -m 755 $(BUILD)/libqwen36.so.$(VERSION) '$(DESTDIR)$(pkglibdir)'
	ln -sf libqwen36.so.$(VERSION) '$(DESTDIR)$(pkglibdir)/$(SONAME)'
	ln -sf $(SONAME) '$(DESTDIR)$(pkglibdir)/libqwen36.so'
	$(INSTALL) -m 644 $(BUILD)/libqwen36.a '$(DESTDIR)$(pkglibdir)'
	$(INSTALL) -m 644 $(BUILD)/$(PACKAGE).pc '$(DESTDIR)$(pkgconfigdir)'
	$(INSTALL) -m 644 LICENSE NOTICE '$(DESTDIR)$(docdir)'

# What packages share goes with the last of them.
uninstall:
	rm -f '$(DESTDIR)$(pkglibdir)/libqwen36.so.$(VERSION)' '$(DESTDIR)$(pkglibdir)/$(SONAME)' \
	    '$(DESTDIR)$(pkglibdir)/libqwen36.so' '$(DESTDIR)$(pkglibdir)/libqwen36.a' '$(DESTDIR)$(pkgconfigdir)/$(PACKAGE).pc'
	$(if $(VARIETY),-rmdir '$(DESTDIR)$(pkglibdir)')
	ls '$(DESTDIR)$(pkgconfigdir)'/qwen36*.pc >/dev/null 2>&1 || \
	    rm -f '$(DESTDIR)$(includedir)/qwen36.h' '$(DESTDIR)$(docdir)/LICENSE' '$(DESTDIR)$(docdir)/NOTICE'
	-rmdir '$(DESTDIR)$(docdir)' 2>/dev/null

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

-include $(shell find $(wildcard $(BUILD) build/simt*) /dev/null -name '*.d')

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
#:           test-cuda        the CUDA backend on a GPU of this machine: instructions, operations, models
#:           unit             builds the unit test programs, build/$(BACKEND)/tests/test_*
#:           simt             builds the tests of the CUDA kernels on a SIMT machine: build/simt32, build/simt64, build/simt-plain
#:           cuda-objects     with BACKEND=cuda: the kernels alone, and build/cuda/kernels.txt: their registers and spills
#:           cuda-tests       with BACKEND=cuda: builds the programs for a GPU, build/cuda/gpu/
#:           asan ubsan tsan  the unit tests under a sanitizer (address + undefined, undefined, thread)
#:           fuzz             each fuzzer for FUZZ_SECONDS
#:           check-abi        exported names, sizes, offsets, constants, types against the baseline
#:           check-symbols    what the release library imports and exports
#:           check-header     the header as C11, C17, C++11, C++17, and as cffi reads it
#:           check-style      format, lengths, include rule, names in the documentation
#:
#: BACKEND=cpu              the backend to build: cpu or cuda; for cuda nvcc is needed, but no GPU
#: CC= CXX= CFLAGS= LDFLAGS=    CC=aarch64-linux-gnu-gcc cross-compiles
#: NVCC= CUDA_ARCHS="80 90a" CUDA_PTX=80    for BACKEND=cuda: the compiler, the devices, and PTX for later ones
#: V=1                      shows the commands
#: DEPS=check               demo and test never install, but say what to install
#: prefix= exec_prefix= libdir= pkglibdir= includedir= docdir= pkgconfigdir= DESTDIR=    for install
#: FUZZ_SECONDS=60
#: BENCH=bench_model BENCH_ARGS=    one benchmark, and its arguments
