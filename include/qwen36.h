/* qwen36.h: inference for the Qwen3.6 model family (SPDX-License-Identifier: MIT).
 *
 * The whole library in one program: continue a text.
 *
 *     qwen36_model *model = NULL;
 *     qwen36_session *session = NULL;
 *     int32_t ids[512], token, room = 512;
 *     if (qwen36_model_load("model-directory", NULL, &model, NULL)) return 1;
 *     const qwen36_tokenizer *tokenizer = qwen36_model_tokenizer(model);
 *     size_t n = 0;
 *     qwen36_tokenizer_encode(tokenizer, "Once upon", 9, 0, ids, room, &n, NULL);
 *     qwen36_session_create(model, NULL, &session, NULL);
 *     qwen36_session_append(session, ids, n, QWEN36_LOGITS_LAST, NULL);
 *     for (int i = 0; i < 100; i++) {
 *         if (qwen36_step(&session, 1, NULL, NULL, NULL)) break;
 *         if (qwen36_sample(&session, 1, &token, NULL, NULL)) break;
 *         ... qwen36_tokenizer_bytes(tokenizer, token, &length) is its text ...
 *     }
 *     qwen36_session_destroy(session);
 *     qwen36_model_release(model);
 *
 * CONTENTS
 *   1 version    2 status and errors    3 hooks    4 model    5 tokenizer
 *   6 streaming decoder    7 session    8 step and sample    9 sampling    10 generate    11 chat
 *   12 watching
 *
 * BOUNDARY
 *   Every object is opaque. Every call that can fail returns a qwen36_status and takes, as its last
 *   parameter, an optional caller-owned qwen36_error that receives one line of text. A call that
 *   fails leaves its objects as they were unless its text says otherwise. The library never ends the
 *   process, prints, reads the environment, installs signal handlers or keeps global state.
 *
 * STRUCTS
 *   Structs cross the boundary by pointer, and begin with struct_size = sizeof of the struct that the
 *   caller was compiled with. An options struct is filled with its defaults by the matching _init
 *   call; after that every value is literal (temperature 0 is greedy, top_k 0 is off). NULL options
 *   mean the defaults. Fields added by later versions mean "as before" when zero, so an older
 *   (shorter) struct works with a newer library; a newer (longer) struct works with an older library
 *   as long as the part unknown to it is zero, otherwise the call returns QWEN36_ERROR_STRUCT_SIZE.
 *   In output structs the caller sets struct_size; the library fills the part both sides know and
 *   zeroes the rest.
 *
 * OWNERSHIP
 *   A pointer to pointer as an output parameter gives the caller an object with its own destroy
 *   call (destroy accepts NULL). `const T *` results are borrowed: their text says until when. Arrays
 *   are the caller's buffer + capacity + an output count; when the capacity is too small nothing is
 *   written, the count says what is needed, and the status is QWEN36_ERROR_BUFFER_TOO_SMALL.
 *
 * THREADS
 *   A model, a tokenizer and a chat template may be used from any number of threads. A session and a
 *   decoder serve one caller at a time (they may move between threads); only
 *   qwen36_session_interrupt may be called concurrently, also from a signal handler. Steps on one
 *   model are serialised inside. Callbacks run on the calling thread while no lock is held. They
 *   must not use the session that they are called for, and on_logits, which runs inside a step, no
 *   session of the same model: QWEN36_ERROR_BUSY, and a destroy does nothing;
 *   qwen36_session_interrupt is always allowed. In a child process after fork() every call on an
 *   object made before returns QWEN36_ERROR_FORKED, except the destroy and release calls.
 *
 * Text is UTF-8. Token ids are int32_t. Sizes in bytes are 64 bits. Since 0.1 unless said otherwise.
 */
#ifndef QWEN36_H
#define QWEN36_H

#include <stddef.h>
#include <stdint.h>

#ifndef QWEN36_API
#if defined(__GNUC__)
#define QWEN36_API __attribute__((visibility("default")))
#else
#define QWEN36_API
#endif
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* ------------------------------------------------------------------------------------------------
 * 1. Version
 * --------------------------------------------------------------------------------------------- */

#define QWEN36_VERSION_MAJOR 0
#define QWEN36_VERSION_MINOR 1
#define QWEN36_VERSION_PATCH 0
/* MAJOR * 10000 + MINOR * 100 + PATCH */
#define QWEN36_VERSION_NUMBER 100

/* QWEN36_VERSION_NUMBER of the library that runs (the macro is that of the header compiled with). */
QWEN36_API int32_t qwen36_version_number(void);

/* The same as text, "0.1.0". Static. */
QWEN36_API const char *qwen36_version_string(void);

/* The backend this library was built with: "cpu" or "cuda". Static. */
QWEN36_API const char *qwen36_backend_name(void);

/* What this build can do, an OR of the bits below. Unknown bits may be set by later versions. */
#define QWEN36_FEATURE_MOE ((uint64_t)1 << 0)     /* qwen3_5_moe checkpoints */
#define QWEN36_FEATURE_DENSE ((uint64_t)1 << 1)   /* qwen3_5 checkpoints */
#define QWEN36_FEATURE_YARN ((uint64_t)1 << 2)    /* rope_type "yarn" */
#define QWEN36_FEATURE_BF16_KV ((uint64_t)1 << 3) /* kv_dtype BF16 */
#define QWEN36_FEATURE_I8_KV ((uint64_t)1 << 4)   /* kv_dtype I8 */
QWEN36_API uint64_t qwen36_features(void);

/* ------------------------------------------------------------------------------------------------
 * 2. Status and errors
 *
 * 0 is success, positive values are outcomes that are not errors, negative values are errors. Values
 * never change their meaning; later versions may add some, so treat an unknown one by its sign.
 * --------------------------------------------------------------------------------------------- */

typedef int32_t qwen36_status;

enum {
    QWEN36_OK = 0,

    QWEN36_PENDING = 1,     /* tokens remain to be computed: the budget was used up, call again */
    QWEN36_INTERRUPTED = 2, /* the session was interrupted; it stands at its last committed token */

    QWEN36_ERROR_ARGUMENT = -1,         /* a NULL, a negative count, a value outside its range */
    QWEN36_ERROR_STRUCT_SIZE = -2,      /* struct_size unknown, or its unknown tail is not zero */
    QWEN36_ERROR_OUT_OF_MEMORY = -3,    /* an allocation failed, or a size does not fit */
    QWEN36_ERROR_BUFFER_TOO_SMALL = -4, /* the count says what is needed; nothing was written */
    QWEN36_ERROR_BUSY = -5,             /* called from a callback of a call on the same model */
    QWEN36_ERROR_FORKED = -6,           /* the object was made by a parent process */
    QWEN36_ERROR_CANCELLED = -7,        /* the progress callback asked to stop */
    QWEN36_ERROR_INTERNAL = -8,         /* a broken invariant of the library: please report it */
    QWEN36_ERROR_SYSTEM = -9,           /* the operating system refused a thread, a lock or a map */

    QWEN36_ERROR_FILE_NOT_FOUND = -20,
    QWEN36_ERROR_FILE_READ = -21,    /* exists, but cannot be opened, read or mapped */
    QWEN36_ERROR_FILE_CHANGED = -22, /* changed while it was being read */
    QWEN36_ERROR_JSON = -23,         /* a JSON file is malformed */
    QWEN36_ERROR_CONFIG = -24,       /* config.json: a value is missing, of wrong type or impossible */
    QWEN36_ERROR_ARCHITECTURE = -25, /* not one of the two architectures */
    QWEN36_ERROR_ROPE_TYPE = -26,    /* rope_type is neither "default" nor "yarn" */
    QWEN36_ERROR_QUANTIZATION = -27, /* a quantization_config that this version does not read */
    QWEN36_ERROR_SAFETENSORS = -28,  /* a violation of the safetensors format */
    QWEN36_ERROR_MISSING_SHARD = -29,
    QWEN36_ERROR_INDEX_MISMATCH = -30, /* the index names a shard that lacks the tensor, or a bad path */
    QWEN36_ERROR_MISSING_TENSOR = -31,
    QWEN36_ERROR_TENSOR_SHAPE = -32,
    QWEN36_ERROR_TENSOR_DTYPE = -33,
    QWEN36_ERROR_TIED_HEAD = -34,         /* tie_word_embeddings contradicts the tensors */
    QWEN36_ERROR_TOKENIZER = -35,         /* tokenizer.json is malformed or of another kind */
    QWEN36_ERROR_NO_TOKENIZER = -36,      /* the model directory has no tokenizer.json */
    QWEN36_ERROR_CHAT_TEMPLATE = -37,     /* the chat template is none that this version knows */
    QWEN36_ERROR_CHAT_MESSAGES = -38,     /* a chat request is malformed, or the template refuses it */
    QWEN36_ERROR_FILE_WRITE = -39,        /* a file cannot be written; what stood under its name still does */
    QWEN36_ERROR_SNAPSHOT = -40,          /* a snapshot is damaged, cut short, or of another format */
    QWEN36_ERROR_SNAPSHOT_MISMATCH = -41, /* a whole snapshot, but of another model or arithmetic */

    QWEN36_ERROR_TOKEN_ID = -50,      /* a token id outside the model's vocabulary */
    QWEN36_ERROR_CONTEXT_FULL = -51,  /* the session's capacity in tokens is reached */
    QWEN36_ERROR_CACHE_FULL = -52,    /* no KV block or state slot is free: release some and retry */
    QWEN36_ERROR_SESSIONS_FULL = -53, /* max_sessions sessions exist already */
    QWEN36_ERROR_NO_LOGITS = -54,     /* no logits stand at the end of the timeline: step first */
    QWEN36_ERROR_NON_FINITE = -55,    /* the logits hold a NaN or +infinity */
    QWEN36_ERROR_NO_CANDIDATE = -56,  /* bitmask and bias leave no token to choose */

    QWEN36_ERROR_DEVICE = -70,     /* no usable device, or an operation of the backend failed */
    QWEN36_ERROR_DEVICE_LOST = -71 /* the device had a fault or is gone: every call on the model says so from
                                      now on, and it can only be released. CUDA gives a process no second
                                      chance on that device: another model there needs another process */
};

/* The name of a status without its prefix, e.g. "CONTEXT_FULL"; "UNKNOWN" otherwise. Static. */
QWEN36_API const char *qwen36_status_name(qwen36_status status);

/* One line of text about the first failure of a call: what, where, and the values. Every call that
 * takes one clears it first, so after a success status is 0 and the message empty. Set struct_size,
 * e.g. `qwen36_error error = QWEN36_ERROR_INIT;`; a smaller struct_size leaves it untouched. */
typedef struct qwen36_error {
    uint32_t struct_size;
    qwen36_status status; /* the status that the failing call returned */
    char message[504];    /* NUL-terminated UTF-8, no line break */
} qwen36_error;

#define QWEN36_ERROR_INIT                                                                                    \
    {                                                                                                        \
        (uint32_t)sizeof(qwen36_error), 0,                                                                   \
        {                                                                                                    \
            0                                                                                                \
        }                                                                                                    \
    }

/* ------------------------------------------------------------------------------------------------
 * 3. Hooks
 * --------------------------------------------------------------------------------------------- */

/* Memory for everything the library allocates itself: `allocate` returns `size` bytes aligned to
 * `alignment` (a power of two, at most 4096), or NULL; `release` takes what allocate returned, never
 * NULL. Both may be called from any thread. (Third-party parsers used while loading call malloc.) */
typedef void *(*qwen36_allocate_fn)(void *user, size_t size, size_t alignment);
typedef void (*qwen36_release_fn)(void *user, void *memory);

typedef struct qwen36_allocator {
    uint32_t struct_size; /* exactly sizeof(qwen36_allocator): this struct does not grow */
    uint32_t reserved;    /* 0 */
    qwen36_allocate_fn allocate;
    qwen36_release_fn release;
    void *user;
} qwen36_allocator;

/* Messages for a log file; one line, no newline. */
enum { QWEN36_LOG_DEBUG = 0, QWEN36_LOG_INFO = 1, QWEN36_LOG_WARNING = 2 };
typedef void (*qwen36_log_fn)(void *user, int32_t level, const char *message);

/* Called now and then while loading with bytes done and in all; non-zero cancels the load. */
typedef int32_t (*qwen36_progress_fn)(void *user, uint64_t done, uint64_t total);

/* Something that took time, when it is over, on the thread of the call. Category and name, static texts:
 *   "step"   "step"                                    a whole step
 *   "phase"  "schedule", "forward", "head", "commit"   of a step, in this order; "sample": a qwen36_sample
 *   "layer"  "full_attention" or "linear_attention"    of the forward phase
 *   "op"     an operation of the backend               of a layer, else of the phase
 * layer: the number of the layer, -1 outside of one. rows: those of the step, the sessions of the sample.
 * Times are nanoseconds of a monotonic clock; what is part of another begins and ends within it. Failed
 * operations are reported too. May call nothing of the library but qwen36_session_interrupt. */
typedef void (*qwen36_trace_fn)(void *user, const char *category, const char *name, int32_t layer,
                                int32_t rows, uint64_t begin, uint64_t duration);

/* ------------------------------------------------------------------------------------------------
 * 4. Model: weights, tokenizer, configuration, worker threads and the pool of KV blocks and states
 * --------------------------------------------------------------------------------------------- */

typedef struct qwen36_model qwen36_model;
typedef struct qwen36_tokenizer qwen36_tokenizer;
typedef struct qwen36_session qwen36_session;
typedef struct qwen36_decoder qwen36_decoder;

/* How exact the arithmetic is. REFERENCE: activations, KV and states in float32, weights widened from
 * storage. FAST: activations may be rounded for matrix products, KV is BF16 by default. With either
 * the results depend on the tokens alone, not on batch, threads or cuts. */
enum { QWEN36_NUMERICS_REFERENCE = 1, QWEN36_NUMERICS_FAST = 2 };

/* Storage of the KV cache. AUTO: float32 with REFERENCE, BF16 with FAST. I8: 8-bit integers with a float32
 * scale for each token, head and kind, about half of BF16; never chosen by AUTO. */
enum { QWEN36_KV_AUTO = 0, QWEN36_KV_F32 = 1, QWEN36_KV_BF16 = 2, QWEN36_KV_I8 = 3 };

/* MAP maps the weight files (fast to load, shared between processes; a file that is truncated under
 * the map raises SIGBUS in the process). READ copies them into memory (immune to that). With a device either
 * lasts only until the weights have reached it. */
enum { QWEN36_WEIGHTS_MAP = 1, QWEN36_WEIGHTS_READ = 2 };

/* Instruction set of the CPU kernels. AUTO: the best one that the processor has. Choosing one that
 * it lacks is QWEN36_ERROR_ARGUMENT. Tiers may differ from each other in the low bits. */
enum {
    QWEN36_CPU_AUTO = 0,
    QWEN36_CPU_PORTABLE = 1, /* C11 without extensions */
    QWEN36_CPU_AVX2 = 2,     /* AVX2, FMA, F16C */
    QWEN36_CPU_AVX512 = 3    /* AVX-512 F, BW, DQ, VL; uses BF16 where FAST may and the CPU has it */
};

/* For sizes that the library chooses. */
#define QWEN36_BYTES_AUTO ((uint64_t)-1)

/* Kernels of a device. */
enum {
    QWEN36_DEVICE_TIER_AUTO = 0,   /* what its profile allows, and passes a check at load */
    QWEN36_DEVICE_TIER_GENERAL = 1 /* only those that every device can run */
};

typedef struct qwen36_model_options {
    uint32_t struct_size;
    int32_t numerics;       /* QWEN36_NUMERICS_*; default FAST */
    int32_t kv_dtype;       /* QWEN36_KV_*; default AUTO */
    int32_t weights_access; /* QWEN36_WEIGHTS_*; default MAP */
    int32_t cpu_tier;       /* QWEN36_CPU_*; default AUTO */
    int32_t threads;        /* workers incl. the calling thread, 1..1024; default: the processors that
                               this process may use (affinity and cgroup quota) */
    int32_t max_sessions;   /* sessions that may exist at a time, 1..65536; default 4 */
    int32_t context_length; /* tokens per session, 1..1073741823; default 4096. The model's own limit applies
                               too */
    int32_t max_batch_tokens; /* rows of one step, 1..65536; default 512 */
    int32_t prefix_reuse;     /* 1: what was computed for one timeline serves others that begin with the same
                                 tokens; 0: nothing is kept; default 1 */
    uint64_t cache_bytes;     /* memory for KV blocks; default 0: what max_sessions x context_length needs */
    const qwen36_allocator *allocator; /* copied; default NULL: malloc */
    qwen36_log_fn log;                 /* default NULL: silent */
    void *log_user;
    qwen36_progress_fn progress; /* default NULL */
    void *progress_user;
    uint64_t snapshot_bytes; /* memory for snapshots of the recurrent state, without which no prefix can be
                                reused; default QWEN36_BYTES_AUTO: 8, and one per session up to 16; 0: none */
    float memory_share;      /* not 0: KV blocks, states and snapshots together take this share, in (0, 1], of
                                the memory that this process may use (machine and cgroup), on a device of what
                                is free there beside all else; cache_bytes must be 0; default 0 */
    int32_t device;        /* which device, counted from 0 as the CUDA runtime does; 0 with the CPU backend */
    qwen36_trace_fn trace; /* receives the time of all that a step does; default NULL: nothing is timed */
    void *trace_user;
    /* An existing directory in which prefixes outlive the process, as files: read by qwen36_session_sync,
     * written by qwen36_model_flush_prefixes and by the last release. Several processes may share it. Copied;
     * default NULL: none */
    const char *prefix_directory;
    uint64_t prefix_directory_bytes; /* that its files may take together, the least recently used go first;
                                        default 4 GiB */
    int32_t device_tier;             /* QWEN36_DEVICE_TIER_*: which kernels a device may use; default AUTO */
    int32_t batch_invariant; /* 1: logits depend on a sequence's own tokens and the cuts at which it was
                                computed (what prefix_reuse brings, by whom it was computed first), not on
                                what else the step holds; slower on a device, no change on the CPU, where it
                                is always so, whatever the cuts; default 0 */
} qwen36_model_options;

/* Writes the defaults into the first `size` bytes; size = sizeof *options. */
QWEN36_API void qwen36_model_options_init(qwen36_model_options *options, size_t size);

/* Loads a checkpoint from a directory as published: config.json, generation_config.json (optional),
 * model.safetensors or model.safetensors.index.json + shards, tokenizer.json and
 * tokenizer_config.json (optional: a model without them works on token ids). Everything is checked
 * before anything is used. On failure *model is NULL.
 * The caller holds one reference; drop it by qwen36_model_release. */
QWEN36_API qwen36_status qwen36_model_load(const char *directory, const qwen36_model_options *options,
                                           qwen36_model **model, qwen36_error *error);

/* One more reference; returns its argument. */
QWEN36_API qwen36_model *qwen36_model_retain(qwen36_model *model);

/* Drops a reference; the last one frees the model. Sessions hold a reference of their own. Accepts
 * NULL. */
QWEN36_API void qwen36_model_release(qwen36_model *model);

/* What a model of a directory would take with these options, in bytes; with a device all of it there but
 * the timelines. Reads the configuration and the headers of the weight files only, and asks the device
 * nothing but for memory_share. */
typedef struct qwen36_memory_estimate {
    uint32_t struct_size;
    uint32_t reserved;
    uint64_t weight_bytes;    /* weights mapped (or read) */
    uint64_t cache_bytes;     /* KV blocks */
    uint64_t state_bytes;     /* recurrent and convolution states */
    uint64_t workspace_bytes; /* activations of one step, and scratch */
    uint64_t session_bytes;   /* logits and timelines of max_sessions sessions */
    uint64_t total_bytes;     /* the sum */
} qwen36_memory_estimate;

QWEN36_API qwen36_status qwen36_memory_estimate_read(const char *directory,
                                                     const qwen36_model_options *options,
                                                     qwen36_memory_estimate *estimate, qwen36_error *error);

/* Writes the prefixes that are known now, and not on the disk yet, into prefix_directory, and removes what is
 * beyond its limit. Nothing without such a directory. QWEN36_ERROR_FILE_WRITE: the first that could not be
 * written; the others were tried all the same. */
QWEN36_API qwen36_status qwen36_model_flush_prefixes(qwen36_model *model, qwen36_error *error);

/* Facts about a loaded model. Counts are those of the checkpoint. */
typedef struct qwen36_model_info {
    uint32_t struct_size;
    int32_t is_moe;           /* 1: mixture of experts, 0: dense */
    int32_t vocab_size;       /* V: length of a logits row; token ids are 0..V-1 */
    int32_t token_count;      /* ids that the tokenizer knows, <= V; rows from here on are padding with
                                 logit -infinity. V when there is no tokenizer */
    int32_t bitmask_words;    /* 32-bit words of a token bitmask: ceil(V / 32) */
    int32_t hidden_size;      /* H */
    int32_t layers;           /* L: all decoder layers */
    int32_t attention_layers; /* those with full attention; the others are Gated DeltaNet */
    int32_t heads;            /* query heads */
    int32_t kv_heads;
    int32_t head_dim;
    int32_t linear_key_heads;
    int32_t linear_value_heads;
    int32_t linear_key_dim;
    int32_t linear_value_dim;
    int32_t intermediate_size; /* dense MLP width; 0 for MoE */
    int32_t experts;           /* 0 for dense */
    int32_t experts_per_token;
    int32_t expert_size;        /* width of a routed expert */
    int32_t shared_expert_size; /* width of the shared expert */
    int32_t tied_head;          /* 1: the head shares the embedding matrix */
    int32_t max_positions;      /* positions that the model was made for (with YaRN: extended) */
    int32_t context_length;     /* tokens per session under the options in force */
    int32_t max_sessions;
    int32_t max_batch_tokens;
    int32_t threads;
    int32_t numerics;        /* QWEN36_NUMERICS_* in force */
    int32_t kv_dtype;        /* QWEN36_KV_* in force, never AUTO */
    int32_t cpu_tier;        /* QWEN36_CPU_* in force; 0 for another backend */
    int32_t kv_block_tokens; /* tokens per KV block: 64 */
    int32_t kv_blocks;       /* in the pool */
    int32_t bos_token;       /* from the configuration; -1: none. Never added by the library */
    int32_t pad_token;       /* -1: none */
    int32_t snapshots;       /* of the recurrent state that fit beside those of the sessions */
    uint64_t parameters;     /* text parameters, the head counted once if tied */
    uint64_t weight_bytes;
    uint64_t kv_token_bytes; /* KV bytes per token, scales included */
    uint64_t state_bytes;    /* recurrent + convolution state bytes per session */
} qwen36_model_info;

QWEN36_API qwen36_status qwen36_model_get_info(const qwen36_model *model, qwen36_model_info *info,
                                               qwen36_error *error);

/* The tokens that end a generation (generation_config.json, else config.json). Writes at most
 * `capacity` ids; *count is their number. */
QWEN36_API qwen36_status qwen36_model_end_tokens(const qwen36_model *model, int32_t *ids, size_t capacity,
                                                 size_t *count, qwen36_error *error);

/* The model's tokenizer, borrowed while the model lives; NULL if its directory has none. */
QWEN36_API const qwen36_tokenizer *qwen36_model_tokenizer(const qwen36_model *model);

/* ------------------------------------------------------------------------------------------------
 * 5. Tokenizer: byte-level BPE with NFC normalisation
 * --------------------------------------------------------------------------------------------- */

/* Loads tokenizer.json (+ added tokens that stand only in tokenizer_config.json) of a directory
 * without any weights. allocator: NULL for malloc; copied. Destroy what this made; not what
 * qwen36_model_tokenizer lent. QWEN36_ERROR_FILE_NOT_FOUND when there is no such directory,
 * QWEN36_ERROR_NO_TOKENIZER when it has no tokenizer.json. */
QWEN36_API qwen36_status qwen36_tokenizer_load(const char *directory, const qwen36_allocator *allocator,
                                               qwen36_tokenizer **tokenizer, qwen36_error *error);
QWEN36_API void qwen36_tokenizer_destroy(qwen36_tokenizer *tokenizer);

/* Number of token ids: the highest id + 1. */
QWEN36_API int32_t qwen36_tokenizer_size(const qwen36_tokenizer *tokenizer);

/* PARSE_SPECIAL: the text of an added token (<|im_end|>, <think>) becomes that token; without it such
 * text is ordinary text. */
#define QWEN36_ENCODE_PARSE_SPECIAL ((uint32_t)1)

/* Text of `length` bytes (NULs allowed; invalid UTF-8 is read as U+FFFD, as Python's
 * errors="replace" does) to ids. No token is added at begin or end. `ids` may be NULL with capacity 0
 * to ask for the count. */
QWEN36_API qwen36_status qwen36_tokenizer_encode(const qwen36_tokenizer *tokenizer, const char *text,
                                                 size_t length, uint32_t flags, int32_t *ids, size_t capacity,
                                                 size_t *count, qwen36_error *error);

/* SKIP_SPECIAL: tokens marked special give no text. */
#define QWEN36_DECODE_SKIP_SPECIAL ((uint32_t)1)

/* Ids to the bytes they stand for, which need not be whole UTF-8 (see the streaming decoder). No NUL
 * is appended. An id outside the tokenizer is QWEN36_ERROR_TOKEN_ID. */
QWEN36_API qwen36_status qwen36_tokenizer_decode(const qwen36_tokenizer *tokenizer, const int32_t *ids,
                                                 size_t count, uint32_t flags, char *text, size_t capacity,
                                                 size_t *length, qwen36_error *error);

/* The bytes of one token (not NUL-terminated), borrowed while the tokenizer lives; NULL and length 0
 * for an unknown id. */
QWEN36_API const char *qwen36_tokenizer_bytes(const qwen36_tokenizer *tokenizer, int32_t id, size_t *length);

/* The id whose bytes are exactly these, -1 if there is none. An added token comes before an ordinary
 * one. */
QWEN36_API int32_t qwen36_tokenizer_id(const qwen36_tokenizer *tokenizer, const char *bytes, size_t length);

/* 1 if the id is marked special (skipped by SKIP_SPECIAL), else 0. */
QWEN36_API int32_t qwen36_tokenizer_is_special(const qwen36_tokenizer *tokenizer, int32_t id);

/* ------------------------------------------------------------------------------------------------
 * 6. Streaming decoder: tokens to text that is valid UTF-8 at every cut
 * --------------------------------------------------------------------------------------------- */

/* Stop strings end the text where one of them begins. They are UTF-8 of 1..1024 bytes, at most 64. The stop
 * that ends first counts; of those that end together the one that begins first. */
typedef struct qwen36_decoder_options {
    uint32_t struct_size;
    uint32_t flags;             /* QWEN36_DECODE_*; default SKIP_SPECIAL */
    const char *const *stops;   /* [stop_count]; copied; default NULL */
    const size_t *stop_lengths; /* [stop_count] bytes; NULL: the stops are NUL-terminated */
    size_t stop_count;          /* default 0 */
} qwen36_decoder_options;

QWEN36_API void qwen36_decoder_options_init(qwen36_decoder_options *options, size_t size);

/* The tokenizer must outlive the decoder. */
QWEN36_API qwen36_status qwen36_decoder_create(const qwen36_tokenizer *tokenizer,
                                               const qwen36_decoder_options *options,
                                               qwen36_decoder **decoder, qwen36_error *error);
QWEN36_API void qwen36_decoder_destroy(qwen36_decoder *decoder);

/* Adds a token. *text receives the text that is now complete (possibly of length 0), NUL-terminated,
 * borrowed until the next call on the decoder. A sequence that ends within a character is held back, and
 * so is what may still become a stop string; after a stop nothing more comes out. Bytes that cannot
 * become UTF-8 come out as U+FFFD, one for each maximal part (as Python's errors="replace" does). The
 * concatenation of all texts does not depend on the cut. */
QWEN36_API qwen36_status qwen36_decoder_push(qwen36_decoder *decoder, int32_t token, const char **text,
                                             size_t *length, qwen36_error *error);

/* Ends the text: what was held back for a stop comes out, a character that never came whole as U+FFFD.
 * The decoder is then empty, as new. */
QWEN36_API qwen36_status qwen36_decoder_finish(qwen36_decoder *decoder, const char **text, size_t *length,
                                               qwen36_error *error);

/* The index of the stop string that ended the text, -1 if none did; also after finish, until the next
 * push. */
QWEN36_API int32_t qwen36_decoder_stopped(const qwen36_decoder *decoder);

/* ------------------------------------------------------------------------------------------------
 * 7. Session: one timeline of tokens with its KV blocks, recurrent state, last logits and sampler
 *
 * The timeline holds `length` tokens, of which the first `computed` have passed through the model;
 * the others are pending until a step computes them. qwen36_sample appends the token it chose as
 * pending. Nothing is lost by a failing call: the session stands at its last committed token.
 * --------------------------------------------------------------------------------------------- */

/* Which logits an append wants. ALL: one row for every appended token, given to the session's
 * on_logits in order of position; the last row is kept too. */
enum { QWEN36_LOGITS_NONE = 0, QWEN36_LOGITS_LAST = 1, QWEN36_LOGITS_ALL = 2 };

/* A row of logits: float32 [vocab_size] after the token at `position`, borrowed during the call. */
typedef void (*qwen36_logits_fn)(void *user, qwen36_session *session, int32_t position, const float *logits,
                                 int32_t vocab_size);

typedef struct qwen36_session_options {
    uint32_t struct_size;
    int32_t context_length;     /* capacity in tokens, 1..the model's; default: the model's */
    qwen36_logits_fn on_logits; /* receives the rows of QWEN36_LOGITS_ALL; default NULL */
    void *user;
    uint64_t prefix_space; /* prefixes are reused among sessions of one space (a tenant); default 0 */
} qwen36_session_options;

QWEN36_API qwen36_status qwen36_session_options_init(const qwen36_model *model,
                                                     qwen36_session_options *options, size_t size);

/* An empty timeline with the model's default sampling. Takes no KV block before tokens are computed.
 * QWEN36_ERROR_SESSIONS_FULL when max_sessions exist. */
QWEN36_API qwen36_status qwen36_session_create(qwen36_model *model, const qwen36_session_options *options,
                                               qwen36_session **session, qwen36_error *error);
QWEN36_API void qwen36_session_destroy(qwen36_session *session);

/* Appends tokens as pending; computes nothing. All or none: QWEN36_ERROR_CONTEXT_FULL when they do
 * not fit, QWEN36_ERROR_TOKEN_ID for an id outside 0..vocab_size-1. Starts a new "output" for the
 * presence and frequency penalties. */
QWEN36_API qwen36_status qwen36_session_append(qwen36_session *session, const int32_t *tokens, size_t count,
                                               int32_t logits, qwen36_error *error);

/* Makes the timeline equal to `tokens`, with logits wanted after the last one, by the least work that
 * is exact. *reused (may be NULL) = leading tokens that need not be computed again; the rest is
 * pending. Errors as for append, the session then unchanged. Starts a new "output". (Exact: on the CPU the
 * same bits as computed anew; on a device as close as docs/numerics.md says, for rewind and fork too.) */
QWEN36_API qwen36_status qwen36_session_sync(qwen36_session *session, const int32_t *tokens, size_t count,
                                             size_t *reused, qwen36_error *error);

/* Shortens the timeline to its first `length` tokens, exactly: what follows is what a fresh session
 * with those tokens gives. Dropping only pending tokens keeps the logits that stand after the computed
 * ones (none, if they were not wanted); rewinding further goes back to the nearest kept state and makes the
 * tokens behind it pending again. Where tokens are pending then, logits are wanted after the last. */
QWEN36_API qwen36_status qwen36_session_rewind(qwen36_session *session, size_t length, qwen36_error *error);

/* A second session at the same point, with the same sampling options, biases, bitmask and wanted logits; at
 * once, whatever the length: blocks, state and logits are shared until one of the two goes on. (Give the fork
 * another `stream`, or it draws the same tokens.) options: NULL for the capacity and the callback of
 * `session`; a prefix_space is taken over in any case. QWEN36_ERROR_SESSIONS_FULL,
 * QWEN36_ERROR_CONTEXT_FULL when the capacity is less than the timeline. */
QWEN36_API qwen36_status qwen36_session_fork(const qwen36_session *session,
                                             const qwen36_session_options *options, qwen36_session **fork,
                                             qwen36_error *error);

/* Writes the whole session: tokens, pending ones too, KV, states, last logits, sampling options, biases,
 * bitmask (not its callback). The file appears whole under its name, with mode 0600, or what stood there
 * stays: QWEN36_ERROR_FILE_WRITE. docs/state.md describes the format. The session is unchanged. */
QWEN36_API qwen36_status qwen36_session_save(const qwen36_session *session, const char *path,
                                             qwen36_error *error);
/* The same into `memory`; *size is what it takes, also with QWEN36_ERROR_BUFFER_TOO_SMALL; `memory` may be
 * NULL with capacity 0 to ask for it. */
QWEN36_API qwen36_status qwen36_session_save_memory(const qwen36_session *session, void *memory,
                                                    size_t capacity, size_t *size, qwen36_error *error);

typedef struct qwen36_restore_options {
    uint32_t struct_size;
    int32_t any_numerics; /* 1: a state that another backend, tier or numerics setting computed is accepted;
                             what follows then equals neither that setting nor this one; the KV format must be
                             the same in any case; default 0 */
    const qwen36_session_options *session; /* of the new session; default NULL: the model's defaults */
} qwen36_restore_options;

QWEN36_API void qwen36_restore_options_init(qwen36_restore_options *options, size_t size);

/* A new session that stands where the saved one stood: the next sample gives what it would have given there.
 * Nothing of a file is used before all of it is checked: QWEN36_ERROR_SNAPSHOT for one that is damaged,
 * QWEN36_ERROR_SNAPSHOT_MISMATCH for one of another model or arithmetic, QWEN36_ERROR_CONTEXT_FULL,
 * QWEN36_ERROR_CACHE_FULL, QWEN36_ERROR_SESSIONS_FULL where there is no room. Checksums find damage, not
 * forgery: restore what you saved. */
QWEN36_API qwen36_status qwen36_session_restore(qwen36_model *model, const char *path,
                                                const qwen36_restore_options *options,
                                                qwen36_session **session, qwen36_error *error);
QWEN36_API qwen36_status qwen36_session_restore_memory(qwen36_model *model, const void *memory, size_t size,
                                                       const qwen36_restore_options *options,
                                                       qwen36_session **session, qwen36_error *error);

/* Empties the timeline and gives its blocks and states back to the pool. Options stay. */
QWEN36_API qwen36_status qwen36_session_reset(qwen36_session *session, qwen36_error *error);

/* Tokens in the timeline; tokens computed; tokens that fit. 0 for NULL. */
QWEN36_API size_t qwen36_session_length(const qwen36_session *session);
QWEN36_API size_t qwen36_session_computed(const qwen36_session *session);
QWEN36_API size_t qwen36_session_capacity(const qwen36_session *session);

/* Copies `count` tokens from index `begin` of the timeline. */
QWEN36_API qwen36_status qwen36_session_tokens(const qwen36_session *session, size_t begin, size_t count,
                                               int32_t *tokens, qwen36_error *error);

/* Asks a running step to drop this session's rows: one lock-free store, safe from any thread and in a
 * signal handler. Set while the session is idle, it makes the next step return QWEN36_INTERRUPTED for
 * it at once; a step that reports it clears it. */
QWEN36_API void qwen36_session_interrupt(qwen36_session *session);

/* The logits after the last computed token: float32 [vocab_size], padding rows -infinity. Borrowed
 * until the next step, score, sync, rewind or reset on this session. QWEN36_ERROR_NO_LOGITS if that
 * token's logits were not wanted. With a device the first call after a step brings them to the host, once the
 * step that may be running is over: QWEN36_ERROR_OUT_OF_MEMORY, QWEN36_ERROR_DEVICE, *logits is NULL then. */
QWEN36_API qwen36_status qwen36_session_logits(const qwen36_session *session, const float **logits,
                                               int32_t *vocab_size, qwen36_error *error);

/* Appends `count` tokens, computes them (and what was pending), and writes for each the natural
 * logarithm of its probability given everything before it: logprobs[i], float32. The first token of
 * an empty session has nothing before it: 0. When tokens were computed whose last logits were not
 * wanted, those logits are computed here. On failure the tokens that were computed stay, those that
 * were not are removed again. QWEN36_INTERRUPTED likewise. */
QWEN36_API qwen36_status qwen36_session_score(qwen36_session *session, const int32_t *tokens, size_t count,
                                              float *logprobs, qwen36_error *error);

/* ------------------------------------------------------------------------------------------------
 * 8. Step and sample: one iteration over an array of sessions of one model
 * --------------------------------------------------------------------------------------------- */

typedef struct qwen36_step_options {
    uint32_t struct_size;
    int32_t max_tokens; /* rows of this step, 1..max_batch_tokens; default: max_batch_tokens */
} qwen36_step_options;

QWEN36_API qwen36_status qwen36_step_options_init(const qwen36_model *model, qwen36_step_options *options,
                                                  size_t size);

/* Computes pending tokens: first the sessions with one pending token, then shares of the others, until
 * the budget is used (docs/sessions.md: nobody waits for ever). Tokens that another session of the same
 * prefix_space has computed in the meantime are not computed again. A session may appear once.
 *   statuses (may be NULL): int32 [count], one per session: OK (nothing is pending any more), PENDING,
 *   INTERRUPTED, or an error of that session alone (CACHE_FULL), its neighbours go on.
 * Returns the first error among the sessions, else PENDING if any session is pending, else INTERRUPTED if
 * any was, else OK. A failure of the whole step (DEVICE, ARGUMENT) leaves every session at its last
 * committed token, and the same call may be repeated. */
QWEN36_API qwen36_status qwen36_step(qwen36_session *const *sessions, size_t count,
                                     const qwen36_step_options *options, qwen36_status *statuses,
                                     qwen36_error *error);

/* Chooses the next token of every session from its logits under its sampling options, and appends it
 * as pending. tokens: int32 [count], -1 where a session failed. statuses and return value as for
 * step; per session: NO_LOGITS (also when tokens are pending), CONTEXT_FULL, NON_FINITE,
 * NO_CANDIDATE. A draw depends on (seed, stream, position) alone. */
QWEN36_API qwen36_status qwen36_sample(qwen36_session *const *sessions, size_t count, int32_t *tokens,
                                       qwen36_status *statuses, qwen36_error *error);

/* ------------------------------------------------------------------------------------------------
 * 9. Sampling options of a session
 *
 * Order: bitmask, bias, penalties, temperature, top_k, top_p, min_p, draw.
 * --------------------------------------------------------------------------------------------- */

typedef struct qwen36_sampling {
    uint32_t struct_size;
    int32_t top_k;            /* keep the k most likely tokens; 0 off, 1 greedy */
    float temperature;        /* 0 greedy (ties: lowest id), else logits are divided by it */
    float top_p;              /* keep the smallest set of probability >= top_p, in (0, 1]; 1 off */
    float min_p;              /* keep tokens with p >= min_p x the largest p, in [0, 1]; 0 off */
    float repetition_penalty; /* > 0; logits > 0 of tokens in the timeline are divided by it, others
                                 multiplied; 1 off */
    float presence_penalty;   /* subtracted once for a token in the output; 0 off */
    float frequency_penalty;  /* subtracted per occurrence in the output; 0 off */
    int32_t logprobs;         /* -1 none; 0 that of the chosen token; n <= 20: also the n largest */
    int32_t reserved;         /* 0 */
    uint64_t seed;            /* default 0 */
    uint64_t stream;          /* independent draws under one seed; default 0 */
} qwen36_sampling;
#define QWEN36_LOGPROBS_MAX 20

/* The model's defaults (generation_config.json; do_sample false gives temperature 0). */
QWEN36_API qwen36_status qwen36_sampling_init(const qwen36_model *model, qwen36_sampling *sampling,
                                              size_t size);
/* Values outside their ranges are refused: QWEN36_ERROR_ARGUMENT, the options then unchanged. */
QWEN36_API qwen36_status qwen36_session_set_sampling(qwen36_session *session, const qwen36_sampling *sampling,
                                                     qwen36_error *error);
QWEN36_API qwen36_status qwen36_session_get_sampling(const qwen36_session *session, qwen36_sampling *sampling,
                                                     qwen36_error *error);

/* Adds bias[i] to the logit of token[i]; -infinity forbids it. Copied; replaces earlier biases; count
 * 0 removes them. Both arrays [count]; a token may appear once. */
QWEN36_API qwen36_status qwen36_session_set_bias(qwen36_session *session, const int32_t *tokens,
                                                 const float *bias, size_t count, qwen36_error *error);

/* Allowed tokens: bit t%32 of word t/32 is 1 for an allowed token t. uint32 [bitmask_words], copied;
 * holds until replaced; NULL with 0 words removes it. */
QWEN36_API qwen36_status qwen36_session_set_bitmask(qwen36_session *session, const uint32_t *words,
                                                    size_t count, qwen36_error *error);

/* Log-probabilities (natural logarithm, of the unmodified distribution: no mask, bias, penalty or
 * temperature) of the last token sampled: *chosen, and the `logprobs` most likely tokens in
 * descending order: tokens and values [capacity]. QWEN36_ERROR_NO_LOGITS if the last sample did not
 * record any. */
QWEN36_API qwen36_status qwen36_session_logprobs(const qwen36_session *session, float *chosen,
                                                 int32_t *tokens, float *values, size_t capacity,
                                                 size_t *count, qwen36_error *error);

/* ------------------------------------------------------------------------------------------------
 * 10. Generate: step, sample and decode in a loop, for one session
 * --------------------------------------------------------------------------------------------- */

/* A token and the text that became complete with it (possibly of length 0; valid UTF-8,
 * NUL-terminated, borrowed during the call). token -1: the end of the text. Non-zero stops. */
typedef int32_t (*qwen36_text_fn)(void *user, int32_t token, const char *text, size_t length);

enum {
    QWEN36_FINISH_END_TOKEN = 1,
    QWEN36_FINISH_LENGTH = 2,       /* max_tokens */
    QWEN36_FINISH_CONTEXT_FULL = 3, /* the session is full */
    QWEN36_FINISH_CALLBACK = 4,     /* on_text returned non-zero */
    QWEN36_FINISH_INTERRUPTED = 5,
    QWEN36_FINISH_ERROR = 6,
    QWEN36_FINISH_STOP = 7 /* a stop string */
};

typedef struct qwen36_generate_options {
    uint32_t struct_size;
    int32_t max_tokens;        /* tokens to sample at most, >= 0; default 256 */
    int32_t ignore_end_tokens; /* 1: an end token does not stop; default 0 */
    uint32_t decode_flags;     /* QWEN36_DECODE_*; default SKIP_SPECIAL */
    qwen36_text_fn on_text;    /* default NULL */
    void *user;
    const int32_t *end_tokens; /* [end_token_count]: instead of the model's; default NULL: the model's */
    size_t end_token_count;
    const char *const *stops; /* stop strings, as for a decoder; default NULL. They need a tokenizer */
    const size_t *stop_lengths;
    size_t stop_count;
} qwen36_generate_options;

typedef struct qwen36_generate_result {
    uint32_t struct_size;
    int32_t finish;         /* QWEN36_FINISH_* */
    uint64_t prompt_tokens; /* pending tokens computed before the first sample */
    uint64_t output_tokens; /* tokens sampled, the end token included */
    double prompt_seconds;  /* from the call to the first sampled token */
    double output_seconds;  /* from the first sampled token to the return */
    int32_t stop;           /* index of the stop string that ended it, else -1 */
    int32_t end_token;      /* the end token that ended it, else -1 */
} qwen36_generate_result;

QWEN36_API void qwen36_generate_options_init(qwen36_generate_options *options, size_t size);

/* Computes what is pending (logits after the last token are then wanted in any case), samples until
 * something ends it, and reports why. The sampled tokens stay in the timeline (an end token too, as
 * pending). A model without a tokenizer gives tokens with empty text. The result (may be NULL) is
 * filled in every case. Returns INTERRUPTED and the error for those
 * finishes, else OK. */
QWEN36_API qwen36_status qwen36_generate(qwen36_session *session, const qwen36_generate_options *options,
                                         qwen36_generate_result *result, qwen36_error *error);

/* ------------------------------------------------------------------------------------------------
 * 11. Chat: messages and tools to the text, or the tokens, that the model was trained on
 *
 * A published checkpoint brings a chat template, a program in jinja. The library has no interpreter:
 * it knows the templates of the family by their digests and renders each of them natively, byte for
 * byte as jinja2 does, errors included. A caller who renders by other means passes text or tokens.
 *
 * Messages and tools are JSON in OpenAI's form: an array of {"role", "content", "reasoning_content",
 * "tool_calls"}, an array of {"type": "function", "function": {...}}. The arguments of a tool call
 * are an object, or a string that holds one. docs/chat.md has the details.
 * --------------------------------------------------------------------------------------------- */

typedef struct qwen36_chat_template qwen36_chat_template;

/* The template of a model directory: chat_template.jinja, else the member chat_template of
 * tokenizer_config.json; a directory with neither counts as Qwen3.6. An unknown template is loaded
 * too, and refused when it is to render. No other file is read. allocator: NULL for malloc; copied.
 * On failure *chat is NULL: QWEN36_ERROR_FILE_NOT_FOUND when there is no such directory,
 * QWEN36_ERROR_FILE_READ, QWEN36_ERROR_JSON or QWEN36_ERROR_CHAT_TEMPLATE (chat_template is no text)
 * for what cannot be read. */
QWEN36_API qwen36_status qwen36_chat_template_load(const char *directory, const qwen36_allocator *allocator,
                                                   qwen36_chat_template **chat, qwen36_error *error);

/* The same from the text of a template, `length` bytes. A line break at its end does not count. */
QWEN36_API qwen36_status qwen36_chat_template_parse(const char *text, size_t length,
                                                    const qwen36_allocator *allocator,
                                                    qwen36_chat_template **chat, qwen36_error *error);
QWEN36_API void qwen36_chat_template_destroy(qwen36_chat_template *chat);

/* "qwen3.5", "qwen3.5-small" (that of 0.8B and 2B, which does not think unless asked to), "qwen3.6",
 * "qwen3.8", or "unknown" (also for NULL). Later versions may know more. Static. */
QWEN36_API const char *qwen36_chat_template_name(const qwen36_chat_template *chat);

typedef struct qwen36_chat_options {
    uint32_t struct_size;
    int32_t add_generation_prompt;    /* 1: the text ends where the assistant's answer begins; default 1 */
    int32_t enable_thinking;          /* 1: the answer begins inside <think>; 0: behind an empty thought;
                                         default -1: as the template does by itself */
    int32_t preserve_thinking;        /* 1: answers before the last query keep their reasoning; 0: they
                                         lose it; default -1: as the template does by itself (3.8 keeps
                                         it, the others do not). 3.5 never keeps it */
    int32_t add_vision_id;            /* 1: "Picture 1: ", "Video 1: " before pictures; default 0 */
    int32_t allow_nearest;            /* 1: an unknown template is rendered as the known one that has
                                         most in common with it; default 0: it is refused */
    int32_t parse_special_in_content; /* 1: qwen36_chat_encode reads <|im_end|> and the like as tokens
                                         also where a message says them; default 0: there they are text */
    int32_t reserved;                 /* 0 */
    const char *tools;                /* JSON, `tools_length` bytes; default NULL: none */
    size_t tools_length;
    const char *reasoning_effort; /* 3.8 only: "xhigh", "medium" or "low"; default NULL: the template's
                                     own, xhigh */
} qwen36_chat_options;

QWEN36_API void qwen36_chat_options_init(qwen36_chat_options *options, size_t size);

/* The text of a conversation. messages: JSON, `length` bytes. Writes UTF-8 without a NUL at the end;
 * *text_length is its size, also with QWEN36_ERROR_BUFFER_TOO_SMALL; `text` may be NULL with capacity
 * 0 to ask for it.
 * QWEN36_ERROR_CHAT_TEMPLATE: the template is unknown. QWEN36_ERROR_CHAT_MESSAGES: the JSON is
 * malformed or nested more than 64 deep, or the template refuses the request; the error then carries
 * the template's own text, such as "No user query found in messages." */
QWEN36_API qwen36_status qwen36_chat_render(const qwen36_chat_template *chat, const char *messages,
                                            size_t length, const qwen36_chat_options *options, char *text,
                                            size_t capacity, size_t *text_length, qwen36_error *error);

/* The tokens of a conversation: those of the rendered text, with the template's own <|im_start|>,
 * <think> and the like as tokens, and such text inside a message, a tool or an argument as ordinary
 * text: what a user types cannot end a turn. For a request without such text, and for every one with
 * parse_special_in_content, the ids equal qwen36_tokenizer_encode of the rendered text with
 * QWEN36_ENCODE_PARSE_SPECIAL. ids [capacity], *count and errors as there and for render. */
QWEN36_API qwen36_status qwen36_chat_encode(const qwen36_chat_template *chat,
                                            const qwen36_tokenizer *tokenizer, const char *messages,
                                            size_t length, const qwen36_chat_options *options, int32_t *ids,
                                            size_t capacity, size_t *count, qwen36_error *error);

/* ------------------------------------------------------------------------------------------------
 * 12. Watching: what a model has done, and what its memory holds
 *
 * docs/watching.md says what to read from the numbers. The trace is an option of the model.
 * --------------------------------------------------------------------------------------------- */

/* Counts grow from load or creation on; blocks, snapshots and bytes are what there is now. Of a session: what
 * it did itself and stands on; the pool, what is cached or evicted, disk and seconds are 0. */
typedef struct qwen36_stats {
    uint32_t struct_size;
    int32_t sessions;         /* that exist; for a session 1 */
    uint64_t steps;           /* that brought a session forward */
    uint64_t computed_tokens; /* that passed through the model */
    uint64_t reused_tokens;   /* that a sync or a step found computed */
    uint64_t sampled_tokens;
    uint64_t copied_blocks; /* KV blocks that were shared, and copied before a session wrote into them */
    uint64_t block_evictions;
    uint64_t snapshot_evictions;
    uint64_t blocks;         /* of the pool */
    uint64_t held_blocks;    /* that sessions stand on; one that they share counts once for the model */
    uint64_t cached_blocks;  /* that nobody stands on, kept because their tokens may come again */
    uint64_t snapshots;      /* states from where a prefix can be reused */
    uint64_t snapshot_room;  /* so many always fit; more do while sessions leave room */
    uint64_t kv_bytes;       /* of the blocks held and cached */
    uint64_t state_bytes;    /* of the states of sessions and snapshots */
    uint64_t disk_hits;      /* prefixes read from prefix_directory */
    uint64_t disk_writes;    /* written into it */
    uint64_t disk_refusals;  /* found there, but of no use: damaged, foreign, or no room */
    double schedule_seconds; /* choosing rows and reserving memory */
    double compute_seconds;  /* the forward pass and the head */
    double commit_seconds;
    double sample_seconds;
} qwen36_stats;

/* Numbers of one moment. Those of a model may be asked for at any time, also by callbacks (but the trace). */
QWEN36_API qwen36_status qwen36_model_get_stats(qwen36_model *model, qwen36_stats *stats,
                                                qwen36_error *error);
QWEN36_API qwen36_status qwen36_session_get_stats(const qwen36_session *session, qwen36_stats *stats,
                                                  qwen36_error *error);

/* Forgets every cached block and every snapshot. What sessions stand on stays, and no result changes (beyond
 * what docs/numerics.md says of a device): a prefix is computed again where it would have been reused. */
QWEN36_API qwen36_status qwen36_model_clear_cache(qwen36_model *model, qwen36_error *error);

#ifdef __cplusplus
}
#endif

#endif /* QWEN36_H */
