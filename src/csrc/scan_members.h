/* Points of interest for the vector kernels: these see the colons of an object in order, and find
 * keys and values around them. The text may still turn out to be faulty: every walk stays inside
 * it, and what was noted of a faulty text is thrown away. */
#ifndef WS_SCAN_MEMBERS_H
#define WS_SCAN_MEMBERS_H

#include "scan_internal.h"

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the vector kernels are written for little-endian machines"
#endif

#define WS_FOUR(a, b, c, d) \
    ((uint32_t)(a) | (uint32_t)(b) << 8 | (uint32_t)(c) << 16 | (uint32_t)(d) << 24)
#define WS_EIGHT(a, b, c, d, e, f, g, h) \
    ((uint64_t)WS_FOUR(a, b, c, d) | (uint64_t)WS_FOUR(e, f, g, h) << 32)

static inline int ws_is_space(uint8_t c)
{
    return c <= ' ' && (UINT64_C(0x100002600) >> c & 1);
}

/* The literals, by bits 3 and 4 of their first letter. */
typedef struct {
    uint32_t four;
    uint32_t fifth; /* not 0: "e" is the fifth letter */
    uint64_t bits;  /* as many as there are letters */
} ws_word;

static const ws_word ws_words[4] = {
    {WS_FOUR('f', 'a', 'l', 's'), 0xFF, 0x1F},
    {WS_FOUR('n', 'u', 'l', 'l'), 0, 0xF},
    {WS_FOUR('t', 'r', 'u', 'e'), 0, 0xF},
    {0, 0, 0xF}, /* matches nothing: a NUL is looked up elsewhere */
};

/* Values of `member` besides the points of interest. */
enum { WS_MEMBER_NONE = WS_POI_COUNT, WS_MEMBER_ROOT, WS_MEMBER_NEVER };

/* By object: the member whose value, when it is an object, is the next one. */
static const uint32_t ws_entered_by[4] = {WS_MEMBER_ROOT, WS_PARAMS, WS_META, WS_MEMBER_NEVER};

typedef struct {
    uint32_t seen;      /* bits of the points of interest met so far */
    uint32_t member[4]; /* by WS_IN_...: what is being read */
    uint32_t start[4];  /* by WS_IN_...: where its value starts */
} ws_members;

/* A known key, found by its last two bytes. Compared are the 8 bytes before its closing quote, or
 * as many of them as reach to the opening quote; of a longer key then the rest. */
typedef struct {
    uint64_t mask;
    uint64_t value;
    const char *name; /* with the opening quote */
    uint32_t len;     /* of name */
    uint32_t poi;
} ws_key_slot;

/* Has no collision among the keys of an object. */
#define WS_KEY_HASH(a, b) ((((uint32_t)(a) | (uint32_t)(b) << 8) * 541 >> 8) & 7)
#define WS_KEY(poi, key, a, b, c, d, e, f, g, h)                                        \
    [WS_KEY_HASH(g, h)] = {UINT64_MAX << (sizeof(key) < 8 ? 64 - 8 * sizeof(key) : 0),  \
                           WS_EIGHT(a, b, c, d, e, f, g, h), "\"" key, sizeof(key), poi}
#define WS_META_KEY(poi, key, ...) WS_KEY(poi, "io.modelcontextprotocol/" key, __VA_ARGS__)

static const ws_key_slot ws_key_slots[4][8] = {
    [WS_IN_ROOT] = {
        WS_KEY(WS_JSONRPC, "jsonrpc", '"', 'j', 's', 'o', 'n', 'r', 'p', 'c'),
        WS_KEY(WS_ID, "id", 0, 0, 0, 0, 0, '"', 'i', 'd'),
        WS_KEY(WS_METHOD, "method", 0, '"', 'm', 'e', 't', 'h', 'o', 'd'),
        WS_KEY(WS_PARAMS, "params", 0, '"', 'p', 'a', 'r', 'a', 'm', 's'),
        WS_KEY(WS_RESULT, "result", 0, '"', 'r', 'e', 's', 'u', 'l', 't'),
        WS_KEY(WS_ERROR, "error", 0, 0, '"', 'e', 'r', 'r', 'o', 'r'),
    },
    [WS_IN_PARAMS] = {
        WS_KEY(WS_NAME, "name", 0, 0, 0, '"', 'n', 'a', 'm', 'e'),
        WS_KEY(WS_URI, "uri", 0, 0, 0, 0, '"', 'u', 'r', 'i'),
        WS_KEY(WS_ARGUMENTS, "arguments", 'r', 'g', 'u', 'm', 'e', 'n', 't', 's'),
        WS_KEY(WS_REQUEST_ID, "requestId", 'e', 'q', 'u', 'e', 's', 't', 'I', 'd'),
        WS_KEY(WS_PROGRESS_TOKEN, "progressToken", 'e', 's', 's', 'T', 'o', 'k', 'e', 'n'),
        WS_KEY(WS_META, "_meta", 0, 0, '"', '_', 'm', 'e', 't', 'a'),
    },
    [WS_IN_META] = {
        WS_KEY(WS_META_PROGRESS_TOKEN, "progressToken", 'e', 's', 's', 'T', 'o', 'k', 'e', 'n'),
        WS_META_KEY(WS_META_PROTOCOL_VERSION, "protocolVersion", //
                    'l', 'V', 'e', 'r', 's', 'i', 'o', 'n'),
        WS_META_KEY(WS_META_CLIENT_CAPABILITIES, "clientCapabilities", //
                    'b', 'i', 'l', 'i', 't', 'i', 'e', 's'),
        WS_META_KEY(WS_META_CLIENT_INFO, "clientInfo", 'i', 'e', 'n', 't', 'I', 'n', 'f', 'o'),
        WS_META_KEY(WS_META_LOG_LEVEL, "logLevel", 'l', 'o', 'g', 'L', 'e', 'v', 'e', 'l'),
        WS_META_KEY(WS_META_SUBSCRIPTION_ID, "subscriptionId", //
                    'i', 'p', 't', 'i', 'o', 'n', 'I', 'd'),
    },
};

/* The slow way to find a key: at the start of the text, and where there are backslashes. Its
 * quotes are at `close` and at the last bit of `open` (of the block at base), else at last_open. */
static __attribute__((noinline)) uint32_t ws_odd_key(uint32_t object, const uint8_t *p,
                                                     size_t close, uint64_t open, size_t base,
                                                     size_t last_open)
{
    if (open != 0)
        last_open = base + 63 - (size_t)__builtin_clzll(open);
    if (last_open >= close)
        return WS_MEMBER_NONE; /* a fault */
    const int poi = ws_key_poi((int)object, p + last_open + 1, close - last_open - 1);
    return poi == WS_NO_POI ? WS_MEMBER_NONE : (uint32_t)poi;
}

/* The value of poi, being read in `object`, ends before `end`, whitespace aside. */
static inline __attribute__((always_inline)) void
ws_members_end(const ws_members *m, uint32_t object, uint32_t poi, ws_scan *out, const uint8_t *p,
               size_t end)
{
    const size_t start = m->start[object];
    while (end > start && ws_is_space(p[end - 1]))
        end--;
    if (WS_UNLIKELY(end <= start))
        return; /* no value: a fault */
    out->poi[poi].off = (uint32_t)start;
    out->poi[poi].len = (uint32_t)(end - start);
    if (poi == WS_ID)
        out->id_kind = (uint8_t)ws_id_kind_of(p + start, end - start);
}

/* What of a block ws_members_note looks at. */
typedef struct {
    const uint8_t *p;
    size_t n;
    size_t base;
    uint64_t open, comma;         /* masks: opening quotes, commas */
    size_t last_open, last_comma; /* the last ones before the block */
    uint64_t backslashes;         /* not 0: there were some in the text so far */
} ws_members_block;

/* Note the members at the colons of the block `colons`, all directly in `object`. */
static inline __attribute__((always_inline)) void
ws_members_note(ws_members *m, uint32_t object, uint64_t colons, ws_scan *out, ws_members_block b)
{
    const uint8_t *p = b.p;
    uint32_t member = m->member[object];
    do {
        const uint64_t below = (colons & -colons) - 1;
        const size_t colon = b.base + (size_t)__builtin_ctzll(colons);
        colons &= colons - 1;

        if (member < WS_POI_COUNT) {
            /* the member before ends at the last comma, which is just before this key */
            const uint64_t commas = b.comma & below;
            ws_members_end(m, object, member, out, p,
                           commas != 0 ? b.base + 63 - (size_t)__builtin_clzll(commas)
                                       : b.last_comma);
        }
        size_t close = colon - 1;
        while (ws_is_space(p[close]))
            close--;
        if (WS_UNLIKELY(b.backslashes != 0 || close < 8)) {
            member = ws_odd_key(object, p, close, b.open & below, b.base, b.last_open);
        } else {
            uint64_t eight;
            memcpy(&eight, p + close - 8, 8);
            const ws_key_slot *slot =
                &ws_key_slots[object][WS_KEY_HASH(eight >> 48 & 0xFF, eight >> 56)];
            member = slot->poi;
            if (slot->mask == 0 || (eight & slot->mask) != slot->value
                || (slot->len > 8
                    && (close < slot->len
                        || memcmp(p + close - slot->len, slot->name, slot->len - 8) != 0)))
                member = WS_MEMBER_NONE;
        }
        const uint32_t bit = UINT32_C(1) << member;
        if (WS_UNLIKELY(m->seen & bit)) {
            if (member != WS_MEMBER_NONE)
                out->duplicates |= bit;
            member = WS_MEMBER_NONE;
        }
        m->seen |= bit;
        size_t start = colon + 1;
        while (start < b.n && ws_is_space(p[start]))
            start++;
        m->start[object] = (uint32_t)start;
    } while (colons != 0);
    m->member[object] = member;
}

#endif
