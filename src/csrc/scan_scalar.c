/* The reference: byte by byte, in the order of the grammar. Every other implementation returns the
 * same results, and calls this kernel for the place of a fault. */
#include <string.h>

#include "scan_internal.h"

/* ---- UTF-8, newline ---- */

static int scalar_utf8_valid(const uint8_t *p, size_t n)
{
    for (size_t i = 0; i < n;) {
        const size_t len = ws_utf8_sequence(p + i, n - i);
        if (len == 0)
            return 0;
        i += len;
    }
    return 1;
}

static size_t scalar_find_newline(const uint8_t *p, size_t n)
{
    const uint8_t *at = n != 0 ? memchr(p, '\n', n) : NULL;
    return at != NULL ? (size_t)(at - p) : n;
}

/* ---- points of interest ---- */

typedef struct {
    uint8_t object;
    uint8_t poi;
    uint8_t len;
    const char *name;
} known_key;

#define KEY(object, poi, name) {WS_IN_##object, poi, sizeof(name) - 1, name},
static const known_key known_keys[] = {WS_POINTS(KEY)};

#define PATH_IN_ROOT ""
#define PATH_IN_PARAMS "params."
#define PATH_IN_META "params._meta."
#define PATH(object, poi, name) PATH_IN_##object name,
const char *const ws_point_paths[WS_POI_COUNT] = {WS_POINTS(PATH)};

static int hex_value(uint8_t c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if ((c | 0x20) >= 'a' && (c | 0x20) <= 'f')
        return (c | 0x20) - 'a' + 10;
    return -1;
}

size_t ws_escape_length(const uint8_t *p, size_t n)
{
    if (n < 2 || p[1] == '\0')
        return 0;
    if (p[1] != 'u')
        return strchr("\"\\/bfnrt", p[1]) != NULL ? 2 : 0;
    if (n < 6)
        return 0;
    for (int digit = 2; digit < 6; digit++)
        if (hex_value(p[digit]) < 0)
            return 0;
    return 6;
}

/* 1 when the JSON string [p, p + len) decodes to name. All known names are ASCII. */
static int decodes_to(const uint8_t *p, size_t len, const char *name, size_t name_len)
{
    size_t i = 0, j = 0;
    for (; i < len && j < name_len; j++) {
        int c = p[i++];
        if (c == '\\') {
            c = p[i++];
            if (c == 'u') {
                c = 0;
                for (int digit = 0; digit < 4; digit++)
                    c = c * 16 + hex_value(p[i++]);
            } else if (c != '/') {
                return 0; /* \" \\ and control characters are in no known name */
            }
        }
        if (c != (uint8_t)name[j])
            return 0;
    }
    return i == len && j == name_len;
}

int ws_key_poi(int object, const uint8_t *key, size_t len)
{
    for (size_t k = 0; k < sizeof known_keys / sizeof *known_keys; k++) {
        const known_key *known = &known_keys[k];
        if (known->object == object && decodes_to(key, len, known->name, known->len))
            return known->poi;
    }
    return WS_NO_POI;
}

ws_id_kind ws_id_kind_of(const uint8_t *p, size_t len)
{
    if (p[0] == '"')
        return WS_ID_STRING;
    if (p[0] == 'n')
        return WS_ID_NULL;
    for (size_t i = p[0] == '-'; i < len; i++)
        if (p[i] < '0' || p[i] > '9')
            return WS_ID_INVALID;
    return WS_ID_INTEGER;
}

/* ---- JSON (RFC 8259) ---- */

typedef struct {
    const uint8_t *p;
    size_t n;
    size_t i; /* the next byte; on a fault, its place */
} cursor;

/* A fault at byte i of the text: of the encoding where it is not UTF-8, else of the grammar. */
static ws_status fault(const cursor *c)
{
    if (c->i < c->n && ws_utf8_sequence(c->p + c->i, c->n - c->i) == 0)
        return WS_UTF8;
    return WS_SYNTAX;
}

static int is_space(uint8_t c)
{
    return c == ' ' || c == '\n' || c == '\r' || c == '\t';
}

static int is_digit(uint8_t c)
{
    return c >= '0' && c <= '9';
}

static void skip_space(cursor *c)
{
    while (c->i < c->n && is_space(c->p[c->i]))
        c->i++;
}

/* c->i is at the opening quote; ends behind the closing one. */
static ws_status read_string(cursor *c)
{
    const uint8_t *p = c->p;
    c->i++;
    while (c->i < c->n) {
        const uint8_t b = p[c->i];
        if (b == '"') {
            c->i++;
            return WS_OK;
        }
        if (b < 0x20)
            return WS_SYNTAX;
        if (b != '\\') {
            const size_t len = ws_utf8_sequence(p + c->i, c->n - c->i);
            if (len == 0)
                return WS_UTF8;
            c->i += len;
            continue;
        }
        c->i++;
        if (c->i == c->n)
            break;
        if (p[c->i] == 'u') {
            c->i++;
            for (int digit = 0; digit < 4; digit++, c->i++)
                if (c->i == c->n || hex_value(p[c->i]) < 0)
                    return fault(c);
        } else if (p[c->i] != '\0' && strchr("\"\\/bfnrt", p[c->i]) != NULL) {
            c->i++;
        } else {
            return fault(c);
        }
    }
    return WS_SYNTAX; /* no closing quote */
}

static ws_status read_digits(cursor *c)
{
    if (c->i == c->n || !is_digit(c->p[c->i]))
        return fault(c);
    while (c->i < c->n && is_digit(c->p[c->i]))
        c->i++;
    return WS_OK;
}

static ws_status read_number(cursor *c)
{
    ws_status status = WS_OK;
    if (c->p[c->i] == '-')
        c->i++;
    if (c->i < c->n && c->p[c->i] == '0')
        c->i++; /* a digit behind it is not part of this number */
    else if ((status = read_digits(c)) != WS_OK)
        return status;
    if (c->i < c->n && c->p[c->i] == '.') {
        c->i++;
        if ((status = read_digits(c)) != WS_OK)
            return status;
    }
    if (c->i < c->n && (c->p[c->i] == 'e' || c->p[c->i] == 'E')) {
        c->i++;
        if (c->i < c->n && (c->p[c->i] == '+' || c->p[c->i] == '-'))
            c->i++;
        status = read_digits(c);
    }
    return status;
}

static ws_status read_literal(cursor *c, const char *word)
{
    for (; *word != '\0'; word++, c->i++)
        if (c->i == c->n || c->p[c->i] != (uint8_t)*word)
            return fault(c);
    return WS_OK;
}

/* A value that is neither an array nor an object. */
static ws_status read_scalar(cursor *c)
{
    if (c->i == c->n)
        return WS_SYNTAX;
    switch (c->p[c->i]) {
    case '"':
        return read_string(c);
    case 't':
        return read_literal(c, "true");
    case 'f':
        return read_literal(c, "false");
    case 'n':
        return read_literal(c, "null");
    default:
        if (c->p[c->i] == '-' || is_digit(c->p[c->i]))
            return read_number(c);
        return fault(c);
    }
}

/* Which objects with points of interest are open, and which member of each is being read. */
typedef struct {
    ws_scan *out;
    uint32_t seen;     /* bits of the points of interest met so far */
    int object;        /* innermost open object with points of interest, WS_IN_... */
    int member[4];     /* by WS_IN_...: the point of interest being read, or WS_NO_POI */
    uint32_t start[4]; /* by WS_IN_...: where its value starts */
} tracker;

static void track_key(tracker *t, const uint8_t *key, size_t len)
{
    const int poi = ws_key_poi(t->object, key, len);
    t->member[t->object] = WS_NO_POI;
    if (poi == WS_NO_POI)
        return;
    if (t->seen >> poi & 1) {
        t->out->duplicates |= UINT32_C(1) << poi;
    } else {
        t->seen |= UINT32_C(1) << poi;
        t->member[t->object] = poi;
    }
}

static void track_value_end(tracker *t, const uint8_t *p, size_t end)
{
    const int poi = t->member[t->object];
    if (poi == WS_NO_POI)
        return;
    const uint32_t start = t->start[t->object];
    t->out->poi[poi].off = start;
    t->out->poi[poi].len = (uint32_t)end - start;
    if (poi == WS_ID)
        t->out->id_kind = (uint8_t)ws_id_kind_of(p + start, end - start);
    t->member[t->object] = WS_NO_POI;
}

/* An object opens at `depth`. */
static void track_object(tracker *t, uint32_t depth)
{
    const int member = t->member[t->object];
    if (depth == 1)
        t->object = WS_IN_ROOT;
    else if (depth == 2 && t->object == WS_IN_ROOT && member == WS_PARAMS)
        t->object = WS_IN_PARAMS;
    else if (depth == 3 && t->object == WS_IN_PARAMS && member == WS_META)
        t->object = WS_IN_META;
    else
        return;
    t->member[t->object] = WS_NO_POI;
}

#define MAX_DEPTH 1024

typedef enum {
    WANT_VALUE,
    WANT_FIRST_ELEMENT, /* behind '[': a value or ']' */
    WANT_FIRST_KEY,     /* behind '{': a key or '}' */
    WANT_KEY,
    HAVE_VALUE /* behind a value: ',' or the closing bracket */
} state;

static ws_status read_value(cursor *c, uint32_t max_depth, ws_scan *out)
{
    const uint8_t *p = c->p;
    uint64_t is_object[MAX_DEPTH / 64]; /* one bit for each open level */
    uint32_t depth = 0;
    state want = WANT_VALUE;
    ws_status status;
    tracker t = {.out = out, .member = {WS_NO_POI, WS_NO_POI, WS_NO_POI, WS_NO_POI}};

    if (max_depth > MAX_DEPTH)
        max_depth = MAX_DEPTH;
    for (;;) {
        const int in_object = depth != 0 && (is_object[(depth - 1) / 64] >> (depth - 1) % 64 & 1);
        const int tracked = depth != 0 && depth == (uint32_t)t.object;
        skip_space(c);
        const int b = c->i < c->n ? p[c->i] : -1;

        if (want == HAVE_VALUE && b == ',') {
            c->i++;
            want = in_object ? WANT_KEY : WANT_VALUE;
            continue;
        }
        if ((b == ']' && !in_object && (want == HAVE_VALUE || want == WANT_FIRST_ELEMENT))
            || (b == '}' && in_object && (want == HAVE_VALUE || want == WANT_FIRST_KEY))) {
            c->i++;
            if (tracked)
                t.object--;
            depth--;
            /* falls to the end of the value that this bracket closes */
        } else if (want == HAVE_VALUE) {
            return fault(c);
        } else if (want == WANT_KEY || want == WANT_FIRST_KEY) {
            const size_t key = c->i + 1;
            if (b != '"')
                return fault(c);
            if ((status = read_string(c)) != WS_OK)
                return status;
            if (tracked)
                track_key(&t, p + key, c->i - 1 - key);
            skip_space(c);
            if (c->i == c->n || p[c->i] != ':')
                return fault(c);
            c->i++;
            want = WANT_VALUE;
            continue;
        } else {
            if (tracked)
                t.start[t.object] = (uint32_t)c->i;
            if (b == '{' || b == '[') {
                if (depth == max_depth) {
                    if (t.object >= WS_IN_ROOT && t.member[WS_IN_ROOT] != WS_NO_POI)
                        out->poi[t.member[WS_IN_ROOT]].off = t.start[WS_IN_ROOT];
                    return WS_DEPTH;
                }
                const uint64_t bit = UINT64_C(1) << depth % 64;
                is_object[depth / 64] &= ~bit;
                is_object[depth / 64] |= b == '{' ? bit : 0;
                depth++;
                if (b == '{')
                    track_object(&t, depth);
                want = b == '{' ? WANT_FIRST_KEY : WANT_FIRST_ELEMENT;
                c->i++;
                continue;
            }
            if ((status = read_scalar(c)) != WS_OK)
                return status;
        }
        if (depth == 0)
            return WS_OK;
        if (depth == (uint32_t)t.object)
            track_value_end(&t, p, c->i);
        want = HAVE_VALUE;
    }
}

static ws_status scalar_scan(const uint8_t *p, size_t n, uint32_t max_depth, int prefix,
                             ws_scan *out)
{
    cursor c = {.p = p, .n = n};
    memset(out, 0, sizeof *out);
    skip_space(&c);
    out->value.off = (uint32_t)c.i;
    if (c.i == n) {
        out->error_at = (uint32_t)n;
        return WS_EMPTY;
    }
    out->root = p[c.i] == '{' ? WS_ROOT_OBJECT : p[c.i] == '[' ? WS_ROOT_ARRAY : WS_ROOT_OTHER;
    ws_status status = read_value(&c, max_depth, out);
    out->end = (uint32_t)c.i;
    out->value.len = out->end - out->value.off;
    if (status == WS_OK && !prefix) {
        skip_space(&c);
        if (c.i != n)
            status = fault(&c);
    }
    out->error_at = status == WS_OK ? 0 : (uint32_t)c.i;
    return status;
}

ws_status ws_scalar_json(const uint8_t *p, size_t n, uint32_t max_depth, ws_scan *out)
{
    return scalar_scan(p, n, max_depth, 0, out);
}

ws_status ws_scalar_json_prefix(const uint8_t *p, size_t n, uint32_t max_depth, ws_scan *out)
{
    return scalar_scan(p, n, max_depth, 1, out);
}

/* ---- JSON string writing ---- */

size_t ws_escape_byte(uint8_t *dst, uint8_t c)
{
    static const char short_forms[] = "btn\0fr"; /* 0x08 to 0x0D; 0x0B has none */
    dst[0] = '\\';
    if (c == '"' || c == '\\') {
        dst[1] = c;
        return 2;
    }
    if (c >= 0x08 && c <= 0x0D && c != 0x0B) {
        dst[1] = (uint8_t)short_forms[c - 0x08];
        return 2;
    }
    dst[1] = 'u';
    dst[2] = '0';
    dst[3] = '0';
    dst[4] = c < 0x10 ? '0' : '1';
    dst[5] = (uint8_t)"0123456789abcdef"[c & 0x0F];
    return 6;
}

size_t ws_scalar_json_escape(uint8_t *dst, const uint8_t *p, size_t n)
{
    size_t written = 0;
    for (size_t i = 0; i < n; i++) {
        if (p[i] < 0x20 || p[i] == '"' || p[i] == '\\')
            written += ws_escape_byte(dst + written, p[i]);
        else
            dst[written++] = p[i];
    }
    return written;
}

static size_t scalar_json_plain(const uint8_t *p, size_t n, int *ascii)
{
    uint8_t seen = 0;
    size_t i = 0;
    for (; i < n && p[i] >= 0x20 && p[i] != '"' && p[i] != '\\'; i++)
        seen |= p[i];
    *ascii = seen < 0x80;
    return i;
}

static void scalar_mask(uint8_t *dst, const uint8_t *src, size_t n, const uint8_t key[4], size_t at)
{
    for (size_t i = 0; i < n; i++)
        dst[i] = src[i] ^ key[(at + i) % 4];
}

const ws_kernels ws_kernels_scalar = {
    .find_newline = scalar_find_newline,
    .utf8_valid = scalar_utf8_valid,
    .json = ws_scalar_json,
    .json_prefix = ws_scalar_json_prefix,
    .json_escape = ws_scalar_json_escape,
    .json_plain = scalar_json_plain,
    .mask = scalar_mask,
    .level = WS_LEVEL_SCALAR,
    .name = "scalar",
};
