/* Text to token ids, and back. */
#include "common.h"

#include <getopt.h>

static const char PROGRAM[] = "tokenize";

static const char HELP[] =
    "usage: tokenize -m DIRECTORY [options] < TEXT > IDS\n"
    "       tokenize -m DIRECTORY --decode [options] < IDS > TEXT\n"
    "Reads a text on standard input and writes the ids of its tokens, separated by spaces; with --decode "
    "reads\n"
    "ids, separated by white space or commas, and writes the bytes they stand for. Needs no weights.\n"
    "  -m, --model DIR       the directory with tokenizer.json\n"
    "      --decode          from ids to text\n"
    "      --no-special      the text of a special token (<|im_end|>) is ordinary text; with --decode such\n"
    "                        tokens are left out\n";

typedef struct arguments {
    const char *directory;
    int decode, no_special;
} arguments;

enum { DECODE = 256, NO_SPECIAL, HELP_OPTION };

static arguments parse(int argc, char **argv)
{
    static const struct option options[] = {{"model", 1, NULL, 'm'},
                                            {"decode", 0, NULL, DECODE},
                                            {"no-special", 0, NULL, NO_SPECIAL},
                                            {"help", 0, NULL, HELP_OPTION},
                                            {NULL, 0, NULL, 0}};
    arguments a = {NULL, 0, 0};
    int option;
    while ((option = getopt_long(argc, argv, "m:", options, NULL)) != -1) {
        if (option == 'm')
            a.directory = optarg;
        else if (option == DECODE)
            a.decode = 1;
        else if (option == NO_SPECIAL)
            a.no_special = 1;
        else if (option == HELP_OPTION)
            exit(fputs(HELP, stdout) < 0);
        else
            usage_error(PROGRAM, "unknown option or missing value", "");
    }
    if (optind < argc)
        usage_error(PROGRAM, "unexpected argument", argv[optind]);
    if (a.directory == NULL)
        usage_error(PROGRAM, "a directory is missing (-m DIRECTORY)", "");
    return a;
}

static void write_ids(const qwen36_tokenizer *tokenizer, const char *text, size_t length, uint32_t flags)
{
    size_t count = 0;
    int32_t *ids = encode(PROGRAM, tokenizer, text, length, flags, &count);
    for (size_t i = 0; i < count; i++)
        printf(i == 0 ? "%d" : " %d", ids[i]);
    putchar('\n');
    free(ids);
}

/* The next id in the text; 0 at its end. */
static int next_id(const char **text, int32_t *id)
{
    char *end = NULL;
    *text += strspn(*text, " ,\t\r\n\v\f");
    if (**text == '\0')
        return 0;
    errno = 0;
    long value = strtol(*text, &end, 10);
    if (end == *text || errno != 0 || value < INT32_MIN || value > INT32_MAX ||
        strchr(" ,\t\r\n\v\f", *end) == NULL) {
        fprintf(stderr, "%s: not a token id: %.*s\n", PROGRAM, (int)strcspn(*text, " ,\t\r\n\v\f"), *text);
        exit(1);
    }
    *text = end;
    *id = (int32_t)value;
    return 1;
}

/* Token by token, as the bytes of each are; together they are the text. */
static void write_text(const qwen36_tokenizer *tokenizer, const char *text, size_t length, uint32_t flags)
{
    qwen36_error error = QWEN36_ERROR_INIT;
    const char *end = text + length;
    int32_t id = 0;
    while (next_id(&text, &id)) {
        size_t size = 0;
        const char *bytes = qwen36_tokenizer_bytes(tokenizer, id, &size);
        if (bytes == NULL) /* for its message */
            check(PROGRAM, qwen36_tokenizer_decode(tokenizer, &id, 1, flags, NULL, 0, &size, &error), &error);
        if ((flags & QWEN36_DECODE_SKIP_SPECIAL) == 0 || !qwen36_tokenizer_is_special(tokenizer, id))
            fwrite(bytes, 1, size, stdout);
    }
    if (text != end)
        fail_text(PROGRAM, "the ids hold a NUL byte");
}

int main(int argc, char **argv)
{
    qwen36_error error = QWEN36_ERROR_INIT;
    qwen36_tokenizer *tokenizer = NULL;
    size_t length = 0;
    arguments a = parse(argc, argv);
    check(PROGRAM, qwen36_tokenizer_load(a.directory, NULL, &tokenizer, &error), &error);
    char *input = read_stream(PROGRAM, stdin, &length);
    if (a.decode)
        write_text(tokenizer, input, length, a.no_special ? QWEN36_DECODE_SKIP_SPECIAL : 0);
    else
        write_ids(tokenizer, input, length, a.no_special ? 0 : QWEN36_ENCODE_PARSE_SPECIAL);
    free(input);
    qwen36_tokenizer_destroy(tokenizer);
    if (fflush(stdout) != 0 || ferror(stdout))
        fail_text(PROGRAM, strerror(errno));
    return 0;
}
