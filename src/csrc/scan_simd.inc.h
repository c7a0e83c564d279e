/* Vector kernels, written once for every level. A level defines WS_TARGET (the attribute of its
 * functions), V(name) (its prefix), WS_LEVEL, WS_LEVEL_NAME and the primitives below, then includes
 * this file, scan_mask.inc.h, scan_walk.inc.h and scan_json.inc.h. The primitives work on a block
 * of 64 bytes, and bit i of a mask stands for byte i:
 *
 *   V(block)                        the type, passed by value
 *   V(load)(p)                      64 bytes
 *   V(load_part)(p, n)              n < 64 bytes, the rest spaces
 *   V(eq)(b, c)                     mask of bytes equal to c
 *   V(eq_folded)(b, c)              mask of bytes equal to c once bit 0x20 is set in them
 *   V(has_bit)(b, bit)              mask of bytes with that bit
 *   V(control)(b), V(high)(b)       masks of bytes below 0x20, of bytes from 0x80
 *   V(above_digits)(b)              mask of bytes above '9'; not where WS_HAS_TRIPLES is defined
 *   V(digit)(b), V(hex)(b)          masks of 0-9, of 0-9 a-f A-F
 *   V(space)(b)                     mask of JSON whitespace
 *   V(escapable)(b)                 mask of bytes that may follow a \: " / b f n r t u \ itself
 *   V(prefix_xor)(m)                bit i = parity of bits 0..i of m
 *   V(utf8_bad)(b, before)          not 0: a fault of UTF-8 ends in b; before: the block before b
 *   V(special)(b)                   not 0: some byte is '"', '\\', below 0x20 or from 0x80
 *
 * An array or object is checked by masks instead of visiting tokens. Outside strings a token is
 * allowed or not by the token before it ("adjacency", over whitespace), and by the separator
 * (comma, colon, bracket) before it ("alternation", over everything else). Both kinds of "next
 * after" are one addition that lets a bit ripple over a run of ones. What is left is context: a
 * walk over the brackets gives a mask of the positions whose innermost container is an object.
 *
 * Masks that look at the byte before carry one bit from block to block. */

#define WS_INLINE static inline __attribute__((always_inline)) WS_TARGET

/* ---- newline, UTF-8, escaping ---- */

static WS_TARGET size_t V(find_newline)(const uint8_t *p, size_t n)
{
    size_t i = 0;
    for (; n - i >= 64; i += 64) {
        const uint64_t hits = V(eq)(V(load)(p + i), '\n');
        if (hits != 0)
            return i + (size_t)__builtin_ctzll(hits);
    }
    if (i < n) {
        const uint64_t hits = V(eq)(V(load_part)(p + i, n - i), '\n');
        if (hits != 0)
            return i + (size_t)__builtin_ctzll(hits);
    }
    return n;
}

/* 1 when a sequence that starts in the block of 64 bytes that ends at `end` goes on behind it. */
WS_INLINE int V(utf8_open)(const uint8_t *end)
{
    return (end[-1] >= 0xC0) | (end[-2] >= 0xE0) | (end[-3] >= 0xF0);
}

static WS_TARGET int V(utf8_valid)(const uint8_t *p, size_t n)
{
    V(block) before = V(load_part)(p, 0);
    int open = 0;
    size_t i = 0;
    for (; n - i >= 64; i += 64) {
        const V(block) b = V(load)(p + i);
        if (V(high)(b) != 0) {
            if (V(utf8_bad)(b, before))
                return 0;
            open = V(utf8_open)(p + i + 64);
        } else if (open) {
            return 0;
        }
        before = b;
    }
    const V(block) b = V(load_part)(p + i, n - i);
    if (open || V(high)(b) != 0)
        return !V(utf8_bad)(b, before);
    return 1;
}

/* Copy a run of the `left` bytes at p. dst has room for 6 bytes for each of them, so that a short run
 * may be one copy of fixed size. */
WS_INLINE void V(copy_run)(uint8_t *dst, const uint8_t *p, size_t run, size_t left)
{
    if (run <= 16 && left >= 16)
        memcpy(dst, p, 16);
    else
        memcpy(dst, p, run);
}

static WS_TARGET size_t V(json_escape)(uint8_t *dst, const uint8_t *p, size_t n)
{
    size_t o = 0;
    for (size_t i = 0; i < n; i += 64) {
        const size_t left = n - i, size = left < 64 ? left : 64;
        const V(block) b = left < 64 ? V(load_part)(p + i, left) : V(load)(p + i);
        uint64_t hits = V(control)(b) | V(eq)(b, '"') | V(eq)(b, '\\');
        size_t done = 0;
        if (hits == 0 && size == 64) {
            V(store)(dst + o, b);
            o += 64;
            continue;
        }
        for (; hits != 0; hits &= hits - 1) {
            const size_t at = (size_t)__builtin_ctzll(hits);
            const uint8_t c = p[i + at];
            V(copy_run)(dst + o, p + i + done, at - done, left - done);
            o += at - done;
            done = at + 1;
            if (c == '"' || c == '\\') {
                dst[o] = '\\';
                dst[o + 1] = c;
                o += 2;
            } else {
                o += ws_escape_byte(dst + o, c);
            }
        }
        V(copy_run)(dst + o, p + i + done, size - done, left - done);
        o += size - done;
    }
    return o;
}

static WS_TARGET size_t V(json_plain)(const uint8_t *p, size_t n, int *ascii)
{
    uint64_t high = 0;
    for (size_t i = 0; i < n; i += 64) {
        const V(block) b = n - i >= 64 ? V(load)(p + i) : V(load_part)(p + i, n - i);
        if (!V(special)(b))
            continue;
        const uint64_t hits = V(control)(b) | V(eq)(b, '"') | V(eq)(b, '\\');
        if (hits != 0) {
            const uint64_t before = (hits & (0 - hits)) - 1;
            *ascii = (high | (V(high)(b) & before)) == 0;
            return i + (size_t)__builtin_ctzll(hits);
        }
        high |= V(high)(b);
    }
    *ascii = high == 0;
    return n;
}

/* ---- JSON ---- */

/* The first non-member of `over` at or behind each bit of `from`: from must only hold bits that
 * start a run of `over` or are outside of it. Adds the carry out to *carry. */
WS_INLINE uint64_t V(ripple)(uint64_t from, uint64_t over, uint64_t *carry)
{
    unsigned long long sum;
    *carry |= (uint64_t)__builtin_uaddll_overflow(from, over, &sum);
    return sum & ~over;
}

/* Positions of the first byte outside `over` behind each bit of `of`. */
WS_INLINE uint64_t V(next_after)(uint64_t of, uint64_t over, uint64_t *carry)
{
    const uint64_t from = of << 1 | *carry;
    *carry = of >> 63;
    return V(ripple)(from, over, carry);
}

WS_INLINE uint64_t V(shifted)(uint64_t m, uint64_t *carry)
{
    const uint64_t shifted = m << 1 | *carry;
    *carry = m >> 63;
    return shifted;
}

typedef struct {
    uint64_t escaped; /* carry: the next byte is escaped */
    uint64_t hex;     /* carry: bits of the next bytes that must be hex digits */
} V(escapes);

/* Mask of escaped bytes; adds faults of the escapes to *err. */
WS_INLINE uint64_t V(find_escaped)(V(escapes) *c, V(block) b, uint64_t backslash, uint64_t *err)
{
    const uint64_t odd = UINT64_C(0xAAAAAAAAAAAAAAAA);
    const uint64_t potential = backslash & ~c->escaped;
    const uint64_t maybe = potential << 1;
    const uint64_t codes = ((maybe | odd) - potential) ^ odd;
    const uint64_t escaped = codes ^ (backslash | c->escaped);
    c->escaped = (codes & backslash) >> 63;

    const uint64_t u = V(eq)(b, 'u') & escaped;
    *err |= escaped & ~V(escapable)(b);
    if ((u | c->hex) != 0) {
        *err |= (u << 1 | u << 2 | u << 3 | u << 4 | c->hex) & ~V(hex)(b);
        c->hex = u >> 63 | u >> 62 | u >> 61 | u >> 60;
    }
    return escaped;
}

#include "scan_scalars.inc.h"
#include "scan_nest.inc.h"

/* Validate the array or object at p[from]; its depth, itself counted, may be up to limit. Returns
 * the offset behind it, or 0 when the text has a fault, here or just behind, or is deeper than
 * 63. */
static __attribute__((noinline)) WS_TARGET size_t V(container)(const uint8_t *p, size_t n,
                                                               size_t from, uint32_t limit)
{
    V(nesting) nesting = {.limit = limit < 63 ? limit : 63}; /* the bits of `kinds` */
    uint64_t in_string = 0; /* all ones when the block starts inside a string */
    uint64_t want_operand = 1, want_colon = 0, utf8_open = 0; /* carries */
    V(escapes) escapes = {0, 0};
    V(scalars) scalars = {0};
    V(block) before = V(load_part)(p, 0);

    for (size_t base = from; base < n; base += 64) {
        const size_t left = n - base;
        const V(block) b = WS_LIKELY(left >= 64) ? V(load)(p + base) : V(load_part)(p + base, left);
        uint64_t err = 0;

        /* strings */
        const uint64_t backslash = V(eq)(b, '\\');
        uint64_t quote = V(eq)(b, '"');
        if (WS_UNLIKELY((backslash | escapes.escaped | escapes.hex) != 0))
            quote &= ~V(find_escaped)(&escapes, b, backslash, &err);
        const uint64_t inside = V(prefix_xor)(quote) ^ in_string; /* with the opening quote */
        const uint64_t string = inside | quote;
        const uint64_t high = V(high)(b);
        in_string = (uint64_t)((int64_t)inside >> 63);
        err |= V(control)(b) & inside;
        if (WS_UNLIKELY((high | utf8_open) != 0)) {
            if (V(utf8_bad)(b, before))
                return 0;
            utf8_open = left >= 64 && V(utf8_open)(p + base + 64);
            err |= high & ~string;
        }

        /* the other tokens */
        const uint64_t colon = V(eq)(b, ':') & ~string;
        const uint64_t comma = V(eq)(b, ',') & ~string;
        const uint64_t opener = V(eq_folded)(b, '{') & ~string;
        const uint64_t closer = V(eq_folded)(b, '}') & ~string;
        const uint64_t space = V(space)(b) & ~string;
        const uint64_t scalar = ~(string | space | opener | closer | colon | comma);
        const uint64_t starts = scalar & ~(scalar << 1 | scalars.scalar);
        if ((scalar | scalars.scalar) != 0
            && !V(check_scalars)(&scalars, b, before, scalar, starts, p + base, left, &err))
            return 0;
        before = b;

        /* adjacency and alternation */
        const uint64_t operand = V(next_after)(colon | comma | opener, space, &want_operand);
        const uint64_t member = V(next_after)(opener | comma, string | space, &want_colon);
        uint64_t empty = closer & operand; /* then the token before must be an opener */
        const uint64_t element = member & ~(colon | empty); /* legal in arrays only */
        err |= ((quote & inside) | starts | opener) & ~operand;
        err |= (comma | colon) & operand;
        err |= colon & ~member;
        for (; WS_UNLIKELY(empty != 0); empty &= empty - 1) {
            size_t i = base + (size_t)__builtin_ctzll(empty) - 1;
            while (ws_is_space(p[i]))
                i--;
            if ((p[i] | 0x20) != '{')
                err |= empty & -empty;
        }

        const uint64_t value =
            V(follow)(&nesting, opener, closer, V(has_bit)(b, 0x20), colon, element);
        if (WS_UNLIKELY(value == 0 || (err & value) != 0))
            return 0;
        if (nesting.depth == 0)
            return base + 64 - (size_t)__builtin_clzll(value);

        /* A block full of string: likely a long one. No carry but in_string and want_colon can be
         * set in it. */
        if (quote == 0 && in_string && (escapes.escaped | escapes.hex) == 0) {
            while (n - base >= 128) {
                const V(block) next = V(load)(p + base + 64);
                if (V(special)(next)) {
                    if ((V(eq)(next, '"') | V(eq)(next, '\\') | V(control)(next)) != 0
                        || V(utf8_bad)(next, before))
                        break;
                    utf8_open = V(utf8_open)(p + base + 128);
                } else if (utf8_open) {
                    break;
                }
                before = next;
                base += 64;
            }
        }
    }
    return 0;
}
