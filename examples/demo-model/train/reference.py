"""Measure the demo model with transformers in float32 and write the reference.

usage: reference.py WORK_DIR MODEL_DIR OUT_DIR

Writes OUT_DIR/reference.json and the held-out texts it was measured on. Every
document is scored from its first token with nothing before it: `nll` is the
sum over its tokens 1..n-1 of -log softmax over all rows of the matrix (float32
logits and log-softmax, float64 sum); `nll_without_padding` leaves the padding
rows, whose ids mean no token, out of the softmax. `drafts` are first drafts of the MTP head
with the document's own tokens: entry t is its choice for token t+2, to be
compared with the main model's choice `targets[t]` for the same token.
"""

import hashlib
import json
import math
import sys
from pathlib import Path

import torch
import transformers
from tokenizers import Tokenizer

from reference_model import DraftHead, load_language_model

MAX_TOKENS, MAX_BYTES, DRAFTS_EACH = 1024, 3600, 80
NEW_TOKENS, PROMPTS_WANTED, GAP = 64, 5, 1e-3
PROMPTS = [
    "It was a pleasant morning, and Elizabeth",
    "And it came to pass in those days, that the king",
    "The old whale rose slowly out of the sea, and",
    ":hack: n.\n\nA program that",
    "If the rays of light pass through the glass,",
    "Tom said to his aunt that he",
    "FRIENDSHIP, n. A",
    "In the beginning",
    "My dear friend,",
    "The captain looked at the ship and said",
]


def choose_documents(work, tokenizer):
    """The start of one held-out document of every work, whole paragraphs."""
    chosen = {}
    for name, text in json.loads((work / "held.json").read_text()):
        kept = ""
        for paragraph in text.split("\n\n"):
            longer = kept + "\n\n" + paragraph if kept else paragraph
            if len(longer.encode()) > MAX_BYTES or len(tokenizer.encode(longer).ids) > MAX_TOKENS:
                break
            kept = longer
        if len(kept) > len(chosen.get(name, "")):
            chosen[name] = kept
    return chosen


def token_rows(directory):
    added = json.loads((directory / "tokenizer_config.json").read_text())["added_tokens_decoder"]
    return max(map(int, added)) + 1


def negative_log_likelihood(logits, ids):
    logs = logits[:-1].log_softmax(-1).gather(-1, ids[1:, None])
    return -logs.double().sum().item()


def score(model, head, ids, rows):
    """(nll, nll without padding, argmax ids of the model, and of the MTP head)."""
    ids = torch.tensor([ids])
    hidden = model.model(ids).last_hidden_state
    logits = model.lm_head(hidden)[0]
    drafts = head(model, hidden[:, :-1], ids[:, 1:])[0].argmax(-1)
    nll = [negative_log_likelihood(x, ids[0]) for x in (logits, logits[:, :rows])]
    return *nll, logits.argmax(-1), drafts


def score_documents(model, head, tokenizer, documents, rows):
    entries = []
    for name, text in documents.items():
        ids = tokenizer.encode(text).ids
        nll, unpadded, choices, drafts = score(model, head, ids, rows)
        entries.append({
            "source": name, "file": f"held-out-{name}.txt", "bytes": len(text.encode()),
            "ids": ids, "predicted": len(ids) - 1, "nll": nll,
            "nll_without_padding": unpadded, "perplexity": math.exp(nll / (len(ids) - 1)),
            "drafts": drafts[:DRAFTS_EACH].tolist(),
            "targets": choices[1:DRAFTS_EACH + 1].tolist()})
    return entries


def continuations(model, head, tokenizer, rows):
    """Greedy continuations whose every choice is clear by more than GAP."""
    found = []
    for prompt in PROMPTS:
        ids = tokenizer.encode(prompt).ids
        out = model.generate(torch.tensor([ids]), do_sample=False, max_new_tokens=NEW_TOKENS,
                             top_k=None, top_p=None, temperature=None)[0]
        logits = model(out[None, :-1]).logits[0, len(ids) - 1:]
        top = logits.topk(2).values
        gap = (top[:, 0] - top[:, 1]).min().item()
        clear = gap > GAP and logits.argmax(-1).tolist() == out[len(ids):].tolist()
        if clear and len(out) == len(ids) + NEW_TOKENS and len(found) < PROMPTS_WANTED:
            new = out[len(ids):].tolist()
            choices, drafts = score(model, head, out.tolist(), rows)[2:]
            equal = (drafts == choices[1:])[len(ids) - 1:].sum().item()
            found.append({"prompt": prompt, "prompt_ids": ids, "ids": new,
                          "text": tokenizer.decode(new, skip_special_tokens=False),
                          "smallest_gap": gap, "drafts_accepted": equal})
    assert len(found) == PROMPTS_WANTED, "too few clear continuations"
    return found


def totals(entries):
    total = lambda key: sum(e[key] for e in entries)
    nll, unpadded = total("nll"), total("nll_without_padding")
    predicted, size = total("predicted"), total("bytes")
    pairs = [d == t for e in entries for d, t in zip(e["drafts"], e["targets"])]
    return {"documents": len(entries), "predicted": predicted, "nll": nll,
            "nll_without_padding": unpadded, "perplexity": math.exp(nll / predicted),
            "perplexity_without_padding": math.exp(unpadded / predicted),
            "bits_per_byte": nll / size / math.log(2),
            "perplexity_per_byte": math.exp(nll / size),
            "drafts": len(pairs), "drafts_accepted": sum(pairs)}


@torch.no_grad()
def main(work, directory, out):
    out.mkdir(parents=True, exist_ok=True)
    tokenizer = Tokenizer.from_file(str(directory / "tokenizer.json"))
    model, head, rows = load_language_model(directory), DraftHead(directory), token_rows(directory)
    documents = choose_documents(work, tokenizer)
    for name, text in documents.items():
        (out / f"held-out-{name}.txt").write_text(text, encoding="utf-8")
    entries = score_documents(model, head, tokenizer, documents, rows)
    weights = (directory / "model.safetensors").read_bytes()
    result = {
        "made_by": f"transformers {transformers.__version__}, torch {torch.__version__}, float32",
        "weights_sha256": hashlib.sha256(weights).hexdigest(),
        "total": totals(entries),
        "continuations": continuations(model, head, tokenizer, rows),
        "documents": entries,
    }
    text = json.dumps(result, ensure_ascii=False, separators=(",", ":"))
    for key in ("weights_sha256", "total", "continuations", "documents"):
        text = text.replace(f'"{key}":', f'\n"{key}":', 1)
    for mark in ('{"source":', '{"prompt":'):
        text = text.replace(mark, "\n" + mark)
    (out / "reference.json").write_text(text + "\n", encoding="utf-8")
    print(json.dumps(result["total"], indent=1))
    for c in result["continuations"]:
        print(f"{c['smallest_gap']:.4f} {c['drafts_accepted']}/{NEW_TOKENS} "
              f"{c['prompt']!r} -> {c['text']!r}")


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(*map(Path, sys.argv[1:4]))
