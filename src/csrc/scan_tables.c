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

#define DIGITS(x)                                                                             \
    ['0'] = x, ['1'] = x, ['2'] = x, ['3'] = x, ['4'] = x, ['5'] = x, ['6'] = x, ['7'] = x, \
    ['8'] = x, ['9'] = x
/* The bytes around numbers and literals. */
#define EDGES(x)                                                                         \
    ['\t'] = x, ['\n'] = x, ['\r'] = x, [' '] = x, [','] = x, [':'] = x, ['['] = x,      \
    [']'] = x, ['{'] = x, ['}'] = x
#define ALL(x) EIGHT(x), EIGHT(x), EIGHT(x), EIGHT(x), EIGHT(x), EIGHT(x), EIGHT(x), EIGHT(x)

/* Rules by name: first, middle, last byte. */
enum {
    START = 1,  /* any, edge, t f n digit minus */
    SECOND = 2, /* edge, t f n, r a u: wrong pairs are in no other rule */
    TRU = 4,
    NUL = 8,
    FAL = 16,
    RUE = 32,
    ULL = 64,
    ALS = 128
};
enum {
    LL_ = 1,     /* l, l, edge */
    LSE = 2,     /* l, s, e */
    E_ = 4,      /* u s, e, edge */
    DIGIT = 8,   /* any, digit, digit dot e E edge */
    BEFORE = 16, /* any, minus plus dot, digit */
    EXP = 32     /* digit, e E, digit minus plus */
};

const ws_triple_rules ws_triples[2] = {
    {
        .first = {EDGES(SECOND), ['t'] = TRU, ['n'] = NUL, ['f'] = FAL, ['r'] = RUE, ['u'] = ULL,
                  ['a'] = ALS},
        .middle = {EDGES(START), ['t'] = SECOND, ['f'] = SECOND, ['n'] = SECOND, ['r'] = TRU,
                   ['u'] = NUL | RUE, ['a'] = FAL, ['l'] = ULL | ALS},
        .last = {DIGITS(START), ['-'] = START, ['t'] = START, ['f'] = START, ['n'] = START,
                 ['r'] = SECOND, ['a'] = SECOND, ['u'] = SECOND | TRU, ['l'] = NUL | FAL | ULL,
                 ['e'] = RUE, ['s'] = ALS},
        .any_first = {ALL(START)},
    },
    {
        .first = {DIGITS(EXP), ['l'] = LL_ | LSE, ['u'] = E_, ['s'] = E_},
        .middle = {DIGITS(DIGIT), ['-'] = BEFORE, ['+'] = BEFORE, ['.'] = BEFORE, ['l'] = LL_,
                   ['s'] = LSE, ['e'] = E_ | EXP, ['E'] = EXP},
        .last = {DIGITS(DIGIT | BEFORE | EXP), EDGES(LL_ | E_ | DIGIT), ['.'] = DIGIT,
                 ['e'] = LSE | DIGIT, ['E'] = DIGIT, ['-'] = EXP, ['+'] = EXP},
        .any_first = {ALL(DIGIT | BEFORE)},
    },
};

#else
typedef int ws_no_x86_tables; /* ISO C wants a declaration */
#endif
