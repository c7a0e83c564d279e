/* Lookup tables, by nibble, for levels that can shuffle bytes. */
#ifndef WS_SCAN_TABLES_H
#define WS_SCAN_TABLES_H

#include <stdint.h>

/* UTF-8 after Keiser and Lemire, "Validating UTF-8 in less than one instruction per byte" (2020):
 * the high and the low nibble of a byte and the high nibble of the next each name the faults that
 * they allow; a fault is a bit that all three name. TWO_TAILS alone depends on the bytes two and
 * three places before: it is compared with these. */
enum {
    TOO_SHORT = 1,   /* a lead, then no tail */
    TOO_LONG = 2,    /* ASCII, then a tail */
    OVERLONG_3 = 4,  /* E0, then below A0 */
    TOO_LARGE = 8,   /* F4, then from 90; F5 to FF, then from 90 */
    SURROGATE = 16,  /* ED, then from A0 */
    OVERLONG_2 = 32, /* C0 and C1 */
    OVERLONG_4 = 64, /* F0, then below 90; F5 to FF, then below 90 (too large) */
    TWO_TAILS = 128,
    LOW_ANY = TOO_SHORT | TOO_LONG | TWO_TAILS,
    LOW_LARGE = LOW_ANY | TOO_LARGE | OVERLONG_4,
    NEXT_TAIL = TOO_LONG | OVERLONG_2 | TWO_TAILS
};

static const uint8_t ws_utf8_high_1[16] = {
    [0x0] = TOO_LONG,
    [0x1] = TOO_LONG,
    [0x2] = TOO_LONG,
    [0x3] = TOO_LONG,
    [0x4] = TOO_LONG,
    [0x5] = TOO_LONG,
    [0x6] = TOO_LONG,
    [0x7] = TOO_LONG,
    [0x8] = TWO_TAILS,
    [0x9] = TWO_TAILS,
    [0xA] = TWO_TAILS,
    [0xB] = TWO_TAILS,
    [0xC] = TOO_SHORT | OVERLONG_2,
    [0xD] = TOO_SHORT,
    [0xE] = TOO_SHORT | OVERLONG_3 | SURROGATE,
    [0xF] = TOO_SHORT | TOO_LARGE | OVERLONG_4,
};

static const uint8_t ws_utf8_low_1[16] = {
    [0x0] = LOW_ANY | OVERLONG_2 | OVERLONG_3 | OVERLONG_4,
    [0x1] = LOW_ANY | OVERLONG_2,
    [0x2] = LOW_ANY,
    [0x3] = LOW_ANY,
    [0x4] = LOW_ANY | TOO_LARGE,
    [0x5] = LOW_LARGE,
    [0x6] = LOW_LARGE,
    [0x7] = LOW_LARGE,
    [0x8] = LOW_LARGE,
    [0x9] = LOW_LARGE,
    [0xA] = LOW_LARGE,
    [0xB] = LOW_LARGE,
    [0xC] = LOW_LARGE,
    [0xD] = LOW_LARGE | SURROGATE,
    [0xE] = LOW_LARGE,
    [0xF] = LOW_LARGE,
};

static const uint8_t ws_utf8_high_2[16] = {
    [0x0] = TOO_SHORT,
    [0x1] = TOO_SHORT,
    [0x2] = TOO_SHORT,
    [0x3] = TOO_SHORT,
    [0x4] = TOO_SHORT,
    [0x5] = TOO_SHORT,
    [0x6] = TOO_SHORT,
    [0x7] = TOO_SHORT,
    [0x8] = NEXT_TAIL | OVERLONG_3 | OVERLONG_4,
    [0x9] = NEXT_TAIL | OVERLONG_3 | TOO_LARGE,
    [0xA] = NEXT_TAIL | SURROGATE | TOO_LARGE,
    [0xB] = NEXT_TAIL | SURROGATE | TOO_LARGE,
    [0xC] = TOO_SHORT,
    [0xD] = TOO_SHORT,
    [0xE] = TOO_SHORT,
    [0xF] = TOO_SHORT,
};

/* By low nibble: the JSON whitespace with that nibble, else a byte with another nibble. Bytes from
 * 0x80 look up 0 where the instruction is x86's, and are out of the table on arm64. */
static const uint8_t ws_spaces[16] = {
    [0x0] = ' ', [0x1] = 0xF0, [0x2] = 0xF0, [0x3] = 0xF0, [0x4] = 0xF0, [0x5] = 0xF0,
    [0x6] = 0xF0, [0x7] = 0xF0, [0x8] = 0xF0, [0x9] = '\t', [0xA] = '\n', [0xB] = 0xF0,
    [0xC] = 0xF0, [0xD] = '\r', [0xE] = 0xF0, [0xF] = 0xF0,
};

/* The bytes that may follow a backslash, by high and low nibble: their two entries share a bit. */
static const uint8_t ws_escapable_high[16] = {[0x2] = 1, [0x5] = 2, [0x6] = 4, [0x7] = 8};
static const uint8_t ws_escapable_low[16] = {
    [0x2] = 1 | 4 | 8, /* " b r */
    [0xF] = 1,         /* / */
    [0xC] = 2,         /* backslash */
    [0x6] = 4,         /* f */
    [0xE] = 4,         /* n */
    [0x4] = 8,         /* t */
    [0x5] = 8,         /* u */
};

/* By low nibble: the comma, colon or bracket with that nibble, with bit 0x20 set, else 0, which no
 * byte with that bit is. */
static const uint8_t ws_operators[16] = {[0xA] = ':', [0xB] = '{', [0xC] = ',', [0xD] = '}'};

#if defined(__x86_64__)
/* 0 to 63. */
extern const uint8_t ws_positions[64];

/* ws_repeated[c]: 64 times c, for the bytes that the kernels look for. */
extern const uint8_t ws_repeated[128][64];

/* The rows of three bytes that a number or literal, with the bytes around it, may contain. Each bit
 * is a rule: the bytes allowed at the start, in the middle and at the end. The rules need two
 * sets. */
typedef struct {
    _Alignas(64) uint8_t first[128]; /* by ASCII byte, besides any_first */
    uint8_t middle[128];
    uint8_t last[128];
    uint8_t any_first[64]; /* 64 times: the rules where any byte may come first */
} ws_triple_rules;

extern const ws_triple_rules ws_triples[2];
#endif

#endif
