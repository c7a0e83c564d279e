/* Points of interest for the vector kernels: these see the colons of an object in order, and find
 * keys and values around them. The text may still turn out to be faulty: every walk stays inside
 * it, and what was noted of a faulty text is thrown away. */
#ifndef WS_SCAN_MEMBERS_H
#define WS_SCAN_MEMBERS_H

#include "scan_internal.h"

#define WS_FOUR_LE(a, b, c, d) \
    ((uint32_t)(a) | (uint32_t)(b) << 8 | (uint32_t)(c) << 16 | (uint32_t)(d) << 24)

#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#define WS_FOUR(a, b, c, d) WS_FOUR_LE(a, b, c, d)
#else
#error "the vector kernels are written for little-endian machines"
#endif

#define WS_EIGHT(a, b, c, d, e, f, g, h) \
    ((uint64_t)WS_FOUR_LE(a, b, c, d) | (uint64_t)WS_FOUR_LE(e, f, g, h) << 32)

/* Values of `member` besides the points of interest. */
enum { WS_MEMBER_NONE = WS_POI_COUNT, WS_MEMBER_ROOT, WS_MEMBER_NEVER };

/* By object: the member whose value, when it is an object, is the next one. */
static const uint8_t ws_entered_by[4] = {WS_MEMBER_ROOT, WS_PARAMS, WS_META, WS_MEMBER_NEVER};

typedef struct {
    uint32_t seen;     /* bits of the points of interest met so far */
    uint8_t member[4]; /* by WS_IN_...: what is being read */
    size_t start[4];   /* by WS_IN_...: where its value starts */
} ws_members;

static inline int ws_is_space(uint8_t c)
{
    return c <= ' ' && (UINT64_C(0x100002600) >> c & 1);
}

/* A known key by the low 4 bits of its first byte, which differ among the keys of an object:
 * its first bytes with the closing quote, as far as they fit in 8. */
typedef struct {
    uint64_t mask;
    uint64_t value;
    uint8_t poi;
    uint8_t len; /* above 7: the rest is not in value */
} ws_key_slot;

#define WS_KEY(b, poi, len, ...) [(b) & 15] = {UINT64_MAX >> (len < 7 ? 56 - 8 * len : 0), \
                                               WS_EIGHT(__VA_ARGS__), poi, len}

static const ws_key_slot ws_key_slots[4][16] = {
    [WS_IN_ROOT] = {
        WS_KEY('j', WS_JSONRPC, 7, 'j', 's', 'o', 'n', 'r', 'p', 'c', '"'),
        WS_KEY('i', WS_ID, 2, 'i', 'd', '"', 0, 0, 0, 0, 0),
        WS_KEY('m', WS_METHOD, 6, 'm', 'e', 't', 'h', 'o', 'd', '"', 0),
        WS_KEY('p', WS_PARAMS, 6, 'p', 'a', 'r', 'a', 'm', 's', '"', 0),
        WS_KEY('r', WS_RESULT, 6, 'r', 'e', 's', 'u', 'l', 't', '"', 0),
        WS_KEY('e', WS_ERROR, 5, 'e', 'r', 'r', 'o', 'r', '"', 0, 0),
    },
    [WS_IN_PARAMS] = {
        WS_KEY('n', WS_NAME, 4, 'n', 'a', 'm', 'e', '"', 0, 0, 0),
        WS_KEY('u', WS_URI, 3, 'u', 'r', 'i', '"', 0, 0, 0, 0),
        WS_KEY('a', WS_ARGUMENTS, 9, 'a', 'r', 'g', 'u', 'm', 'e', 'n', 't'),
        WS_KEY('r', WS_REQUEST_ID, 9, 'r', 'e', 'q', 'u', 'e', 's', 't', 'I'),
        WS_KEY('p', WS_PROGRESS_TOKEN, 13, 'p', 'r', 'o', 'g', 'r', 'e', 's', 's'),
        WS_KEY('_', WS_META, 5, '_', 'm', 'e', 't', 'a', '"', 0, 0),
    },
    [WS_IN_META] = {
        WS_KEY('p', WS_META_PROGRESS_TOKEN, 13, 'p', 'r', 'o', 'g', 'r', 'e', 's', 's'),
        WS_KEY('i', WS_META_PROTOCOL_VERSION, 39, 'i', 'o', '.', 'm', 'o', 'd', 'e', 'l'),
    },
};

/* The rest of a key whose first 8 bytes are those of slot. */
static inline int ws_long_key(const ws_key_slot *slot, const uint8_t *key, size_t len)
{
    switch (slot->poi) {
    case WS_ARGUMENTS:
        return len == 9 && key[8] == 's' ? WS_ARGUMENTS : WS_MEMBER_NONE;
    case WS_REQUEST_ID:
        return len == 9 && key[8] == 'd' ? WS_REQUEST_ID : WS_MEMBER_NONE;
    case WS_PROGRESS_TOKEN:
    case WS_META_PROGRESS_TOKEN:
        return len == 13 && memcmp(key + 8, "Token", 5) == 0 ? slot->poi : WS_MEMBER_NONE;
    default:
        break;
    }
    if (len < 32 || memcmp(key + 8, "contextprotocol/", 16) != 0)
        return WS_MEMBER_NONE;
    key += 24;
    switch (len - 24) {
    case 8:
        return memcmp(key, "logLevel", 8) == 0 ? WS_META_LOG_LEVEL : WS_MEMBER_NONE;
    case 10:
        return memcmp(key, "clientInfo", 10) == 0 ? WS_META_CLIENT_INFO : WS_MEMBER_NONE;
    case 14:
        return memcmp(key, "subscriptionId", 14) == 0 ? WS_META_SUBSCRIPTION_ID : WS_MEMBER_NONE;
    case 15:
        return memcmp(key, "protocolVersion", 15) == 0 ? WS_META_PROTOCOL_VERSION : WS_MEMBER_NONE;
    case 18:
        return memcmp(key, "clientCapabilities", 18) == 0 ? WS_META_CLIENT_CAPABILITIES
                                                          : WS_MEMBER_NONE;
    default:
        return WS_MEMBER_NONE;
    }
}

/* The slow way to find a key: near the end of the text, and where there are backslashes. */
static __attribute__((noinline)) int ws_odd_key(uint32_t object, const uint8_t *key, size_t len)
{
    const int poi = ws_key_poi((int)object, key, len);
    return poi == WS_NO_POI ? WS_MEMBER_NONE : poi;
}

static inline size_t ws_trim(const uint8_t *p, size_t from, size_t to)
{
    while (to > from && ws_is_space(p[to - 1]))
        to--;
    return to;
}

/* The value being read in `object` ends before `end`, whitespace aside. */
static inline __attribute__((always_inline)) void
ws_members_end(const ws_members *m, uint32_t object, ws_scan *out, const uint8_t *p, size_t end)
{
    const uint32_t poi = m->member[object];
    if (poi >= WS_POI_COUNT)
        return;
    const size_t start = m->start[object];
    end = ws_trim(p, start, end);
    if (WS_UNLIKELY(end <= start))
        return; /* no value: a fault */
    out->poi[poi].off = (uint32_t)start;
    out->poi[poi].len = (uint32_t)(end - start);
    if (poi == WS_ID)
        out->id_kind = (uint8_t)ws_id_kind_of(p + start, end - start);
}

/* Note the members at the colons `colons` of the block at base, all directly in `object`.
 * open, close: the quotes of the block. last_open, last_close: of the last string before it. */
static inline __attribute__((always_inline)) void
ws_members_note(ws_members *m, uint32_t object, ws_scan *out, const uint8_t *p, size_t n,
                size_t base, uint64_t colons, uint64_t open, uint64_t close, size_t last_open,
                size_t last_close, uint64_t backslashes)
{
    do {
        const uint64_t below = (colons & -colons) - 1;
        const size_t colon = base + (size_t)__builtin_ctzll(colons);
        const size_t key_open = open & below ? base + 63 - (size_t)__builtin_clzll(open & below)
                                             : last_open;
        const size_t key_close = close & below ? base + 63 - (size_t)__builtin_clzll(close & below)
                                               : last_close;
        colons &= colons - 1;

        if (m->member[object] < WS_POI_COUNT) {
            /* the member before ends at the comma before this key, which is behind its own */
            const size_t comma = ws_trim(p, m->start[object], key_open);
            ws_members_end(m, object, out, p, comma - 1);
        }

        const uint8_t *key = p + key_open + 1;
        const size_t len = key_close - key_open - 1;
        int poi = WS_MEMBER_NONE;
        if (WS_UNLIKELY(key_close <= key_open)) {
            /* no string: a fault */
        } else if (WS_UNLIKELY(backslashes != 0 || n - key_open < 9)) {
            poi = ws_odd_key(object, key, len);
        } else {
            uint64_t eight;
            memcpy(&eight, key, 8);
            const ws_key_slot *slot = &ws_key_slots[object][eight & 15];
            if (slot->mask != 0 && (eight & slot->mask) == slot->value)
                poi = slot->len <= 7 ? slot->poi : ws_long_key(slot, key, len);
        }
        if (poi != WS_MEMBER_NONE) {
            const uint32_t bit = UINT32_C(1) << poi;
            if (WS_UNLIKELY(m->seen & bit)) {
                out->duplicates |= bit;
                poi = WS_MEMBER_NONE;
            }
            m->seen |= bit;
        }
        m->member[object] = (uint8_t)poi;
        size_t start = colon + 1;
        while (start < n && ws_is_space(p[start]))
            start++;
        m->start[object] = start;
    } while (colons != 0);
}

#endif
