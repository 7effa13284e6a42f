/* A program outside the tree, compiled as C and as C++ against the installed library: program MODEL [PROMPT].
 * Prints the library's version, then continues the prompt by eight tokens where a model is given. */
#include <qwen36.h>

#include <stdio.h>
#include <string.h>

static int fail(const char *what, const qwen36_error *error)
{
    fprintf(stderr, "%s: %s: %s\n", what, qwen36_status_name(error->status), error->message);
    return 1;
}

static int32_t print(void *user, int32_t token, const char *text, size_t length)
{
    (void)user;
    (void)token;
    return fwrite(text, 1, length, stdout) != length;
}

static int continue_text(qwen36_model *model, const char *prompt)
{
    qwen36_error error = QWEN36_ERROR_INIT;
    qwen36_session *session = NULL;
    qwen36_generate_options options;
    int32_t ids[256];
    size_t count = 0;
    qwen36_generate_options_init(&options, sizeof options);
    options.max_tokens = 8;
    options.on_text = print;
    if (qwen36_tokenizer_encode(qwen36_model_tokenizer(model), prompt, strlen(prompt), 0, ids, 256, &count,
                                &error))
        return fail("encode", &error);
    if (qwen36_session_create(model, NULL, &session, &error))
        return fail("create", &error);
    int failed = 0;
    if (qwen36_session_append(session, ids, count, QWEN36_LOGITS_LAST, &error))
        failed = fail("append", &error);
    else if (qwen36_generate(session, &options, NULL, &error))
        failed = fail("generate", &error);
    printf("\n");
    qwen36_session_destroy(session);
    return failed;
}

int main(int argc, char **argv)
{
    qwen36_error error = QWEN36_ERROR_INIT;
    qwen36_model *model = NULL;
    printf("%s\n", qwen36_version_string());
    if (qwen36_version_number() != QWEN36_VERSION_NUMBER)
        return 1;
    if (argc < 2)
        return qwen36_model_load("no/such/directory", NULL, &model, &error) != QWEN36_ERROR_FILE_NOT_FOUND;
    if (qwen36_model_load(argv[1], NULL, &model, &error))
        return fail("load", &error);
    int failed = continue_text(model, argc > 2 ? argv[2] : "Once upon");
    qwen36_model_release(model);
    return failed;
}
