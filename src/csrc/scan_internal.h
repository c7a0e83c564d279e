/* Declarations for the files of the kernels, not for users of the kernels. */
#ifndef WS_SCAN_INTERNAL_H
#define WS_SCAN_INTERNAL_H

#include <string.h>

#include "scan.h"

/* The vector kernels are written for little-endian machines. */
#if defined(__aarch64__) && defined(__ARM_NEON) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#define WS_NEON
#endif

#define WS_LIKELY(x) __builtin_expect(!!(x), 1)
#define WS_UNLIKELY(x) __builtin_expect(!!(x), 0)

/* The objects whose members may be points of interest; each is also the depth of its members. */
enum { WS_IN_NONE = 0, WS_IN_ROOT = 1, WS_IN_PARAMS = 2, WS_IN_META = 3 };

#define WS_NO_POI (-1)

/* The point of interest that a member of `object` (WS_IN_...) is, or WS_NO_POI. The key is the
 * inside of a valid JSON string: [key, key + len), without the quotes, escapes not yet decoded. */
int ws_key_poi(int object, const uint8_t *key, size_t len);

/* Kind of an id from its raw text, which must be one valid JSON value. */
ws_id_kind ws_id_kind_of(const uint8_t *p, size_t len);

static inline int ws_is_tail(uint8_t c)
{
    return (c & 0xC0) == 0x80;
}

/* Returns the length of the well-formed UTF-8 sequence at p (1 to 4; RFC 3629, section 4), or 0.
 * n: the bytes from p on, at least 1. */
static inline size_t ws_utf8_sequence(const uint8_t *p, size_t n)
{
    const uint8_t c = p[0];
    if (c < 0x80)
        return 1;
    if (c < 0xC2) /* a tail, or an overlong form of ASCII */
        return 0;
    if (c < 0xE0)
        return n >= 2 && ws_is_tail(p[1]) ? 2 : 0;
    if (c < 0xF0) {
        if (n < 3 || !ws_is_tail(p[1]) || !ws_is_tail(p[2]))
            return 0;
        if ((c == 0xE0 && p[1] < 0xA0) || (c == 0xED && p[1] > 0x9F))
            return 0; /* overlong; surrogate */
        return 3;
    }
    if (c < 0xF5) {
        if (n < 4 || !ws_is_tail(p[1]) || !ws_is_tail(p[2]) || !ws_is_tail(p[3]))
            return 0;
        if ((c == 0xF0 && p[1] < 0x90) || (c == 0xF4 && p[1] > 0x8F))
            return 0; /* overlong; above U+10FFFF */
        return 4;
    }
    return 0;
}

/* Returns the length of the escape at p, or 0. *p is a backslash. n: the bytes from p on. */
size_t ws_escape_length(const uint8_t *p, size_t n);

ws_status ws_scalar_json(const uint8_t *p, size_t n, uint32_t max_depth, ws_scan *out);
ws_status ws_scalar_json_prefix(const uint8_t *p, size_t n, uint32_t max_depth, ws_scan *out);
size_t ws_scalar_json_escape(uint8_t *dst, const uint8_t *p, size_t n);

/* Writes the escape of one byte that needs one; returns its length. */
size_t ws_escape_byte(uint8_t *dst, uint8_t c);

/* Copy n < 64 bytes to padded[64], the rest spaces, without a call. */
static inline void ws_pad(uint8_t *padded, const uint8_t *p, size_t n)
{
    memset(padded, ' ', 64);
    if (n >= 32) {
        memcpy(padded, p, 32);
        memcpy(padded + n - 32, p + n - 32, 32);
    } else if (n >= 16) {
        memcpy(padded, p, 16);
        memcpy(padded + n - 16, p + n - 16, 16);
    } else if (n >= 8) {
        memcpy(padded, p, 8);
        memcpy(padded + n - 8, p + n - 8, 8);
    } else {
        for (size_t i = 0; i < n; i++)
            padded[i] = p[i];
    }
}

/* The key of WebSocket masking from byte `at` on, in the order of memory. */
static inline uint32_t ws_mask_word(const uint8_t key[4], size_t at)
{
    uint8_t twice[8];
    uint32_t word;
    memcpy(twice, key, 4);
    memcpy(twice + 4, key, 4);
    memcpy(&word, twice + at % 4, 4);
    return word;
}

/* Mask by words of 8 bytes, and the bytes behind the last whole word one by one. */
static inline void ws_mask_words(uint8_t *dst, const uint8_t *src, size_t n, uint32_t word)
{
    const uint64_t both = word | (uint64_t)word << 32;
    uint8_t rest[4];
    uint64_t x;
    size_t i = 0;
    for (; n - i >= 8; i += 8) {
        memcpy(&x, src + i, 8);
        x ^= both;
        memcpy(dst + i, &x, 8);
    }
    memcpy(rest, &word, 4);
    for (; i < n; i++)
        dst[i] = src[i] ^ rest[i % 4];
}

extern const ws_kernels ws_kernels_scalar;
#if defined(__x86_64__)
extern const ws_kernels ws_kernels_sse2;
extern const ws_kernels ws_kernels_avx2;
extern const ws_kernels ws_kernels_avx512;
#elif defined(WS_NEON)
extern const ws_kernels ws_kernels_neon;
#endif

#endif
