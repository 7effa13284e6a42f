/* tokenizer.json and the added tokens of tokenizer_config.json, from texts to a tokenizer.
 *
 * tokenizer.json is 13 MB of vocabulary and merges around a few KB of settings. A tree of it would take some
 * 60 MB and most of the loading time, so the text is checked as a whole, the two large members are walked in
 * place, and only the rest becomes a tree.
 */
#include "lib/os/process.h"
#include "lib/text/bytelevel.h"
#include "lib/text/tokenizer.h"
#include "lib/text/tokenizer_kind.h"

#include <stdio.h>
#include <string.h>

_Static_assert(QW_VOCABULARY_ID_LIMIT < QW_BPE_ID_LIMIT, "every id fits a slot of the table of merges");

typedef struct load {
    const qw_allocator *allocator;
    qwen36_tokenizer *tokenizer;
    const char *file; /* the path, which error texts name */
    const char *text; /* tokenizer.json */
    size_t length;
    qw_json_span vocab, merges; /* members of `model` in the text */
    cJSON *tree;                /* the text without those two */
    qw_bytelevel bytelevel;
    qw_vocabulary_draft draft;
    qwen36_error *error;
} load;

static qwen36_status fail_memory(const load *l)
{
    return qw_fail(l->error, QWEN36_ERROR_OUT_OF_MEMORY, "%s: out of memory", l->file);
}

/* --- tokenizer.json: text and settings ------------------------------------------------------------ */

static qwen36_status check_text(const load *l)
{
    size_t where = 0;
    const char *broken = qw_json_check(l->text, l->length, &where);
    if (broken != NULL)
        return qw_fail(l->error, QWEN36_ERROR_JSON, "%s: byte %zu: %s", l->file, where, broken);
    return QWEN36_OK;
}

/* The value of a member of an object in checked text; length 0 if there is none. */
static qw_json_span member(qw_json_span object, const char *name)
{
    qw_json_walk walk = {object.text};
    qw_json_span key, value;
    if (object.length == 0 || object.text[0] != '{')
        return (qw_json_span){NULL, 0};
    while (qw_json_next(&walk, &key, &value))
        if (key.length == strlen(name) && memcmp(key.text, name, key.length) == 0)
            return value;
    return (qw_json_span){NULL, 0};
}

/* The tree of the text in which "null" stands for vocabulary and merges. */
static qwen36_status parse_rest(load *l)
{
    static const char stand_in[] = "null";
    bool vocab_first = l->vocab.text < l->merges.text;
    qw_json_span first = vocab_first ? l->vocab : l->merges, second = vocab_first ? l->merges : l->vocab;
    const char *end = l->text + l->length, *from = l->text;
    char *rest = qw_alloc(l->allocator, l->length - first.length - second.length + 2 * sizeof stand_in, 1);
    if (rest == NULL)
        return fail_memory(l);
    char *o = rest;
    for (int i = 0; i < 2; i++) {
        qw_json_span gap = i == 0 ? first : second;
        memcpy(o, from, (size_t)(gap.text - from));
        o = stpcpy(o + (gap.text - from), stand_in);
        from = gap.text + gap.length;
    }
    memcpy(o, from, (size_t)(end - from));
    o += end - from;
    qwen36_error reason = QWEN36_ERROR_INIT;
    l->tree = qw_json_parse(rest, (size_t)(o - rest), l->file, &reason);
    qw_free(l->allocator, rest);
    return l->tree != NULL ? QWEN36_OK : qw_fail(l->error, reason.status, "%s", reason.message);
}

static qwen36_status read_settings(load *l, const char **pattern)
{
    qw_json_span root = {l->text, l->length};
    while (root.length > 0 && strchr(" \t\r\n", *root.text) != NULL) {
        root.text++;
        root.length--;
    }
    qw_json_span model = member(root, "model");
    l->vocab = member(model, "vocab");
    l->merges = member(model, "merges");
    if (l->vocab.length == 0 || l->vocab.text[0] != '{')
        return qw_fail(l->error, QWEN36_ERROR_TOKENIZER, "%s: model.vocab is missing or no object", l->file);
    if (l->merges.length == 0 || l->merges.text[0] != '[')
        return qw_fail(l->error, QWEN36_ERROR_TOKENIZER, "%s: model.merges is missing or no array", l->file);
    qwen36_status status = parse_rest(l);
    if (status == QWEN36_OK)
        status = qw_tokenizer_check_kind(l->tree, l->file, &l->tokenizer->nfc, pattern, l->error);
    return status;
}

/* --- The vocabulary ------------------------------------------------------------------------------- */

static qwen36_status read_vocab(load *l)
{
    qw_json_walk walk = {l->vocab.text};
    qw_json_span key, value;
    uint64_t id = 0;
    while (qw_json_next(&walk, &key, &value)) {
        int shown = (int)QW_MIN(key.length, 60);
        if (!qw_json_uint64(value, &id) || id >= QW_VOCABULARY_ID_LIMIT)
            return qw_fail(l->error, QWEN36_ERROR_TOKENIZER,
                           "%s: model.vocab: \"%.*s\" is %.*s, expected an id from 0 to %u", l->file, shown,
                           key.text, (int)QW_MIN(value.length, 60), value.text, QW_VOCABULARY_ID_LIMIT - 1);
        if (key.length == 0)
            return qw_fail(l->error, QWEN36_ERROR_TOKENIZER, "%s: model.vocab has an empty token", l->file);
        char *place = qw_vocabulary_reserve(&l->draft, key.length);
        if (place == NULL)
            return fail_memory(l);
        size_t length = qw_bytelevel_decode(&l->bytelevel, place, qw_json_unescape(key, place));
        if (!qw_vocabulary_put(&l->draft, (uint32_t)id, length, QW_TOKEN_ORDINARY))
            return fail_memory(l);
    }
    return QWEN36_OK;
}

/* Adds a token to draft and trie unless an earlier file has it already, with the same id. */
static qwen36_status add_token(load *l, const cJSON *item, uint64_t id, const char *file, const char *where)
{
    qw_added_entry entry;
    qwen36_status status = qw_tokenizer_read_added(item, file, where, &entry, l->error);
    if (status != QWEN36_OK)
        return status;
    size_t length = strlen(entry.content);
    int32_t known = qw_added_id(&l->tokenizer->added, entry.content, length);
    if (known >= 0 && (uint64_t)known != id)
        return qw_fail(l->error, QWEN36_ERROR_TOKENIZER, "%s: %s: \"%.60s\" is token %d already", file, where,
                       entry.content, known);
    if (known >= 0)
        return QWEN36_OK;
    unsigned char flags = QW_TOKEN_ADDED | (entry.special ? QW_TOKEN_SPECIAL : 0);
    char *place = qw_vocabulary_reserve(&l->draft, length);
    if (place == NULL)
        return fail_memory(l);
    memcpy(place, entry.content, length);
    if (!qw_vocabulary_put(&l->draft, (uint32_t)id, length, flags) ||
        !qw_added_add(&l->tokenizer->added, l->allocator, entry.content, length, (int32_t)id))
        return fail_memory(l);
    return QWEN36_OK;
}

static qwen36_status read_added_tokens(load *l)
{
    const cJSON *array = qw_json_member(l->tree, "added_tokens"), *item = NULL;
    char where[40];
    int index = 0;
    if (array != NULL && !cJSON_IsArray(array) && !cJSON_IsNull(array))
        return qw_fail(l->error, QWEN36_ERROR_TOKENIZER, "%s: added_tokens is no array", l->file);
    cJSON_ArrayForEach(item, array)
    {
        int64_t id = 0;
        snprintf(where, sizeof where, "added_tokens[%d]", index++);
        if (!qw_json_int64(qw_json_member(item, "id"), 0, QW_VOCABULARY_ID_LIMIT - 1, &id))
            return qw_fail(l->error, QWEN36_ERROR_TOKENIZER, "%s: %s.id is no id from 0 to %u", l->file,
                           where, QW_VOCABULARY_ID_LIMIT - 1);
        qwen36_status status = add_token(l, item, (uint64_t)id, l->file, where);
        if (status != QWEN36_OK)
            return status;
    }
    return QWEN36_OK;
}

static qwen36_status add_from_config(load *l, const cJSON *config, const char *file)
{
    const cJSON *object = qw_json_member(config, "added_tokens_decoder"), *item = NULL;
    char where[80];
    if (!cJSON_IsObject(config) || (object != NULL && !cJSON_IsObject(object)))
        return qw_fail(l->error, QWEN36_ERROR_TOKENIZER, "%s: %s is no object", file,
                       object == NULL ? "the file" : "added_tokens_decoder");
    cJSON_ArrayForEach(item, object)
    {
        uint64_t id = 0;
        snprintf(where, sizeof where, "added_tokens_decoder.%.50s", item->string);
        if (!qw_json_uint64((qw_json_span){item->string, strlen(item->string)}, &id) ||
            id >= QW_VOCABULARY_ID_LIMIT)
            return qw_fail(l->error, QWEN36_ERROR_TOKENIZER, "%s: %s is no id from 0 to %u", file, where,
                           QW_VOCABULARY_ID_LIMIT - 1);
        qwen36_status status = add_token(l, item, id, file, where);
        if (status != QWEN36_OK)
            return status;
    }
    return QWEN36_OK;
}

static qwen36_status read_config(load *l, const qw_tokenizer_source *config)
{
    qwen36_error reason = QWEN36_ERROR_INIT;
    if (config->text == NULL)
        return QWEN36_OK; /* it is optional */
    cJSON *tree = qw_json_parse(config->text, config->length, config->path, &reason);
    if (tree == NULL)
        return qw_fail(l->error, reason.status, "%s", reason.message);
    qwen36_status status = add_from_config(l, tree, config->path);
    qw_json_delete(tree);
    return status;
}

/* --- Merges --------------------------------------------------------------------------------------- */

/* The bytes of both halves of a merge, one behind the other, out of "left right" or ["left", "right"]. `out`
 * has room for the element's text. */
static bool split_merge(const load *l, qw_json_span element, char *out, size_t *left, size_t *right)
{
    char *second;
    if (element.text[0] == '"') {
        size_t length = qw_json_unescape(element, out);
        char *space = memchr(out, ' ', length);
        if (space == NULL || memchr(space + 1, ' ', length - (size_t)(space + 1 - out)) != NULL)
            return false;
        second = space + 1;
        *left = (size_t)(space - out);
        *right = length - *left - 1;
    } else {
        qw_json_walk walk = {element.text};
        qw_json_span halves[2] = {{NULL, 0}, {NULL, 0}}, more;
        if (element.text[0] != '[' || !qw_json_next(&walk, NULL, &halves[0]) ||
            !qw_json_next(&walk, NULL, &halves[1]) || qw_json_next(&walk, NULL, &more) ||
            halves[0].text[0] != '"' || halves[1].text[0] != '"')
            return false;
        *left = qw_json_unescape(halves[0], out);
        second = out + *left;
        *right = qw_json_unescape(halves[1], second);
    }
    *left = qw_bytelevel_decode(&l->bytelevel, out, *left);
    *right = qw_bytelevel_decode(&l->bytelevel, second, *right);
    memmove(out + *left, second, *right);
    return true;
}

static qwen36_status add_merge(load *l, qw_json_span element, char *bytes)
{
    const qw_vocabulary *v = &l->tokenizer->vocabulary;
    size_t left = 0, right = 0;
    int shown = (int)QW_MIN(element.length, 80);
    unsigned rank = l->tokenizer->merges.count;
    if (!split_merge(l, element, bytes, &left, &right))
        return qw_fail(l->error, QWEN36_ERROR_TOKENIZER, "%s: model.merges[%u] is %.*s, expected two tokens",
                       l->file, rank, shown, element.text);
    int32_t a = qw_vocabulary_find(v, bytes, left), b = qw_vocabulary_find(v, bytes + left, right);
    int32_t merged = qw_vocabulary_find(v, bytes, left + right);
    if (a < 0 || b < 0 || merged < 0)
        return qw_fail(l->error, QWEN36_ERROR_TOKENIZER,
                       "%s: model.merges[%u] is %.*s: a token or their union is not in model.vocab", l->file,
                       rank, shown, element.text);
    qw_merges_add(&l->tokenizer->merges, (uint32_t)a, (uint32_t)b, (uint32_t)merged);
    return QWEN36_OK;
}

static qwen36_status read_merges(load *l)
{
    qw_json_walk walk = {l->merges.text};
    qw_json_span element;
    size_t count = 0, longest = 0;
    for (; qw_json_next(&walk, NULL, &element); count++)
        longest = QW_MAX(longest, element.length);
    if (count >= QW_BPE_ID_LIMIT)
        return qw_fail(l->error, QWEN36_ERROR_TOKENIZER, "%s: model.merges has %zu elements, more than %u",
                       l->file, count, QW_BPE_ID_LIMIT - 1);
    char *bytes = qw_alloc_raw(l->allocator, longest, 1);
    qwen36_status status = QWEN36_OK;
    if (bytes == NULL || !qw_merges_create(&l->tokenizer->merges, l->allocator, (uint32_t)count))
        status = fail_memory(l);
    walk.at = l->merges.text;
    while (status == QWEN36_OK && qw_json_next(&walk, NULL, &element))
        status = add_merge(l, element, bytes);
    if (status == QWEN36_OK)
        qw_merges_finish(&l->tokenizer->merges);
    qw_free(l->allocator, bytes);
    return status;
}

/* --- The whole ------------------------------------------------------------------------------------ */

/* An added token that is also a text of the vocabulary must have that id there: `tokenizers` would give it
 * that one. Only printable ASCII is the same text in both. */
static qwen36_status check_added(const load *l)
{
    const qw_vocabulary *v = &l->tokenizer->vocabulary;
    for (uint32_t id = 0; id < v->size; id++) {
        size_t length, plain = 0;
        const char *bytes = qw_vocabulary_bytes(v, id, &length);
        if ((v->flags[id] & QW_TOKEN_ADDED) == 0)
            continue;
        while (plain < length && bytes[plain] >= '!' && bytes[plain] <= '~')
            plain++;
        int32_t ordinary = plain < length ? -1 : qw_vocabulary_find(v, bytes, length);
        if (ordinary >= 0 && (uint32_t)ordinary != id)
            return qw_fail(l->error, QWEN36_ERROR_TOKENIZER,
                           "%s: added token \"%.*s\" has id %u, but %d in model.vocab", l->file,
                           (int)QW_MIN(length, 60), bytes, id, ordinary);
    }
    return QWEN36_OK;
}

static qwen36_status lay_out(load *l)
{
    qwen36_tokenizer *t = l->tokenizer;
    uint32_t clash = 0;
    qwen36_status status = qw_vocabulary_finish(&l->draft, &t->vocabulary, &clash);
    if (status == QWEN36_ERROR_OUT_OF_MEMORY)
        return fail_memory(l);
    if (status != QWEN36_OK)
        return qw_fail(l->error, status, "%s: token id %u or its text is there twice", l->file, clash);
    for (int byte = 0; byte < 256; byte++) {
        char text = (char)byte;
        int32_t id = qw_vocabulary_find(&t->vocabulary, &text, 1);
        if (id < 0)
            return qw_fail(l->error, QWEN36_ERROR_TOKENIZER, "%s: model.vocab has no token for byte %d",
                           l->file, byte);
        t->merges.byte_ids[byte] = (uint32_t)id;
    }
    t->verdicts = qw_alloc(l->allocator, t->vocabulary.size, sizeof *t->verdicts);
    return t->verdicts == NULL ? fail_memory(l) : check_added(l);
}

static qwen36_status prepare_pieces(load *l, const char *pattern)
{
    qw_pretokenizer *p = &l->tokenizer->pretokenizer;
    size_t length = strlen(pattern);
    qw_unicode_build(&l->tokenizer->unicode);
    p->unicode = &l->tokenizer->unicode;
    p->pattern = qw_pretokenizer_recognize(pattern, length);
    if (p->pattern != QW_PATTERN_OTHER)
        return QWEN36_OK;
    return qw_regex_create(l->allocator, pattern, length, l->file, &p->regex, l->error);
}

static qwen36_status parse(load *l, const qw_tokenizer_source *config)
{
    const char *pattern = NULL;
    qwen36_status status = check_text(l);
    if (status == QWEN36_OK)
        status = read_settings(l, &pattern);
    if (status == QWEN36_OK)
        status = read_vocab(l);
    if (status == QWEN36_OK)
        status = read_added_tokens(l);
    if (status == QWEN36_OK)
        status = read_config(l, config);
    if (status == QWEN36_OK)
        status = lay_out(l);
    if (status == QWEN36_OK)
        status = read_merges(l);
    if (status == QWEN36_OK)
        status = prepare_pieces(l, pattern);
    return status;
}

qwen36_status qw_tokenizer_parse(const qw_allocator *allocator, const qw_tokenizer_source *json,
                                 const qw_tokenizer_source *config, qwen36_tokenizer **out,
                                 qwen36_error *error)
{
    qwen36_tokenizer *t = qw_alloc(allocator, 1, sizeof *t);
    *out = NULL;
    if (t == NULL)
        return qw_fail_memory(error, sizeof *t);
    t->allocator = *allocator;
    t->process = qw_process_id();
    load l = {.allocator = &t->allocator,
              .tokenizer = t,
              .file = json->path,
              .text = json->text,
              .length = json->length,
              .draft = {.allocator = &t->allocator},
              .error = error};
    qw_bytelevel_init(&l.bytelevel);
    qwen36_status status = parse(&l, config);
    qw_vocabulary_draft_release(&l.draft);
    qw_json_delete(l.tree);
    if (status == QWEN36_OK)
        *out = t;
    else
        qw_tokenizer_destroy(t);
    return status;
}

void qw_tokenizer_destroy(qwen36_tokenizer *t)
{
    if (t == NULL)
        return;
    const qw_allocator allocator = t->allocator;
    qw_vocabulary_release(&t->vocabulary, &allocator);
    qw_merges_release(&t->merges, &allocator);
    qw_added_release(&t->added, &allocator);
    qw_regex_destroy(t->pretokenizer.regex);
    qw_free(&allocator, t->verdicts);
    qw_free(&allocator, t);
}
