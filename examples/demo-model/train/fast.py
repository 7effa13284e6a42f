"""fast.c as differentiable functions; compiled on first use."""

import ctypes
import subprocess
import tempfile
from pathlib import Path

import torch

BLOCK = 32  # T must be a multiple of it


def load():
    library = Path(tempfile.mkdtemp()) / "fast.so"
    source = Path(__file__).with_name("fast.c")
    subprocess.run(["cc", "-O3", "-march=native", "-ffast-math", "-mprefer-vector-width=512",
                    "-fopenmp", "-shared", "-fPIC", source, "-o", library, "-lm"], check=True)
    return ctypes.CDLL(str(library))


LIBRARY = load()


def call(name, *arguments):
    """Integers as int, float32 tensors as pointers to their data."""
    converted = []
    for a in arguments:
        if isinstance(a, torch.Tensor):
            assert a.dtype == torch.float32 and a.is_contiguous()
            converted.append(ctypes.c_void_p(a.data_ptr()))
        else:
            converted.append(ctypes.c_int(a))
    getattr(LIBRARY, name)(*converted)


class Delta(torch.autograd.Function):
    """Gated delta rule over q,k [B,T,nk,D], v [B,T,nv,D], g,beta [B,T,nv]."""

    @staticmethod
    def forward(ctx, q, k, v, g, beta):
        q, k, v, g, beta = (x.contiguous() for x in (q, k, v, g, beta))
        B, T, nk, D = q.shape
        nv = v.shape[2]
        o, checkpoints = torch.empty_like(v), v.new_empty(B, nv, T // BLOCK, D, D)
        call("delta_forward", B, T, nk, nv, q, k, v, g, beta, o, checkpoints)
        ctx.save_for_backward(q, k, v, g, beta, checkpoints)
        return o

    @staticmethod
    def backward(ctx, d_o):
        q, k, v, g, beta, checkpoints = ctx.saved_tensors
        B, T, nk, _ = q.shape
        dq, dk = torch.zeros_like(q), torch.zeros_like(k)
        dv, dg, dbeta = torch.empty_like(v), torch.empty_like(g), torch.empty_like(beta)
        call("delta_backward", B, T, nk, v.shape[2], q, k, v, g, beta, checkpoints,
             d_o.contiguous(), dq, dk, dv, dg, dbeta)
        return dq, dk, dv, dg, dbeta


class Conv(torch.autograd.Function):
    """silu of the causal depthwise convolution of u [B,T,W] with w [W,4]."""

    @staticmethod
    def forward(ctx, u, w):
        u, w = u.contiguous(), w.t().contiguous()
        y = torch.empty_like(u)
        call("conv_forward", *u.shape, u, w, y)
        ctx.save_for_backward(u, w)
        return y

    @staticmethod
    def backward(ctx, dy):
        u, w = ctx.saved_tensors
        du, dw = torch.zeros_like(u), w.new_zeros(u.shape[0], *w.shape)
        call("conv_backward", *u.shape, u, w, dy.contiguous(), du, dw)
        return du, dw.sum(0).t()
