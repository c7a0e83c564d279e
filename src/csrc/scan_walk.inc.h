/* Values token by token; included behind scan_simd.inc.h, with one more primitive:
 *
 *   V(special16)(p)   how many of the 16 bytes at p come before the first that is '"', '\\', below
 *                     0x20 or from 0x80
 *
 * The walk relies on a closing bracket as the last byte: skipped bytes (space, digits) end there at
 * the latest, so the end of the text is checked behind values only. All functions return the offset
 * behind the bytes that they read, or 0. */

/* The string whose inside starts at p[i]. Behind `budget` only plain ASCII is read. */
WS_INLINE size_t V(string)(const uint8_t *p, size_t n, size_t i, size_t budget)
{
    if (WS_LIKELY(n - i >= 16)) {
        const size_t plain = V(special16)(p + i);
        i += plain;
        if (WS_LIKELY(plain < 16 && p[i] == '"'))
            return i + 1;
    }
    for (;;) {
        while (n - i >= 64 && !V(special)(V(load)(p + i)))
            i += 64;
        while (n - i >= 16) {
            const size_t plain = V(special16)(p + i);
            i += plain;
            if (plain < 16)
                break;
        }
        while (i < n && p[i] >= 0x20 && p[i] < 0x80 && p[i] != '"' && p[i] != '\\')
            i++;
        if (i == n)
            return 0;
        if (p[i] == '"')
            return i + 1;
        if (i > budget)
            return 0;
        if (p[i] >= 0x80) {
            do {
                const size_t len = ws_utf8_sequence(p + i, n - i);
                if (len == 0)
                    return 0;
                i += len;
            } while (i < n && p[i] >= 0x80 && i <= budget);
        } else if (p[i] == '\\') {
            const size_t len = ws_escape_length(p + i, n - i);
            if (len == 0)
                return 0;
            i += len;
        } else {
            return 0;
        }
    }
}

/* The string at p[i], where others are likely as long: a key, a method. */
WS_INLINE size_t V(name)(const uint8_t *p, size_t n, size_t i, size_t budget)
{
    i++;
    if (WS_LIKELY(n - i >= 16)) {
        const size_t plain = V(special16)(p + i);
        if (WS_LIKELY(plain < 16 && p[i + plain] == '"'))
            return ws_behind_name(i - 1, plain + 2);
    }
    return V(string)(p, n, i, budget);
}

/* The number at p[i]. *integer: whether it has no fraction and no exponent. */
WS_INLINE size_t V(number)(const uint8_t *p, size_t i, int *integer)
{
    i += p[i] == '-';
    const size_t first = i;
    while (ws_is_digit(p[i]))
        i++;
    if (i == first || (p[first] == '0' && i > first + 1))
        return 0;
    *integer = 1;
    if (WS_LIKELY(p[i] != '.' && (p[i] | 0x20) != 'e'))
        return i;
    *integer = 0;
    if (p[i] == '.') {
        const size_t fraction = ++i;
        while (ws_is_digit(p[i]))
            i++;
        if (i == fraction)
            return 0;
    }
    if ((p[i] | 0x20) == 'e') {
        i++;
        i += p[i] == '+' || p[i] == '-';
        const size_t exponent = i;
        while (ws_is_digit(p[i]))
            i++;
        if (i == exponent)
            return 0;
    }
    return i;
}

/* How many bytes of an array or object are walked token by token: about where V(container) starts
 * to be faster in spite of the cost to enter it. */
#ifndef WS_WALKED
#define WS_WALKED 96
#endif
#define WS_WALKED_STRING 64 /* bytes that the last string may add */

/* Read an array or object; return 0 where it is longer than that. V(container) then starts again,
 * so this bounds the number of bytes that are read twice. */
WS_INLINE size_t V(short_container)(const uint8_t *p, size_t n, size_t i, uint32_t limit)
{
    const size_t budget = i + WS_WALKED;
    const size_t reach = n - i > WS_WALKED + WS_WALKED_STRING ? budget + WS_WALKED_STRING : n;
    uint64_t kinds = 0; /* a bit for each open level, 1: object; innermost lowest */
    uint32_t depth = 0;
    int integer;

    if (limit > 64)
        limit = 64;
open:
    if (depth == limit)
        return 0;
    depth++;
    kinds = kinds << 1 | (p[i] == '{');
    i = ws_skip_space(p, i + 1);
    if ((p[i] | 0x20) == '}')
        goto close;
    if (!(kinds & 1))
        goto value;
key:
    if (p[i] != '"' || i > budget || (i = V(name)(p, reach, i, budget)) == 0)
        return 0;
    i = ws_skip_space(p, i);
    if (p[i] != ':')
        return 0;
    i = ws_skip_space(p, i + 1);
value:
    if (i > budget)
        return 0;
    switch (p[i]) {
    case '"':
        i = V(string)(p, reach, i + 1, budget);
        break;
    case '{':
    case '[':
        goto open;
    case 't':
    case 'f':
    case 'n':
        i = ws_word_end(p, n, i);
        break;
    default:
        i = V(number)(p, i, &integer);
        break;
    }
    if (i == 0)
        return 0;
    for (;;) {
        if (i == n)
            return 0;
        i = ws_skip_space(p, i);
        if (p[i] == ',') {
            i = ws_skip_space(p, i + 1);
            if (kinds & 1)
                goto key;
            goto value;
        }
    close:
        if (p[i] != (kinds & 1 ? '}' : ']'))
            return 0;
        i++;
        kinds >>= 1;
        if (--depth == 0)
            return i;
    }
}

/* The key at p[i]. *poi: which member of `object` it is, or WS_MEMBER_NONE. */
WS_INLINE size_t V(key)(const uint8_t *p, size_t n, size_t i, uint32_t object, uint32_t *poi)
{
    if (WS_LIKELY(n - i >= 16)) {
        uint64_t eight;
        memcpy(&eight, p + i, 8);
        const ws_key_slot *slot = &ws_key_slots[object][eight >> 8 & 15];
        if (WS_LIKELY((eight & slot->mask) == slot->value && slot->len != 0)) {
            if (slot->len <= 8) {
                *poi = slot->poi;
                return ws_behind_name(i, slot->len);
            }
            const size_t end = ws_long_key(slot, p + i, n - i, poi);
            if (end != 0)
                return ws_behind_name(i, end);
        }
    }
    const size_t end = V(name)(p, n, i, n);
    if (end == 0)
        return 0;
    const int known = ws_key_poi((int)object, p + i + 1, end - i - 2);
    *poi = known == WS_NO_POI ? WS_MEMBER_NONE : (uint32_t)known;
    return end;
}
