#!/usr/bin/env python3
"""Makes the golden files (no arguments), or compares make-model with weights.py (--check-c).

README.md in this folder tells what is in a golden file and how it is made.
"""

import argparse
import contextlib
import json
import pathlib
import subprocess
import sys
import tempfile

import numpy as np

import weights as gen
from reference_numpy import Reference, delta_chunked

HERE = pathlib.Path(__file__).resolve().parent
NAMES = ["moe", "dense_untied", "dense_tied", "odd", "moe_real_heads", "dense_real_heads"]
SEED = 7
LENGTH = 300
POSITIONS = [0, 1, 2, 3, 4, 5, 30, 31, 32, 33, 62, 63, 64, 65, 66, 126, 127, 128, 129, 130, 191, 192,
             255, 299]
PREFIXES = [1, 2, 3, 4, 63, 64, 65, 127, 128, 129]
MIN_PROBABILITY_GAP = 1e-3
MIN_LOGIT_GAP = 0.05
LIMIT_PREFIX = 2e-5
LIMIT_REFERENCE = 1e-5


def deviation(a, b):
    """Largest over the rows (last axis) of max|a - b| / max|b|."""
    a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
    return float((np.abs(a - b).max(-1) / np.abs(b).max(-1)).max())


def choose_tokens(reference, vocab):
    """LENGTH tokens from the stream, skipping those whose routing would be a near tie.

    Returns (tokens, logits, layers, smallest probability gap, smallest logit gap), all of them
    from the float64 reference run token by token.
    """
    candidates = gen.stream("tokens", SEED, 8 * LENGTH).view("<u2").astype(np.int32) % vocab
    tokens, logits, layers, gaps, state = [], [], [], [], None
    for token in candidates:
        row, out, new_state = reference.forward([token], state)
        gap = np.array(reference.router_gaps).reshape(-1, 2).min(0, initial=np.inf)
        if gap[0] < MIN_PROBABILITY_GAP or gap[1] < MIN_LOGIT_GAP:
            continue
        tokens.append(token)
        logits.append(row[0])
        layers.append(out[:, 0])
        gaps.append(gap)
        state = new_state
        if len(tokens) == LENGTH:
            return (np.array(tokens), np.stack(logits), np.stack(layers, 1), *np.min(gaps, 0))
    raise SystemExit("too few tokens pass the router gap")


class Transformers:
    """The transformers text model in float32 with weights set by name."""

    def __init__(self, config_path, config, weights):
        import torch
        from transformers import (Qwen3_5ForCausalLM, Qwen3_5MoeForCausalLM, Qwen3_5MoeTextConfig,
                                  Qwen3_5TextConfig)
        self.torch = torch
        root = json.loads(config_path.read_text())
        text = dict(root.get("text_config", root))
        for key in ("architectures", "dtype"):
            text.pop(key, None)
        text_config = Qwen3_5MoeTextConfig if config["moe"] else Qwen3_5TextConfig
        cls = Qwen3_5MoeForCausalLM if config["moe"] else Qwen3_5ForCausalLM
        hf = text_config(**text)
        hf._attn_implementation = "eager"
        if config["moe"]:
            hf._experts_implementation = "eager"
        self.model = cls(hf).float().eval()
        self.load(weights, config["tie_word_embeddings"])

    def load(self, weights, tied):
        state = {name.replace("language_model.", ""): self.torch.from_numpy(array)
                 for name, array in weights.items()}
        if tied:
            state["lm_head.weight"] = state["model.embed_tokens.weight"]
        self.model.load_state_dict(state, strict=True)

    def forward(self, tokens, cache=None):
        """(logits [T,V], layer outputs [L,T,H], cache), float32."""
        layers = []
        hooks = [layer.register_forward_hook(lambda m, i, out: layers.append(out[0].numpy()))
                 for layer in self.model.model.layers]
        with self.torch.no_grad(), contextlib.ExitStack() as stack:
            for hook in hooks:
                stack.callback(hook.remove)
            ids = self.torch.tensor(np.asarray(tokens)[None], dtype=self.torch.long)
            out = self.model(input_ids=ids, cache=cache, use_cache=True)
        return out.logits[0].numpy(), np.stack(layers), out.cache

    def decode(self, tokens, start):
        """Logits of tokens[start:] when they follow one by one after tokens[:start]."""
        _, _, cache = self.forward(tokens[:start])
        rows = []
        for token in tokens[start:]:
            row, _, cache = self.forward([token], cache)
            rows.append(row[0])
        return np.stack(rows)


def make(name, out_dir):
    path = HERE / "configs" / f"{name}.json"
    config = gen.read_config(path)
    weights = gen.weights(config, SEED)
    reference = Reference(config, weights)
    tokens, ref_logits, ref_layers, probability_gap, logit_gap = choose_tokens(reference, config["vocab_size"])
    chunked, _, _ = Reference(config, weights, delta_chunked).forward(tokens)
    model = Transformers(path, config, weights)
    logits, layers, _ = model.forward(tokens)

    prefix = 0.0
    for n in PREFIXES:
        part, part_layers, _ = model.forward(tokens[:n])
        prefix = max(prefix, deviation(part, logits[:n]), deviation(part_layers, layers[:, :n]))
    figures = {
        "prefix": prefix,
        "decode": deviation(model.decode(tokens[:140], 120), logits[120:140]),
        "reference_logits": deviation(logits, ref_logits),
        "reference_layers": deviation(layers, ref_layers),
        "chunked_recurrent": deviation(chunked, ref_logits),
        "logit_std": float(logits.std()),
    }
    if config["moe"]:
        figures.update(min_probability_gap=probability_gap, min_logit_gap=logit_gap)
    print(f"{name:18s}" + "  ".join(f"{key} {value:.3g}" for key, value in figures.items()))
    if prefix >= LIMIT_PREFIX or figures["decode"] >= LIMIT_PREFIX:
        raise SystemExit(f"{name}: a prefix deviates by more than {LIMIT_PREFIX}")
    if max(figures["reference_logits"], figures["reference_layers"]) >= LIMIT_REFERENCE:
        raise SystemExit(f"{name}: transformers and the reference deviate")
    save(out_dir / f"{name}.golden", name, tokens, logits, layers, figures)


def save(path, name, tokens, logits, layers, figures):
    import torch
    import transformers
    from safetensors.numpy import save_file
    tensors = {"tokens": tokens.astype(np.int32), "positions": np.array(POSITIONS, np.int32),
               "logits": np.ascontiguousarray(logits),
               "layers": np.ascontiguousarray(layers[:, POSITIONS])}
    metadata = {"config": name, "seed": str(SEED), "transformers": transformers.__version__,
                "torch": torch.__version__.split("+")[0],
                **{key: f"{value:.3g}" for key, value in figures.items()}}
    save_file(tensors, path, metadata)
    path.chmod(0o644)


def encode(array, dtype):
    """The bytes of a float32 array in the storage type; exact for every generated weight."""
    if dtype == "bf16":
        return (array.view(np.uint32) >> 16).astype("<u2").tobytes()
    return array.astype({"f16": "<f2", "f32": "<f4"}[dtype]).tobytes()


def split_experts(weights):
    out = {}
    for name, array in weights.items():
        if not name.endswith(("experts.gate_up_proj", "experts.down_proj")):
            out[name] = array
            continue
        base = name.rsplit(".", 1)[0]
        for e, matrix in enumerate(array):
            parts = ({"down_proj": matrix} if name.endswith("down_proj") else
                     dict(zip(("gate_proj", "up_proj"), np.split(matrix, 2))))
            for part, rows in parts.items():
                out[f"{base}.{e}.{part}.weight"] = rows
    return out


def read_checkpoint(folder):
    """{name: (dtype, shape, bytes)} of all shards, by the format's definition."""
    out = {}
    for path in sorted(folder.glob("*.safetensors")):
        blob = path.read_bytes()
        size = int.from_bytes(blob[:8], "little")
        data = blob[8 + size:]
        for name, t in json.loads(blob[8:8 + size]).items():
            if name != "__metadata__":
                begin, end = t["data_offsets"]
                out[name] = (t["dtype"].lower(), tuple(t["shape"]), data[begin:end])
    return out


def run_make_model(binary, arguments):
    """(tensors, config) of the checkpoint that it writes."""
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder) / "model"
        subprocess.run([binary, *arguments, "-o", folder], check=True)
        return read_checkpoint(folder), gen.read_config(folder / "config.json")


def check_case(binary, name, seed, dtype, options):
    path = HERE / "configs" / f"{name}.json"
    config = gen.read_config(path)
    expected = gen.weights(config, seed, mtp="--mtp" in options)
    if "--per-expert" in options:
        expected = split_experts(expected)
    found, written = run_make_model(
        binary, ["--config", path, "--seed", str(seed), "--dtype", dtype, *options])
    if set(found) != set(expected):
        raise SystemExit(f"{name}: other tensors: {sorted(set(found) ^ set(expected))[:4]}")
    for tensor, array in expected.items():
        if found[tensor] != (dtype, array.shape, encode(array, dtype)):
            raise SystemExit(f"{name}: {tensor} differs")
    for key in ("rope_parameters", "layer_types", "rms_norm_eps", "moe"):
        if written[key] != config[key]:
            raise SystemExit(f"{name}: {key} of the written config is {written[key]}")
    print(f"{name} seed {seed} {dtype} {' '.join(options)}: {len(expected)} tensors equal")


def check_load(binary, name, options):
    """transformers reads the checkpoint and gives the logits of the golden file."""
    import torch
    from safetensors.numpy import load_file
    from transformers import AutoModelForCausalLM
    golden = load_file(HERE / f"{name}.golden")
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([binary, "--config", HERE / "configs" / f"{name}.json", "--seed", str(SEED),
                        *options, "-o", folder], check=True)
        model = AutoModelForCausalLM.from_pretrained(
            folder, dtype=torch.float32, attn_implementation="eager", experts_implementation="eager")
    with torch.no_grad():
        logits = model(torch.from_numpy(golden["tokens"][None].astype(np.int64))).logits[0].numpy()
    worst = deviation(logits, golden["logits"])
    if worst >= LIMIT_PREFIX:
        raise SystemExit(f"{name}: transformers reads another model from the files: {worst:.3g}")
    print(f"{name} {' '.join(options)}: read by transformers, logits deviate by {worst:.3g}")


def check_c(binary):
    for name in NAMES:
        check_load(binary, name, [])
        check_load(binary, name, ["--per-expert", "--shard-bytes", "300000"])
        check_case(binary, name, SEED, "bf16", [])
        check_case(binary, name, 77, "bf16", ["--mtp", "--per-expert", "--shard-bytes", "300000"])
    check_case(binary, "odd", SEED, "f16", ["--per-expert"])
    check_case(binary, "odd", 2**64 - 1, "f32", ["--mtp"])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="configs to make (default: all)")
    parser.add_argument("-o", "--output", type=pathlib.Path, default=HERE)
    parser.add_argument("--check-c", metavar="MAKE_MODEL", help="compare this make-model's files")
    args = parser.parse_args()
    if args.check_c:
        check_c(pathlib.Path(args.check_c).resolve())
        return
    for name in args.names or NAMES:
        make(name, args.output)


if __name__ == "__main__":
    sys.exit(main())
