"""Loss on everything held out, and how evenly the experts are used.

usage: evaluate.py WORK_DIR MODEL_DIR     (after texts.py and export.py)
"""

import json
import math
import sys
from pathlib import Path

import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer
from torch.nn import functional as F

from model import Config, Model

WINDOW = 1024


@torch.no_grad()
def main(work, directory):
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


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(Path(sys.argv[1]), Path(sys.argv[2]))
