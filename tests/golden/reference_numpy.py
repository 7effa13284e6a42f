"""The text model in float64 numpy, written from the formulas alone: no code of transformers.

Every intermediate keeps float64, so this is the judge of the float32 results. Rows are tokens.
Dimension letters: T tokens, H hidden, nh/nkv query and KV heads, hd head size, nk/nv key and value
heads of the DeltaNet, dk/dv their sizes, E experts.
"""

import numpy as np

from weights import PREFIX

CHUNK = 64


def sigmoid(x):
    return np.exp(-np.logaddexp(0.0, -x))


def silu(x):
    return x * sigmoid(x)


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def rms(x, eps):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps)


def rope_frequencies(c):
    """(inverse frequencies [rotary/2], factor of cos and sin), default or YaRN."""
    p = c["rope_parameters"]
    dim = int(c["head_dim"] * p["partial_rotary_factor"])
    theta = float(p["rope_theta"])
    plain = theta ** (-2.0 * np.arange(dim // 2) / dim)
    if p["rope_type"] == "default":
        return plain, 1.0
    factor, original = p["factor"], p["original_max_position_embeddings"]

    def corr(turns):
        return dim * np.log(original / (2 * np.pi * turns)) / (2 * np.log(theta))

    low = max(np.floor(corr(p.get("beta_fast", 32))), 0)
    high = min(np.ceil(corr(p.get("beta_slow", 1))), dim - 1)
    ramp = np.clip((np.arange(dim // 2) - low) / (high - low), 0, 1)
    return plain / factor * ramp + plain * (1 - ramp), 0.1 * np.log(factor) + 1


def rotate(x, positions, c):
    """Rotates the first dimensions of x [T, heads, hd]; text has one position for all three axes."""
    freq, factor = rope_frequencies(c)
    half = len(freq)
    angle = positions[:, None, None] * freq
    cos, sin = np.cos(angle) * factor, np.sin(angle) * factor
    a, b, rest = x[..., :half], x[..., half:2 * half], x[..., 2 * half:]
    return np.concatenate([a * cos - b * sin, b * cos + a * sin, rest], axis=-1)


def delta_recurrent(q, k, v, beta, g, state):
    """q, k [T,nv,dk] normalised and scaled, v [T,nv,dv], beta, g [T,nv], state [nv,dk,dv]."""
    out = np.empty_like(v)
    for t in range(len(v)):
        state = state * np.exp(g[t])[:, None, None]
        error = beta[t][:, None] * (v[t] - np.einsum("hk,hkv->hv", k[t], state))
        state = state + k[t][:, :, None] * error[:, None, :]
        out[t] = np.einsum("hk,hkv->hv", q[t], state)
    return out, state


def delta_chunk(q, k, v, beta, g, state):
    """One head, one chunk: q, k [n,dk], v [n,dv], beta, g [n], state [dk,dv]."""
    cum = np.cumsum(g)
    lower = np.tril(np.ones((len(g), len(g)), bool))
    decay = np.exp(np.where(lower, cum[:, None] - cum[None, :], -np.inf))
    system = np.eye(len(g)) + np.tril(beta[:, None] * (k @ k.T) * decay, -1)
    right = np.concatenate([beta[:, None] * v, (beta * np.exp(cum))[:, None] * k], axis=1)
    u, w = np.split(np.linalg.solve(system, right), [v.shape[1]], axis=1)
    new = u - w @ state
    out = np.exp(cum)[:, None] * (q @ state) + (q @ k.T * decay) @ new
    return out, np.exp(cum[-1]) * state + (k * np.exp(cum[-1] - cum)[:, None]).T @ new


def delta_chunked(q, k, v, beta, g, state):
    """Same arguments and results as delta_recurrent, 64 tokens at a time."""
    out, state = np.empty_like(v), state.copy()
    for t in range(0, len(v), CHUNK):
        s = slice(t, t + CHUNK)
        for h in range(v.shape[1]):
            out[s, h], state[h] = delta_chunk(q[s, h], k[s, h], v[s, h], beta[s, h], g[s, h],
                                              state[h])
    return out, state


class Reference:
    """forward() extends a timeline; a state is a list with one tuple per layer and is never changed."""

    def __init__(self, config, weights, delta=delta_recurrent):
        self.c = config
        self.w = {name: array.astype(np.float64) for name, array in weights.items()}
        self.delta = delta
        self.router_gaps = []  # per call of forward and layer: (probability gap, logit gap) per row

    def norm(self, x, name):
        return rms(x, self.c["rms_norm_eps"]) * (1 + self.w[name])

    def linear(self, x, name):
        return x @ self.w[name].T

    def attention(self, n, p, state):
        c, hd = self.c, self.c["head_dim"]
        keys, values = state or (np.empty((0, c["num_key_value_heads"], hd)),) * 2
        positions = len(keys) + np.arange(len(n))
        q, gate = np.split(self.linear(n, p + "q_proj.weight").reshape(len(n), -1, 2 * hd), 2, axis=-1)
        k = self.linear(n, p + "k_proj.weight").reshape(len(n), -1, hd)
        v = self.linear(n, p + "v_proj.weight").reshape(len(n), -1, hd)
        q = rotate(self.norm(q, p + "q_norm.weight"), positions, c)
        keys = np.concatenate([keys, rotate(self.norm(k, p + "k_norm.weight"), positions, c)])
        values = np.concatenate([values, v])
        group = q.shape[1] // keys.shape[1]
        scores = np.einsum("thd,shd->hts", q, keys.repeat(group, axis=1)) / np.sqrt(hd)
        scores = np.where(np.arange(len(keys)) <= positions[:, None], scores, -np.inf)
        out = np.einsum("hts,shd->thd", softmax(scores), values.repeat(group, axis=1))
        out = (out * sigmoid(gate)).reshape(len(n), -1)
        return self.linear(out, p + "o_proj.weight"), (keys, values)

    def delta_inputs(self, n, p, raw):
        """Convolution, split, L2 norm; raw [3 + T, conv_dim] starts with the three rows before."""
        c, taps = self.c, self.w[p + "conv1d.weight"][:, 0, :]
        nk, dk = c["linear_num_key_heads"], c["linear_key_head_dim"]
        nv, dv = c["linear_num_value_heads"], c["linear_value_head_dim"]
        conv = silu(sum(taps[:, j] * raw[j:j + len(n)] for j in range(taps.shape[1])))
        q, k, v = np.split(conv, [nk * dk, 2 * nk * dk], axis=1)
        q, k = (x.reshape(len(n), nk, dk) for x in (q, k))
        q, k = (x / np.sqrt((x * x).sum(-1, keepdims=True) + 1e-6) for x in (q, k))
        q, k = (x.repeat(nv // nk, axis=1) for x in (q / np.sqrt(dk), k))
        beta = sigmoid(self.linear(n, p + "in_proj_b.weight"))
        a = self.linear(n, p + "in_proj_a.weight") + self.w[p + "dt_bias"]
        g = -np.exp(self.w[p + "A_log"]) * np.logaddexp(0.0, a)
        return q, k, v.reshape(len(n), nv, dv), beta, g

    def delta_net(self, n, p, state):
        c = self.c
        nv, dv = c["linear_num_value_heads"], c["linear_value_head_dim"]
        u = self.linear(n, p + "in_proj_qkv.weight")
        tail, s = state or (np.zeros((c["linear_conv_kernel_dim"] - 1, u.shape[1])),
                            np.zeros((nv, c["linear_key_head_dim"], dv)))
        raw = np.concatenate([tail, u])
        out, s = self.delta(*self.delta_inputs(n, p, raw), s)
        z = self.linear(n, p + "in_proj_z.weight").reshape(out.shape)
        out = self.w[p + "norm.weight"] * rms(out, c["rms_norm_eps"]) * silu(z)
        return self.linear(out.reshape(len(n), -1), p + "out_proj.weight"), (raw[len(n):], s)

    def dense(self, n, p):
        gate, up = self.linear(n, p + "gate_proj.weight"), self.linear(n, p + "up_proj.weight")
        return self.linear(silu(gate) * up, p + "down_proj.weight")

    def moe(self, n, p):
        k = self.c["num_experts_per_tok"]
        logits = self.linear(n, p + "gate.weight")
        prob = softmax(logits)
        order = np.argsort(-prob, axis=1, kind="stable")
        ranked = np.take_along_axis(prob, order[:, :k + 1], 1)
        self.router_gaps.append((ranked[:, k - 1] - ranked[:, k],
                                 np.log(ranked[:, k - 1] / ranked[:, k])))
        share = ranked[:, :k] / ranked[:, :k].sum(1, keepdims=True)
        out = np.zeros_like(n)
        for t, i in np.ndindex(len(n), k):
            e = order[t, i]
            gate, up = np.split(self.w[p + "experts.gate_up_proj"][e] @ n[t], 2)
            out[t] += share[t, i] * (self.w[p + "experts.down_proj"][e] @ (silu(gate) * up))
        shared = self.dense(n, p + "shared_expert.")
        return out + sigmoid(self.linear(n, p + "shared_expert_gate.weight")) * shared

    def forward(self, tokens, state=None):
        """(logits [T,V], layer outputs [L,T,H], new state) of a segment after `state`."""
        self.router_gaps = []
        x = self.w[PREFIX + "embed_tokens.weight"][np.asarray(tokens)]
        layers, new_state = [], []
        for i, kind in enumerate(self.c["layer_types"]):
            p = f"{PREFIX}layers.{i}."
            mixer, sub = ((self.attention, "self_attn.") if kind == "full_attention" else
                          (self.delta_net, "linear_attn."))
            n = self.norm(x, p + "input_layernorm.weight")
            a, s = mixer(n, p + sub, state and state[i])
            x = x + a
            n = self.norm(x, p + "post_attention_layernorm.weight")
            x = x + (self.moe if self.c["moe"] else self.dense)(n, p + "mlp.")
            layers.append(x)
            new_state.append(s)
        head = PREFIX + "embed_tokens.weight" if self.c["tie_word_embeddings"] else "lm_head.weight"
        return self.linear(self.norm(x, PREFIX + "norm.weight"), head), np.stack(layers), new_state
