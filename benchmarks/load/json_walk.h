/* A structural walk over one JSON text, shared by the load generator and the echo child.
 *
 * It checks the grammar of containers, numbers and literals and gives members as spans of the
 * input.  It does not look inside strings (escapes, control characters, UTF-8): both programs
 * only copy or compare string bytes.  Nothing is read outside [p, end). */
#ifndef BENCH_JSON_WALK_H
#define BENCH_JSON_WALK_H

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

enum { JW_MAX_DEPTH = 128 };

typedef struct {
    const char *p;
    const char *end;
} jw_span;

typedef struct {
    const char *p;
    const char *end;
    bool first;
} jw_iter;

static inline size_t jw_len(jw_span s) { return (size_t)(s.end - s.p); }

static inline bool jw_eq(jw_span s, const char *text, size_t n) {
    return jw_len(s) == n && memcmp(s.p, text, n) == 0;
}

/* Compares a span with a string literal. */
#define JW_IS(span, literal) jw_eq((span), (literal), sizeof(literal) - 1)

static inline const char *jw_ws(const char *p, const char *end) {
    while (p < end && (*p == ' ' || *p == '\t' || *p == '\r' || *p == '\n')) p++;
    return p;
}

/* p is just behind the opening quote; returns just behind the closing one, or NULL. */
static inline const char *jw_string_end(const char *p, const char *end) {
    const char *start = p;
    while (p < end) {
        const char *quote = memchr(p, '"', (size_t)(end - p));
        if (quote == NULL) return NULL;
        const char *back = quote;
        while (back > start && back[-1] == '\\') back--;
        if (((quote - back) & 1) == 0) return quote + 1;
        p = quote + 1;
    }
    return NULL;
}

static inline const char *jw_digits(const char *p, const char *end) {
    const char *start = p;
    while (p < end && *p >= '0' && *p <= '9') p++;
    return p > start ? p : NULL;
}

static inline const char *jw_number_end(const char *p, const char *end) {
    if (p < end && *p == '-') p++;
    if (p < end && *p == '0') {
        p++;
    } else if ((p = jw_digits(p, end)) == NULL) {
        return NULL;
    }
    if (p < end && *p == '.' && (p = jw_digits(p + 1, end)) == NULL) return NULL;
    if (p < end && (*p == 'e' || *p == 'E')) {
        p++;
        if (p < end && (*p == '+' || *p == '-')) p++;
        p = jw_digits(p, end);
    }
    return p;
}

static inline const char *jw_literal_end(const char *p, const char *end, const char *word,
                                         size_t n) {
    return (size_t)(end - p) >= n && memcmp(p, word, n) == 0 ? p + n : NULL;
}

/* Returns just behind the value that starts at p, or NULL if there is none. */
static inline const char *jw_value_end(const char *p, const char *end, int depth) {
    if (p >= end || depth > JW_MAX_DEPTH) return NULL;
    switch (*p) {
    case '"': return jw_string_end(p + 1, end);
    case 't': return jw_literal_end(p, end, "true", 4);
    case 'f': return jw_literal_end(p, end, "false", 5);
    case 'n': return jw_literal_end(p, end, "null", 4);
    case '{':
    case '[': break;
    default: return jw_number_end(p, end);
    }
    const bool object = *p == '{';
    const char close = object ? '}' : ']';
    p = jw_ws(p + 1, end);
    if (p < end && *p == close) return p + 1;
    for (;;) {
        if (object) {
            if (p >= end || *p != '"') return NULL;
            if ((p = jw_string_end(p + 1, end)) == NULL) return NULL;
            p = jw_ws(p, end);
            if (p >= end || *p != ':') return NULL;
            p = jw_ws(p + 1, end);
        }
        if ((p = jw_value_end(p, end, depth + 1)) == NULL) return NULL;
        p = jw_ws(p, end);
        if (p >= end) return NULL;
        if (*p == close) return p + 1;
        if (*p != ',') return NULL;
        p = jw_ws(p + 1, end);
    }
}

/* Starts a walk over the members of an object; false if the span is not one. */
static inline bool jw_object(jw_span s, jw_iter *it) {
    const char *p = jw_ws(s.p, s.end);
    if (p >= s.end || *p != '{') return false;
    it->p = p + 1;
    it->end = s.end;
    it->first = true;
    return true;
}

/* 1 = a member (the key without its quotes, the value verbatim); 0 = the object ended, it->p is
 * just behind it; -1 = malformed. */
static inline int jw_member(jw_iter *it, jw_span *key, jw_span *value) {
    const char *p = jw_ws(it->p, it->end);
    if (p >= it->end) return -1;
    if (*p == '}') {
        it->p = p + 1;
        return 0;
    }
    if (!it->first) {
        if (*p != ',') return -1;
        p = jw_ws(p + 1, it->end);
    }
    it->first = false;
    if (p >= it->end || *p != '"') return -1;
    key->p = p + 1;
    if ((p = jw_string_end(p + 1, it->end)) == NULL) return -1;
    key->end = p - 1;
    p = jw_ws(p, it->end);
    if (p >= it->end || *p != ':') return -1;
    p = jw_ws(p + 1, it->end);
    value->p = p;
    if ((p = jw_value_end(p, it->end, 1)) == NULL) return -1;
    value->end = p;
    it->p = p;
    return 1;
}

#endif
