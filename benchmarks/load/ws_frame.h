/* RFC 6455 for the measuring programs: the accept key, masking, and frames in a byte queue.
 *
 * Enough for a peer that sends whole text messages; a fragment is reported as a fault. */
#ifndef BENCH_WS_FRAME_H
#define BENCH_WS_FRAME_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "bytes.h"

enum { WS_TEXT = 1, WS_CLOSE = 8, WS_PING = 9, WS_PONG = 10 };
enum { WS_KEY = 24, WS_ACCEPT = 28 }; /* characters of base64 */
#define WS_FRAME_LIMIT (UINT64_C(1) << 30)

/* ------------------------------------------------------- the opening handshake */

static inline void ws_base64(char *out, const uint8_t *p, size_t n) {
    static const char digits[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for (; n > 0; p += 3, n -= n < 3 ? n : 3) {
        const uint32_t v = (uint32_t)p[0] << 16 | (n > 1 ? (uint32_t)p[1] << 8 : 0) |
                           (n > 2 ? (uint32_t)p[2] : 0);
        *out++ = digits[v >> 18];
        *out++ = digits[v >> 12 & 63];
        *out++ = n > 1 ? digits[v >> 6 & 63] : '=';
        *out++ = n > 2 ? digits[v & 63] : '=';
    }
}

static inline uint32_t ws_roll(uint32_t x, int by) { return x << by | x >> (32 - by); }

/* SHA-1 of at most 119 bytes. */
static inline void ws_sha1(uint8_t digest[20], const char *p, size_t n) {
    uint32_t h[5] = {0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476, 0xc3d2e1f0};
    uint8_t text[128] = {0};
    const size_t blocks = n + 9 > 64 ? 2 : 1;
    memcpy(text, p, n);
    text[n] = 0x80;
    text[blocks * 64 - 2] = (uint8_t)(n * 8 >> 8);
    text[blocks * 64 - 1] = (uint8_t)(n * 8);
    for (size_t b = 0; b < blocks; b++) {
        uint32_t w[80], v[5];
        for (int i = 0; i < 16; i++) {
            const uint8_t *q = text + b * 64 + i * 4;
            w[i] = (uint32_t)q[0] << 24 | (uint32_t)q[1] << 16 | (uint32_t)q[2] << 8 | q[3];
        }
        for (int i = 16; i < 80; i++) w[i] = ws_roll(w[i - 3] ^ w[i - 8] ^ w[i - 14] ^ w[i - 16], 1);
        memcpy(v, h, sizeof v);
        for (int i = 0; i < 80; i++) {
            uint32_t f, k;
            if (i < 20) f = (v[1] & v[2]) | (~v[1] & v[3]), k = 0x5a827999;
            else if (i < 40) f = v[1] ^ v[2] ^ v[3], k = 0x6ed9eba1;
            else if (i < 60) f = (v[1] & v[2]) | (v[1] & v[3]) | (v[2] & v[3]), k = 0x8f1bbcdc;
            else f = v[1] ^ v[2] ^ v[3], k = 0xca62c1d6;
            const uint32_t t = ws_roll(v[0], 5) + f + v[4] + k + w[i];
            v[4] = v[3], v[3] = v[2], v[2] = ws_roll(v[1], 30), v[1] = v[0], v[0] = t;
        }
        for (int i = 0; i < 5; i++) h[i] += v[i];
    }
    for (int i = 0; i < 20; i++) digest[i] = (uint8_t)(h[i / 4] >> (24 - 8 * (i % 4)));
}

/* What a server answers to a key (RFC 6455 section 4.2.2, item 5.4). */
static inline void ws_accept_of(char accept[WS_ACCEPT], const char key[WS_KEY]) {
    static const char guid[] = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
    char text[WS_KEY + sizeof guid - 1];
    uint8_t digest[20];
    memcpy(text, key, WS_KEY);
    memcpy(text + WS_KEY, guid, sizeof guid - 1);
    ws_sha1(digest, text, sizeof text);
    ws_base64(accept, digest, sizeof digest);
}

/* The value of a header in a head that ends with an empty line: its length, or 0 if not there. */
static inline size_t ws_header(const char *p, const char *end, const char *name, const char **value) {
    const size_t n = strlen(name);
    while (p < end) {
        const char *stop = memchr(p, '\n', (size_t)(end - p));
        if (stop == NULL) break;
        if ((size_t)(stop - p) > n && p[n] == ':' && strncasecmp(p, name, n) == 0) {
            for (p += n + 1; p < stop && *p == ' '; p++) {}
            for (*value = p; stop > p && (stop[-1] == ' ' || stop[-1] == '\r'); stop--) {}
            return (size_t)(stop - p);
        }
        p = stop + 1;
    }
    return 0;
}

/* ---------------------------------------------------------------------- frames */

static inline void ws_mask(char *p, size_t n, uint32_t mask) {
    const uint64_t wide = (uint64_t)mask << 32 | mask;
    uint64_t v;
    for (; n >= 8; p += 8, n -= 8) {
        memcpy(&v, p, 8);
        v ^= wide;
        memcpy(p, &v, 8);
    }
    for (size_t i = 0; i < n; i++) p[i] ^= (char)(mask >> 8 * (i & 3)); /* little-endian */
}

/* Never 0. */
static inline uint32_t ws_random(void) {
    static uint64_t x = UINT64_C(0x9e3779b97f4a7c15);
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    return (uint32_t)(x >> 32) | 1;
}

/* Appends the head of a frame of `n` bytes with its masking key, if not 0; room for the rest is
 * made.  A key of 0, which changes no byte, stands for a server's frame. */
static inline void ws_add_head(bytes *out, int opcode, size_t n, uint32_t mask) {
    bytes_reserve(out, n + 14);
    uint8_t *q = (uint8_t *)out->data + out->tail;
    const uint8_t bit = mask ? 0x80 : 0;
    *q++ = (uint8_t)(0x80 | opcode);
    if (n < 126) {
        *q++ = (uint8_t)(bit | n);
    } else if (n < 65536) {
        *q++ = bit | 126;
        *q++ = (uint8_t)(n >> 8);
        *q++ = (uint8_t)n;
    } else {
        *q++ = bit | 127;
        for (int shift = 56; shift >= 0; shift -= 8) *q++ = (uint8_t)((uint64_t)n >> shift);
    }
    if (mask) memcpy(q, &mask, 4);
    out->tail = (size_t)((char *)q - out->data) + (mask ? 4 : 0);
}

/* Appends a frame around `n` bytes; a client's is masked with a fresh key. */
static inline void ws_add(bytes *out, int opcode, const char *p, size_t n, bool client) {
    const uint32_t mask = client ? ws_random() : 0;
    ws_add_head(out, opcode, n, mask);
    memcpy(out->data + out->tail, p, n);
    if (mask) ws_mask(out->data + out->tail, n, mask);
    out->tail += n;
}

typedef struct {
    int opcode;
    char *p;
    size_t n;
} ws_frame;

/* Takes a frame off `in`, unmasked in place; *fault is set if it is not one the sender may send.
 * False if there is no whole one.  The bytes stay where they are until `in` grows. */
static inline bool ws_take(bytes *in, ws_frame *f, bool masked, const char **fault) {
    const size_t have = bytes_used(in);
    if (have < 2) return false;
    const uint8_t *h = (const uint8_t *)in->data + in->head;
    size_t start = 2;
    uint64_t n = h[1] & 0x7f;
    if (n == 126) {
        if (have < 4) return false;
        n = (uint64_t)h[2] << 8 | h[3];
        start = 4;
    } else if (n == 127) {
        if (have < 10) return false;
        n = 0;
        for (int i = 2; i < 10; i++) n = n << 8 | h[i];
        start = 10;
    }
    *fault = NULL;
    if (h[0] & 0x70) *fault = "a frame with a reserved bit set";
    else if ((h[1] & 0x80) != (masked ? 0x80 : 0)) *fault = "a frame with the wrong masking";
    else if (n > WS_FRAME_LIMIT) *fault = "a frame of more than 1 GiB";
    else if ((h[0] & 0x0f) != WS_TEXT && (h[0] & 0x08) == 0) *fault = "a frame that is not text";
    else if ((h[0] & 0x80) == 0) *fault = "a fragment";
    if (*fault != NULL) return true;
    if (masked) start += 4;
    if (have < start + n) return false;
    f->opcode = h[0] & 0x0f;
    f->p = in->data + in->head + start;
    f->n = (size_t)n;
    if (masked) {
        uint32_t mask;
        memcpy(&mask, f->p - 4, 4);
        ws_mask(f->p, f->n, mask);
    }
    bytes_consume(in, start + f->n);
    return true;
}

#endif
