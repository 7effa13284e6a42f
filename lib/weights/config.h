/* config.json → dimensions. Knows every published spelling: text fields in text_config or at the root,
 * rope_parameters, rope_scaling or flat keys, rope_type or type, the tie flag in either place, layer_types or
 * full_attention_interval. */
#ifndef QW_CONFIG_H
#define QW_CONFIG_H

#include "lib/model/dims.h"
#include "lib/weights/generation_config.h"

/* Reads `text`; fills dims (checked) and the tokens of `generation` that a configuration may give.
 * `error` is not NULL and holds no error yet. */
qwen36_status qw_config_parse(const char *text, size_t length, const char *file, qw_dims *dims,
                              qw_generation *generation, qwen36_error *error);

#endif
