#include "scan_tables.h"

#if defined(__x86_64__)

#define EIGHT(c) c, c, c, c, c, c, c, c
#define ROW(c) \
    [c] = {EIGHT(c), EIGHT(c), EIGHT(c), EIGHT(c), EIGHT(c), EIGHT(c), EIGHT(c), EIGHT(c)}

_Alignas(64) const uint8_t ws_repeated[128][64] = {
    ROW(5),   ROW(9),   ROW('\n'), ROW(' '), ROW('"'),  ROW('+'), ROW(','), ROW('-'),
    ROW('.'), ROW('/'), ROW('0'),  ROW('9'), ROW(':'),  ROW('a'), ROW('b'), ROW('e'),
    ROW('f'), ROW('n'), ROW('r'),  ROW('t'), ROW('u'),  ROW('{'), ROW('}'), ROW('\\'),
};

#define FROM(i) i, i + 1, i + 2, i + 3, i + 4, i + 5, i + 6, i + 7
_Alignas(64) const uint8_t ws_positions[64] = {
    FROM(0), FROM(8), FROM(16), FROM(24), FROM(32), FROM(40), FROM(48), FROM(56),
};

/* EDGE: may stand around a number. What is left 0 is allowed nowhere in a number or behind it. */
enum { DIGIT = 1, MINUS = 2, PLUS = 4, DOT = 8, EXP = 16, EDGE = 32 };

#define DIGITS(x)                                                                               \
    ['0'] = x, ['1'] = x, ['2'] = x, ['3'] = x, ['4'] = x, ['5'] = x, ['6'] = x, ['7'] = x, \
    ['8'] = x, ['9'] = x
#define EDGES(x)                                                                                \
    ['\t'] = x, ['\n'] = x, ['\r'] = x, [' '] = x, ['"'] = x, [','] = x, [':'] = x, ['['] = x, \
    [']'] = x, ['{'] = x, ['}'] = x

_Alignas(64) const uint8_t ws_number_kind[128] = {
    DIGITS(DIGIT), EDGES(EDGE),  ['-'] = MINUS, ['+'] = PLUS,
    ['.'] = DOT,   ['e'] = EXP, ['E'] = EXP,
};

_Alignas(64) const uint8_t ws_number_next[128] = {
    DIGITS(DIGIT | DOT | EXP | EDGE),
    EDGES(DIGIT | MINUS),
    ['-'] = DIGIT,
    ['+'] = DIGIT,
    ['.'] = DIGIT,
    ['e'] = DIGIT | MINUS | PLUS,
    ['E'] = DIGIT | MINUS | PLUS,
};

#else
typedef int ws_no_x86_tables; /* ISO C wants a declaration */
#endif
