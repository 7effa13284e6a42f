/* Two operations of the linear-attention layers, forward and backward, for the
 * training module (model.py calls them through ctypes).
 *
 * All arrays are float32 and row-major:
 *   q, k [B,T,nk,D]   v, o [B,T,nv,D]   g, beta [B,T,nv]   u, y [B,T,W]
 * Value head h reads key head h / (nv/nk). A thread owns one (batch, key head),
 * so that gradients of q and k are summed without races. The state S [D,D]
 * stays in cache; backward recomputes it from a checkpoint every BLOCK tokens.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { D = 32, BLOCK = 32, TAPS = 4 };
typedef float row[D];

/* S <- decay S; e = v - S'k; S <- S + k (beta e)'. Leaves the decayed state in
 * `decayed` when the caller wants it. */
static void advance(row *S, row *decayed, const float *k, const float *v, float decay, float beta, float *e)
{
    row r = {0};
    for (int i = 0; i < D; i++)
        for (int j = 0; j < D; j++) {
            S[i][j] *= decay;
            r[j] += k[i] * S[i][j];
        }
    if (decayed)
        memcpy(decayed, S, sizeof(row) * D);
    for (int j = 0; j < D; j++)
        e[j] = v[j] - r[j];
    for (int i = 0; i < D; i++) {
        float kb = k[i] * beta;
        for (int j = 0; j < D; j++)
            S[i][j] += kb * e[j];
    }
}

/* checkpoints: [B,nv,T/BLOCK,D,D], the state before each block. */
void delta_forward(int B, int T, int nk, int nv, const float *q, const float *k, const float *v,
                   const float *g, const float *beta, float *o, float *checkpoints)
{
#pragma omp parallel for schedule(dynamic)
    for (int job = 0; job < B * nv; job++) {
        int b = job / nv, h = job % nv, kh = h / (nv / nk);
        row S[D] __attribute__((aligned(64))) = {{0}}, e;
        for (int t = 0; t < T; t++) {
            size_t at = (size_t)b * T + t, kv = (at * nk + kh) * D, hv = at * nv + h;
            if (t % BLOCK == 0)
                memcpy(checkpoints + ((size_t)job * (T / BLOCK) + t / BLOCK) * D * D, S, sizeof S);
            advance(S, NULL, k + kv, v + hv * D, expf(g[hv]), beta[hv], e);
            row out = {0};
            for (int i = 0; i < D; i++)
                for (int j = 0; j < D; j++)
                    out[j] += q[kv + i] * S[i][j];
            memcpy(o + hv * D, out, sizeof out);
        }
    }
}

/* One token of the backward pass. S is the decayed state, dS the gradient of
 * the state after the token on entry and of the state before it on return. */
static void retreat(row *S, row *dS, const float *q, const float *k, const float *e, float decay, float beta,
                    const float *d_o, float *dq, float *dk, float *dv, float *dg, float *dbeta)
{
    row dd = {0};
    float eo = 0, db = 0, decay_gradient = 0;
    for (int j = 0; j < D; j++)
        eo += beta * e[j] * d_o[j];
    for (int i = 0; i < D; i++) {
        float s = 0;
        for (int j = 0; j < D; j++) {
            s += S[i][j] * d_o[j];
            dS[i][j] += q[i] * d_o[j];
            dd[j] += k[i] * dS[i][j];
        }
        dq[i] += s + k[i] * eo;
    }
    for (int j = 0; j < D; j++) {
        db += dd[j] * e[j];
        dv[j] = beta * dd[j];
    }
    for (int i = 0; i < D; i++) {
        float s = 0, c = 0;
        for (int j = 0; j < D; j++) {
            s += dS[i][j] * beta * e[j] - S[i][j] * dv[j];
            dS[i][j] -= k[i] * dv[j];
            c += dS[i][j] * S[i][j];
            dS[i][j] *= decay;
        }
        dk[i] += s;
        decay_gradient += c;
    }
    *dg = decay_gradient;
    *dbeta = db;
}

/* dq and dk must be zero on entry. */
void delta_backward(int B, int T, int nk, int nv, const float *q, const float *k, const float *v,
                    const float *g, const float *beta, const float *checkpoints, const float *d_o, float *dq,
                    float *dk, float *dv, float *dg, float *dbeta)
{
    int repeat = nv / nk;
#pragma omp parallel for schedule(dynamic)
    for (int job = 0; job < B * nk; job++) {
        int b = job / nk, kh = job % nk;
        row(*states)[D] = aligned_alloc(64, sizeof(row) * D * BLOCK);
        row S[D] __attribute__((aligned(64))), dS[D] __attribute__((aligned(64))), e[BLOCK];
        for (int h = kh * repeat; h < (kh + 1) * repeat; h++) {
            memset(dS, 0, sizeof dS);
            for (int block = T / BLOCK - 1; block >= 0; block--) {
                memcpy(S, checkpoints + (((size_t)b * nv + h) * (T / BLOCK) + block) * D * D, sizeof S);
                for (int i = 0; i < BLOCK; i++) {
                    size_t at = (size_t)b * T + block * BLOCK + i, hv = at * nv + h;
                    advance(S, states[i], k + (at * nk + kh) * D, v + hv * D, expf(g[hv]), beta[hv], e[i]);
                }
                for (int i = BLOCK - 1; i >= 0; i--) {
                    size_t at = (size_t)b * T + block * BLOCK + i, hv = at * nv + h;
                    size_t kv = (at * nk + kh) * D;
                    retreat(states[i], dS, q + kv, k + kv, e[i], expf(g[hv]), beta[hv], d_o + hv * D, dq + kv,
                            dk + kv, dv + hv * D, dg + hv, dbeta + hv);
                }
            }
        }
        free(states);
    }
}

/* y = silu(sum_j w[j] u[t-3+j]); w is [TAPS,W], zero left context. */
static void convolve(int W, int t, const float *u, const float *w, float *c)
{
    memset(c, 0, sizeof(float) * W);
    for (int j = 0; j < TAPS; j++) {
        int from = t - (TAPS - 1) + j;
        if (from >= 0)
            for (int i = 0; i < W; i++)
                c[i] += w[j * W + i] * u[(size_t)from * W + i];
    }
}

void conv_forward(int B, int T, int W, const float *u, const float *w, float *y)
{
#pragma omp parallel for
    for (int b = 0; b < B; b++)
        for (int t = 0; t < T; t++) {
            float *out = y + ((size_t)b * T + t) * W;
            convolve(W, t, u + (size_t)b * T * W, w, out);
            for (int i = 0; i < W; i++)
                out[i] = out[i] / (1 + expf(-out[i]));
        }
}

/* du must be zero on entry; dw [B,TAPS,W] also, one slice per batch row. */
void conv_backward(int B, int T, int W, const float *u, const float *w, const float *dy, float *du, float *dw)
{
#pragma omp parallel for
    for (int b = 0; b < B; b++) {
        float *c = malloc(sizeof(float) * W);
        const float *ub = u + (size_t)b * T * W;
        float *dub = du + (size_t)b * T * W, *dwb = dw + (size_t)b * TAPS * W;
        for (int t = 0; t < T; t++) {
            const float *dyt = dy + ((size_t)b * T + t) * W;
            convolve(W, t, ub, w, c);
            for (int i = 0; i < W; i++) {
                float s = 1 / (1 + expf(-c[i]));
                c[i] = dyt[i] * s * (1 + c[i] * (1 - s));
            }
            for (int j = 0; j < TAPS; j++) {
                int from = t - (TAPS - 1) + j;
                if (from >= 0)
                    for (int i = 0; i < W; i++) {
                        dub[(size_t)from * W + i] += w[j * W + i] * c[i];
                        dwb[j * W + i] += ub[(size_t)from * W + i] * c[i];
                    }
            }
        }
        free(c);
    }
}
