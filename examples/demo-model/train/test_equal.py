"""Prove the training module equal to transformers' classes in float32.

usage: test_equal.py MODEL_DIR

Compares logits of the language model and of the MTP head, and gradients of
the C operations against double-precision loops, all on the weights in
MODEL_DIR.
"""

import sys
from pathlib import Path

import torch
from safetensors.torch import load_file

from fast import Conv, Delta
from model import Config, Model
from reference_model import DraftHead, load_language_model

BOUND = 1e-4


def check(name, ours, theirs):
    error = ((ours - theirs).abs().max() / theirs.abs().max()).item()
    print(f"{name:32} max error / max value = {error:.2e}")
    assert error < BOUND, name


def delta_loop(q, k, v, g, beta):
    """The delta rule token by token."""
    B, T, nk, D = q.shape
    repeat = v.shape[2] // nk
    q, k = q.repeat_interleave(repeat, 2), k.repeat_interleave(repeat, 2)
    S, out = q.new_zeros(B, v.shape[2], D, D), []
    for t in range(T):
        S = S * g[:, t, :, None, None].exp()
        error = v[:, t] - (S * k[:, t, :, :, None]).sum(-2)
        S = S + k[:, t, :, :, None] * (beta[:, t, :, None] * error)[:, :, None]
        out.append((S * q[:, t, :, :, None]).sum(-2))
    return torch.stack(out, 1)


def conv_loop(u, w):
    out = sum(torch.nn.functional.pad(u, (0, 0, 3, 0))[:, j:j + u.shape[1]] * w[:, j] for j in range(4))
    return torch.nn.functional.silu(out)


def check_operation(name, fast, loop, inputs):
    inputs = [x.requires_grad_() for x in inputs]
    exact = [x.detach().double().requires_grad_() for x in inputs]
    ours, theirs = fast(*inputs), loop(*exact)
    direction = torch.randn_like(theirs)
    check(name, ours.double(), theirs)
    gradients = torch.autograd.grad(ours, inputs, direction.float())
    wanted = torch.autograd.grad(theirs, exact, direction)
    for i, (a, b) in enumerate(zip(gradients, wanted)):
        check(f"{name} gradient {i}", a.double(), b)


def check_operations():
    B, T, nk, nv, D = 2, 96, 3, 6, 32
    unit = lambda x: torch.nn.functional.normalize(x, dim=-1)
    check_operation("delta", Delta.apply, delta_loop, [
        unit(torch.randn(B, T, nk, D)), unit(torch.randn(B, T, nk, D)), torch.randn(B, T, nv, D),
        -torch.rand(B, T, nv), torch.rand(B, T, nv)])
    check_operation("conv", Conv.apply, conv_loop, [torch.randn(B, T, 64), torch.randn(64, 4)])


@torch.no_grad()
def check_models(directory):
    ours = Model(Config(directory / "config.json"))
    ours.load_published(load_file(directory / "model.safetensors"))
    theirs, head = load_language_model(directory), DraftHead(directory)
    for length in (1, 31, 65, 200):
        ids, notes = torch.randint(0, 4096, (2, length + 1)), []
        hidden = ours.hidden(ids, notes)
        reference = theirs.model(ids).last_hidden_state
        check(f"logits, {length + 1} tokens", ours.logits(hidden), theirs.lm_head(reference))
        draft = ours.logits(ours.draft_hidden(hidden[:, :-1], ids[:, 1:], notes))
        check(f"MTP logits, {length} tokens", draft, head(theirs, reference[:, :-1], ids[:, 1:]))


if __name__ == "__main__":
    torch.manual_seed(0)
    check_operations()
    check_models(Path(sys.argv[1]))
    print("equal")
