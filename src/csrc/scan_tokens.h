/* Parts of the vector kernels that need no vectors. */
#ifndef WS_SCAN_TOKENS_H
#define WS_SCAN_TOKENS_H

#include "scan_internal.h"

#define WS_FOUR(a, b, c, d) \
    ((uint32_t)(a) | (uint32_t)(b) << 8 | (uint32_t)(c) << 16 | (uint32_t)(d) << 24)
#define WS_EIGHT(a, b, c, d, e, f, g, h) \
    ((uint64_t)WS_FOUR(a, b, c, d) | (uint64_t)WS_FOUR(e, f, g, h) << 32)

static inline int ws_is_space(uint8_t c)
{
    return c <= ' ' && (UINT64_C(0x100002600) >> c & 1);
}

static inline int ws_is_digit(uint8_t c)
{
    return (uint8_t)(c - '0') <= 9;
}

/* In the range of A-Z and a-z. */
static inline int ws_is_letter(uint8_t c)
{
    return c >= 'A';
}

/* The bytes that may follow a number or literal: whitespace, comma, closing bracket. */
static inline int ws_is_edge(uint8_t c)
{
    return c == ',' || (c | 0x20) == '}' || ws_is_space(c);
}

/* The first byte at or behind p[i] that is not whitespace; there must be one. */
static inline size_t ws_skip_space(const uint8_t *p, size_t i)
{
    while (ws_is_space(p[i]))
        i++;
    return i;
}

/* The literals, by bits 3 and 4 of their first letter. */
typedef struct {
    uint32_t four;
    uint32_t fifth; /* not 0: "e" is the fifth letter */
    uint64_t bits;  /* one for each letter */
} ws_word;

static const ws_word ws_words[4] = {
    {WS_FOUR('f', 'a', 'l', 's'), 0xFF, 0x1F},
    {WS_FOUR('n', 'u', 'l', 'l'), 0, 0xF},
    {WS_FOUR('t', 'r', 'u', 'e'), 0, 0xF},
    {0, 0, 0xF}, /* matches nothing: a NUL is looked up elsewhere */
};

/* Read the literal at p[i]. Returns the offset behind it, or 0. */
static inline size_t ws_word_end(const uint8_t *p, size_t n, size_t i)
{
    if (n - i < 5)
        return 0;
    uint32_t four;
    memcpy(&four, p + i, 4);
    const ws_word *known = &ws_words[p[i] >> 3 & 3];
    if (four != known->four || ((p[i + 4] ^ 'e') & known->fifth) != 0)
        return 0;
    return i + 4 + (known->fifth & 1);
}

/* Beside the points of interest: any other member. */
enum { WS_MEMBER_NONE = WS_POI_COUNT };

/* By object: the member whose value, when it is an object, is the next one. */
static const uint32_t ws_entered_by[4] = {WS_POI_COUNT + 1, WS_PARAMS, WS_META, WS_POI_COUNT + 1};

/* The known keys of an object by the low 4 bits of their first byte, which differ: their first 8
 * bytes with the quotes, or all of them. An empty slot has no name. */
typedef struct {
    uint64_t mask;
    uint64_t value;
    const char *name; /* with the quotes */
    uint32_t len;     /* of name */
    uint32_t poi;
} ws_key_slot;

#define WS_KEY(poi, key, a, b, c, d, e, f, g)                                                 \
    [(a) & 15] = {UINT64_MAX >> (sizeof(key) < 7 ? 56 - 8 * sizeof(key) : 0),                 \
                  WS_EIGHT('"', a, b, c, d, e, f, g), "\"" key "\"", sizeof(key) + 1, poi}
#define WS_META_PREFIX "io.modelcontextprotocol/"

static const ws_key_slot ws_key_slots[4][16] = {
    [WS_IN_ROOT] = {
        WS_KEY(WS_JSONRPC, "jsonrpc", 'j', 's', 'o', 'n', 'r', 'p', 'c'),
        WS_KEY(WS_ID, "id", 'i', 'd', '"', 0, 0, 0, 0),
        WS_KEY(WS_METHOD, "method", 'm', 'e', 't', 'h', 'o', 'd', '"'),
        WS_KEY(WS_PARAMS, "params", 'p', 'a', 'r', 'a', 'm', 's', '"'),
        WS_KEY(WS_RESULT, "result", 'r', 'e', 's', 'u', 'l', 't', '"'),
        WS_KEY(WS_ERROR, "error", 'e', 'r', 'r', 'o', 'r', '"', 0),
    },
    [WS_IN_PARAMS] = {
        WS_KEY(WS_NAME, "name", 'n', 'a', 'm', 'e', '"', 0, 0),
        WS_KEY(WS_URI, "uri", 'u', 'r', 'i', '"', 0, 0, 0),
        WS_KEY(WS_ARGUMENTS, "arguments", 'a', 'r', 'g', 'u', 'm', 'e', 'n'),
        WS_KEY(WS_REQUEST_ID, "requestId", 'r', 'e', 'q', 'u', 'e', 's', 't'),
        WS_KEY(WS_PROGRESS_TOKEN, "progressToken", 'p', 'r', 'o', 'g', 'r', 'e', 's'),
        WS_KEY(WS_META, "_meta", '_', 'm', 'e', 't', 'a', '"', 0),
    },
    [WS_IN_META] = {
        WS_KEY(WS_META_PROGRESS_TOKEN, "progressToken", 'p', 'r', 'o', 'g', 'r', 'e', 's'),
        WS_KEY(WS_META_PROTOCOL_VERSION, WS_META_PREFIX, 'i', 'o', '.', 'm', 'o', 'd', 'e'),
    },
};

/* The keys that share the slot of WS_META_PREFIX: their rest, with the closing quote. */
static const struct {
    const char *name;
    uint32_t len;
    uint32_t poi;
} ws_meta_keys[] = {
    {"protocolVersion\"", 16, WS_META_PROTOCOL_VERSION},
    {"clientInfo\"", 11, WS_META_CLIENT_INFO},
    {"clientCapabilities\"", 19, WS_META_CLIENT_CAPABILITIES},
    {"logLevel\"", 9, WS_META_LOG_LEVEL},
    {"subscriptionId\"", 15, WS_META_SUBSCRIPTION_ID},
};

static inline uint64_t ws_eight(const void *p)
{
    uint64_t eight;
    memcpy(&eight, p, 8);
    return eight;
}

/* Whether two texts of len bytes, 8 to 24, are the same. */
static inline int ws_same(const uint8_t *text, const char *other, size_t len)
{
    return ws_eight(text) == ws_eight(other)
           && ws_eight(text + len - 8) == ws_eight(other + len - 8)
           && (len <= 16 || ws_eight(text + 8) == ws_eight(other + 8));
}

/* i + len, where len is the length of a key or name that other messages have, too. What follows it
 * would wait until the length is looked up. The switch lets the processor predict the length
 * instead; the empty asm keeps the compiler from making one addition of it again. */
static inline size_t ws_behind_name(size_t i, size_t len)
{
#define WS_LENGTH(n)                    \
    case n:                             \
        i += n;                         \
        __asm__("" : "+r"(i) : "i"(n)); \
        return i;
    switch (len) {
        WS_LENGTH(2) WS_LENGTH(3) WS_LENGTH(4) WS_LENGTH(5) WS_LENGTH(6) WS_LENGTH(7)
        WS_LENGTH(8) WS_LENGTH(9) WS_LENGTH(10) WS_LENGTH(11) WS_LENGTH(12) WS_LENGTH(13)
        WS_LENGTH(14) WS_LENGTH(15) WS_LENGTH(16) WS_LENGTH(17)
    default:
        return i + len;
    }
#undef WS_LENGTH
}

/* The key at `key`, whose first 8 bytes are the slot's and which may go on up to n bytes. Returns
 * its length, or 0 for another key. */
static inline size_t ws_long_key(const ws_key_slot *slot, const uint8_t *key, size_t n,
                                 uint32_t *poi)
{
    if (slot->poi != WS_META_PROTOCOL_VERSION) {
        const size_t rest = slot->len - 8; /* up to 8 */
        *poi = slot->poi;
        if (slot->len > n || ws_eight(key + rest) != ws_eight(slot->name + rest))
            return 0;
        return slot->len;
    }
    const size_t prefix = sizeof WS_META_PREFIX; /* the quote counts for the NUL */
    if (n < prefix || !ws_same(key + 8, slot->name + 8, prefix - 8))
        return 0;
    for (size_t k = 0; k < sizeof ws_meta_keys / sizeof *ws_meta_keys; k++) {
        const size_t len = ws_meta_keys[k].len;
        if (len <= n - prefix && ws_same(key + prefix, ws_meta_keys[k].name, len)) {
            *poi = ws_meta_keys[k].poi;
            return prefix + len;
        }
    }
    return 0;
}

/* The member of `object` whose key has its quotes at p[open] and p[close], or WS_MEMBER_NONE. */
static inline uint32_t ws_find_key(uint32_t object, const uint8_t *p, size_t n, size_t open,
                                   size_t close)
{
    if (WS_LIKELY(n - open >= 8)) {
        uint64_t eight;
        memcpy(&eight, p + open, 8);
        const ws_key_slot *slot = &ws_key_slots[object][eight >> 8 & 15];
        if (WS_LIKELY((eight & slot->mask) == slot->value && slot->len != 0)) {
            uint32_t poi = WS_MEMBER_NONE;
            if (slot->len <= 8)
                return slot->poi;
            if (ws_long_key(slot, p + open, n - open, &poi) == close + 1 - open)
                return poi;
        }
    }
    const int known = ws_key_poi((int)object, p + open + 1, close - open - 1);
    return known == WS_NO_POI ? WS_MEMBER_NONE : (uint32_t)known;
}

#endif
