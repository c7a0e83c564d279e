/* A growable byte queue: append at the tail, consume at the head. */
#ifndef BENCH_BYTES_H
#define BENCH_BYTES_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    char *data;
    size_t head; /* first byte not consumed */
    size_t tail; /* first free byte */
    size_t size;
} bytes;

static inline size_t bytes_used(const bytes *b) { return b->tail - b->head; }

/* Makes room for n more bytes at the tail; ends the program when memory is out. */
static inline void bytes_reserve(bytes *b, size_t n) {
    if (b->size - b->tail >= n) return;
    if (b->head == b->tail) {
        b->head = b->tail = 0;
    } else if (b->head >= b->size / 2) { /* moving at most half keeps appends linear */
        memmove(b->data, b->data + b->head, bytes_used(b));
        b->tail -= b->head;
        b->head = 0;
    }
    if (b->size - b->tail >= n) return;
    size_t size = b->size ? b->size : 65536;
    while (size - b->tail < n) size *= 2;
    char *data = realloc(b->data, size);
    if (data == NULL) {
        fputs("out of memory\n", stderr);
        exit(2);
    }
    b->data = data;
    b->size = size;
}

static inline void bytes_add(bytes *b, const void *p, size_t n) {
    bytes_reserve(b, n);
    memcpy(b->data + b->tail, p, n);
    b->tail += n;
}

/* Appends a string literal. */
#define BYTES_LIT(b, literal) bytes_add((b), (literal), sizeof(literal) - 1)

static inline void bytes_consume(bytes *b, size_t n) {
    b->head += n;
    if (b->head == b->tail) b->head = b->tail = 0;
}

#endif
