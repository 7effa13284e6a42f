"""Train the demo model on public-domain text.

usage: train.py WORK_DIR MODEL_DIR [--minutes M] [--seed S] [--fresh] [--converse TEMPLATE]

WORK_DIR holds train.json and held.json (texts.py) and receives checkpoint.pt
and log.jsonl; a second start resumes from the checkpoint. MODEL_DIR holds the
tokenizer and config.json.

Two worker threads each compute gradients of small batches that fit in cache;
one thread per core and one exchange per step is faster than sharing out every
small operation. The schedule follows progress = time spent training / M, where
a step that takes far longer than usual (a paused process) counts as a usual
one. With --steps N the schedule follows the step count alone.

--converse is the second stage. It starts from the checkpoint of the first with
a schedule of its own, keeps its own in converse.pt, and mixes conversations
rendered by TEMPLATE, a chat_template.jinja (conversations.py), with the text.
Only answers count there, not what they answer.
"""

import argparse
import json
import math
import os
import random
import re
import statistics
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch
from tokenizers import Tokenizer
from torch.nn import functional as F

import conversations
from model import BLOCK, Config, Model

WORKERS = 2
BATCH_TOKENS, MICRO_TOKENS = 4096, 1024
LENGTHS = ((0.4, 256), (0.75, 512), (1.0, 1024))   # window length up to each progress
LONG = LENGTHS[-1][1]
MATRIX_LR, OTHER_LR, WEIGHT_DECAY = 6e-3, 3e-3, 0.05
WARMUP, HOLD = 80, 0.3                     # steps; progress at which the rate starts to fall
# Conversations: micro-batches of four, share of the rate, window of the text beside them and the weight
# of its loss, conversations that are sorted by length together.
TALK_SHARE, TALK_RATE, TALK_LENGTH, TEXT_WEIGHT, TALK_POOL = 3, 0.7, 512, 0.35, 288
BALANCE, DRAFT = 0.01, 1.0                # weights of the router's and the MTP head's loss
CHECKPOINT_SECONDS, EVALUATE_EVERY = 240, 3   # seconds; checkpoints


def encode(tokenizer, documents):
    """One stream of ids; every document ends with <|endoftext|>."""
    end, ids = tokenizer.token_to_id("<|endoftext|>"), []
    for encoding in tokenizer.encode_batch([text for _, text in documents]):
        ids += encoding.ids + [end]
    return torch.tensor(ids)


class Windows:
    """Shuffled windows of the stream; the n-th token position decides all."""

    def __init__(self, ids, seed):
        self.ids, self.seed = ids, seed

    def batch(self, position, length, count):
        """`count` windows of length + 2 ids, starting at training position `position`."""
        per_epoch = len(self.ids) // length - 2
        rows = []
        for n in range(position // length, position // length + count):
            random = torch.Generator().manual_seed(self.seed * 1000 + n // per_epoch)
            phase = int(torch.randint(length, (1,), generator=random))
            start = phase + length * int(torch.randperm(per_epoch, generator=random)[n % per_epoch])
            rows.append(self.ids[start:start + length + 2])
        return torch.stack(rows)


class Conversations:
    """Micro-batches of conversations of about one length, with a weight per target."""

    def __init__(self, tokenizer, template, words, seed):
        self.tokenizer, self.template = tokenizer, conversations.template(template)
        self.words, self.seed, self.ready, self.ready_from = words, seed, [], None
        texts = (tokenizer.decode([i], skip_special_tokens=False) for i in range(tokenizer.get_vocab_size()))
        self.pieces = sorted({text for text in texts if text.strip().isalpha()})

    def encode(self, n):
        """(ids, weight of every id as a target): 1 for what the assistant says, in earlier turns too."""
        made = conversations.conversation(n, self.seed, False, self.words, extra_pieces=self.pieces)
        ids, weights = [], []
        for text, spoken in conversations.pieces(self.template, made):
            piece = self.tokenizer.encode(text).ids
            ids += piece
            weights += [float(spoken)] * len(piece)
        return ids, weights

    def pool(self, first):
        """The micro-batches that conversations first … first + TALK_POOL - 1 make."""
        rows, batches, batch = sorted(map(self.encode, range(first, first + TALK_POOL)), key=lambda row: len(row[0])), [], []
        for row in reversed(rows):
            T = -(-(len((batch or [row])[0][0]) - 1) // BLOCK) * BLOCK
            if batch and T * (len(batch) + 1) > MICRO_TOKENS:
                batches.append(batch)
                batch = []
            batch.append(row)
        batches.append(batch)
        random.Random(first).shuffle(batches)
        return [self.tensors(batch) for batch in batches]

    @staticmethod
    def tensors(batch):
        """ids [B,T+2] and, for the targets at 1 … T+1, weights [B,T+1]."""
        T = -(-(max(len(ids) for ids, _ in batch) - 1) // BLOCK) * BLOCK
        ids, weights = torch.zeros(len(batch), T + 2, dtype=torch.long), torch.zeros(len(batch), T + 1)
        for i, (row, weight) in enumerate(batch):
            ids[i, :len(row)] = torch.tensor(row)
            weights[i, :len(row) - 1] = torch.tensor(weight[1:])
        return ids, weights

    def take(self, at):
        """The micro-batch at (first conversation, index), and where the next one is."""
        first, index = at
        if self.ready_from != first:
            self.ready, self.ready_from = self.pool(first), first
        following = (first, index + 1) if index + 1 < len(self.ready) else (first + TALK_POOL, 0)
        return self.ready[index], following


class Muon:
    """Momentum whose update matrices are made nearly orthogonal by a
    Newton-Schulz iteration, scaled to the size of an Adam update."""

    def __init__(self, parameters, momentum=0.95):
        self.groups, self.momentum = {}, momentum
        for p in parameters:
            self.groups.setdefault(tuple(p.shape[-2:]), []).append(p)
        self.state = {shape: torch.zeros(sum(p.numel() for p in ps) // math.prod(shape), *shape)
                      for shape, ps in self.groups.items()}

    @staticmethod
    def orthogonal(m):
        x = m.mT if m.shape[-2] > m.shape[-1] else m
        x = (x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)).bfloat16()
        for _ in range(5):
            a = x @ x.mT
            x = 3.4445 * x + (-4.7750 * a + 2.0315 * (a @ a)) @ x
        return (x.mT if m.shape[-2] > m.shape[-1] else x).float()

    @torch.no_grad()
    def step_group(self, shape, gradients, rate):
        """gradients: one per parameter of the group, in order."""
        parameters, state = self.groups[shape], self.state[shape]
        gradient = torch.cat([g.view(-1, *shape) for g in gradients])
        state.mul_(self.momentum).add_(gradient)
        update = self.orthogonal(gradient + self.momentum * state) * (0.2 * math.sqrt(max(shape)))
        at = 0
        for p in parameters:
            count = p.numel() // math.prod(shape)
            p.mul_(1 - rate * WEIGHT_DECAY).sub_(rate * update[at:at + count].view_as(p))
            at += count


def split_parameters(model):
    """(matrices for Muon, everything else for Adam)."""
    matrices, others = [], []
    for name, p in model.named_parameters():
        big = p.dim() >= 2 and min(p.shape[-2:]) >= 32 and "embed_tokens" not in name
        (matrices if big else others).append(p)
    return matrices, others


def mean_loss(logits, targets, weights):
    loss = F.cross_entropy(logits.float().flatten(0, 1), targets.flatten(), reduction="none")
    weights = weights.flatten()
    return (loss * weights).sum() / weights.sum().clamp(min=1)


def losses(model, ids, weights):
    """Loss of one batch of windows, ids [B,T+2] with weights [B,T+1] of the
    targets, and its parts for the log.

    The MTP head trains on every other window, and on detached hidden states
    and embeddings: it learns to follow the model, the model does not bend.
    """
    T, notes = ids.shape[1] - 2, []
    with torch.autocast("cpu", torch.bfloat16, cache_enabled=False):
        hidden = model.hidden(ids[:, :T], notes)
        main = mean_loss(model.logits(hidden), ids[:, 1:T + 1], weights[:, :T])
        rows = slice(0, (len(ids) + 1) // 2)
        table = model.embed_tokens.weight.detach()
        draft = model.draft_hidden(hidden[rows].detach(), ids[rows, 1:T + 1], notes, table)
        draft = mean_loss(F.linear(draft, table), ids[rows, 2:], weights[rows, 1:])
    balance = sum(b for b, _ in notes) / len(notes)
    least = torch.stack([u.min() for _, u in notes]).min()
    return main + DRAFT * draft + BALANCE * balance, torch.stack([main, draft, balance, least]).detach()


class Trainer:
    def __init__(self, options):
        self.options = options
        self.model = Model(Config(options.model / "config.json"))
        self.parameters = list(self.model.parameters())
        matrices, others = split_parameters(self.model)
        self.muon = Muon(matrices)
        self.adam = torch.optim.AdamW(others, lr=0, betas=(0.9, 0.95), eps=1e-10, weight_decay=0)
        self.step, self.position, self.talked, self.active, self.times = 0, 0, (0, 0), 0.0, []
        self.pool = ThreadPoolExecutor(WORKERS)
        tokenizer = Tokenizer.from_file(str(options.model / "tokenizer.json"))
        read = lambda name: json.loads((options.work / name).read_text())
        text = read("train.json")
        self.windows = Windows(encode(tokenizer, text), options.seed)
        if options.converse:
            words = sorted(set(re.findall(r"\b[a-z]{3,9}\b", " ".join(t for _, t in text))))
            self.conversations = Conversations(tokenizer, options.converse, words, options.seed)
        held = encode(tokenizer, read("held.json"))
        self.held = held[:len(held) // LONG * LONG].view(-1, LONG)[::3]

    def progress(self):
        if self.options.steps:
            return self.step / self.options.steps
        return self.active / (60 * self.options.minutes)

    def rate(self):
        fall = min(1.0, (1 - self.progress()) / (1 - HOLD))
        return min(1.0, (self.step + 1) / WARMUP) * max(0.0, fall) * (TALK_RATE if self.options.converse else 1)

    def gradients(self, batch):
        ids, weights, share = batch
        total, parts = losses(self.model, ids, weights)
        return torch.autograd.grad(total * share, self.parameters), parts

    def text(self, length, tokens):
        """Micro-batches of `tokens` tokens of text in windows of `length`."""
        batch = self.windows.batch(self.position, length, tokens // length)
        self.position += tokens
        share = TEXT_WEIGHT if self.options.converse else 1
        return [(ids, torch.ones(len(ids), length + 1), share) for ids in batch.split(max(1, MICRO_TOKENS // length))]

    def micro_batches(self):
        if not self.options.converse:
            return self.text(next(length for until, length in LENGTHS if self.progress() < until), BATCH_TOKENS)
        batches = self.text(TALK_LENGTH, BATCH_TOKENS - TALK_SHARE * MICRO_TOKENS)
        for _ in range(TALK_SHARE):
            batch, self.talked = self.conversations.take(self.talked)
            batches.append((*batch, 1))
        return batches

    def train_step(self):
        started = time.monotonic()
        results = list(self.pool.map(self.gradients, self.micro_batches()))
        grads = [torch.stack(g).mean(0) for g in zip(*(r[0] for r in results))]
        for p, g in zip(self.parameters, grads):
            p.grad = g
        rate = self.rate()
        self.adam.param_groups[0]["lr"] = OTHER_LR * rate
        jobs = [self.pool.submit(self.muon.step_group, shape, [p.grad for p in ps], MATRIX_LR * rate)
                for shape, ps in self.muon.groups.items()]
        self.adam.step()
        for job in jobs:
            job.result()
        self.step += 1
        self.count_time(time.monotonic() - started)
        return torch.stack([r[1] for r in results]).mean(0)

    def count_time(self, seconds):
        self.times = self.times[-50:] + [seconds]
        self.active += min(seconds, 3 * statistics.median(self.times))

    @torch.no_grad()
    def evaluate(self):
        rows = list(self.pool.map(self.evaluate_row, self.held))
        return torch.tensor(rows).mean(0).tolist()

    @torch.no_grad()
    def evaluate_row(self, row):
        """(loss per token, share of first drafts equal to the model's choice)."""
        ids, notes = row[None], []
        hidden = self.model.hidden(ids, notes)
        logits = self.model.logits(hidden)
        loss = F.cross_entropy(logits[0, :-1], ids[0, 1:])
        draft = self.model.logits(self.model.draft_hidden(hidden[:, :-1], ids[:, 1:], notes))
        return loss.item(), (draft.argmax(-1) == logits[:, 1:].argmax(-1)).float().mean().item()

    def checkpoint(self):
        return "converse.pt" if self.options.converse else "checkpoint.pt"

    def save(self):
        state = {"model": self.model.state_dict(), "adam": self.adam.state_dict(),
                 "muon": self.muon.state, "step": self.step, "position": self.position,
                 "talked": self.talked, "active": self.active}
        path = self.options.work / self.checkpoint()
        torch.save(state, path.with_suffix(".new"))
        os.replace(path.with_suffix(".new"), path)

    def resume(self):
        own = self.options.work / self.checkpoint()
        if self.options.fresh or not own.exists():
            if self.options.converse:
                self.model.load_state_dict(torch.load(self.options.work / "checkpoint.pt")["model"])
            return
        state = torch.load(own)
        self.model.load_state_dict(state["model"])
        self.adam.load_state_dict(state["adam"])
        self.muon.state = state["muon"]
        self.step, self.position, self.active = state["step"], state["position"], state["active"]
        self.talked = tuple(state.get("talked", (0, 0)))

    def log(self, **entry):
        entry = {k: round(v, 5) if isinstance(v, float) else v for k, v in entry.items()}
        with open(self.options.work / "log.jsonl", "a") as file:
            file.write(json.dumps(entry) + "\n")

    def run(self):
        saved, checkpoints = time.monotonic(), 0
        while self.progress() < 1:
            main, draft, balance, least = self.train_step().tolist()
            if self.step % 20 == 0:
                self.log(step=self.step, minutes=self.active / 60, rate=self.rate(), loss=main,
                         draft=draft, balance=balance, least_used=least,
                         step_seconds=statistics.median(self.times))
            if time.monotonic() - saved > CHECKPOINT_SECONDS or self.progress() >= 1:
                self.save()
                checkpoints += 1
                if checkpoints % EVALUATE_EVERY == 0 or self.progress() >= 1:
                    loss, accepted = self.evaluate()
                    self.log(step=self.step, held_loss=loss, accepted=accepted)
                saved = time.monotonic()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("work", type=Path)
    parser.add_argument("model", type=Path)
    parser.add_argument("--minutes", type=float, default=66)
    parser.add_argument("--steps", type=int, default=0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--converse", type=Path, metavar="TEMPLATE")
    parser.add_argument("--fresh", action="store_true", help="ignore an existing checkpoint")
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(options.seed)
    torch.set_flush_denormal(True)
    trainer = Trainer(options)
    trainer.resume()
    trainer.run()


if __name__ == "__main__":
    main()
