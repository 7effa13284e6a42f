#!/bin/sh
# The chat example, with a script and at a terminal; the example in C++; the demo. What the model says is of no
# matter: where it is, told_answers.c takes its place.
set -u
bin=${BUILD:-build/cpu}/examples
model=examples/demo-model
script=tests/examples/conversation.txt
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
passed=0
failed=0
last=

ok() { # ok NAME CONDITION...
    name=$1
    shift
    if "$@"; then passed=$((passed + 1)); else failed=$((failed + 1)) && echo "failed: $name, after: $last"; fi
}

# run STATUS COMMAND...: true when the command, with $work/in as its input, ends with that status
run() {
    wanted=$1
    shift
    last=$*
    "$@" <"$work/in" >"$work/out" 2>"$work/err"
    got=$?
    [ $got -eq "$wanted" ] || { echo "exit $got, expected $wanted: $*" && cat "$work/err" && false; }
}

# chat STATUS INPUT OPTION...: the input may have printf's escapes
chat() {
    wanted=$1
    printf "$2" >"$work/in"
    shift 2
    run "$wanted" "$bin/chat" -n 12 --greedy "$@"
}

says() { [ "$(wc -l <"$work/err")" -eq 1 ] && grep -q -- "$1" "$work/err"; }
hints() { grep -q -- "$1" "$work/err" && grep -q -- "--help" "$work/err"; }
has() { grep -q -- "$1" "$work/out"; }
lacks() { ! grep -q -- "$1" "$work/out"; }
shows() { printf "$1" | cmp -s - "$work/out" || { cat "$work/out" && false; }; }
said() { sed -n '2,$p' "$1"; } # without the first question

# copy NAME: the demo model in a directory that can be changed
copy() {
    mkdir "$work/$1"
    for file in $model/*.json $model/*.safetensors; do ln -s "$PWD/$file" "$work/$1"; done
}

# wrong use
: >"$work/in"
ok "--help" run 0 "$bin/chat" --help
ok "--help text" has "^usage: chat"
ok "--nonsense" run 2 "$bin/chat" --nonsense
ok "it hints" hints "unknown option"
ok "no arguments" run 2 "$bin/chat"
ok "--think maybe" run 2 "$bin/chat" -m $model --think maybe
ok "it says what there is" hints "'on', 'off' or 'hide'"
ok "wrong number" run 2 "$bin/chat" -m $model -n many
ok "two kinds of tools" run 2 "$bin/chat" -m $model --weather --tools x
ok "temperature below 0" run 2 "$bin/chat" -m $model --temp -1

# a script
cp $script "$work/in"
ok "a script" run 0 "$bin/chat" -m $model --greedy -n 20 --quiet
ok "nothing on standard error" test ! -s "$work/err"
sed -n 's/^> //p' "$work/out" >"$work/questions"
ok "every line is asked, in order" cmp -s "$work/questions" $script
ok "no colours" lacks "$(printf '\033')"
cp "$work/out" "$work/first"
ok "again, with one thread" run 0 "$bin/chat" -m $model --greedy -n 20 --threads 1
ok "it says the same" cmp -s "$work/out" "$work/first"
ok "rates" grep -q "^\[prompt: [0-9]* tokens at [0-9.]*/s, reused: [0-9]*, output: [0-9]* tokens at" "$work/err"
ok "seed 5" run 0 "$bin/chat" -m $model --temp 1 --seed 5 -n 20
cp "$work/out" "$work/first"
ok "seed 5 again" run 0 "$bin/chat" -m $model --temp 1 --seed 5 -n 20
ok "a seed repeats" cmp -s "$work/out" "$work/first"
ok "no input" chat 0 '' -m $model
ok "no output" test ! -s "$work/out" -a ! -s "$work/err"
ok "empty lines" chat 0 '\n  \n\r\n\t\n' -m $model
ok "nothing for them" test ! -s "$work/out"
ok "no line break at the end" chat 0 'Hello' -m $model
ok "a whole line" has "^> Hello$"
ok "/quit" chat 0 'Hello\n/quit\nMore\n' -m $model
ok "nothing after it" lacks "More"
ok "/help" chat 0 '/help\n' -m $model
ok "it lists" has "^/reset"
ok "an unknown command" chat 1 '/nonsense\n' -m $model
ok "it says which" says "/nonsense"
ok "a wrong command" chat 1 '/think perhaps\n' -m $model
ok "a slash in a message" chat 0 ' /dev what?\n' -m $model

# odd input
ok "NUL and invalid UTF-8" chat 0 'a\000b \377\376 \342\202 c\n' -m $model --quiet
ok "they come out as U+FFFD" has "$(printf '^> a\357\277\275b \357\277\275\357\277\275 \357\277\275 c$')"
ok "marks of the template are text" chat 0 'Hi <|im_end|> </think>\n' -m $model --quiet
ok "and shown" has "^> Hi <|im_end|> </think>$"
head -c 300000 /dev/zero | tr '\0' 'a' >"$work/in"
ok "a line of 300000 bytes" run 1 "$bin/chat" -m $model
ok "does not fit" says "context is full.*/reset"

# commands
ok "one question" chat 0 'Hello\n' -m $model
said "$work/out" >"$work/first"
ok "/reset" chat 0 'Remember this\n/reset\nHello\n' -m $model
sed '1,/^> Hello/d' "$work/out" >"$work/second"
ok "nothing is left" cmp -s "$work/first" "$work/second"
ok "a system message" chat 0 'Hello\n' -m $model -s 'Always answer with: Tea is ready.'
said "$work/out" >"$work/second"
ok "it makes a difference" test "$(cmp -s "$work/first" "$work/second"; echo $?)" = 1
ok "/system" chat 0 '/system Always answer with: Tea is ready.\nHello\n' -m $model
sed '1,/^> Hello/d' "$work/out" >"$work/third"
ok "it is the same as -s" cmp -s "$work/second" "$work/third"
ok "/system alone" chat 0 '/system\nHello\n' -m $model -s 'Always answer with: Tea is ready.'
sed '1,/^> Hello/d' "$work/out" >"$work/third"
ok "it removes" cmp -s "$work/first" "$work/third"

# failures
ok "no such directory" chat 1 'Hello\n' -m "$work/nowhere"
ok "it says which" says "$work/nowhere"
"$bin/make-model" --config tests/golden/configs/dense_tied.json -o "$work/plain" >/dev/null 2>&1
ok "no tokenizer" chat 1 'Hello\n' -m "$work/plain"
ok "it says so" says "tokenizer"
copy strange
echo '{{ messages }}' >"$work/strange/chat_template.jinja"
ok "unknown template" chat 1 '' -m "$work/strange"
ok "it says so, unasked" says "template"
ok "--allow-nearest" chat 0 'Hello\n' -m "$work/strange" --allow-nearest
ok "no such tools" chat 1 '' -m $model --tools "$work/nowhere"
ok "it says which" says "$work/nowhere"
echo '[{' >"$work/tools"
ok "malformed tools" chat 1 '' -m $model --tools "$work/tools"
ok "it says so" says "tools"
copy endless
rm "$work/endless/generation_config.json"
echo '{"eos_token_id": 4159}' >"$work/endless/generation_config.json" # padding: never drawn
ok "the most tokens" chat 0 'Hello\n' -m "$work/endless"
ok "it says so" grep -q "stopped after 12 tokens" "$work/err"
ok "a context of 64 tokens" chat 1 'Hello\n' -m "$work/endless" -n 1000 --context 64
ok "it says so" says "context is full (it holds 64 tokens).*/reset"
ok "what was said is there" test "$(wc -c <"$work/out")" -gt 20
ok "a message that does not fit" chat 1 'Hello\n' -m $model --context 8
ok "it says so" says "context is full.*/reset"
ok "a full cache" chat 1 'Hello\n' -m "$work/endless" -n 1000 --cache-bytes 50000
ok "it says so" says "cache is full.*/reset"
ok "a full disk" sh -c "echo Hello | $bin/chat -m $model >/dev/full 2>$work/err; test \$? = 1"
ok "it says so" says "cannot be written"
echo Hello >"$work/in"
: >"$work/out"
"$bin/chat" -m "$work/endless" -n 100000 <"$work/in" >"$work/out" 2>"$work/err" &
pid=$!
while [ ! -s "$work/out" ]; do sleep 0.05; done
kill -INT $pid
wait $pid
ok "an interrupted script" test $? = 130
ok "it says so" grep -q "interrupted" "$work/err"

# told STATUS INPUT OPTION...: answers come from $work/answers
told() {
    rm -f "$work/prompts"
    LD_PRELOAD=$work/told_answers.so ANSWERS=$work/answers PROMPTS=$work/prompts chat "$@"
}
seen() { grep -q -- "$1" "$work/prompts"; }
if ${CC:-gcc} -std=c11 -D_POSIX_C_SOURCE=200809L -shared -fPIC -O1 -Wall -Wextra -Werror -Iinclude \
    -o "$work/told_answers.so" tests/examples/told_answers.c; then
    passed=$((passed + 1))
else
    failed=$((failed + 1)) && echo "failed: told_answers.c"
fi

cat >"$work/answers" <<'END'
A greeting.
So I greet.
</think>

Hello!

How are you?
----
</think>

Again.
----
END
ok "a thought" told 0 'Hi\nAnd?\n' -m $model --think on --quiet
ok "it is told apart" shows '> Hi\n<think>\nA greeting.\nSo I greet.\n</think>\n\nHello!\n\nHow are you?\n\n> And?\nAgain.\n\n'
ok "the template drops it later" test "$(grep -c 'So I greet' "$work/prompts")" = 0
ok "hidden" told 0 'Hi\n/think hide\nAnd?\n' -m $model --think hide --quiet
ok "it is not shown" shows '> Hi\nHello!\n\nHow are you?\n\n> /think hide\n> And?\nAgain.\n\n'
ok "preserved" told 0 'Hi\nAnd?\n' -m $model --think on --preserve-thinking
ok "it is in the second prompt" seen 'So I greet'
ok "which goes on from the first" grep -q "reused: [1-9]" "$work/err"

cat >"$work/answers" <<'END'
One moment.

<tool_call>
<function=get_weather>
<parameter=city>
Paris
</parameter>
</function>
</tool_call>
<tool_call>
<function=get_time>
</function>
</tool_call>
----
It is fine there.
----
END
ok "the weather" told 0 'What is the weather in Paris?\n' -m $model --weather --think off
ok "the call is shown" has '^<parameter=city>$'
ok "so is its answer" has '^{"city": "Paris", "temperature": [0-9]*, "condition": "[a-z]*"}$'
ok "the model goes on" has '^It is fine there.$'
ok "it knew the tool" seen '"get_weather"'
ok "and saw the answers" test "$(grep -c '^<tool_response>$' "$work/prompts")" = 2
ok "in a turn that goes on" grep -q "reused: [1-9]" "$work/err"
cp "$work/out" "$work/first"
ok "the weather again" told 0 'What is the weather in Paris?\n' -m $model --weather --think off
ok "it does not change" cmp -s "$work/out" "$work/first"
echo '[{"type": "function", "function": {"name": "get_weather"}}]' >"$work/tools"
ok "tools of a file" told 0 'Weather?\nAnd?\n' -m $model --tools "$work/tools" --think off
ok "calls are shown, not answered" lacks 'temperature'
ok "and stay in the conversation" seen '^<function=get_weather>$'

printf '<tool_call>\n<function=get_weather>\n</tool_call>\n----\nOh.\n----\n' >"$work/answers"
ok "a malformed call" told 0 'Weather?\nAnd?\n' -m $model --weather --think off
ok "is only text" lacks 'error'
for i in 1 2 3 4 5 6; do
    printf '<tool_call>\n<function=get_weather>\n<parameter=city>\n"Rome"\\\n</parameter>\n</function>\n</tool_call>\n----\n'
done >"$work/answers"
ok "calls without end" told 0 'Weather?\n' -m $model --weather --think off
ok "come to an end" grep -q "again and again" "$work/err"
ok "odd names are quoted" has '^{"city": "\\"Rome\\"\\\\"'

# at a terminal
if python3 tests/examples/chat_terminal.py "$bin/chat" $model "$work/endless" >"$work/out" 2>&1; then
    passed=$((passed + $(sed -n 's/ passed.*//p' "$work/out")))
else
    failed=$((failed + 1))
    cat "$work/out"
fi

# C++, and without a compiler for it
if command -v ${CXX:-g++} >/dev/null; then
    ok "from_cpp" run 0 "$bin/from_cpp" $model "It was a"
    ok "it goes on" has "^It was a ."
    ok "from_cpp without arguments" run 2 "$bin/from_cpp"
    ok "from_cpp nowhere" run 1 "$bin/from_cpp" "$work/nowhere" x
    ok "it says which" says "$work/nowhere"
    ok "from_cpp, no tokenizer" run 1 "$bin/from_cpp" "$work/plain" x
    ok "it says so" says "tokenizer"
fi
ok "without a C++ compiler" run 0 "${MAKE:-make}" --no-print-directory examples CXX=no-compiler
ok "it says what is missing" has "no-compiler is missing"

# the demo, without a terminal
ok "the demo" run 0 tests/demo.sh "$bin/chat"
ok "it holds the conversation" test "$(grep -c '^> ' "$work/out")" = 7

echo "$passed passed, $failed failed"
[ $failed -eq 0 ]
