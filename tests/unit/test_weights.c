/* Binding: every view shows its tensor's bytes, mapped or read; and files that change meanwhile. */
#include "lib/model/weights.h"
#include "tests/harness.h"
#include "tests/unit/checkpoint_fixture.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct loaded {
    test_allocator state;
    qw_allocator allocator;
    qw_checkpoint *checkpoint;
    qw_weights weights;
    qwen36_error error;
} loaded;

static void open_fixture(loaded *l, const fixture *f)
{
    memset(l, 0, sizeof *l);
    l->allocator = (qw_allocator){test_allocate, test_release, &l->state};
    l->error = (qwen36_error)QWEN36_ERROR_INIT;
    qwen36_status status = qw_checkpoint_open(&l->allocator, f->directory, &l->checkpoint, &l->error);
    CHECK_MSG(status == QWEN36_OK, "%s", l->error.message);
}

static qwen36_status bind(loaded *l, int32_t access, qwen36_progress_fn progress, void *user)
{
    return qw_weights_bind(&l->allocator, l->checkpoint, access, progress, user, &l->weights, &l->error);
}

static void close_fixture(loaded *l)
{
    qw_weights_release(&l->weights);
    qw_checkpoint_close(l->checkpoint);
    CHECK_INT(l->state.outstanding, 0);
}

/* --- Views ------------------------------------------------------------------------------------------ */

static void check_view(const qw_weight *view, const char *name, size_t skip, int32_t rank, int64_t rows,
                       int64_t columns)
{
    const uint8_t *data = view->data;
    const size_t size = (size_t)(rows * (rank == 2 ? columns : 1) * qw_dtype_size(view->dtype));
    CHECK_MSG(data != NULL, "%s", name);
    CHECK((uintptr_t)data % (uintptr_t)qw_dtype_size(view->dtype) == 0);
    CHECK_INT(view->rank, rank);
    CHECK_INT(view->shape[0], rows);
    CHECK(rank == 1 || view->shape[1] == columns);
    for (size_t i = 0; i < size; i++)
        CHECK_MSG(data[i] == fixture_byte(name, skip + i), "%s, byte %zu", name, i);
}

static const char *in_layer(const char *prefix, int32_t layer, const char *name)
{
    static char text[200];
    snprintf(text, sizeof text, "%slayers.%d.%s", prefix, layer, name);
    return text;
}

static void check_attention(const qw_weights *w, const char *prefix)
{
    for (int32_t i = 0; i < 4; i++) {
        const qw_layer_weights *l = &w->layers[i];
        check_view(&l->input_norm, in_layer(prefix, i, "input_layernorm.weight"), 0, 1, 20, 0);
        check_view(&l->post_norm, in_layer(prefix, i, "post_attention_layernorm.weight"), 0, 1, 20, 0);
        if (i == 3) {
            check_view(&l->q, in_layer(prefix, i, "self_attn.q_proj.weight"), 0, 2, 192, 20);
            check_view(&l->k, in_layer(prefix, i, "self_attn.k_proj.weight"), 0, 2, 32, 20);
            check_view(&l->v, in_layer(prefix, i, "self_attn.v_proj.weight"), 0, 2, 32, 20);
            check_view(&l->o, in_layer(prefix, i, "self_attn.o_proj.weight"), 0, 2, 20, 96);
            check_view(&l->q_norm, in_layer(prefix, i, "self_attn.q_norm.weight"), 0, 1, 16, 0);
            check_view(&l->k_norm, in_layer(prefix, i, "self_attn.k_norm.weight"), 0, 1, 16, 0);
            CHECK(l->in_qkv.data == NULL && l->conv.data == NULL);
            continue;
        }
        check_view(&l->in_qkv, in_layer(prefix, i, "linear_attn.in_proj_qkv.weight"), 0, 2, 64, 20);
        check_view(&l->in_z, in_layer(prefix, i, "linear_attn.in_proj_z.weight"), 0, 2, 40, 20);
        check_view(&l->in_b, in_layer(prefix, i, "linear_attn.in_proj_b.weight"), 0, 2, 4, 20);
        check_view(&l->in_a, in_layer(prefix, i, "linear_attn.in_proj_a.weight"), 0, 2, 4, 20);
        check_view(&l->conv, in_layer(prefix, i, "linear_attn.conv1d.weight"), 0, 2, 64, 4);
        check_view(&l->a_log, in_layer(prefix, i, "linear_attn.A_log"), 0, 1, 4, 0);
        check_view(&l->dt_bias, in_layer(prefix, i, "linear_attn.dt_bias"), 0, 1, 4, 0);
        check_view(&l->lin_norm, in_layer(prefix, i, "linear_attn.norm.weight"), 0, 1, 10, 0);
        check_view(&l->out, in_layer(prefix, i, "linear_attn.out_proj.weight"), 0, 2, 20, 40);
        CHECK(l->q.data == NULL);
    }
}

static void check_dense(const qw_weights *w, const char *prefix)
{
    char name[100];
    snprintf(name, sizeof name, "%sembed_tokens.weight", prefix);
    check_view(&w->embed, name, 0, 2, 48, 20);
    snprintf(name, sizeof name, "%snorm.weight", prefix);
    check_view(&w->norm, name, 0, 1, 20, 0);
    check_view(&w->head, "lm_head.weight", 0, 2, 48, 20);
    check_attention(w, prefix);
    for (int32_t i = 0; i < 4; i++) {
        check_view(&w->layers[i].gate, in_layer(prefix, i, "mlp.gate_proj.weight"), 0, 2, 28, 20);
        check_view(&w->layers[i].up, in_layer(prefix, i, "mlp.up_proj.weight"), 0, 2, 28, 20);
        check_view(&w->layers[i].down, in_layer(prefix, i, "mlp.down_proj.weight"), 0, 2, 20, 28);
        CHECK(w->layers[i].experts == NULL);
    }
}

static void check_expert(const qw_layer_weights *l, const char *prefix, int32_t layer, int32_t e, bool fused)
{
    const qw_expert_weights *x = &l->experts[e];
    const size_t matrix = 12 * 20 * 2; /* bytes of [Im,H] */
    char name[100];
    if (fused) {
        const char *gate_up = in_layer(prefix, layer, "mlp.experts.gate_up_proj");
        check_view(&x->gate, gate_up, (size_t)e * 2 * matrix, 2, 12, 20);
        check_view(&x->up, gate_up, (size_t)e * 2 * matrix + matrix, 2, 12, 20);
        check_view(&x->down, in_layer(prefix, layer, "mlp.experts.down_proj"), (size_t)e * matrix, 2, 20, 12);
        return;
    }
    snprintf(name, sizeof name, "mlp.experts.%d.gate_proj.weight", e);
    check_view(&x->gate, in_layer(prefix, layer, name), 0, 2, 12, 20);
    snprintf(name, sizeof name, "mlp.experts.%d.up_proj.weight", e);
    check_view(&x->up, in_layer(prefix, layer, name), 0, 2, 12, 20);
    snprintf(name, sizeof name, "mlp.experts.%d.down_proj.weight", e);
    check_view(&x->down, in_layer(prefix, layer, name), 0, 2, 20, 12);
}

static void check_moe(const qw_weights *w, const char *prefix, bool fused)
{
    CHECK(w->head.data == w->embed.data);
    check_attention(w, prefix);
    for (int32_t i = 0; i < 4; i++) {
        const qw_layer_weights *l = &w->layers[i];
        check_view(&l->router, in_layer(prefix, i, "mlp.gate.weight"), 0, 2, 5, 20);
        check_view(&l->shared_gate_proj, in_layer(prefix, i, "mlp.shared_expert.gate_proj.weight"), 0, 2, 14,
                   20);
        check_view(&l->shared_up_proj, in_layer(prefix, i, "mlp.shared_expert.up_proj.weight"), 0, 2, 14, 20);
        check_view(&l->shared_down_proj, in_layer(prefix, i, "mlp.shared_expert.down_proj.weight"), 0, 2, 20,
                   14);
        check_view(&l->shared_gate, in_layer(prefix, i, "mlp.shared_expert_gate.weight"), 0, 2, 1, 20);
        for (int32_t e = 0; e < 5; e++)
            check_expert(l, prefix, i, e, fused);
    }
}

/* Mapped and read; in one file and over shards; with the data at even and at odd offsets. */
static void check_every_way(const char *config, const char *prefix, bool moe, bool fused)
{
    for (int way = 0; way < 8; way++) {
        fixture f;
        loaded l;
        fixture_begin(&f, config, prefix, fused);
        if (way & 1)
            fixture_spread(&f, 3);
        f.pad = way & 2 ? 1 : 0;
        fixture_write(&f);
        open_fixture(&l, &f);
        CHECK_MSG(bind(&l, way & 4 ? QWEN36_WEIGHTS_READ : QWEN36_WEIGHTS_MAP, NULL, NULL) == QWEN36_OK, "%s",
                  l.error.message);
        for (size_t i = 0; i < l.weights.region_count; i++)
            CHECK(l.weights.regions[i].mapped == !(way & 6));
        if (moe)
            check_moe(&l.weights, prefix, fused);
        else
            check_dense(&l.weights, prefix);
        close_fixture(&l);
        fixture_end(&f);
    }
}

TEST(weights, dense)
{
    check_every_way(fixture_dense, "model.language_model.", false, true);
}

TEST(weights, dense_text_only)
{
    check_every_way(fixture_dense, "model.", false, true);
}

TEST(weights, moe_fused)
{
    check_every_way(fixture_moe, "model.language_model.", true, true);
}

TEST(weights, moe_apart)
{
    check_every_way(fixture_moe, "model.", true, false);
}

TEST(weights, formats)
{
    fixture f;
    loaded l;
    fixture_begin(&f, fixture_dense, "model.", true);
    strcpy(fixture_find(&f, "model.layers.0.linear_attn.A_log")->dtype, "F32");
    strcpy(fixture_find(&f, "model.layers.1.linear_attn.norm.weight")->dtype, "F32");
    strcpy(fixture_find(&f, "model.layers.1.mlp.up_proj.weight")->dtype, "F16");
    strcpy(fixture_find(&f, "lm_head.weight")->dtype, "F32");
    fixture_write(&f);
    open_fixture(&l, &f);
    CHECK_INT(bind(&l, QWEN36_WEIGHTS_MAP, NULL, NULL), QWEN36_OK);
    CHECK(l.weights.layers[0].a_log.dtype == QW_F32 && l.weights.layers[1].up.dtype == QW_F16);
    CHECK(l.weights.head.dtype == QW_F32 && l.weights.layers[0].up.dtype == QW_BF16);
    check_dense(&l.weights, "model.");
    CHECK(qw_weights_bytes(l.checkpoint) == 2 * l.checkpoint->parameters + 2 * (4 + 10 + 48 * 20));
    close_fixture(&l);
    fixture_end(&f);
}

/* Large tensors that are not bound, before, between and behind the others, stay unmapped. */
TEST(weights, unmapped)
{
    const int64_t shape[2] = {1024, 256};
    fixture f;
    loaded l;
    fixture_begin(&f, fixture_dense, "model.", true);
    fixture_tensor first = f.items[0], middle = f.items[20];
    fixture_add(&f, "x", "BF16", 2, shape);
    f.items[0] = *fixture_add(&f, "mtp.fc.weight", "BF16", 2, shape);
    f.items[f.count - 1] = first;
    f.items[20] = *fixture_add(&f, "model.visual.pos_embed.weight", "BF16", 2, shape);
    f.items[f.count - 1] = middle;
    fixture_add(&f, "mtp.norm.weight", "BF16", 2, shape);
    fixture_write(&f);
    open_fixture(&l, &f);
    CHECK_INT(bind(&l, QWEN36_WEIGHTS_MAP, NULL, NULL), QWEN36_OK);
    uint64_t mapped = 0;
    for (size_t i = 0; i < l.weights.region_count; i++)
        mapped += l.weights.regions[i].size;
    CHECK_INT(l.weights.region_count, 3);
    CHECK(mapped <= l.checkpoint->weight_bytes + 3 * 2 * qw_page_size());
    check_dense(&l.weights, "model.");
    close_fixture(&l);
    fixture_end(&f);
}

/* Views outlive the checkpoint and the files. */
TEST(weights, views_stay)
{
    fixture f;
    loaded l;
    char path[512];
    fixture_begin(&f, fixture_dense, "model.", true);
    fixture_write(&f);
    open_fixture(&l, &f);
    CHECK_INT(bind(&l, QWEN36_WEIGHTS_MAP, NULL, NULL), QWEN36_OK);
    qw_checkpoint_close(l.checkpoint);
    l.checkpoint = NULL;
    snprintf(path, sizeof path, "%s/model.safetensors", f.directory);
    CHECK_INT(unlink(path), 0);
    check_dense(&l.weights, "model.");
    close_fixture(&l);
    fixture_end(&f);
}

/* --- Progress and changes ---------------------------------------------------------------------------- */

typedef struct watcher {
    uint64_t last, total;
    int calls, stop_at;
    const char *path; /* changed at the first call */
    off_t size;
} watcher;

static int32_t watch(void *user, uint64_t done, uint64_t total)
{
    watcher *w = user;
    CHECK(done > w->last && done <= total);
    w->last = done;
    w->total = total;
    w->calls++;
    if (w->path != NULL && w->calls == 1)
        CHECK_INT(truncate(w->path, w->size), 0);
    return w->calls == w->stop_at;
}

TEST(weights, progress)
{
    for (int32_t access = QWEN36_WEIGHTS_MAP; access <= QWEN36_WEIGHTS_READ; access++) {
        fixture f;
        loaded l;
        watcher w = {0};
        fixture_begin(&f, fixture_moe, "model.", true);
        fixture_spread(&f, 4);
        fixture_write(&f);
        open_fixture(&l, &f);
        CHECK_INT(bind(&l, access, watch, &w), QWEN36_OK);
        CHECK(w.last == w.total && w.total == qw_weights_bytes(l.checkpoint) && w.calls >= 4);
        const int calls = w.calls;
        qw_weights_release(&l.weights);
        for (int stop = 1; stop <= calls; stop++) {
            w = (watcher){.stop_at = stop};
            l.error = (qwen36_error)QWEN36_ERROR_INIT;
            CHECK_INT(bind(&l, access, watch, &w), QWEN36_ERROR_CANCELLED);
            CHECK_INT(w.calls, stop);
            CHECK(l.weights.layers == NULL && l.weights.regions == NULL);
        }
        close_fixture(&l);
        fixture_end(&f);
    }
}

static void check_changed(int change, int32_t access, qwen36_status expected)
{
    fixture f;
    loaded l;
    char path[512], other[512];
    struct stat info;
    fixture_begin(&f, fixture_dense, "model.", true);
    fixture_write(&f);
    snprintf(path, sizeof path, "%s/model.safetensors", f.directory);
    snprintf(other, sizeof other, "%s/other", f.directory);
    open_fixture(&l, &f);
    CHECK_INT(stat(path, &info), 0);
    watcher w = {.path = path, .size = info.st_size / 2};
    const struct timespec times[2] = {{0, 1}, {0, 1}};
    switch (change) {
    case 0:
        CHECK_INT(truncate(path, info.st_size - 1), 0);
        break;
    case 1:
        CHECK_INT(truncate(path, info.st_size + 1), 0);
        break;
    case 2: /* same bytes, but written again */
        CHECK_INT(utimensat(AT_FDCWD, path, times, 0), 0);
        break;
    case 3: /* another file under the name */
        CHECK_INT(rename(path, other), 0);
        fixture_write(&f);
        break;
    case 4:
        CHECK_INT(unlink(path), 0);
        break;
    default: /* while it is bound */
        break;
    }
    CHECK_INT(bind(&l, access, change == 5 ? watch : NULL, &w), expected);
    CHECK_MSG(strstr(l.error.message, path) != NULL, "%s", l.error.message);
    close_fixture(&l);
    fixture_end(&f);
}

TEST(weights, files_that_change)
{
    for (int32_t access = QWEN36_WEIGHTS_MAP; access <= QWEN36_WEIGHTS_READ; access++)
        for (int change = 0; change <= 5; change++)
            check_changed(change, access,
                          change == 4 ? QWEN36_ERROR_FILE_NOT_FOUND : QWEN36_ERROR_FILE_CHANGED);
}
