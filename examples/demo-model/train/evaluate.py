"""Loss on everything held out, and how evenly the experts are used.

usage: evaluate.py WORK_DIR MODEL_DIR [TEMPLATE]     (after texts.py and export.py)

With TEMPLATE, a chat_template.jinja, also how often the first draft of the MTP
head is the model's own greedy token, within answers of held-out conversations.
"""

import json
import math
import sys
from pathlib import Path

import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer
from torch.nn import functional as F

import conversations
from model import Config, Model

WINDOW, CONVERSATIONS = 1024, 180


@torch.no_grad()
def drafts(model, tokenizer, template):
    """(drafts equal to the model's choice, drafts), one for each token of an answer but the first."""
    accepted = count = 0
    for n in range(CONVERSATIONS):
        made = conversations.conversation(n, 7, True)
        prompt, answer = (tokenizer.encode(text).ids for text in conversations.render(template, made))
        ids, notes = torch.tensor([prompt + answer]), []
        hidden = model.hidden(ids, notes)
        chosen = model.logits(hidden)[0, 1:].argmax(-1)
        drafted = model.logits(model.draft_hidden(hidden[:, :-1], ids[:, 1:], notes))[0].argmax(-1)
        inside = slice(len(prompt) - 1, len(ids[0]) - 2)
        accepted += (chosen == drafted)[inside].sum().item()
        count += len(answer) - 1
    return accepted, count


@torch.no_grad()
def main(work, directory, template=None):
    model = Model(Config(directory / "config.json"))
    model.load_published(load_file(directory / "model.safetensors"))
    tokenizer = Tokenizer.from_file(str(directory / "tokenizer.json"))
    loss, tokens, size, used = 0.0, 0, 0, 0.0
    for _, text in json.loads((work / "held.json").read_text()):
        for ids in torch.tensor(tokenizer.encode(text).ids).split(WINDOW):
            notes, predicted = [], ids[1:]
            logits = model.logits(model.hidden(ids[None], notes))[0, :-1]
            loss += F.cross_entropy(logits, predicted, reduction="sum").item()
            tokens += len(predicted)
            size += len(tokenizer.decode(predicted.tolist(), skip_special_tokens=False).encode())
            used = used + torch.stack([share for _, share in notes]) * len(predicted)
    print(f"{tokens:,} tokens: loss {loss / tokens:.4f}, perplexity {math.exp(loss / tokens):.2f}, "
          f"{loss / size / math.log(2):.3f} bits per byte")
    print("least and most used expert per layer, share of tokens:")
    for layer in used / tokens:
        print(f"  {layer.min():.3f} {layer.max():.3f}")
    if template is not None:
        accepted, count = drafts(model, tokenizer, conversations.template(template))
        print(f"first drafts in answers: {accepted} of {count} ({100 * accepted / count:.0f} %)")


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(*map(Path, sys.argv[1:]))
