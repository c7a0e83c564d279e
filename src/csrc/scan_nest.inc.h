/* Nesting: each bracket closes one of its kind, colons are in objects only, and elements (values
 * without a key) in arrays only. Included by scan_simd.inc.h. Text comes in blocks of 64 bytes.
 *
 * V(follow) takes a block's masks and returns the mask of its bytes that are in the container: all,
 * or up to the bracket that closes it, after which depth is 0; or 0 for a fault. A bit of `element`
 * tells of the segment that ends at it, which may be a bracket. */

#ifndef WS_HAS_PEXT

typedef struct {
    uint32_t depth;
    uint32_t limit;
    uint64_t kinds;     /* a bit for each open level, 1: object; innermost lowest */
    uint64_t in_object; /* all ones when the innermost is an object */
} V(nesting);

WS_INLINE uint64_t V(follow)(V(nesting) *s, uint64_t opener, uint64_t closer, uint64_t curly,
                             uint64_t colon, uint64_t element)
{
    const uint32_t openers = (uint32_t)__builtin_popcountll(opener);
    const uint32_t closers = (uint32_t)__builtin_popcountll(closer);
    const int careful = s->depth <= closers || s->depth + openers > s->limit;
    uint64_t todo = opener | closer;
    uint64_t objects = s->in_object; /* innermost container just before each position */
    uint64_t mismatch = 0;
    uint64_t value = ~UINT64_C(0);

    while (todo != 0) {
        const uint64_t bit = todo & -todo;
        const uint64_t kind = (curly & bit) != 0;
        if (opener & bit) {
            s->kinds = s->kinds << 1 | kind;
        } else {
            mismatch |= s->kinds ^ kind;
            s->kinds >>= 1;
        }
        const uint64_t now = -(s->kinds & 1);
        objects ^= (s->in_object ^ now) & -bit & ~bit;
        s->in_object = now;
        todo &= todo - 1;
        if (careful) {
            s->depth += opener & bit ? 1 : -1u;
            if (s->depth > s->limit)
                return 0;
            if (s->depth == 0) {
                value = bit | (bit - 1);
                break;
            }
        }
    }
    if (!careful)
        s->depth += openers - closers;
    if ((((colon & ~objects) | (element & objects)) & value) != 0 || (mismatch & 1) != 0)
        return 0;
    return value;
}

#else

/* The brackets are gathered in a queue, a bit each, and matched many at once: an opener next to a
 * closer is a pair; taken out, it leaves others next to each other. What was seen in the segment
 * before a bracket comes along, and when a pair is taken out, passes from its opener to the bracket
 * behind it, which is in the same container: so it reaches the closer, whose kind tells whether it
 * is right. After matching, the queue is the stack of the open brackets. */
typedef struct {
    uint32_t depth;
    uint32_t limit;
    uint32_t len;         /* of the queue; below 64, for the flags of the next bracket */
    uint64_t open, curly; /* for each bracket: is it an opener; of an object */
    uint64_t colon, element; /* for each bracket: flags of the segment before it */
    uint64_t colon_before, element_before; /* carries of the segment at the end of the block */
} V(nesting);

/* Pass each flag on the opener of a pair to the first bracket behind the run of pairs. */
WS_INLINE uint64_t V(pass_on)(uint64_t flags, uint64_t openers, uint64_t pairs)
{
    return (flags | ((flags & openers) + pairs)) & ~pairs;
}

/* Take out all pairs. Returns a value other than 0 for a fault. */
static __attribute__((noinline)) WS_TARGET uint64_t V(match)(V(nesting) *s)
{
    uint64_t fault = 0;
    for (;;) {
        const uint64_t all = (UINT64_C(1) << s->len) - 1;
        const uint64_t openers = s->open & ((~s->open & all) >> 1);
        if (openers == 0)
            return fault | (s->open ^ all);
        const uint64_t closers = openers << 1;
        const uint64_t pairs = openers | closers;
        fault |= closers & ((s->curly ^ s->curly << 1) | (s->colon & ~s->curly)
                            | (s->element & s->curly));
        s->colon = V(pext)(V(pass_on)(s->colon, openers, pairs), ~pairs);
        s->element = V(pext)(V(pass_on)(s->element, openers, pairs), ~pairs);
        s->open = V(pext)(s->open, ~pairs);
        s->curly = V(pext)(s->curly, ~pairs);
        s->len -= (uint32_t)__builtin_popcountll(pairs);
    }
}

/* Bits of `over` that follow a bit of `of` with no other bit of `over` between. */
WS_INLINE uint64_t V(next_of)(uint64_t of, uint64_t over, uint64_t *carry)
{
    unsigned long long sum;
    const uint64_t first = (uint64_t)__builtin_uaddll_overflow(~over, of & ~over, &sum);
    const uint64_t second = (uint64_t)__builtin_uaddll_overflow(sum, *carry, &sum);
    *carry = first | second;
    return (sum | of) & over;
}

/* V(follow), bracket by bracket: for blocks where the container may end or get too deep. */
static __attribute__((noinline)) WS_TARGET uint64_t V(follow_each)(V(nesting) *s, uint64_t opener,
                                                                   uint64_t closer, uint64_t curly,
                                                                   uint64_t colon, uint64_t element)
{
    if (V(match)(s) != 0)
        return 0;
    for (uint64_t todo = opener | closer; todo != 0; todo &= todo - 1) {
        const uint64_t bit = todo & -todo;
        const uint64_t kind = (curly & bit) != 0;
        s->colon |= (uint64_t)((colon & bit) != 0) << s->len;
        s->element |= (uint64_t)((element & bit) != 0) << s->len;
        if (opener & bit) {
            if (s->len == s->limit)
                return 0;
            s->open |= UINT64_C(1) << s->len;
            s->curly |= kind << s->len;
            s->len++;
            continue;
        }
        const uint64_t right = kind ? s->element : s->colon; /* must not be */
        if ((right >> s->len & 1) != 0)
            return 0;
        s->len--;
        if ((s->curly >> s->len & 1) != kind)
            return 0;
        if (s->len == 0) {
            s->depth = 0;
            return bit | (bit - 1);
        }
        const uint64_t below = (UINT64_C(1) << s->len) - 1;
        s->open &= below;
        s->curly &= below;
        s->colon &= below << 1 | 1;
        s->element &= below << 1 | 1;
    }
    s->depth = s->len;
    return ~UINT64_C(0);
}

WS_INLINE uint64_t V(follow)(V(nesting) *s, uint64_t opener, uint64_t closer, uint64_t curly,
                             uint64_t colon, uint64_t element)
{
    const uint64_t brackets = opener | closer;
    const uint32_t openers = (uint32_t)__builtin_popcountll(opener);
    const uint32_t closers = (uint32_t)__builtin_popcountll(closer);

    colon = V(next_of)(colon, brackets, &s->colon_before);
    element = V(next_of)(element, brackets, &s->element_before);
    if (WS_UNLIKELY(s->depth <= closers || s->depth + openers > s->limit))
        return V(follow_each)(s, opener, closer, curly, colon, element);
    s->depth += openers - closers;
    if (WS_UNLIKELY(s->len + openers + closers > 63)) {
        if (V(match)(s) != 0 || s->len + openers + closers > 63)
            return 0;
    }
    s->open |= V(pext)(opener, brackets) << s->len;
    s->curly |= V(pext)(curly, brackets) << s->len;
    s->colon |= V(pext)(colon, brackets) << s->len;
    s->element |= V(pext)(element, brackets) << s->len;
    s->len += openers + closers;
    return ~UINT64_C(0);
}

#endif
