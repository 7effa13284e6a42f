/* What the templates ask of Python: values as text, in the three forms that they use, and str.strip().
 *
 * All of it is content. Nesting is bounded by QW_JSON_DEPTH_MAX.
 */
#ifndef QW_TEXT_CHAT_PYTHON_H
#define QW_TEXT_CHAT_PYTHON_H

#include "lib/text/chat_text.h"
#include "lib/text/chat_value.h"

/* json.dumps(value, ensure_ascii=False), which is the templates' tojson. */
void qw_python_dumps(qw_chat_text *out, const qw_value *value);
/* str(value): strings as they are; in containers, values as repr() gives them. */
void qw_python_str(qw_chat_text *out, const qw_value *value);

/* Without white space, as str.isspace() knows it, at both ends. */
qw_chat_slice qw_python_strip(qw_chat_slice slice);

#endif
