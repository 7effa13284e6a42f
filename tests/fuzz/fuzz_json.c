/* Any bytes as JSON: the strict check, cJSON's tree and the walk over the text agree on what is there. */
#include "lib/base/json.h"

#include <stdlib.h>
#include <string.h>

static void check_walk(const cJSON *tree, const char *text)
{
    qw_json_walk walk = {text};
    qw_json_span key = {NULL, 0}, value;
    const cJSON *child = tree->child;
    for (; qw_json_next(&walk, cJSON_IsObject(tree) ? &key : NULL, &value); child = child->next) {
        if (child == NULL || qw_json_check(value.text, value.length, NULL) != NULL)
            abort();
        if (cJSON_IsObject(child) || cJSON_IsArray(child))
            check_walk(child, value.text);
    }
    if (child != NULL)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *text = (const char *)data, *key = NULL;
    qwen36_error error = QWEN36_ERROR_INIT;
    cJSON *tree = qw_json_parse(text, size, "fuzz", &error);
    if ((tree == NULL) != (error.status != QWEN36_OK) || error.status == QWEN36_ERROR_OUT_OF_MEMORY)
        abort();
    qw_json_delete(tree);
    if (qw_json_check(text, size, NULL) != NULL)
        return 0;
    tree = qw_json_tree(text, size);
    if (tree == NULL || (qw_json_check_unique(tree, &key) == QW_JSON_UNIQUE) != (error.status == QWEN36_OK))
        abort();
    if (cJSON_IsObject(tree) || cJSON_IsArray(tree))
        check_walk(tree, qw_json_begin(text));
    qw_json_delete(tree);
    return 0;
}
