"""The integer weight generator and the tensor table of the text model.

Twin of examples/make-model.c: both must give the same bytes (golden.py --check-c compares them).
README.md in this folder is the definition.
"""

import json

import numpy as np

PREFIX = "model.language_model."
MASK = (1 << 64) - 1
GOLDEN_GAMMA = 0x9E3779B97F4A7C15
SEED_FACTOR = 0xD1342543DE82EF95


def fnv1a64(text):
    h = 0xCBF29CE484222325
    for byte in text.encode():
        h = (h ^ byte) * 0x100000001B3 & MASK
    return h


def stream(name, seed, count):
    """The first `count` signed bytes of the stream of `name`."""
    key = fnv1a64(name) ^ (seed * SEED_FACTOR & MASK)
    z = np.arange((count + 7) // 8, dtype=np.uint64) * np.uint64(GOLDEN_GAMMA) + np.uint64(key)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    z = z ^ (z >> np.uint64(31))
    return z.astype("<u8").view(np.int8)[:count]


def linear_exponent(fan_in):
    """The s for which 74 * 2^-s is nearest to fan_in^-1/2, in integers."""
    return ((2 * 74 * 74 * fan_in).bit_length() - 1) // 2


def rule(name, shape, tied):
    """(shift, offset, s): an element is ((n >> shift) + offset) * 2^-s."""
    s = linear_exponent(shape[-1])
    if name.endswith(".A_log"):
        return 0, -64, 5
    if name.endswith(".dt_bias"):
        return 0, 0, 6
    if name.endswith(".conv1d.weight"):
        return 0, 0, 7
    if name.endswith(".linear_attn.norm.weight"):
        return 3, 128, 7
    if name.endswith((".q_norm.weight", ".k_norm.weight")):
        return 0, 0, 9
    if len(shape) == 1:
        return 0, 0, 10
    if name.endswith(".embed_tokens.weight"):
        return 0, 0, s - 1 if tied else 7
    if name == "lm_head.weight" or name.endswith(".mlp.gate.weight"):
        return 0, 0, s - 1
    return 0, 0, s


def tensor(name, shape, seed, tied):
    shift, offset, s = rule(name, shape, tied)
    n = stream(name, seed, int(np.prod(shape))).astype(np.int16)
    return (((n >> shift) + offset).astype(np.float32) * np.float32(2.0**-s)).reshape(shape)


def read_config(path):
    """The text fields of a config, nested or flat, with the family's defaults filled in."""
    with open(path) as f:
        root = json.load(f)
    text = root.get("text_config", root)
    c = dict(text)
    c["moe"] = "moe" in text.get("model_type", root["model_type"])
    c.setdefault("tie_word_embeddings", root.get("tie_word_embeddings", False))
    c.setdefault("rms_norm_eps", 1e-6)
    interval = c.get("full_attention_interval", 4)
    c.setdefault("layer_types", ["linear_attention" if (i + 1) % interval else "full_attention"
                                 for i in range(c["num_hidden_layers"])])
    rope = dict(text.get("rope_parameters") or {})
    kind = rope.pop("type", "default")
    rope.setdefault("rope_type", kind)
    rope.setdefault("rope_theta", text.get("rope_theta", 10000000))
    rope.setdefault("partial_rotary_factor", text.get("partial_rotary_factor", 0.25))
    c["rope_parameters"] = rope
    return c


def attention_tensors(c):
    h, hd = c["hidden_size"], c["head_dim"]
    nh, nkv = c["num_attention_heads"], c["num_key_value_heads"]
    return {"self_attn.q_proj.weight": (2 * nh * hd, h), "self_attn.k_proj.weight": (nkv * hd, h),
            "self_attn.v_proj.weight": (nkv * hd, h), "self_attn.o_proj.weight": (h, nh * hd),
            "self_attn.q_norm.weight": (hd,), "self_attn.k_norm.weight": (hd,)}


def delta_tensors(c):
    h, nv, dv = c["hidden_size"], c["linear_num_value_heads"], c["linear_value_head_dim"]
    conv = 2 * c["linear_num_key_heads"] * c["linear_key_head_dim"] + nv * dv
    p = "linear_attn."
    return {p + "in_proj_qkv.weight": (conv, h), p + "in_proj_z.weight": (nv * dv, h),
            p + "in_proj_b.weight": (nv, h), p + "in_proj_a.weight": (nv, h),
            p + "conv1d.weight": (conv, 1, c["linear_conv_kernel_dim"]), p + "A_log": (nv,),
            p + "dt_bias": (nv,), p + "norm.weight": (dv,), p + "out_proj.weight": (h, nv * dv)}


def ffn_tensors(c):
    h = c["hidden_size"]
    if not c["moe"]:
        i = c["intermediate_size"]
        return {"mlp.gate_proj.weight": (i, h), "mlp.up_proj.weight": (i, h),
                "mlp.down_proj.weight": (h, i)}
    e, im = c["num_experts"], c["moe_intermediate_size"]
    s = c["shared_expert_intermediate_size"]
    return {"mlp.gate.weight": (e, h), "mlp.experts.gate_up_proj": (e, 2 * im, h),
            "mlp.experts.down_proj": (e, h, im), "mlp.shared_expert.gate_proj.weight": (s, h),
            "mlp.shared_expert.up_proj.weight": (s, h), "mlp.shared_expert.down_proj.weight": (h, s),
            "mlp.shared_expert_gate.weight": (1, h)}


def layer_tensors(c, full):
    h = c["hidden_size"]
    return {"input_layernorm.weight": (h,), "post_attention_layernorm.weight": (h,),
            **(attention_tensors(c) if full else delta_tensors(c)), **ffn_tensors(c)}


def text_tensors(c):
    """{published name: shape} of the text model."""
    h, v = c["hidden_size"], c["vocab_size"]
    out = {PREFIX + "embed_tokens.weight": (v, h)}
    for i, kind in enumerate(c["layer_types"]):
        for name, shape in layer_tensors(c, kind == "full_attention").items():
            out[f"{PREFIX}layers.{i}.{name}"] = shape
    out[PREFIX + "norm.weight"] = (h,)
    if not c["tie_word_embeddings"]:
        out["lm_head.weight"] = (v, h)
    return out


def mtp_tensors(c):
    h = c["hidden_size"]
    out = {"mtp.fc.weight": (h, 2 * h), "mtp.pre_fc_norm_embedding.weight": (h,),
           "mtp.pre_fc_norm_hidden.weight": (h,), "mtp.norm.weight": (h,)}
    for name, shape in layer_tensors(c, True).items():
        out[f"mtp.layers.0.{name}"] = shape
    return out


def weights(c, seed, mtp=False):
    """{published name: float32 array}."""
    shapes = {**text_tensors(c), **(mtp_tensors(c) if mtp else {})}
    tied = c["tie_word_embeddings"]
    return {name: tensor(name, shape, seed, tied) for name, shape in shapes.items()}
