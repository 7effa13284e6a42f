#!/bin/sh
# The demo: the embedded model continues a few prompts, streaming. tests/demo.sh PROGRAM
set -eu
program=${1:?the generate example}
for prompt in "Once upon a time" "The sea was" "It was a dark night, and"; do
    printf '\n'
    "$program" -m examples/demo-model -p "$prompt" -n 80
    printf '\n'
done
