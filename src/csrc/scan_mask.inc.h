/* WebSocket masking for a vector level (see scan_simd.inc.h); further primitives:
 *
 *   V(repeat)(word)                 a block of that 32-bit word, as it lies in memory
 *   V(xor)(a, b)
 *   V(mask_part)(dst, src, n, word) the same for n < 64 bytes; only where WS_HAS_MASK_PART is
 *                                   defined */

static WS_TARGET void V(apply_mask)(uint8_t *dst, const uint8_t *src, size_t n,
                                    const uint8_t key[4], size_t at)
{
    const uint32_t word = ws_mask_word(key, at);
    size_t i = 0;
    if (n >= 64) {
        const V(block) words = V(repeat)(word);
        for (; n - i >= 64; i += 64)
            V(store)(dst + i, V(xor)(V(load)(src + i), words));
    }
#ifdef WS_HAS_MASK_PART
    V(mask_part)(dst + i, src + i, n - i, word);
#else
    ws_mask_words(dst + i, src + i, n - i, word);
#endif
}
#undef WS_HAS_MASK_PART
