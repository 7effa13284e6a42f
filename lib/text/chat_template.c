#include "lib/text/chat_template.h"

#include "lib/base/json.h"
#include "lib/os/file.h"
#include "lib/os/process.h"

#include <stdio.h>
#include <string.h>

#define FILE_LIMIT ((size_t)16 << 20)

enum { QWEN3_5, QWEN3_5_SMALL, QWEN3_6, QWEN3_8 };

/* Qwen3.5 comes in two templates: 0.8B and 2B do not think unless they are asked to. */
static const qw_chat_dialect DIALECTS[] = {
    {.name = "qwen3.5",
     .digest = {0xa4, 0xae, 0xe8, 0xaf, 0xcf, 0x2e, 0x07, 0x11, 0x94, 0x2c, 0xf8,
                0x48, 0x89, 0x9b, 0xe6, 0x60, 0x16, 0xf8, 0xd1, 0x4a, 0x88, 0x9f,
                0xf9, 0xed, 0xe0, 0x7b, 0xca, 0x09, 0x9c, 0x28, 0xf7, 0x15},
     .thinks = QW_CHAT_UNLESS_REFUSED,
     .preserves_thinking = QW_CHAT_NEVER,
     .splits_thinking = true,
     .scalars_by_str = true},
    {.name = "qwen3.5-small",
     .digest = {0x27, 0x3d, 0x8e, 0x0e, 0x68, 0x3b, 0x88, 0x50, 0x71, 0xfb, 0x17,
                0xe0, 0x8d, 0x71, 0xe5, 0xf2, 0xa5, 0xdd, 0xfb, 0x53, 0x09, 0x75,
                0x61, 0x81, 0x68, 0x1d, 0xe4, 0xf5, 0xa1, 0x82, 0x2d, 0x80},
     .thinks = QW_CHAT_IF_ASKED,
     .preserves_thinking = QW_CHAT_NEVER,
     .splits_thinking = true,
     .scalars_by_str = true},
    {.name = "qwen3.6",
     .digest = {0xe8, 0x4f, 0x32, 0xa2, 0x3f, 0xdd, 0xa2, 0x76, 0x89, 0xf8, 0x68,
                0xaa, 0x4a, 0x1a, 0x56, 0x21, 0xf4, 0x11, 0x33, 0xe5, 0x1a, 0x48,
                0xd7, 0xf3, 0xef, 0xcb, 0xea, 0x28, 0x39, 0x57, 0x42, 0x59},
     .thinks = QW_CHAT_UNLESS_REFUSED,
     .preserves_thinking = QW_CHAT_IF_ASKED,
     .splits_thinking = true},
    {.name = "qwen3.8",
     .digest = {0xc3, 0xcf, 0x9e, 0x34, 0xab, 0xf4, 0xf9, 0xe3, 0x6c, 0x2d, 0x72,
                0x16, 0x5a, 0xa9, 0xc1, 0x32, 0xd3, 0xe2, 0xa7, 0x25, 0xb6, 0xc2,
                0x58, 0x6a, 0xaa, 0x3a, 0x8a, 0xf9, 0xd7, 0xa8, 0x10, 0x41},
     .thinks = QW_CHAT_UNLESS_REFUSED,
     .preserves_thinking = QW_CHAT_UNLESS_REFUSED,
     .reasoning_effort = true,
     .drops_empty = true},
};

/* --- From a text ------------------------------------------------------------------------------------ */

static bool contains(const char *text, size_t length, const char *word)
{
    size_t n = strlen(word);
    for (size_t i = 0; i + n <= length; i++)
        if (text[i] == word[0] && memcmp(text + i, word, n) == 0)
            return true;
    return false;
}

/* For a text that is none of the known ones: the dialect that has in common what tells them apart. */
static const qw_chat_dialect *nearest(const char *text, size_t length)
{
    if (contains(text, length, "reasoning_effort"))
        return &DIALECTS[QWEN3_8];
    if (contains(text, length, "preserve_thinking") || !contains(text, length, "args_value is mapping"))
        return &DIALECTS[QWEN3_6];
    return &DIALECTS[contains(text, length, "enable_thinking is true") ? QWEN3_5_SMALL : QWEN3_5];
}

/* As jinja does, not counting one line break at the end. */
static void recognize(qwen36_chat_template *chat, const char *text, size_t length)
{
    uint8_t digest[SHA256_DIGEST_LENGTH];
    SHA2_CTX sha256;
    if (length > 0 && text[length - 1] == '\n')
        length--;
    SHA256Init(&sha256);
    SHA256Update(&sha256, (const uint8_t *)text, length);
    SHA256Final(digest, &sha256);
    for (size_t i = 0; i < QW_COUNT_OF(DIALECTS); i++)
        if (memcmp(DIALECTS[i].digest, digest, sizeof digest) == 0) {
            chat->dialect = &DIALECTS[i];
            chat->known = true;
            return;
        }
    chat->dialect = nearest(text, length);
    chat->known = false;
}

static qwen36_chat_template *create(const qw_allocator *allocator, qwen36_error *error)
{
    qwen36_chat_template *chat = qw_alloc(allocator, 1, sizeof *chat);
    if (chat == NULL) {
        qw_fail_memory(error, sizeof *chat);
        return NULL;
    }
    chat->allocator = *allocator;
    chat->process = qw_process_id();
    chat->dialect = &DIALECTS[QWEN3_6];
    chat->known = true;
    return chat;
}

qwen36_status qw_chat_template_parse(const qw_allocator *allocator, const char *text, size_t length,
                                     qwen36_chat_template **out, qwen36_error *error)
{
    *out = create(allocator, error);
    if (*out == NULL)
        return QWEN36_ERROR_OUT_OF_MEMORY;
    recognize(*out, text, length);
    return QWEN36_OK;
}

void qw_chat_template_destroy(qwen36_chat_template *chat)
{
    if (chat == NULL)
        return;
    const qw_allocator allocator = chat->allocator;
    qw_free(&allocator, chat);
}

bool qw_chat_template_is_ours(const qwen36_chat_template *chat)
{
    return chat->process == qw_process_id();
}

/* --- From a directory -------------------------------------------------------------------------------- */

/* A file of the directory; QWEN36_ERROR_FILE_NOT_FOUND leaves `error` clear. *path and *text are for qw_free,
 * whatever the status. */
static qwen36_status read_file(const qw_allocator *allocator, const char *directory, const char *name,
                               char **path, char **text, size_t *length, qwen36_error *error)
{
    qwen36_error reason = QWEN36_ERROR_INIT;
    size_t size = strlen(directory) + strlen(name) + 2;
    *text = NULL;
    *path = qw_alloc_raw(allocator, size, 1);
    if (*path == NULL)
        return qw_fail_memory(error, size);
    snprintf(*path, size, "%s/%s", directory, name);
    qwen36_status status = qw_file_read_all(allocator, *path, FILE_LIMIT, text, length, &reason);
    if (status != QWEN36_OK && status != QWEN36_ERROR_FILE_NOT_FOUND)
        qw_fail(error, status, "%s", reason.message);
    return status;
}

/* The text of the member chat_template: a string, or in a list of named ones the one called default. */
static qwen36_status find_member(const cJSON *config, const char *path, const char **text,
                                 qwen36_error *error)
{
    const cJSON *member = qw_json_member(config, "chat_template"), *item = NULL;
    *text = qw_json_string(member);
    if (*text != NULL || member == NULL || cJSON_IsNull(member))
        return QWEN36_OK;
    cJSON_ArrayForEach(item, member)
    {
        const char *name = qw_json_string(qw_json_member(item, "name"));
        if (name != NULL && strcmp(name, "default") == 0)
            *text = qw_json_string(qw_json_member(item, "template"));
    }
    if (*text != NULL)
        return QWEN36_OK;
    return qw_fail(error, QWEN36_ERROR_CHAT_TEMPLATE,
                   "%s: chat_template is neither a text nor a list with a"
                   " text called default",
                   path);
}

static qwen36_status load_config(qwen36_chat_template *chat, const char *directory, qwen36_error *error)
{
    qwen36_error reason = QWEN36_ERROR_INIT;
    char *path = NULL, *text = NULL;
    const char *template = NULL;
    cJSON *config = NULL;
    size_t length = 0;
    qwen36_status status =
        read_file(&chat->allocator, directory, "tokenizer_config.json", &path, &text, &length, error);
    if (status != QWEN36_OK)
        goto out;
    config = qw_json_parse(text, length, path, &reason);
    if (config == NULL) {
        status = qw_fail(error, reason.status, "%s", reason.message);
        goto out;
    }
    status = find_member(config, path, &template, error);
    if (status == QWEN36_OK && template != NULL)
        recognize(chat, template, strlen(template));
out:
    qw_json_delete(config);
    qw_free(&chat->allocator, text);
    qw_free(&chat->allocator, path);
    return status;
}

static qwen36_status load(qwen36_chat_template *chat, const char *directory, qwen36_error *error)
{
    char *path = NULL, *text = NULL;
    size_t length = 0;
    qwen36_status status =
        read_file(&chat->allocator, directory, "chat_template.jinja", &path, &text, &length, error);
    if (status == QWEN36_OK)
        recognize(chat, text, length);
    qw_free(&chat->allocator, text);
    qw_free(&chat->allocator, path);
    return status != QWEN36_ERROR_FILE_NOT_FOUND ? status : load_config(chat, directory, error);
}

qwen36_status qw_chat_template_load(const qw_allocator *allocator, const char *directory,
                                    qwen36_chat_template **out, qwen36_error *error)
{
    *out = NULL;
    qwen36_chat_template *chat = create(allocator, error);
    if (chat == NULL)
        return QWEN36_ERROR_OUT_OF_MEMORY;
    qwen36_status status = load(chat, directory, error);
    if (status == QWEN36_ERROR_FILE_NOT_FOUND) {
        /* A checkpoint without a template counts as 3.6; what is no directory, or not there, is no
         * checkpoint. */
        bool there = qw_directory_exists(directory);
        status = there ? QWEN36_OK : qw_fail(error, status, "%s: no such directory", directory);
    }
    if (status == QWEN36_OK)
        *out = chat;
    else
        qw_chat_template_destroy(chat);
    return status;
}
