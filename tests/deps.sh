#!/bin/sh
# What a job of this tree needs: tests/deps.sh build|test
#
# build  compiler and libraries. Says what is missing and how to get it; `make demo` also installs it (DEPS=install).
# test   the above, and the tools of the tests, and a Python environment in build/venv.
#
# DEPS=install  installs what is missing, as root or through sudo without a password; where neither works, and with
#               any other value, it prints the one line to run, and fails.
set -eu
job=${1:?build or test}
deps=${DEPS:-check}
cc=${CC:-gcc}
cxx=${CXX:-g++}
fuzz_cc=${FUZZ_CC:-clang}
python=${PYTHON:-python3}
venv=build/venv
requirements=tests/python/requirements.txt
missing=

have() { command -v "$1" >/dev/null 2>&1; }

# need PACKAGE COMMAND...: the package is missing where the command fails
need() {
    package=$1
    shift
    "$@" >/dev/null 2>&1 || missing="$missing $package"
}

compiles() { # HEADER: with the host's compiler, which is what Debian's -dev packages serve
    echo "#include <$1>" | gcc -fsyntax-only -x c - 2>/dev/null
}

fuzzes() { # the sanitizer runtimes are a package of their own
    echo 'int main(void) { return 0; }' | "$fuzz_cc" -fsanitize=address -x c -o /dev/null - 2>/dev/null
}

look() {
    missing=
    need gcc have gcc
    need libc6-dev compiles stdlib.h
    need binutils have objcopy
    have "$cc" || case $cc in
    gcc) ;;
    *-gcc) need "gcc-$(echo "${cc%-gcc}" | tr _ -)" false ;;
    *) need "$cc" false ;;
    esac
    need libcjson-dev compiles cjson/cJSON.h
    need libpcre2-dev sh -c 'printf "#define PCRE2_CODE_UNIT_WIDTH 8\n#include <pcre2.h>\n" | gcc -fsyntax-only -x c -'
    need libutf8proc-dev compiles utf8proc.h
    [ "$job" = test ] || return 0
    need "$cxx" have "$cxx"
    need pkg-config have pkg-config
    need libcriterion-dev compiles criterion/criterion.h
    need clang have "$fuzz_cc"
    need libclang-rt-14-dev fuzzes
    need clang-format have clang-format
    need abigail-tools have abidiff
    need git have git
    need gcc-aarch64-linux-gnu have aarch64-linux-gnu-gcc
    need libc6-dev-arm64-cross test -e /usr/aarch64-linux-gnu/include/stdlib.h
    need qemu-user have qemu-aarch64
    need python3 have "$python"
    need python3-venv "$python" -c 'import ensurepip, venv'
}

fail() {
    echo "libqwen36: $1" >&2
    exit 1
}

packages() {
    look
    [ -n "$missing" ] || return 0
    install="apt-get install -y --no-install-recommends$missing"
    root=
    [ "$(id -u)" = 0 ] || root="sudo "
    [ "$deps" = install ] || fail "missing packages; run: $root$install"
    have apt-get || fail "missing, by their Debian names:$missing"
    [ -z "$root" ] || sudo -n true 2>/dev/null || fail "missing packages; run: $root$install"
    export DEBIAN_FRONTEND=noninteractive
    echo "installing$missing"
    # The lists are fetched only when they do not know the packages.
    ${root:+sudo -n} $install >/dev/null 2>&1 || {
        ${root:+sudo -n} apt-get -q update >/dev/null
        ${root:+sudo -n} $install >/dev/null
    }
    look
    [ -z "$missing" ] || fail "still missing after installation:$missing"
}

environment() {
    cmp -s "$requirements" "$venv/installed" && return 0
    line="$python -m venv $venv && $venv/bin/pip install -r $requirements && cp $requirements $venv/installed"
    [ "$deps" = install ] || fail "missing Python packages; run: $line"
    echo "installing Python packages into $venv"
    mkdir -p build
    "$python" -m venv "$venv"
    "$venv/bin/pip" install --quiet --disable-pip-version-check -r "$requirements"
    cp "$requirements" "$venv/installed"
}

packages
[ "$job" != test ] || environment
