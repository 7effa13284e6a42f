/* The shortest program: continue a text. Usage: hello MODEL-DIRECTORY TEXT */
#include <qwen36.h>

#include <stdio.h>
#include <string.h>

static int32_t print(void *user, int32_t token, const char *text, size_t length)
{
    (void)user;
    (void)token;
    fwrite(text, 1, length, stdout);
    return fflush(stdout);
}

int main(int argc, char **argv)
{
    qwen36_error error = QWEN36_ERROR_INIT;
    qwen36_model *model = NULL;
    qwen36_session *session = NULL;
    qwen36_generate_options options;
    int32_t ids[1024];
    size_t count = 0;
    if (argc != 3) {
        fprintf(stderr, "usage: hello MODEL-DIRECTORY TEXT\n");
        return 2;
    }
    qwen36_generate_options_init(&options, sizeof options);
    options.on_text = print;
    qwen36_status status = qwen36_model_load(argv[1], NULL, &model, &error);
    if (status == QWEN36_OK)
        status = qwen36_tokenizer_encode(qwen36_model_tokenizer(model), argv[2], strlen(argv[2]),
                                         QWEN36_ENCODE_PARSE_SPECIAL, ids, 1024, &count, &error);
    if (status == QWEN36_OK)
        status = qwen36_session_create(model, NULL, &session, &error);
    if (status == QWEN36_OK)
        status = qwen36_session_append(session, ids, count, QWEN36_LOGITS_LAST, &error);
    if (status == QWEN36_OK)
        status = qwen36_generate(session, &options, NULL, &error);
    if (status != QWEN36_OK)
        fprintf(stderr, "hello: %s\n", error.message);
    qwen36_session_destroy(session);
    qwen36_model_release(model);
    return status != QWEN36_OK;
}
