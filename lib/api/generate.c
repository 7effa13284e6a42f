/* Section 10: step, sample and decode in a loop. Built from the other exported calls: what a caller could
 * write. */
#include "lib/api/api.h"

#include "lib/os/process.h"

static qwen36_generate_options generate_defaults(void)
{
    return (qwen36_generate_options){.struct_size = sizeof(qwen36_generate_options),
                                     .max_tokens = 256,
                                     .decode_flags = QWEN36_DECODE_SKIP_SPECIAL};
}

void qwen36_generate_options_init(qwen36_generate_options *options, size_t size)
{
    qwen36_generate_options defaults = generate_defaults();
    qw_defaults_write(options, size, &defaults, sizeof defaults);
}

/* One generation under way. */
typedef struct generation {
    qwen36_session *session;
    qwen36_generate_options options;
    qwen36_decoder *decoder; /* NULL: no tokenizer */
    qwen36_error *error;
    qwen36_generate_result result;
    double begin, first; /* clock at the call, and at the first sampled token (0: none yet) */
} generation;

static bool is_end_token(const generation *g, int32_t token)
{
    const qw_generation *model = &g->session->model->generation;
    const int32_t *ends = g->options.end_tokens != NULL ? g->options.end_tokens : model->end_tokens;
    size_t count = g->options.end_tokens != NULL ? g->options.end_token_count : (size_t)model->end_count;
    for (size_t i = 0; i < count && !g->options.ignore_end_tokens; i++)
        if (ends[i] == token)
            return true;
    return false;
}

/* Hands a piece of text to the caller; true if the caller wants to stop. */
static bool deliver(generation *g, int32_t token, const char *text, size_t length)
{
    return g->options.on_text != NULL && g->options.on_text(g->options.user, token, text, length) != 0;
}

static qwen36_status deliver_token(generation *g, int32_t token, bool *stop)
{
    const char *text = "";
    size_t length = 0;
    qwen36_status status = QWEN36_OK;
    if (g->decoder != NULL)
        status = qwen36_decoder_push(g->decoder, token, &text, &length, g->error);
    if (status == QWEN36_OK)
        *stop = deliver(g, token, text, length);
    return status;
}

/* The tail that the decoder held back. */
static void deliver_end(generation *g)
{
    const char *text = "";
    size_t length = 0;
    if (g->decoder != NULL && qwen36_decoder_finish(g->decoder, &text, &length, NULL) == QWEN36_OK)
        deliver(g, -1, text, length);
}

static qwen36_status compute_pending(generation *g)
{
    qwen36_session *one = g->session;
    qwen36_status status;
    do {
        status = qw_step(&one, 1, one->model->max_rows, g->error);
    } while (status == QWEN36_PENDING);
    return status;
}

/* Samples one token and delivers it. Returns the reason to end, or 0. */
static int32_t advance(generation *g, qwen36_status *status)
{
    int32_t token = -1;
    bool stop = false;
    if (g->session->length == g->session->capacity)
        return QWEN36_FINISH_CONTEXT_FULL;
    *status = qw_sample(&g->session, 1, &token, g->error);
    if (*status != QWEN36_OK)
        return QWEN36_FINISH_ERROR;
    if (g->first == 0)
        g->first = qw_clock_seconds();
    g->result.output_tokens++;
    *status = deliver_token(g, token, &stop);
    if (*status != QWEN36_OK)
        return QWEN36_FINISH_ERROR;
    if (is_end_token(g, token)) {
        g->result.end_token = token;
        return QWEN36_FINISH_END_TOKEN;
    }
    if (stop)
        return QWEN36_FINISH_CALLBACK;
    g->result.stop = qwen36_decoder_stopped(g->decoder);
    return g->result.stop >= 0 ? QWEN36_FINISH_STOP : 0;
}

static qwen36_status run(generation *g)
{
    qwen36_status status = QWEN36_OK;
    g->result.finish = 0;
    while (g->result.finish == 0) {
        status = compute_pending(g);
        if (status != QWEN36_OK)
            g->result.finish = status == QWEN36_INTERRUPTED ? QWEN36_FINISH_INTERRUPTED : QWEN36_FINISH_ERROR;
        else if (g->result.output_tokens == (uint64_t)g->options.max_tokens)
            g->result.finish = QWEN36_FINISH_LENGTH;
        else
            g->result.finish = advance(g, &status);
    }
    deliver_end(g);
    return status;
}

/* Logits after the last token are needed, whatever the append asked for. */
static qwen36_status want_last(qwen36_session *s, qwen36_error *error)
{
    if (s->length == 0)
        return qw_fail(error, QWEN36_ERROR_NO_LOGITS, "the timeline is empty: there is nothing to continue");
    int32_t length = s->length;
    if (s->computed == length && s->row < 0)
        qw_session_forget(s);
    s->wants[length - 1] |= QW_WANT_LAST;
    return QWEN36_OK;
}

static qwen36_status open_decoder(generation *g)
{
    const qwen36_tokenizer *tokenizer = g->session->model->tokenizer;
    if (tokenizer == NULL && g->options.stop_count > 0)
        return qw_fail(g->error, QWEN36_ERROR_NO_TOKENIZER,
                       "stop strings need a tokenizer, and the model has none");
    if (tokenizer == NULL)
        return QWEN36_OK;
    qwen36_decoder_options options;
    qwen36_decoder_options_init(&options, sizeof options);
    options.flags = g->options.decode_flags;
    options.stops = g->options.stops;
    options.stop_lengths = g->options.stop_lengths;
    options.stop_count = g->options.stop_count;
    return qwen36_decoder_create(tokenizer, &options, &g->decoder, g->error);
}

static void measure(generation *g)
{
    double end = qw_clock_seconds();
    g->result.prompt_seconds = (g->first == 0 ? end : g->first) - g->begin;
    g->result.output_seconds = g->first == 0 ? 0 : end - g->first;
}

static qwen36_status generate(generation *g)
{
    g->begin = qw_clock_seconds();
    g->result.finish = QWEN36_FINISH_ERROR;
    qwen36_status status = open_decoder(g);
    if (status == QWEN36_OK)
        status = want_last(g->session, g->error);
    g->result.prompt_tokens = (uint64_t)(g->session->length - g->session->computed);
    if (status == QWEN36_OK)
        status = run(g);
    qwen36_decoder_destroy(g->decoder);
    measure(g);
    return status;
}

static qwen36_status adopt(const qwen36_generate_options *given, qwen36_generate_options *ours,
                           qwen36_error *error)
{
    *ours = generate_defaults();
    if (given == NULL)
        return QWEN36_OK;
    qwen36_status status = qw_options_adopt(ours, sizeof *ours, given,
                                            QW_SIZE_THROUGH(qwen36_generate_options, stop_count), error);
    if (status == QWEN36_OK && ours->max_tokens < 0)
        status = qw_fail(error, QWEN36_ERROR_ARGUMENT, "max_tokens is %d, below 0", ours->max_tokens);
    if (status == QWEN36_OK && (ours->ignore_end_tokens < 0 || ours->ignore_end_tokens > 1))
        status = qw_fail(error, QWEN36_ERROR_ARGUMENT, "ignore_end_tokens is %d, outside 0..1",
                         ours->ignore_end_tokens);
    if (status == QWEN36_OK && ours->end_tokens == NULL && ours->end_token_count > 0)
        status = qw_fail(error, QWEN36_ERROR_ARGUMENT, "the end tokens are NULL");
    if (status == QWEN36_OK && (ours->decode_flags & ~QWEN36_DECODE_SKIP_SPECIAL) != 0)
        status =
            qw_fail(error, QWEN36_ERROR_ARGUMENT, "decode_flags is %u: unknown bits", ours->decode_flags);
    return status;
}

qwen36_status qwen36_generate(qwen36_session *session, const qwen36_generate_options *options,
                              qwen36_generate_result *result, qwen36_error *error)
{
    generation g = {.session = session, .error = error};
    qwen36_status status = qw_enter_session(session, error);
    if (status == QWEN36_OK)
        status = adopt(options, &g.options, error);
    if (status == QWEN36_OK && result != NULL) /* before anything is computed */
        status = qw_output_check(result, sizeof g.result, error);
    g.result = (qwen36_generate_result){
        .struct_size = sizeof g.result, .finish = QWEN36_FINISH_ERROR, .stop = -1, .end_token = -1};
    if (status == QWEN36_OK) {
        session->in_call = true;
        status = generate(&g);
        session->in_call = false;
    }
    if (result != NULL)
        qw_output_write(result, &g.result, sizeof g.result, NULL);
    return status;
}
