/* Short messages at levels that can list the positions of the bits of a mask at once; included
 * behind scan_walk.inc.h, with two more primitives:
 *
 *   V(operator)(b)                 mask of commas, colons and brackets
 *   V(positions)(index, m, base)   write the position of each bit of m, plus base, to index, where
 *                                  there is room for 64 bytes; returns the number of bits
 *
 * First the tokens are listed, then the list is walked. So the walk, unlike that of
 * scan_walk.inc.h, does not wait for the end of one token to find the next. */

#define WS_INDEXED 256 /* positions fit in a byte */

/* List the positions of the tokens of p[0..n), n <= WS_INDEXED: brackets, colons, commas, both
 * quotes of strings, first bytes of scalars. Strings are validated. Returns the number of tokens,
 * or 0. */
WS_INLINE size_t V(index_tokens)(const uint8_t *p, size_t n, uint8_t *index)
{
    uint64_t in_string = 0, scalar_before = 0, utf8_open = 0, err = 0;
    V(escapes) escapes = {0, 0};
    V(block) before = V(load_part)(p, 0);
    size_t count = 0;

    for (size_t base = 0; base < n; base += 64) {
        const size_t left = n - base;
        const V(block) b = left >= 64 ? V(load)(p + base) : V(load_part)(p + base, left);
        const uint64_t backslash = V(eq)(b, '\\');
        const uint64_t high = V(high)(b);
        uint64_t quote = V(eq)(b, '"');
        if (WS_UNLIKELY((backslash | escapes.escaped | escapes.hex) != 0))
            quote &= ~V(find_escaped)(&escapes, b, backslash, &err);
        const uint64_t inside = V(prefix_xor)(quote) ^ in_string;
        const uint64_t string = inside | quote;
        in_string = (uint64_t)((int64_t)inside >> 63);
        err |= V(control)(b) & inside;
        if (WS_UNLIKELY((high | utf8_open) != 0)) {
            if (V(utf8_bad)(b, before))
                return 0;
            utf8_open = left >= 64 && V(utf8_open)(p + base + 64);
        }
        before = b;
        const uint64_t operator = V(operator)(b) & ~string;
        const uint64_t scalar = ~(string | operator | V(space)(b));
        const uint64_t starts = scalar & ~(scalar << 1 | scalar_before);
        scalar_before = scalar >> 63;
        count += V(positions)(index + count, quote | operator | starts, (unsigned)base);
    }
    return err == 0 ? count : 0;
}

/* The number or literal at p[i]. */
WS_INLINE size_t V(indexed_scalar)(const uint8_t *p, size_t n, size_t i, ws_id_kind *kind)
{
    if (ws_is_letter(p[i])) {
        *kind = p[i] == 'n' ? WS_ID_NULL : WS_ID_INVALID;
        i = ws_word_end(p, n, i);
    } else {
        int integer = 0;
        i = V(number)(p, i, &integer);
        *kind = integer ? WS_ID_INTEGER : WS_ID_INVALID;
    }
    return i != 0 && ws_is_edge(p[i]) ? i : 0;
}

/* Walk the message in p[0..n), n <= WS_INDEXED. Returns the offset behind the message, or 0 when it
 * is faulty or does not end there. `shift` is added to the offsets that are noted. */
WS_INLINE size_t V(indexed)(const uint8_t *p, size_t n, uint32_t max_depth, ws_scan *out,
                            uint32_t shift)
{
    uint8_t index[WS_INDEXED + 64];
    const size_t count = V(index_tokens)(p, n, index);
    size_t k = 0;                 /* the next token */
    uint64_t kinds = 0;           /* a bit for each open level, 1: object; innermost lowest */
    uint32_t seen = 0;            /* bits of the points of interest met so far */
    uint32_t depth = 0;
    uint32_t object = WS_IN_NONE; /* innermost open object with points of interest; its depth */
    uint32_t member[4];           /* by object: the point of interest being read */
    size_t start[4];              /* by object: where its value starts */
    uint32_t poi = WS_MEMBER_NONE;
    size_t i, end;
    ws_id_kind kind;

    if (count == 0)
        return 0;
    /* A step looks up to 3 tokens ahead, and then sees that it ran over the end. */
    memset(index + count, (int)(n - 1), 8);
    if (max_depth > 64)
        max_depth = 64;

enter: /* an object with points of interest, at token k */
    object++;
    kinds = kinds << 1 | 1;
    if (++depth > max_depth)
        return 0;
    k++;
    if (p[index[k]] == '}')
        goto close;
note: /* a key in an object with points of interest, at token k */
    i = index[k];
    end = index[k + 1];
    if (p[i] != '"' || p[index[k + 2]] != ':' || k + 3 >= count)
        return 0;
    poi = ws_find_key(object, p, n, i, end);
    k += 3;
    if (poi != WS_MEMBER_NONE) {
        const uint32_t bit = UINT32_C(1) << poi;
        if (WS_UNLIKELY(seen & bit)) {
            out->duplicates |= bit;
            poi = WS_MEMBER_NONE;
        }
        seen |= bit;
    }
    i = index[k];
    start[object] = i;
    if (p[i] == '"') {
        end = (size_t)index[k + 1] + 1;
        kind = WS_ID_STRING;
        k += 2;
    } else if ((p[i] | 0x20) == '{') {
        if (p[i] == '{' && poi == ws_entered_by[object]) {
            member[object] = poi;
            goto enter;
        }
        kind = WS_ID_INVALID;
        goto open;
    } else {
        end = V(indexed_scalar)(p, n, i, &kind);
        if (end == 0)
            return 0;
        k++;
    }
    if (poi == WS_ID)
        out->id_kind = (uint8_t)kind;
noted:
    if (poi != WS_MEMBER_NONE) {
        out->poi[poi].off = (uint32_t)start[object] + shift;
        out->poi[poi].len = (uint32_t)(end - start[object]);
    }
    if (p[index[k]] == ',') {
        k++;
        goto note;
    }
    goto close;

open: /* another array or object, at token k */
    kinds = kinds << 1 | (p[index[k]] == '{');
    if (++depth > max_depth)
        return 0;
    k++;
    if ((p[index[k]] | 0x20) == '}')
        goto close;
    if (!(kinds & 1))
        goto value;
key:
    if (p[index[k]] != '"' || p[index[k + 2]] != ':')
        return 0;
    k += 3;
value:
    if (k >= count)
        return 0;
    i = index[k];
    if (p[i] == '"') {
        k += 2;
    } else if ((p[i] | 0x20) == '{') {
        goto open;
    } else {
        if (V(indexed_scalar)(p, n, i, &kind) == 0)
            return 0;
        k++;
    }
next:
    if (p[index[k]] == ',') {
        k++;
        if (kinds & 1)
            goto key;
        goto value;
    }
close: /* a closing bracket must be at token k */
    if (k >= count || p[index[k]] != (kinds & 1 ? '}' : ']'))
        return 0;
    end = (size_t)index[k] + 1;
    k++;
    kinds >>= 1;
    depth--;
    if (depth > object)
        goto next;
    if (depth < object) { /* the object had points of interest */
        if (--object == WS_IN_NONE)
            return end;
        poi = member[object];
    } else if (poi == WS_ID) {
        out->id_kind = WS_ID_INVALID;
    }
    goto noted;
}

