"""Measure what the demo model can do: held-out conversations, answered greedily.

usage: behaviours.py MODEL_DIR [--count N] [--seed S] [--show]

Uses the library through its Python package, which must be importable. An
answer is right when the content, or the tool call, is the expected one to the
letter, the thought (if the request asks for one) is closed, and the turn ends
with <|im_end|>. Prints a table by behaviour and language; exit status 1 if a
behaviour is below its floor.
"""

import argparse
import collections
import sys

import qwen36

import conversations


# Shares of right answers that the model is held to: its page has the figures.
FLOORS = dict.fromkeys(conversations.BEHAVIOURS, 0.95) | {"multiply": 0.85}


def expected_text(answer):
    """What must follow the thought."""
    if not answer.get("tool_calls"):
        return answer["content"]
    call = answer["tool_calls"][0]["function"]
    parameters = "".join(f"<parameter={k}>\n{v}\n</parameter>\n" for k, v in call["arguments"].items())
    return f"<tool_call>\n<function={call['name']}>\n{parameters}</function>\n</tool_call>"


def answer(model, template, session, made):
    """(text of the answer, whether <|im_end|> ended it)."""
    options = {"tools": made.tools} if made.tools else {}
    ids = template.encode(model.tokenizer, made.messages, enable_thinking=made.thinking, **options)
    session.sync(ids)
    pieces = []
    result = session.generate_to(lambda token, text: pieces.append(text), 320)
    end, = model.tokenizer.encode("<|im_end|>", parse_special=True)
    return "".join(pieces), result.finish == qwen36.Finish.END_TOKEN and result.end_token == end


def judge(made, text, ended):
    """Whether the answer is right."""
    thought, mark, content = text.partition("</think>\n\n")
    if made.thinking:
        if not mark or not thought.strip():
            return False
    else:
        content = text
    return ended and content == expected_text(made.answer)


def measure(directory, count, seed, show=False, behaviours=conversations.BEHAVIOURS, library=None):
    """{(behaviour, language): [right, all]}"""
    table = collections.defaultdict(lambda: [0, 0])
    template = qwen36.ChatTemplate.load(directory, library=library)
    with qwen36.Model.load(directory, context_length=2048, library=library) as model, model.session() as session:
        session.set_sampling(temperature=0)
        for n in range(count * len(behaviours)):
            made = conversations.conversation(n, seed, True, behaviours=behaviours)
            text, ended = answer(model, template, session, made)
            right = judge(made, text, ended)
            if show and not right:
                print(made.behaviour, made.messages, made.answer, repr(text), ended, sep="\n  ")
            cell = table[made.behaviour, made.language]
            cell[0] += right
            cell[1] += 1
    return table


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("--count", type=int, default=200, help="conversations per behaviour")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--show", action="store_true", help="print the wrong answers")
    options = parser.parse_args()
    table, failed = measure(options.model, options.count, options.seed, options.show), False
    print("| behaviour | English | Chinese | all |\n|---|---|---|---|")
    for behaviour in conversations.BEHAVIOURS:
        cells = [table[behaviour, language] for language in ("en", "zh")]
        cells.append([sum(c[i] for c in cells) for i in (0, 1)])
        print(f"| {behaviour} | " + " | ".join(f"{100 * r / max(n, 1):.1f} % of {n}" for r, n in cells) + " |")
        failed |= cells[2][0] < FLOORS[behaviour] * cells[2][1]
    sys.exit(failed)


if __name__ == "__main__":
    main()
