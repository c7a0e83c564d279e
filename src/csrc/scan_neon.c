/* arm64: NEON is part of the architecture. */
#include "scan_internal.h"

#if defined(WS_NEON)

#include <arm_neon.h>

#include "scan_tables.h"
#include "scan_tokens.h"

#define WS_TARGET
#define V(name) neon_##name
#define WS_LEVEL WS_LEVEL_NEON
#define WS_LEVEL_NAME "neon"
#define neon_table ws_kernels_neon
#define NEON static inline __attribute__((always_inline))

typedef struct {
    uint8x16_t a, b, c, d;
} neon_block;

/* Each byte is 0 or 0xFF; its lowest bits are added up to one bit a byte. */
NEON uint64_t neon_mask(uint8x16_t a, uint8x16_t b, uint8x16_t c, uint8x16_t d)
{
    static const uint8_t bits[16] = {1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128};
    const uint8x16_t bit = vld1q_u8(bits);
    const uint8x16_t ab = vpaddq_u8(vandq_u8(a, bit), vandq_u8(b, bit));
    const uint8x16_t cd = vpaddq_u8(vandq_u8(c, bit), vandq_u8(d, bit));
    const uint8x16_t abcd = vpaddq_u8(ab, cd);
    return vgetq_lane_u64(vreinterpretq_u64_u8(vpaddq_u8(abcd, abcd)), 0);
}

#define NEON_EACH(f) neon_mask(f(x.a), f(x.b), f(x.c), f(x.d))

NEON neon_block neon_load(const uint8_t *p)
{
    return (neon_block){vld1q_u8(p), vld1q_u8(p + 16), vld1q_u8(p + 32), vld1q_u8(p + 48)};
}

NEON void neon_store(uint8_t *p, neon_block x)
{
    vst1q_u8(p, x.a);
    vst1q_u8(p + 16, x.b);
    vst1q_u8(p + 32, x.c);
    vst1q_u8(p + 48, x.d);
}

NEON neon_block neon_repeat(uint32_t word)
{
    const uint8x16_t v = vreinterpretq_u8_u32(vdupq_n_u32(word));
    return (neon_block){v, v, v, v};
}

NEON neon_block neon_xor(neon_block x, neon_block y)
{
    return (neon_block){veorq_u8(x.a, y.a), veorq_u8(x.b, y.b), veorq_u8(x.c, y.c),
                        veorq_u8(x.d, y.d)};
}

NEON neon_block neon_load_part(const uint8_t *p, size_t n)
{
    uint8_t padded[64];
    ws_pad(padded, p, n);
    return neon_load(padded);
}

NEON uint64_t neon_eq(neon_block x, uint8_t c)
{
    const uint8x16_t v = vdupq_n_u8(c);
#define F(y) vceqq_u8(y, v)
    return NEON_EACH(F);
#undef F
}

NEON uint64_t neon_eq_folded(neon_block x, uint8_t c)
{
    const uint8x16_t v = vdupq_n_u8(c), bit = vdupq_n_u8(0x20);
#define F(y) vceqq_u8(vorrq_u8(y, bit), v)
    return NEON_EACH(F);
#undef F
}

NEON uint64_t neon_has_bit(neon_block x, uint8_t bit)
{
    const uint8x16_t v = vdupq_n_u8(bit);
#define F(y) vtstq_u8(y, v)
    return NEON_EACH(F);
#undef F
}

NEON uint64_t neon_high(neon_block x)
{
    return neon_has_bit(x, 0x80);
}

NEON uint64_t neon_control(neon_block x)
{
    const uint8x16_t v = vdupq_n_u8(0x20);
#define F(y) vcltq_u8(y, v)
    return NEON_EACH(F);
#undef F
}

/* Bytes from lo to lo + span. */
NEON uint8x16_t neon_range(uint8x16_t y, uint8_t lo, uint8_t span)
{
    return vcleq_u8(vsubq_u8(y, vdupq_n_u8(lo)), vdupq_n_u8(span));
}

NEON uint64_t neon_digit(neon_block x)
{
#define F(y) neon_range(y, '0', 9)
    return NEON_EACH(F);
#undef F
}

NEON uint64_t neon_above_digits(neon_block x)
{
    const uint8x16_t v = vdupq_n_u8('9');
#define F(y) vcgtq_u8(y, v)
    return NEON_EACH(F);
#undef F
}

NEON uint64_t neon_hex(neon_block x)
{
    const uint8x16_t bit = vdupq_n_u8(0x20);
#define F(y) vorrq_u8(neon_range(y, '0', 9), neon_range(vorrq_u8(y, bit), 'a', 5))
    return NEON_EACH(F);
#undef F
}

NEON uint64_t neon_space(neon_block x)
{
    const uint8x16_t spaces = vld1q_u8(ws_spaces), low = vdupq_n_u8(0x0F);
#define F(y) vceqq_u8(y, vqtbl1q_u8(spaces, vandq_u8(y, low)))
    return NEON_EACH(F);
#undef F
}

NEON uint64_t neon_escapable(neon_block x)
{
    const uint8x16_t lows = vld1q_u8(ws_escapable_low), highs = vld1q_u8(ws_escapable_high);
    const uint8x16_t low = vdupq_n_u8(0x0F);
#define F(y) \
    vtstq_u8(vqtbl1q_u8(lows, vandq_u8(y, low)), vqtbl1q_u8(highs, vshrq_n_u8(y, 4)))
    return NEON_EACH(F);
#undef F
}

/* The polynomial multiplication that x86 uses is optional here. */
NEON uint64_t neon_prefix_xor(uint64_t m)
{
    m ^= m << 1;
    m ^= m << 2;
    m ^= m << 4;
    m ^= m << 8;
    m ^= m << 16;
    m ^= m << 32;
    return m;
}

/* 0xFF where a byte is '"', '\\', below 0x20 or from 0x80. */
NEON uint8x16_t neon_specials(uint8x16_t y)
{
    const uint8x16_t control = vcltq_s8(vreinterpretq_s8_u8(y), vdupq_n_s8(0x20)); /* signed */
    return vorrq_u8(control,
                    vorrq_u8(vceqq_u8(y, vdupq_n_u8('"')), vceqq_u8(y, vdupq_n_u8('\\'))));
}

NEON int neon_special(neon_block x)
{
    const uint8x16_t ab = vorrq_u8(neon_specials(x.a), neon_specials(x.b));
    const uint8x16_t cd = vorrq_u8(neon_specials(x.c), neon_specials(x.d));
    return vmaxvq_u8(vorrq_u8(ab, cd)) != 0;
}

/* How many bytes come before the first that is not 0, of 16 that are 0 or 0xFF. */
NEON size_t neon_leading(uint8x16_t y)
{
    const uint8x8_t nibbles = vshrn_n_u16(vreinterpretq_u16_u8(y), 4);
    const uint64_t hits = vget_lane_u64(vreinterpret_u64_u8(nibbles), 0);
    return hits != 0 ? (size_t)__builtin_ctzll(hits) / 4 : 16;
}

NEON size_t neon_special16(const uint8_t *p)
{
    return neon_leading(neon_specials(vld1q_u8(p)));
}

/* Faults that end in y. earlier: the vector before it. */
NEON uint8x16_t neon_utf8_faults(uint8x16_t y, uint8x16_t earlier)
{
    const uint8x16_t y1 = vextq_u8(earlier, y, 15);
    const uint8x16_t y2 = vextq_u8(earlier, y, 14);
    const uint8x16_t y3 = vextq_u8(earlier, y, 13);
    const uint8x16_t pair = vandq_u8(
        vandq_u8(vqtbl1q_u8(vld1q_u8(ws_utf8_high_1), vshrq_n_u8(y1, 4)),
                 vqtbl1q_u8(vld1q_u8(ws_utf8_low_1), vandq_u8(y1, vdupq_n_u8(0x0F)))),
        vqtbl1q_u8(vld1q_u8(ws_utf8_high_2), vshrq_n_u8(y, 4)));
    const uint8x16_t third = vcgeq_u8(y2, vdupq_n_u8(0xE0));
    const uint8x16_t fourth = vcgeq_u8(y3, vdupq_n_u8(0xF0));
    return veorq_u8(vandq_u8(vorrq_u8(third, fourth), vdupq_n_u8(0x80)), pair);
}

NEON int neon_utf8_bad(neon_block x, neon_block before)
{
    const uint8x16_t ab = vorrq_u8(neon_utf8_faults(x.a, before.d), neon_utf8_faults(x.b, x.a));
    const uint8x16_t cd = vorrq_u8(neon_utf8_faults(x.c, x.b), neon_utf8_faults(x.d, x.c));
    return vmaxvq_u8(vorrq_u8(ab, cd)) != 0;
}

#include "scan_simd.inc.h"
#include "scan_mask.inc.h"
#include "scan_walk.inc.h"
#include "scan_json.inc.h"

#else
typedef int ws_no_neon; /* ISO C wants a declaration */
#endif
