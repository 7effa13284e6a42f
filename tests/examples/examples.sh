#!/bin/sh
# The examples as a newcomer uses them: the main way, wrong use (exit 2), failures (exit 1, one line).
set -u
bin=${BUILD:-build/cpu}/examples
model=examples/demo-model
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
passed=0
failed=0

ok() { # ok NAME CONDITION...
    name=$1
    shift
    if "$@"; then passed=$((passed + 1)); else failed=$((failed + 1)) && echo "failed: $name"; fi
}

# run STATUS COMMAND...: true when the command ends with that status; output in $work/out and $work/err
run() {
    wanted=$1
    shift
    "$@" >"$work/out" 2>"$work/err" </dev/null
    got=$?
    [ $got -eq "$wanted" ] || { echo "exit $got, expected $wanted: $*" && cat "$work/err" && false; }
}

# one line of error text that contains a word
says() { [ "$(wc -l <"$work/err")" -eq 1 ] && grep -q -- "$1" "$work/err"; }
hints() { grep -q -- "$1" "$work/err" && grep -q -- "--help" "$work/err"; }

for program in generate tokenize perplexity logits make-model trace; do
    ok "$program --help" run 0 "$bin/$program" --help
    ok "$program --help text" grep -q "^usage: $program\|^Usage: $program\|usage: .*$program" "$work/out"
    ok "$program --nonsense" run 2 "$bin/$program" --nonsense
    ok "$program without arguments" run 2 "$bin/$program"
done

# generate
ok "generate" run 0 "$bin/generate" -m $model -p "It was a" -n 12 --temp 0
ok "generate begins with the prompt" grep -q "^It was a" "$work/out"
ok "generate reports rates" grep -q "tokens at" "$work/err"
cp "$work/out" "$work/greedy"
ok "generate again" run 0 "$bin/generate" -m $model -p "It was a" -n 12 --top-k 1 --threads 1
ok "greedy is greedy" cmp -s "$work/out" "$work/greedy"
ok "generate seed 5" run 0 "$bin/generate" -m $model -p "It was a" -n 12 --temp 1 --seed 5
cp "$work/out" "$work/drawn"
ok "generate seed 5 again" run 0 "$bin/generate" -m $model -p "It was a" -n 12 --temp 1 --seed 5 --threads 2
ok "a seed repeats" cmp -s "$work/out" "$work/drawn"
ok "generate seed 6" run 0 "$bin/generate" -m $model -p "It was a" -n 12 --temp 1 --seed 6
ok "another seed differs" test "$(cmp -s "$work/out" "$work/drawn"; echo $?)" = 1
ok "no such directory" run 1 "$bin/generate" -m "$work/nowhere" -p x
ok "it says which" says "$work/nowhere"
ok "wrong number" run 2 "$bin/generate" -m $model -p x -n many
ok "it says so" hints "many"
ok "top_p 0" run 2 "$bin/generate" -m $model -p x --top-p 0
ok "it names top_p" hints "top_p"
ok "empty prompt" run 2 "$bin/generate" -m $model -p ""
ok "context too small" run 1 "$bin/generate" -m $model -p "It was a dark night" --context 1
ok "context of one token" run 0 "$bin/generate" -m $model -p "a" --context 1
ok "hello" run 0 "$bin/hello" $model "It was"
ok "hello wrong" run 2 "$bin/hello"
ok "hello nowhere" run 1 "$bin/hello" "$work/nowhere" x

# Ctrl-C stops the generation, not the program's good manners
"$bin/generate" -m $model -p "It was" -n 100000 --context 4096 --ignore-end >"$work/out" 2>"$work/err" &
pid=$!
tries=0
while [ ! -s "$work/out" ] && [ $tries -lt 200 ]; do sleep 0.1; tries=$((tries + 1)); done # it has begun
kill -INT $pid 2>/dev/null
wait $pid
ok "interrupted" test $? = 130
ok "it says so" grep -q "interrupted" "$work/err"

# tokenize there and back
printf 'Hello, w\303\266rld <|im_end|>\n  x' >"$work/text"
"$bin/tokenize" -m $model <"$work/text" >"$work/ids"
"$bin/tokenize" -m $model --decode <"$work/ids" >"$work/back"
ok "tokenize round trip" cmp -s "$work/text" "$work/back"
"$bin/tokenize" -m $model --no-special <"$work/text" >"$work/plain"
ok "--no-special reads special tokens as text" test "$(wc -w <"$work/plain")" -gt "$(wc -w <"$work/ids")"

# logits: [n][vocab] float32, the same bits for any thread count, on the CPU for any budget too
budget=2
case $bin in *cuda*) budget=5 ;; esac
vocab=$(sed -n 's/.*"vocab_size": *\([0-9]*\).*/\1/p' $model/config.json | tail -1)
ok "logits" run 0 "$bin/logits" -m $model --ids 5,6,7,8,9
ok "size of logits" test "$(wc -c <"$work/out")" -eq $((5 * vocab * 4))
cp "$work/out" "$work/logits"
ok "logits cut" run 0 "$bin/logits" -m $model --ids 5,6,7,8,9 --budget $budget --threads 1
ok "same bits" cmp -s "$work/out" "$work/logits"
ok "logits in reference numerics" run 0 "$bin/logits" -m $model --ids 5,6 --numerics reference
ok "bad id" run 1 "$bin/logits" -m $model --ids 5,99999999
ok "no id" run 2 "$bin/logits" -m $model --ids x

# perplexity
head -c 3000 README.md | "$bin/perplexity" -m $model >"$work/out" 2>"$work/err"
ok "perplexity" grep -q "^tokens [0-9]* nll [0-9.]* perplexity [0-9.]*$" "$work/out"
ok "perplexity of nothing" run 1 "$bin/perplexity" -m $model

# trace: nested times of a prompt that is cut, and of three decode steps
ok "trace" run 0 "$bin/trace" -m $model -o "$work/trace.json" --tokens 100 --budget 64 -n 3
ok "it sums the operations up" grep -q "^linear .* %$" "$work/out"
ok "the times nest" run 0 "${PYTHON:-python3}" tests/examples/check_trace.py "$work/trace.json" 5 8
ok "trace of a text" run 0 "$bin/trace" -m $model -o "$work/trace.json" -p "It was" -n 1 --numerics reference
ok "its times nest" run 0 "${PYTHON:-python3}" tests/examples/check_trace.py "$work/trace.json" 2 8
ok "nowhere to write" run 1 "$bin/trace" -m $model -o "$work/nowhere/trace.json"
ok "wrong steps" run 2 "$bin/trace" -m $model -o "$work/trace.json" -n x

# a model of one's own, then damaged
config=tests/golden/configs/dense_tied.json
ok "make-model" run 0 "$bin/make-model" --config $config --seed 3 -o "$work/model"
ok "logits of it" run 0 "$bin/logits" -m "$work/model" --ids 1,2,3
ok "generate needs a tokenizer" run 1 "$bin/generate" -m "$work/model" -p x
ok "it says so" says "tokenizer"
size=$(wc -c <"$work/model/model.safetensors")
truncate -s $((size - 100)) "$work/model/model.safetensors"
ok "truncated weights" run 1 "$bin/logits" -m "$work/model" --ids 1
ok "it names the file" says "model.safetensors"
rm "$work/model/model.safetensors"
ok "missing weights" run 1 "$bin/logits" -m "$work/model" --ids 1
echo '{' >"$work/model/config.json"
ok "broken config" run 1 "$bin/logits" -m "$work/model" --ids 1
ok "it names the config" says "config.json"

echo "$passed passed, $failed failed"
[ $failed -eq 0 ]
