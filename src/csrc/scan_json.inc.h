/* The JSON kernels of a level, and its table; included last.
 *
 * The message, its params and their _meta are walked token by token: they are short, and they hold
 * the points of interest. Short values in them are walked, too; longer arrays and objects go
 * through V(container), whole short messages through V(indexed) where a level has it. Text that
 * fails a check goes to the scalar kernel, which names the fault. */

WS_INLINE ws_status V(scan)(const uint8_t *p, size_t n, uint32_t max_depth, const int prefix,
                            ws_scan *out)
{
    size_t last = n;
    size_t i = 0;
    uint32_t seen = 0;            /* bits of the points of interest met so far */
    uint32_t object = WS_IN_NONE; /* innermost open object with points of interest; its depth */
    uint32_t member[4];           /* by object: the point of interest being read */
    size_t start[4];              /* by object: where its value starts */
    uint32_t poi = WS_MEMBER_NONE;
    size_t from;                  /* where the value being read starts */

    if (!prefix)
        while (last > 0 && ws_is_space(p[last - 1]))
            last--;
    if (last == 0 || (p[last - 1] | 0x20) != '}')
        goto slow;
    i = ws_skip_space(p, i);
    memset(out, 0, sizeof *out);
    out->value.off = (uint32_t)i;
    if (p[i] != '{') {
        if (p[i] != '[' || (i = V(container)(p, last, i, max_depth)) == 0)
            goto slow;
        out->root = WS_ROOT_ARRAY;
        goto end;
    }
    out->root = WS_ROOT_OBJECT;
#ifdef WS_HAS_INDEX
    if (prefix || last - i <= WS_INDEXED) {
        const size_t text = last - i <= WS_INDEXED ? last - i : WS_INDEXED;
        const size_t end = V(indexed)(p + i, text, max_depth, out, (uint32_t)i);
        if (end != 0) {
            i += end;
            goto end;
        }
        memset(out->poi, 0, sizeof out->poi);
        out->duplicates = 0;
        out->id_kind = 0;
    }
#endif
open:
    if (object == max_depth)
        goto slow;
    object++;
    i = ws_skip_space(p, i + 1);
    if (p[i] == '}')
        goto close;
key:
    if (p[i] != '"') {
        i = ws_skip_space(p, i);
        if (p[i] != '"')
            goto slow;
    }
    i = V(key)(p, last, i, object, &poi);
    if (i == 0)
        goto slow;
    if (p[i] != ':') {
        i = ws_skip_space(p, i);
        if (p[i] != ':')
            goto slow;
    }
    i = ws_skip_space(p, i + 1);
    if (poi != WS_MEMBER_NONE) {
        const uint32_t bit = UINT32_C(1) << poi;
        if (WS_UNLIKELY(seen & bit)) {
            out->duplicates |= bit;
            poi = WS_MEMBER_NONE;
        }
        seen |= bit;
    }
    from = i;
    ws_id_kind kind = WS_ID_INVALID;
    if (p[i] == '"') {
        if (poi == WS_JSONRPC && last - i >= 8
            && ws_eight(p + i) << 24 == WS_EIGHT(0, 0, 0, '"', '2', '.', '0', '"'))
            i += 5; /* predicted, as in ws_behind_name */
        else if (poi == WS_METHOD)
            i = V(name)(p, last, i, last);
        else
            i = V(string)(p, last, i + 1, last);
        kind = WS_ID_STRING;
    } else if (p[i] <= '9') {
        int integer;
        i = V(number)(p, i, &integer);
        kind = integer ? WS_ID_INTEGER : WS_ID_INVALID;
    } else if ((p[i] | 0x20) == '{') {
        if (p[i] == '{' && poi == ws_entered_by[object]) {
            member[object] = poi;
            start[object] = from;
            goto open;
        }
        i = V(short_container)(p, last, from, max_depth - object);
        if (i == 0)
            i = V(container)(p, last, from, max_depth - object);
        if (i == last)
            goto slow;
    } else {
        kind = p[i] == 'n' ? WS_ID_NULL : WS_ID_INVALID;
        i = ws_word_end(p, last, i);
    }
    if (i == 0)
        goto slow;
    if (poi == WS_ID)
        out->id_kind = (uint8_t)kind;
note:
    if (poi != WS_MEMBER_NONE)
        out->poi[poi] = (ws_span){(uint32_t)from, (uint32_t)(i - from)};
    if (p[i] != ',') {
        i = ws_skip_space(p, i);
        if (p[i] != ',')
            goto close;
    }
    i++;
    goto key;
close:
    if (p[i] != '}')
        goto slow;
    i++;
    if (--object != WS_IN_NONE) {
        if (i == last)
            goto slow;
        poi = member[object];
        from = start[object];
        goto note;
    }
end:
    out->end = (uint32_t)i;
    out->value.len = out->end - out->value.off;
    if (prefix || i == last)
        return WS_OK;
slow:
    return prefix ? ws_scalar_json_prefix(p, n, max_depth, out)
                  : ws_scalar_json(p, n, max_depth, out);
}

static WS_TARGET ws_status V(json)(const uint8_t *p, size_t n, uint32_t max_depth, ws_scan *out)
{
    return V(scan)(p, n, max_depth, 0, out);
}

static WS_TARGET ws_status V(json_prefix)(const uint8_t *p, size_t n, uint32_t max_depth,
                                          ws_scan *out)
{
    return V(scan)(p, n, max_depth, 1, out);
}

const ws_kernels V(table) = {
    .find_newline = V(find_newline),
    .utf8_valid = V(utf8_valid),
    .json = V(json),
    .json_prefix = V(json_prefix),
    .json_escape = V(json_escape),
    .json_plain = V(json_plain),
    .mask = V(apply_mask),
    .level = WS_LEVEL,
    .name = WS_LEVEL_NAME,
};
