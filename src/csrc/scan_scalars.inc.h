/* Numbers and literals, in blocks of 64 bytes. Included by scan_simd.inc.h.
 *
 * V(check_scalars) checks the scalars of a block. scalar: the mask of their bytes. starts: the mask
 * of the first byte of each. at: the block, with `left` bytes of text from there. Adds faults to
 * *err; returns 0 when the text ends before a scalar can be judged. With WS_HAS_TRIPLES a level has
 * the primitive
 *
 *   V(bad_triples)(b, before)   mask of bytes that, after the two before them, are no byte of a
 *                               number or literal nor the one behind it; the rules that look
 *                               farther are left to masks. */

/* Carries: the kind of the byte before. */
typedef struct {
    uint64_t scalar;      /* part of a scalar */
    uint64_t sign;        /* the minus that starts a number */
    uint64_t zero;        /* the zero that starts a number */
    uint64_t in_fraction; /* ripple over the digits behind a dot */
    uint64_t in_exponent; /* ripple over the digits of an exponent */
#ifndef WS_HAS_TRIPLES
    uint64_t word_before; /* part of a literal */
    uint64_t word;        /* not the byte before: bits of the next bytes that end a literal */
    uint64_t digit;
    uint64_t e;
    uint64_t want_digit; /* a sign or dot */
#endif
} V(scalars);

WS_INLINE int V(check_scalars)(V(scalars) *c, V(block) b, V(block) before, uint64_t scalar,
                               uint64_t starts, const uint8_t *at, size_t left, uint64_t *err)
{
    uint64_t bad = 0;
#ifdef WS_HAS_TRIPLES
    (void)at;
    (void)left;
    const uint64_t number = scalar; /* or a literal, whose e does no harm below */
    const uint64_t dot = V(eq)(b, '.') & number;
    const uint64_t e = V(eq_folded)(b, 'e') & number;
    const uint64_t minus = V(eq)(b, '-') & number;
    bad |= V(bad_triples)(b, before) & (scalar | V(shifted)(scalar, &c->scalar));
#else
    uint64_t word_starts = starts & V(above_digits)(b);
    uint64_t word = c->word;

    (void)before;
    c->scalar = scalar >> 63;
    c->word = 0;
    while (word_starts != 0) {
        const unsigned i = (unsigned)__builtin_ctzll(word_starts);
        word_starts &= word_starts - 1;
        if (WS_UNLIKELY(left < i + 5))
            return 0;
        uint32_t four;
        memcpy(&four, at + i, 4);
        const ws_word *known = &ws_words[at[i] >> 3 & 3];
        bad |= (four ^ known->four) | ((at[i + 4] ^ 'e') & known->fifth);
        word |= known->bits << i;
        c->word = known->bits >> 1 >> (63 - i); /* only the last one can reach over the end */
    }
    bad = bad != 0 ? ~UINT64_C(0) : 0;

    /* Which byte may follow which. */
    const uint64_t number = scalar & ~word;
    const uint64_t dot = V(eq)(b, '.') & number;
    const uint64_t e = V(eq_folded)(b, 'e') & number;
    const uint64_t minus = V(eq)(b, '-') & number;
    const uint64_t digit = V(digit)(b) & number;
    const uint64_t signs = minus | (V(eq)(b, '+') & number);
    const uint64_t behind_e = V(shifted)(e, &c->e);
    bad |= number & V(shifted)(word, &c->word_before);
    bad |= number & ~(digit | signs | dot | e);
    bad |= signs & ~((starts & minus) | behind_e);
    bad |= behind_e & ~(digit | signs);
    bad |= (dot | e) & ~V(shifted)(digit, &c->digit);
    bad |= V(shifted)(signs | dot, &c->want_digit) & ~digit;
#endif
    /* No digit behind a leading zero. */
    const uint64_t others = number & ~(dot | e);
    const uint64_t first = starts | V(shifted)(minus & starts, &c->sign);
    const uint64_t zero = V(eq)(b, '0') & first;
    bad |= V(shifted)(zero, &c->zero) & others;
    /* No second dot, no second e, no dot behind the e. */
    if ((dot | e | c->in_fraction | c->in_exponent) != 0) {
        bad |= V(next_after)(dot, others, &c->in_fraction) & dot;
        bad |= V(next_after)(e, others, &c->in_exponent) & (dot | e);
    }
    *err |= bad;
    return 1;
}
