/* A decimal number as Python reads and prints it: the nearest double, in the fewest digits that mean it.
 *
 * Whole-number arithmetic alone, so that neither locale nor rounding mode can change a digit. */
#ifndef QW_TEXT_CHAT_NUMBER_H
#define QW_TEXT_CHAT_NUMBER_H

#include "lib/base/base.h"

#define QW_FLOAT_REPR_SIZE 32

/* repr(float(text)) for a number of the JSON grammar: "1.0", "1e-06", "-0.0", "1e+16", "inf". Writes at most
 * QW_FLOAT_REPR_SIZE bytes, without a NUL, and returns their number. */
size_t qw_float_repr(const char *text, size_t length, char *out);

#endif
