#!/bin/sh
# The demo: a short conversation with the embedded model; on a terminal then one of your own. tests/demo.sh PROGRAM
set -eu
program=${1:?the chat example}
"$program" -m examples/demo-model --greedy -n 200 <tests/examples/conversation.txt
[ -t 0 ] && [ -t 1 ] || exit 0
printf '\nNow you.\n\n'
# The shell makes room: Ctrl-C is for the program alone.
exec "$program" -m examples/demo-model --greedy
