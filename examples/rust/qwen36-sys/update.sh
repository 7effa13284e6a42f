#!/bin/sh
# Writes what follows from the header into the folder OUTPUT:
#   update.sh QWEN36.CDEF.H ABI.C OUTPUT
# bindings.rs (src/) from what `make cdef` writes, lines.rs (tests/layout/) from tests/abi/abi.c. bindgen is that of
# Debian 12, version 0.60.1.
set -eu
bindgen "$1" --no-layout-tests --size_t-is-usize --no-prepend-enum-name --allowlist-function 'qwen36_.*' \
    --allowlist-type 'qwen36_.*' --allowlist-var 'QWEN36_.*' >"$3/bindings.rs"
{
    echo '{'
    sed -n 's/^\(SIZE\|FIELD\|CONSTANT\)(\(.*\));$/    \1!(\2);/p' "$2"
    echo '}'
} >"$3/lines.rs"
