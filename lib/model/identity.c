#include "lib/model/identity.h"

#include "lib/session/archive.h"

#include <stdio.h>

void qw_model_numerics_id(const qwen36_model *m, char id[QW_NUMERICS_ID])
{
    for (int32_t i = 0; i < QW_NUMERICS_ID; i++)
        id[i] = '\0';
    snprintf(id, QW_NUMERICS_ID, "%s kv=%s r%d", m->backend.name, qw_dtype_name(m->cache.plan.kv_dtype),
             (int)QW_NUMERICS_REVISION);
}

qw_hash128 qw_model_prefix_root(const qwen36_model *m)
{
    char id[QW_NUMERICS_ID];
    const uint32_t version = QW_ARCHIVE_VERSION;
    qw_model_numerics_id(m, id);
    qw_hash128 hash = qw_hash_chain(m->fingerprint, id, sizeof id);
    return qw_hash_chain(hash, &version, sizeof version);
}

enum { SAMPLE = 256 };

static void add_weight(qw_hash_state *state, const qw_weight *w)
{
    if (w->data == NULL)
        return;
    int64_t shape[5] = {w->dtype, w->rank, w->shape[0], w->rank > 1 ? w->shape[1] : 1,
                        w->rank > 2 ? w->shape[2] : 1};
    size_t bytes = (size_t)(shape[2] * shape[3] * shape[4] * qw_dtype_size(w->dtype));
    size_t sample = QW_MIN(bytes, SAMPLE);
    qw_hash_add(state, shape, sizeof shape);
    qw_hash_add(state, w->data, sample);
    qw_hash_add(state, (const char *)w->data + bytes / 2 - sample / 2, sample);
}

static void add_layer(qw_hash_state *state, const qw_dims *d, const qw_layer_weights *l)
{
    const qw_weight *all[] = {&l->input_norm,
                              &l->post_norm,
                              &l->in_qkv,
                              &l->in_z,
                              &l->in_b,
                              &l->in_a,
                              &l->conv,
                              &l->a_log,
                              &l->dt_bias,
                              &l->lin_norm,
                              &l->out,
                              &l->q,
                              &l->k,
                              &l->v,
                              &l->o,
                              &l->q_norm,
                              &l->k_norm,
                              &l->gate,
                              &l->up,
                              &l->down,
                              &l->router,
                              &l->shared_gate_proj,
                              &l->shared_up_proj,
                              &l->shared_down_proj,
                              &l->shared_gate};
    for (size_t i = 0; i < QW_COUNT_OF(all); i++)
        add_weight(state, all[i]);
    const int32_t some[] = {0, d->experts / 2, d->experts - 1};
    for (size_t i = 0; i < QW_COUNT_OF(some) && d->is_moe; i++) {
        add_weight(state, &l->experts[some[i]].gate);
        add_weight(state, &l->experts[some[i]].up);
        add_weight(state, &l->experts[some[i]].down);
    }
}

/* What changes results and is in no tensor's shape. */
static void add_dims(qw_hash_state *state, const qw_dims *d)
{
    const double numbers[] = {d->norm_eps,
                              d->rope_kind,
                              d->rope_theta,
                              d->yarn_factor,
                              d->yarn_beta_fast,
                              d->yarn_beta_slow,
                              d->yarn_attention_factor,
                              d->yarn_mscale,
                              d->yarn_mscale_all_dim,
                              d->yarn_truncate,
                              d->original_max_positions,
                              d->mrope_section[0],
                              d->mrope_section[1],
                              d->mrope_section[2],
                              d->rotary_dim,
                              d->heads,
                              d->kv_heads,
                              d->lin_k_heads,
                              d->lin_v_heads,
                              d->top_k,
                              d->layers};
    qw_hash_add(state, numbers, sizeof numbers);
    qw_hash_add(state, d->layer_kind, (size_t)d->layers);
}

qw_hash128 qw_model_fingerprint_make(const qwen36_model *m)
{
    qw_hash_state state;
    qw_hash_begin(&state, 0);
    add_dims(&state, &m->dims);
    add_weight(&state, &m->weights.embed);
    add_weight(&state, &m->weights.norm);
    add_weight(&state, &m->weights.head);
    for (int32_t i = 0; i < m->dims.layers; i++)
        add_layer(&state, &m->dims, &m->weights.layers[i]);
    return qw_hash_end(&state);
}
