"""The architecture of the family (MoE, hybrid, MTP) as a fast training module.

Parameter names are the published tensor names less the `model.language_model.`
prefix. Shapes: B batch, T tokens, H hidden, E experts.
Two things make it faster than the reference classes on a CPU: all experts run
as one dense product whose inactive rows are multiplied by zero, and the
convolution and the delta rule are small C loops (fast.c). test_equal.py proves
that the results are the reference's.
"""

import json
import math

import torch
from torch import nn
from torch.nn import functional as F

from fast import BLOCK, Conv, Delta


class Config:
    def __init__(self, path):
        for key, value in json.loads(open(path).read())["text_config"].items():
            setattr(self, key, value)


def linear(inputs, outputs, std=None):
    layer = nn.Linear(inputs, outputs, bias=False)
    nn.init.normal_(layer.weight, std=0.5 / math.sqrt(inputs) if std is None else std)
    return layer


class Norm(nn.Module):
    """RMS norm whose weight is stored as the distance from one."""

    def __init__(self, size, eps):
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.zeros(size)), eps

    def forward(self, x):
        return F.rms_norm(x.float(), x.shape[-1:], 1 + self.weight, self.eps)


def rope_table(c, length):
    dim = int(c.head_dim * c.partial_rotary_factor)
    frequency = c.rope_parameters["rope_theta"] ** (-torch.arange(0, dim, 2).float() / dim)
    angle = torch.arange(length).float()[:, None] * frequency
    return angle.cos(), angle.sin()


def rotate(x, table):
    """Rotate the first dims of x [B,heads,T,D] in half-split pairs."""
    cos, sin = table
    half = cos.shape[-1]
    a, b, rest = x[..., :half], x[..., half:2 * half], x[..., 2 * half:]
    return torch.cat((a * cos - b * sin, b * cos + a * sin, rest), -1)


class Attention(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.heads, self.kv_heads, self.dim = c.num_attention_heads, c.num_key_value_heads, c.head_dim
        self.q_proj = linear(c.hidden_size, 2 * self.heads * self.dim)
        self.k_proj = linear(c.hidden_size, self.kv_heads * self.dim)
        self.v_proj = linear(c.hidden_size, self.kv_heads * self.dim)
        self.o_proj = linear(self.heads * self.dim, c.hidden_size, std=0)
        self.q_norm, self.k_norm = Norm(self.dim, c.rms_norm_eps), Norm(self.dim, c.rms_norm_eps)

    def forward(self, x, table):
        B, T, _ = x.shape
        q, gate = self.q_proj(x).view(B, T, self.heads, 2 * self.dim).chunk(2, -1)
        k = self.k_proj(x).view(B, T, self.kv_heads, self.dim)
        v = self.v_proj(x).view(B, T, self.kv_heads, self.dim)
        q = rotate(self.q_norm(q).transpose(1, 2), table)
        k = rotate(self.k_norm(k).transpose(1, 2), table)
        repeat = self.heads // self.kv_heads
        k, v = k.repeat_interleave(repeat, 1), v.transpose(1, 2).repeat_interleave(repeat, 1)
        o = F.scaled_dot_product_attention(q, k, v.to(q.dtype), is_causal=True).transpose(1, 2)
        return self.o_proj((o * torch.sigmoid(gate)).reshape(B, T, -1))


class DeltaNet(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.nk, self.nv = c.linear_num_key_heads, c.linear_num_value_heads
        self.dim, self.eps = c.linear_key_head_dim, c.rms_norm_eps
        width = (2 * self.nk + self.nv) * self.dim
        self.in_proj_qkv = linear(c.hidden_size, width)
        self.in_proj_z = linear(c.hidden_size, self.nv * self.dim)
        self.in_proj_b = linear(c.hidden_size, self.nv)
        self.in_proj_a = linear(c.hidden_size, self.nv)
        self.conv1d = nn.Conv1d(width, width, c.linear_conv_kernel_dim, groups=width, bias=False)
        # Start with memories of between ten and a thousand tokens.
        step = torch.empty(self.nv).uniform_(math.log(1e-3), math.log(1e-1)).exp()
        self.dt_bias = nn.Parameter(step + torch.log(-torch.expm1(-step)))
        self.A_log = nn.Parameter(torch.empty(self.nv).uniform_(1, 16).log())
        self.norm = nn.Module()
        self.norm.weight = nn.Parameter(torch.ones(self.dim))
        self.out_proj = linear(self.nv * self.dim, c.hidden_size, std=0)

    def forward(self, x, table):
        B, T, _ = x.shape
        u = Conv.apply(self.in_proj_qkv(x).float(), self.conv1d.weight[:, 0])
        q, k, v = u.split([self.nk * self.dim, self.nk * self.dim, self.nv * self.dim], -1)
        heads = lambda y: y.view(B, T, -1, self.dim)
        unit = lambda y: y * (y.square().sum(-1, keepdim=True) + 1e-6).rsqrt()
        beta = torch.sigmoid(self.in_proj_b(x).float())
        g = -self.A_log.exp() * F.softplus(self.in_proj_a(x).float() + self.dt_bias)
        o = Delta.apply(unit(heads(q)) * self.dim ** -0.5, unit(heads(k)), heads(v), g, beta)
        o = F.rms_norm(o, (self.dim,), self.norm.weight, self.eps)
        z = self.in_proj_z(x).float().view(B, T, self.nv, self.dim)
        return self.out_proj((o * F.silu(z)).reshape(B, T, -1))


class Expert(nn.Module):
    def __init__(self, c):
        super().__init__()
        S = c.shared_expert_intermediate_size
        self.gate_proj, self.up_proj = linear(c.hidden_size, S), linear(c.hidden_size, S)
        self.down_proj = linear(S, c.hidden_size, std=0)

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Moe(nn.Module):
    def __init__(self, c):
        super().__init__()
        E, I, H = c.num_experts, c.moe_intermediate_size, c.hidden_size
        self.top_k = c.num_experts_per_tok
        self.gate = linear(H, E, std=0.02)
        self.experts = nn.Module()
        self.experts.gate_up_proj = nn.Parameter(torch.randn(E, 2 * I, H) * 0.5 / math.sqrt(H))
        self.experts.down_proj = nn.Parameter(torch.zeros(E, H, I))
        self.shared_expert = Expert(c)
        self.shared_expert_gate = linear(H, 1, std=0.02)

    def forward(self, x, notes):
        """Appends (balance loss, share of tokens per expert) to the list `notes`."""
        E, H, I = self.experts.down_proj.shape
        p = self.gate(x).float().softmax(-1)
        top, index = p.topk(self.top_k, -1)
        weight = torch.zeros_like(p).scatter(-1, index, top / top.sum(-1, keepdim=True))
        # Share of tokens times mean probability: least when all experts are used alike.
        used = (weight.detach() > 0).float().flatten(0, -2).mean(0)
        notes.append((E / self.top_k * (used * p.flatten(0, -2).mean(0)).sum(), used))
        gate, up = F.linear(x, self.experts.gate_up_proj.view(-1, H)).view(
            *x.shape[:-1], E, 2, I).unbind(-2)
        active = (F.silu(gate) * up * weight[..., None]).flatten(-2)
        down = self.experts.down_proj.transpose(0, 1).reshape(H, -1)
        shared = torch.sigmoid(self.shared_expert_gate(x)) * self.shared_expert(x)
        return F.linear(active, down) + shared


class Layer(nn.Module):
    def __init__(self, c, kind):
        super().__init__()
        if kind == "linear_attention":
            self.linear_attn = DeltaNet(c)
        else:
            self.self_attn = Attention(c)
        self.mlp = Moe(c)
        self.input_layernorm = Norm(c.hidden_size, c.rms_norm_eps)
        self.post_attention_layernorm = Norm(c.hidden_size, c.rms_norm_eps)

    def forward(self, x, table, notes):
        mixer = self.linear_attn if hasattr(self, "linear_attn") else self.self_attn
        x = x + mixer(self.input_layernorm(x), table)
        return x + self.mlp(self.post_attention_layernorm(x), notes)


class Mtp(nn.Module):
    """Predicts token t+2 from the final hidden state at t and token t+1."""

    def __init__(self, c):
        super().__init__()
        H = c.hidden_size
        self.fc = linear(2 * H, H)
        self.pre_fc_norm_embedding = Norm(H, c.rms_norm_eps)
        self.pre_fc_norm_hidden = Norm(H, c.rms_norm_eps)
        self.layers = nn.ModuleList([Layer(c, "full_attention")])
        self.norm = Norm(H, c.rms_norm_eps)

    def forward(self, embedded, hidden, table, notes):
        pair = (self.pre_fc_norm_embedding(embedded), self.pre_fc_norm_hidden(hidden))
        return self.norm(self.layers[0](self.fc(torch.cat(pair, -1)), table, notes))


class Model(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.config = c
        self.embed_tokens = nn.Embedding(c.vocab_size, c.hidden_size)
        nn.init.normal_(self.embed_tokens.weight, std=0.02)
        self.layers = nn.ModuleList([Layer(c, kind) for kind in c.layer_types])
        self.norm = Norm(c.hidden_size, c.rms_norm_eps)
        self.mtp = Mtp(c)

    def hidden(self, ids, notes):
        """Hidden states after the final norm, [B,T,H]; any T."""
        T = ids.shape[1]
        ids = F.pad(ids, (0, -T % BLOCK))
        table, x = rope_table(self.config, ids.shape[1]), self.embed_tokens(ids)
        for layer in self.layers:
            x = layer(x, table, notes)
        return self.norm(x)[:, :T]

    def draft_hidden(self, hidden, next_ids, notes, embeddings=None):
        """MTP hidden states for hidden [B,T,H] and the tokens that follow them."""
        embeddings = self.embed_tokens.weight if embeddings is None else embeddings
        table = rope_table(self.config, hidden.shape[1])
        return self.mtp(F.embedding(next_ids, embeddings), hidden, table, notes)

    def logits(self, hidden):
        return F.linear(hidden, self.embed_tokens.weight)

    def published(self):
        """State dict under the published tensor names."""
        return {name if name.startswith("mtp.") else "model.language_model." + name: value
                for name, value in self.state_dict().items()}

    def load_published(self, tensors):
        self.load_state_dict({name.removeprefix("model.language_model."): value.float()
                              for name, value in tensors.items()})
