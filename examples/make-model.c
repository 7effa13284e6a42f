/*
 * make-model: writes a checkpoint of the Qwen3.5 / Qwen3.6 family in the published safetensors layout, with
 * the true dimensions and random weights, for tests and benchmarks without a download.
 *
 * It stands alone: libc and cJSON. make-model/config.h gives the model's dimensions, make-model/weights.h the
 * weights. Here the tensors are listed (plan_model), dealt to shards and written (write_shard).
 */
#define _POSIX_C_SOURCE 200809L
#define _FILE_OFFSET_BITS 64

#include <sys/stat.h>
#include <unistd.h>

#include "make-model/config.h"
#include "make-model/weights.h"

#define PREFIX "model.language_model."
#define DEFAULT_SHARD_BYTES INT64_C(5000000000)
#define MAX_ELEMENTS (INT64_C(1) << 44)
#define BLOCK 65536 /* elements generated and written at a time: fits the cache */

struct tensor {
    char name[96];
    int64_t shape[3];
    int dims;
    int64_t count, first; /* elements, and the index of the first one in its stream */
    uint64_t key;         /* of the stream */
    struct rule rule;
    int shard;
};

struct plan {
    struct tensor *tensors;
    size_t count, capacity;
    int64_t total_bytes;
    int shards;
};

/* ---- the list of tensors ------------------------------------------------------------------- */

/* Adds tensors of one layer; after the first error the adders do nothing. */
struct planner {
    struct plan *plan;
    const struct model *model;
    const struct options *options;
    char prefix[48]; /* of the names being added */
    int error;
};

static struct tensor *new_tensor(struct planner *p)
{
    struct plan *plan = p->plan;
    if (plan->count == plan->capacity) {
        size_t capacity = 2 * plan->capacity + 256;
        struct tensor *grown = realloc(plan->tensors, capacity * sizeof *grown);
        if (!grown) {
            p->error = fail(EXIT_IO, "out of memory");
            return NULL;
        }
        plan->tensors = grown;
        plan->capacity = capacity;
    }
    struct tensor *t = &plan->tensors[plan->count++];
    memset(t, 0, sizeof *t);
    return t;
}

/* Adds prefix + suffix with up to three dimensions (a 0 ends them). */
static void add(struct planner *p, const char *suffix, int64_t d0, int64_t d1, int64_t d2)
{
    struct tensor *t = p->error ? NULL : new_tensor(p);
    if (!t)
        return;
    const int64_t shape[3] = {d0, d1, d2};
    snprintf(t->name, sizeof t->name, "%s%s", p->prefix, suffix);
    t->count = 1;
    for (int i = 0; i < 3 && shape[i]; i++) {
        if (shape[i] > MAX_ELEMENTS / t->count) {
            p->error = fail(EXIT_USAGE, "config: %s is too large", t->name);
            return;
        }
        t->shape[t->dims++] = shape[i];
        t->count *= shape[i];
    }
    t->key = stream_key(t->name, p->options->seed);
    t->rule = rule_of(t->name, t->dims, t->shape[t->dims - 1], p->model->tied);
}

/* Adds experts.{e}.{part}.weight: rows of the fused tensor's stream, from element `first` on. */
static void add_expert(struct planner *p, const char *fused, int64_t e, const char *part, int64_t rows,
                       int64_t columns, int64_t first)
{
    char name[96], suffix[48];
    snprintf(name, sizeof name, "%s%s", p->prefix, fused);
    snprintf(suffix, sizeof suffix, "mlp.experts.%" PRId64 ".%s.weight", e, part);
    add(p, suffix, rows, columns, 0);
    if (p->error)
        return;
    struct tensor *t = &p->plan->tensors[p->plan->count - 1];
    t->key = stream_key(name, p->options->seed);
    t->first = first;
}

static void add_experts(struct planner *p)
{
    const struct model *m = p->model;
    const char *gate_up = "mlp.experts.gate_up_proj", *down = "mlp.experts.down_proj";
    int64_t experts = m->num_experts, h = m->hidden_size, w = m->moe_intermediate_size;
    size_t before = p->plan->count;
    add(p, gate_up, experts, 2 * w, h);
    add(p, down, experts, h, w);
    if (p->error || !p->options->per_expert)
        return;
    p->plan->count = before; /* their sizes are checked: now the slices */
    for (int64_t e = 0; e < experts; e++) {
        add_expert(p, gate_up, e, "gate_proj", w, h, 2 * e * w * h);
        add_expert(p, gate_up, e, "up_proj", w, h, (2 * e + 1) * w * h);
        add_expert(p, down, e, "down_proj", h, w, e * h * w);
    }
}

static void add_ffn(struct planner *p)
{
    const struct model *m = p->model;
    int64_t h = m->hidden_size, shared = m->shared_expert_intermediate_size;
    if (!m->moe) {
        add(p, "mlp.gate_proj.weight", m->intermediate_size, h, 0);
        add(p, "mlp.up_proj.weight", m->intermediate_size, h, 0);
        add(p, "mlp.down_proj.weight", h, m->intermediate_size, 0);
        return;
    }
    add(p, "mlp.gate.weight", m->num_experts, h, 0);
    add_experts(p);
    add(p, "mlp.shared_expert.gate_proj.weight", shared, h, 0);
    add(p, "mlp.shared_expert.up_proj.weight", shared, h, 0);
    add(p, "mlp.shared_expert.down_proj.weight", h, shared, 0);
    add(p, "mlp.shared_expert_gate.weight", 1, h, 0);
}

static void add_attention(struct planner *p)
{
    const struct model *m = p->model;
    int64_t h = m->hidden_size, hd = m->head_dim;
    int64_t q = m->num_attention_heads * hd, kv = m->num_key_value_heads * hd;
    add(p, "self_attn.q_proj.weight", 2 * q, h, 0);
    add(p, "self_attn.k_proj.weight", kv, h, 0);
    add(p, "self_attn.v_proj.weight", kv, h, 0);
    add(p, "self_attn.o_proj.weight", h, q, 0);
    add(p, "self_attn.q_norm.weight", hd, 0, 0);
    add(p, "self_attn.k_norm.weight", hd, 0, 0);
}

static void add_delta_net(struct planner *p)
{
    const struct model *m = p->model;
    int64_t h = m->hidden_size, heads = m->linear_num_value_heads;
    int64_t key = m->linear_num_key_heads * m->linear_key_head_dim;
    int64_t value = heads * m->linear_value_head_dim, conv = 2 * key + value;
    add(p, "linear_attn.in_proj_qkv.weight", conv, h, 0);
    add(p, "linear_attn.in_proj_z.weight", value, h, 0);
    add(p, "linear_attn.in_proj_b.weight", heads, h, 0);
    add(p, "linear_attn.in_proj_a.weight", heads, h, 0);
    add(p, "linear_attn.conv1d.weight", conv, 1, m->linear_conv_kernel_dim);
    add(p, "linear_attn.A_log", heads, 0, 0);
    add(p, "linear_attn.dt_bias", heads, 0, 0);
    add(p, "linear_attn.norm.weight", m->linear_value_head_dim, 0, 0);
    add(p, "linear_attn.out_proj.weight", h, value, 0);
}

static void add_layer(struct planner *p, bool full_attention)
{
    add(p, "input_layernorm.weight", p->model->hidden_size, 0, 0);
    add(p, "post_attention_layernorm.weight", p->model->hidden_size, 0, 0);
    if (full_attention)
        add_attention(p);
    else
        add_delta_net(p);
    add_ffn(p);
}

static void add_mtp(struct planner *p)
{
    int64_t h = p->model->hidden_size;
    snprintf(p->prefix, sizeof p->prefix, "mtp.");
    add(p, "fc.weight", h, 2 * h, 0);
    add(p, "pre_fc_norm_embedding.weight", h, 0, 0);
    add(p, "pre_fc_norm_hidden.weight", h, 0, 0);
    add(p, "norm.weight", h, 0, 0);
    snprintf(p->prefix, sizeof p->prefix, "mtp.layers.0.");
    add_layer(p, true);
}

/* Puts each tensor into a shard, in order; a tensor larger than a shard gets one of its own. */
static void assign_shards(struct plan *plan, int64_t element_size, int64_t shard_bytes)
{
    int64_t used = 0;
    plan->shards = 1;
    for (size_t i = 0; i < plan->count; i++) {
        int64_t bytes = plan->tensors[i].count * element_size;
        if (used && bytes > shard_bytes - used) {
            plan->shards++;
            used = 0;
        }
        plan->tensors[i].shard = plan->shards;
        used += bytes;
        plan->total_bytes += bytes;
    }
}

static int plan_model(struct plan *plan, const struct model *m, const struct options *o)
{
    struct planner p = {.plan = plan, .model = m, .options = o};
    snprintf(p.prefix, sizeof p.prefix, PREFIX);
    add(&p, "embed_tokens.weight", m->vocab_size, m->hidden_size, 0);
    for (int i = 0; i < m->num_hidden_layers; i++) {
        snprintf(p.prefix, sizeof p.prefix, PREFIX "layers.%d.", i);
        add_layer(&p, m->full_attention[i]);
    }
    snprintf(p.prefix, sizeof p.prefix, PREFIX);
    add(&p, "norm.weight", m->hidden_size, 0, 0);
    p.prefix[0] = '\0';
    if (!m->tied)
        add(&p, "lm_head.weight", m->vocab_size, m->hidden_size, 0);
    if (o->mtp)
        add_mtp(&p);
    assign_shards(plan, (int64_t)dtypes[o->dtype].size, o->shard_bytes);
    return p.error;
}

/* ---- files --------------------------------------------------------------------------------- */

/* A file that appears under its name only when it is complete. */
struct output {
    FILE *file;
    char path[4096], partial[4096 + 8];
};

static int output_open(struct output *out, const char *folder, const char *name)
{
    int n = snprintf(out->path, sizeof out->path, "%s/%s", folder, name);
    if (n < 0 || (size_t)n >= sizeof out->path)
        return fail(EXIT_USAGE, "the path of %s is too long", name);
    snprintf(out->partial, sizeof out->partial, "%s.part", out->path);
    out->file = fopen(out->partial, "wb");
    if (!out->file)
        return fail(EXIT_IO, "cannot create %s: %s", out->partial, strerror(errno));
    return 0;
}

/* `error` is 0 or an errno value of the writer. */
static int output_close(struct output *out, int error)
{
    errno = 0;
    if (ferror(out->file) && !error)
        error = EIO;
    if (fclose(out->file) && !error)
        error = errno ? errno : EIO;
    if (!error && rename(out->partial, out->path))
        error = errno;
    if (!error)
        return 0;
    unlink(out->partial);
    return fail(EXIT_IO, "cannot write %s: %s", out->path, strerror(error));
}

static void shard_name(char *name, size_t size, int shard, int shards)
{
    if (shards == 1)
        snprintf(name, size, "model.safetensors");
    else
        snprintf(name, size, "model-%05d-of-%05d.safetensors", shard, shards);
}

static void write_header(FILE *f, const struct plan *plan, int shard, enum dtype dtype)
{
    int64_t offset = 0;
    fprintf(f, "{\"__metadata__\":{\"format\":\"pt\"}");
    for (size_t i = 0; i < plan->count; i++) {
        const struct tensor *t = &plan->tensors[i];
        if (t->shard != shard)
            continue;
        int64_t end = offset + t->count * (int64_t)dtypes[dtype].size;
        fprintf(f, ",\"%s\":{\"dtype\":\"%s\",\"shape\":[", t->name, dtypes[dtype].tensor_name);
        for (int d = 0; d < t->dims; d++)
            fprintf(f, "%s%" PRId64, d ? "," : "", t->shape[d]);
        fprintf(f, "],\"data_offsets\":[%" PRId64 ",%" PRId64 "]}", offset, end);
        offset = end;
    }
    fputc('}', f);
}

/* Writes the header and the eight bytes of its length before it, padded to a multiple of eight. */
static int write_prologue(FILE *f, const struct plan *plan, int shard, enum dtype dtype)
{
    unsigned char length[8] = {0};
    if (fwrite(length, 1, sizeof length, f) != sizeof length)
        return errno;
    write_header(f, plan, shard, dtype);
    while (!ferror(f) && ftello(f) % 8)
        fputc(' ', f);
    off_t end = ftello(f);
    for (int j = 0; j < 8; j++)
        length[j] = (unsigned char)((uint64_t)(end - 8) >> (8 * j));
    if (ferror(f) || fseeko(f, 0, SEEK_SET) || fwrite(length, 1, sizeof length, f) != sizeof length ||
        fseeko(f, end, SEEK_SET))
        return errno ? errno : EIO;
    return 0;
}

static int write_tensor(FILE *f, const struct tensor *t, enum dtype dtype)
{
    static unsigned char bytes[BLOCK], block[BLOCK * 4], table[256][4];
    size_t size = dtypes[dtype].size;
    fill_table(table, t->rule, dtype);
    for (int64_t i = 0; i < t->count;) {
        size_t n = t->count - i < BLOCK ? (size_t)(t->count - i) : BLOCK;
        stream_bytes(bytes, t->key, (uint64_t)(t->first + i), n);
        widen(block, bytes, n, table, size);
        if (fwrite(block, size, n, f) != n)
            return errno ? errno : EIO;
        i += (int64_t)n;
    }
    return 0;
}

/* Extends the file to its full size without data. */
static int write_hole(FILE *f, const struct plan *plan, int shard, enum dtype dtype)
{
    off_t end = ftello(f);
    for (size_t i = 0; i < plan->count; i++)
        if (plan->tensors[i].shard == shard)
            end += plan->tensors[i].count * (off_t)dtypes[dtype].size;
    return fflush(f) || ftruncate(fileno(f), end) ? errno : 0;
}

static int write_shard(const struct plan *plan, int shard, const struct options *o)
{
    char name[64];
    struct output out;
    shard_name(name, sizeof name, shard, plan->shards);
    int failed = output_open(&out, o->output, name);
    if (failed)
        return failed;
    int error = write_prologue(out.file, plan, shard, o->dtype);
    if (!error && o->sparse)
        error = write_hole(out.file, plan, shard, o->dtype);
    for (size_t i = 0; !error && !o->sparse && i < plan->count; i++)
        if (plan->tensors[i].shard == shard)
            error = write_tensor(out.file, &plan->tensors[i], o->dtype);
    return output_close(&out, error);
}

static int write_index(const struct plan *plan, const struct options *o)
{
    char name[64];
    struct output out;
    int failed = output_open(&out, o->output, "model.safetensors.index.json");
    if (failed)
        return failed;
    fprintf(out.file, "{\n    \"metadata\": {\n        \"total_size\": %" PRId64 "\n    },\n",
            plan->total_bytes);
    fprintf(out.file, "    \"weight_map\": {");
    for (size_t i = 0; i < plan->count; i++) {
        shard_name(name, sizeof name, plan->tensors[i].shard, plan->shards);
        fprintf(out.file, "%s\n        \"%s\": \"%s\"", i ? "," : "", plan->tensors[i].name, name);
    }
    fprintf(out.file, "\n    }\n}\n");
    return output_close(&out, 0);
}

static void remove_file(const char *folder, const char *name)
{
    char path[4096];
    int n = snprintf(path, sizeof path, "%s/%s", folder, name);
    if (n > 0 && (size_t)n < sizeof path)
        unlink(path);
}

/* All shards; a loader must not find the other layout of an earlier run in the same folder. */
static int write_weights(const struct plan *plan, const struct options *o)
{
    int failed = 0;
    for (int shard = 1; !failed && shard <= plan->shards; shard++)
        failed = write_shard(plan, shard, o);
    if (!failed && plan->shards > 1)
        failed = write_index(plan, o);
    if (!failed)
        remove_file(o->output, plan->shards > 1 ? "model.safetensors" : "model.safetensors.index.json");
    return failed;
}

static int write_json(const char *folder, const char *name, const cJSON *json)
{
    struct output out;
    char *text = cJSON_Print(json);
    if (!text)
        return fail(EXIT_IO, "out of memory");
    int failed = output_open(&out, folder, name);
    if (!failed) {
        fprintf(out.file, "%s\n", text);
        failed = output_close(&out, 0);
    }
    free(text);
    return failed;
}

/* The published ids where the vocabulary has them, else the configuration's end token alone. */
static int write_generation_config(const struct model *m, const struct options *o)
{
    static const int stop[] = {248046, 248044};
    cJSON *json = cJSON_CreateObject();
    const cJSON *end = get(m->text, "eos_token_id");
    set_bool(json, "do_sample", true);
    if (m->vocab_size > stop[0]) {
        set_number(json, "bos_token_id", stop[1]);
        cJSON_AddItemToObject(json, "eos_token_id", cJSON_CreateIntArray(stop, 2));
        set_number(json, "pad_token_id", stop[1]);
    } else if (end) {
        cJSON_AddItemToObject(json, "eos_token_id", cJSON_Duplicate(end, true));
    }
    set_number(json, "temperature", 1.0);
    set_number(json, "top_k", 20);
    set_number(json, "top_p", 0.95);
    int failed = write_json(o->output, "generation_config.json", json);
    cJSON_Delete(json);
    return failed;
}

static int copy_file(const char *from, const char *to, const char *name)
{
    char path[4096];
    struct output out;
    int n = snprintf(path, sizeof path, "%s/%s", from, name);
    FILE *in = n > 0 && (size_t)n < sizeof path ? fopen(path, "rb") : NULL;
    if (!in)
        return fail(EXIT_IO, "cannot read %s/%s: %s", from, name, strerror(errno));
    int failed = output_open(&out, to, name);
    if (!failed) {
        static char block[BLOCK];
        size_t got;
        while ((got = fread(block, 1, sizeof block, in)) > 0)
            if (fwrite(block, 1, got, out.file) != got)
                break;
        failed = output_close(&out, ferror(in) ? EIO : 0);
    }
    fclose(in);
    return failed;
}

/* config.json comes last: a folder that has it is complete. */
static int write_checkpoint(const struct plan *plan, const struct model *m, const struct options *o)
{
    if (mkdir(o->output, 0777) && errno != EEXIST)
        return fail(EXIT_IO, "cannot create %s: %s", o->output, strerror(errno));
    int failed = 0;
    remove_file(o->output, "config.json");
    if (o->tokenizer_from) {
        failed = copy_file(o->tokenizer_from, o->output, "tokenizer.json");
        if (!failed)
            failed = copy_file(o->tokenizer_from, o->output, "tokenizer_config.json");
    }
    if (!failed)
        failed = write_weights(plan, o);
    if (!failed)
        failed = write_generation_config(m, o);
    if (!failed)
        failed = write_json(o->output, "config.json", m->root);
    return failed;
}

/* ---- command line -------------------------------------------------------------------------- */

static const char usage[] =
    "usage: make-model (--like SIZE | --config CONFIG.json) [options] -o DIR\n"
    "\n"
    "Writes a checkpoint with random weights in the published layout.\n"
    "\n"
    "  --like SIZE           35B-A3B 122B-A10B 397B-A17B 27B 0.8B 2B 4B 9B\n"
    "  --config FILE         the dimensions of this config.json (nested or text-only)\n"
    "  -o, --output DIR      where to write; made if it does not exist\n"
    "  --layers N            only N layers\n"
    "  --seed S              of the weights, 0 to 2^64-1 (default 1)\n"
    "  --dtype TYPE          bf16 (default), f16 or f32\n"
    "  --shard-bytes N       at most N bytes of weights in a file (default 5000000000)\n"
    "  --per-expert          a tensor for each expert's matrix instead of the fused ones\n"
    "  --mtp                 also the layer that predicts the token after the next\n"
    "  --tokenizer-from DIR  copies tokenizer.json and tokenizer_config.json\n"
    "  --sparse              headers and file sizes, but no data\n"
    "  --help                this text\n";

static int parse_number(const char *option, const char *text, uint64_t limit, uint64_t *out)
{
    char *end = NULL;
    errno = 0;
    unsigned long long v = strtoull(text, &end, 10);
    if (text[0] < '0' || text[0] > '9' || *end || errno || v > limit)
        return fail(EXIT_USAGE, "%s: \"%s\" is not an integer from 0 to %" PRIu64, option, text, limit);
    *out = v;
    return 0;
}

static int parse_positive(const char *option, const char *text, uint64_t limit, int64_t *out)
{
    uint64_t v = 0;
    int error = parse_number(option, text, limit, &v);
    if (!error && v == 0)
        error = fail(EXIT_USAGE, "%s must be at least 1", option);
    *out = (int64_t)v;
    return error;
}

static int parse_dtype(const char *text, enum dtype *out)
{
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++)
        if (strcmp(text, dtypes[i].option) == 0) {
            *out = (enum dtype)i;
            return 0;
        }
    return fail(EXIT_USAGE, "--dtype: \"%s\" is not bf16, f16 or f32", text);
}

/* An option without a value. */
static bool parse_flag(struct options *o, const char *name)
{
    const struct {
        const char *name;
        bool *flag;
    } flags[] = {
        {"--per-expert", &o->per_expert}, {"--mtp", &o->mtp}, {"--sparse", &o->sparse}, {"--help", &o->help}};
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++)
        if (strcmp(name, flags[i].name) == 0)
            return *flags[i].flag = true;
    return false;
}

/* An option with its value, which is NULL at the end of the line. */
static int parse_value(struct options *o, const char *name, const char *value)
{
    const struct {
        const char *name;
        const char **text;
    } texts[] = {{"--like", &o->like},
                 {"--config", &o->config},
                 {"-o", &o->output},
                 {"--output", &o->output},
                 {"--tokenizer-from", &o->tokenizer_from},
                 {"--layers", NULL},
                 {"--seed", NULL},
                 {"--shard-bytes", NULL},
                 {"--dtype", NULL}};
    size_t i = 0, count = sizeof texts / sizeof *texts;
    while (i < count && strcmp(name, texts[i].name) != 0)
        i++;
    if (i == count)
        return fail(EXIT_USAGE, "unknown argument %s (see --help)", name);
    if (!value)
        return fail(EXIT_USAGE, "%s needs a value", name);
    if (texts[i].text) {
        *texts[i].text = value;
        return 0;
    }
    if (strcmp(name, "--layers") == 0)
        return parse_positive(name, value, MAX_LAYERS, &o->layers);
    if (strcmp(name, "--seed") == 0)
        return parse_number(name, value, UINT64_MAX, &o->seed);
    if (strcmp(name, "--dtype") == 0)
        return parse_dtype(value, &o->dtype);
    return parse_positive(name, value, INT64_MAX, &o->shard_bytes);
}

static int parse_options(struct options *o, int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        if (parse_flag(o, argv[i]))
            continue;
        int error = parse_value(o, argv[i], argv[i + 1]);
        if (error)
            return error;
        i++;
    }
    if (o->help)
        return 0;
    if (!o->like == !o->config)
        return fail(EXIT_USAGE, "one of --like and --config is needed (see --help)");
    if (!o->output)
        return fail(EXIT_USAGE, "-o DIR is needed (see --help)");
    return 0;
}

int main(int argc, char **argv)
{
    struct options o = {.shard_bytes = DEFAULT_SHARD_BYTES, .seed = 1};
    static struct model m;
    struct plan plan = {0};
    int error = parse_options(&o, argc, argv);
    if (!error && o.help)
        return fputs(usage, stdout) == EOF ? EXIT_IO : 0;
    if (!error)
        error = load_config(&m, &o);
    if (!error)
        error = plan_model(&plan, &m, &o);
    if (!error)
        error = write_checkpoint(&plan, &m, &o);
    free(plan.tensors);
    cJSON_Delete(m.root);
    return error;
}
