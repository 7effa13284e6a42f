/* Takes the model's place in tests of the chat example, as a library loaded before the real one: it says the
 * answers that the file $ANSWERS holds, each ended by a line "----", and adds the timeline before each to the
 * file $PROMPTS. The session goes on as if the model had drawn those tokens. */
#include <qwen36.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_TOKENS = 4096, MOST_BYTES = 1 << 16 };

static FILE *answers;
static qwen36_tokenizer *tokenizer;
static int32_t ids[MOST_TOKENS];
static char bytes[MOST_BYTES];

static void open_once(void)
{
    if (answers != NULL)
        return;
    answers = fopen(getenv("ANSWERS"), "r");
    if (answers == NULL || qwen36_tokenizer_load("examples/demo-model", NULL, &tokenizer, NULL) != QWEN36_OK)
        abort();
}

/* The bytes of the next answer; none at the end of the file. */
static size_t next_answer(void)
{
    size_t length = 0;
    while (fgets(bytes + length, MOST_BYTES - (int)length, answers) != NULL &&
           strcmp(bytes + length, "----\n") != 0)
        length += strlen(bytes + length);
    return length > 0 ? length - 1 : 0; /* the last line break belongs to the file */
}

static void write_prompt(const qwen36_session *session)
{
    size_t count = qwen36_session_length(session), length = 0;
    FILE *file = fopen(getenv("PROMPTS"), "a");
    if (file == NULL || count > MOST_TOKENS ||
        qwen36_session_tokens(session, 0, count, ids, NULL) != QWEN36_OK ||
        qwen36_tokenizer_decode(tokenizer, ids, count, 0, bytes, MOST_BYTES, &length, NULL) != QWEN36_OK)
        abort();
    fwrite(bytes, 1, length, file);
    fputs("\n----\n", file);
    fclose(file);
}

static void compute(qwen36_session *session)
{
    while (qwen36_step(&session, 1, NULL, NULL, NULL) == QWEN36_PENDING)
        ;
}

static void say(const qwen36_generate_options *options, size_t count)
{
    qwen36_decoder *decoder = NULL;
    const char *piece = NULL;
    size_t length = 0;
    qwen36_decoder_create(tokenizer, NULL, &decoder, NULL);
    for (size_t i = 0; i < count; i++)
        if (qwen36_decoder_push(decoder, ids[i], &piece, &length, NULL) == QWEN36_OK)
            options->on_text(options->user, ids[i], piece, length);
    if (qwen36_decoder_finish(decoder, &piece, &length, NULL) == QWEN36_OK)
        options->on_text(options->user, -1, piece, length);
    qwen36_decoder_destroy(decoder);
}

qwen36_status qwen36_generate(qwen36_session *session, const qwen36_generate_options *options,
                              qwen36_generate_result *result, qwen36_error *error)
{
    size_t count = 0;
    (void)error;
    open_once();
    write_prompt(session);
    result->prompt_tokens = qwen36_session_length(session) - qwen36_session_computed(session);
    compute(session);
    size_t length = next_answer();
    qwen36_tokenizer_encode(tokenizer, bytes, length, QWEN36_ENCODE_PARSE_SPECIAL, ids, MOST_TOKENS - 1,
                            &count, NULL);
    ids[count] = qwen36_tokenizer_id(tokenizer, "<|im_end|>", 10);
    qwen36_session_append(session, ids, count, QWEN36_LOGITS_NONE, NULL);
    compute(session);
    qwen36_session_append(session, ids + count, 1, QWEN36_LOGITS_LAST, NULL);
    say(options, count + 1);
    result->finish = QWEN36_FINISH_END_TOKEN;
    result->output_tokens = count + 1;
    return QWEN36_OK;
}
