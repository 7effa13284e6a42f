/* SHA-256 of a text in memory: to tell whether a file is a published one. */
#ifndef QW_SHA256_H
#define QW_SHA256_H

#include "lib/base/base.h"

#define QW_SHA256_SIZE 32

void qw_sha256(const void *bytes, size_t length, unsigned char digest[QW_SHA256_SIZE]);

#endif
