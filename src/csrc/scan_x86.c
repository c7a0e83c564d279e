/* x86-64: SSE2 is the baseline; the wider levels are compiled function by function, so that no
 * wide instruction gets into code that runs on every machine. */
#if defined(__x86_64__)

#include <immintrin.h>

#include "scan_tokens.h"
#include "scan_tables.h"

/* ---- SSE2 ---- */

#define WS_TARGET
#define V(name) sse2_##name
#define WS_LEVEL WS_LEVEL_SSE2
#define WS_LEVEL_NAME "sse2"
#define sse2_table ws_kernels_sse2
#define SSE2 static inline __attribute__((always_inline))

typedef struct {
    __m128i a, b, c, d;
} sse2_block;

SSE2 uint64_t sse2_mask(__m128i a, __m128i b, __m128i c, __m128i d)
{
    const uint32_t lo = (uint32_t)_mm_movemask_epi8(a) | (uint32_t)_mm_movemask_epi8(b) << 16;
    const uint32_t hi = (uint32_t)_mm_movemask_epi8(c) | (uint32_t)_mm_movemask_epi8(d) << 16;
    return lo | (uint64_t)hi << 32;
}

SSE2 sse2_block sse2_load(const uint8_t *p)
{
    const __m128i *v = (const __m128i *)(const void *)p;
    return (sse2_block){_mm_loadu_si128(v), _mm_loadu_si128(v + 1), _mm_loadu_si128(v + 2),
                        _mm_loadu_si128(v + 3)};
}

SSE2 void sse2_store(uint8_t *p, sse2_block x)
{
    __m128i *v = (__m128i *)(void *)p;
    _mm_storeu_si128(v, x.a);
    _mm_storeu_si128(v + 1, x.b);
    _mm_storeu_si128(v + 2, x.c);
    _mm_storeu_si128(v + 3, x.d);
}

SSE2 sse2_block sse2_repeat(uint32_t word)
{
    const __m128i v = _mm_set1_epi32((int)word);
    return (sse2_block){v, v, v, v};
}

SSE2 sse2_block sse2_xor(sse2_block x, sse2_block y)
{
    return (sse2_block){_mm_xor_si128(x.a, y.a), _mm_xor_si128(x.b, y.b), _mm_xor_si128(x.c, y.c),
                        _mm_xor_si128(x.d, y.d)};
}

SSE2 sse2_block sse2_load_part(const uint8_t *p, size_t n)
{
    uint8_t padded[64];
    ws_pad(padded, p, n);
    return sse2_load(padded);
}

#define SSE2_EACH(f) sse2_mask(f(x.a), f(x.b), f(x.c), f(x.d))

SSE2 uint64_t sse2_eq(sse2_block x, char c)
{
    const __m128i v = _mm_set1_epi8(c);
#define F(y) _mm_cmpeq_epi8(y, v)
    return SSE2_EACH(F);
#undef F
}

SSE2 uint64_t sse2_eq_folded(sse2_block x, char c)
{
    const __m128i v = _mm_set1_epi8(c), bit = _mm_set1_epi8(0x20);
#define F(y) _mm_cmpeq_epi8(_mm_or_si128(y, bit), v)
    return SSE2_EACH(F);
#undef F
}

SSE2 uint64_t sse2_has_bit(sse2_block x, char c)
{
    const __m128i v = _mm_set1_epi8(c);
#define F(y) _mm_cmpeq_epi8(_mm_and_si128(y, v), v)
    return SSE2_EACH(F);
#undef F
}

SSE2 uint64_t sse2_high(sse2_block x)
{
    return sse2_mask(x.a, x.b, x.c, x.d);
}

SSE2 uint64_t sse2_control(sse2_block x)
{
    const __m128i v = _mm_set1_epi8(0x1F);
#define F(y) _mm_cmpeq_epi8(_mm_max_epu8(y, v), v)
    return SSE2_EACH(F);
#undef F
}

/* Bytes from lo to lo + span, unsigned. */
SSE2 __m128i sse2_range(__m128i y, char lo, char span)
{
    const __m128i v = _mm_set1_epi8(span);
    return _mm_cmpeq_epi8(_mm_max_epu8(_mm_sub_epi8(y, _mm_set1_epi8(lo)), v), v);
}

SSE2 uint64_t sse2_digit(sse2_block x)
{
#define F(y) sse2_range(y, '0', 9)
    return SSE2_EACH(F);
#undef F
}

SSE2 uint64_t sse2_above_digits(sse2_block x)
{
    const __m128i v = _mm_set1_epi8('9' + 1);
#define F(y) _mm_cmpeq_epi8(_mm_max_epu8(y, v), y)
    return SSE2_EACH(F);
#undef F
}

SSE2 uint64_t sse2_hex(sse2_block x)
{
    const __m128i bit = _mm_set1_epi8(0x20);
#define F(y) _mm_or_si128(sse2_range(y, '0', 9), sse2_range(_mm_or_si128(y, bit), 'a', 5))
    return SSE2_EACH(F);
#undef F
}

SSE2 uint64_t sse2_space(sse2_block x)
{
    const __m128i space = _mm_set1_epi8(' '), cr = _mm_set1_epi8('\r');
#define F(y)                                                                   \
    _mm_or_si128(_mm_or_si128(_mm_cmpeq_epi8(y, space), _mm_cmpeq_epi8(y, cr)), \
                 sse2_range(y, '\t', 1))
    return SSE2_EACH(F);
#undef F
}

SSE2 uint64_t sse2_escapable(sse2_block x)
{
    return sse2_eq(x, '"') | sse2_eq(x, '\\') | sse2_eq(x, '/') | sse2_eq(x, 'b') | sse2_eq(x, 'f')
           | sse2_eq(x, 'n') | sse2_eq(x, 'r') | sse2_eq(x, 't') | sse2_eq(x, 'u');
}

SSE2 uint64_t sse2_prefix_xor(uint64_t m)
{
    m ^= m << 1;
    m ^= m << 2;
    m ^= m << 4;
    m ^= m << 8;
    m ^= m << 16;
    m ^= m << 32;
    return m;
}

SSE2 int sse2_special(sse2_block x)
{
    const __m128i quote = _mm_set1_epi8('"'), backslash = _mm_set1_epi8('\\');
    const __m128i last_control = _mm_set1_epi8(0x1F);
    /* signed: bytes from 0x80 are negative */
#define F(y)                                                                               \
    _mm_or_si128(_mm_or_si128(_mm_cmpeq_epi8(y, quote), _mm_cmpeq_epi8(y, backslash)),      \
                 _mm_xor_si128(_mm_cmpgt_epi8(y, last_control), _mm_set1_epi8(-1)))
    return _mm_movemask_epi8(_mm_or_si128(_mm_or_si128(F(x.a), F(x.b)),
                                          _mm_or_si128(F(x.c), F(x.d)))) != 0;
#undef F
}

SSE2 size_t sse2_special16(const uint8_t *p)
{
    const __m128i y = _mm_loadu_si128((const __m128i *)(const void *)p);
    const __m128i plain = _mm_cmpgt_epi8(y, _mm_set1_epi8(0x1F)); /* signed */
    const __m128i other = _mm_or_si128(_mm_cmpeq_epi8(y, _mm_set1_epi8('"')),
                                       _mm_cmpeq_epi8(y, _mm_set1_epi8('\\')));
    const unsigned hits = (unsigned)_mm_movemask_epi8(_mm_andnot_si128(other, plain)) ^ 0xFFFF;
    return (size_t)__builtin_ctz(hits | 0x10000);
}

/* There is no byte shuffle in SSE2: go sequence by sequence through the two blocks at text, from
 * the one that reaches into the second. One that goes on behind it is checked with the next block,
 * but the bytes that exist must be tails: the block may be padded. */
static __attribute__((noinline)) int sse2_utf8_bytes(const uint8_t *text)
{
    size_t i = 64;
    if (text[61] >= 0xF0)
        i = 61;
    else if (text[62] >= 0xE0)
        i = 62;
    else if (text[63] >= 0xC0)
        i = 63;
    while (i < 128) {
        const uint8_t c = text[i];
        if (c >= 0xC0 && i + 2 + (c >= 0xE0) + (c >= 0xF0) > 128) {
            while (++i < 128)
                if ((text[i] & 0xC0) != 0x80)
                    return 1;
            return 0;
        }
        const size_t len = ws_utf8_sequence(text + i, 128 - i);
        if (len == 0)
            return 1;
        i += len;
    }
    return 0;
}

SSE2 int sse2_utf8_bad(sse2_block x, sse2_block before)
{
    uint8_t text[128];
    sse2_store(text, before);
    sse2_store(text + 64, x);
    return sse2_utf8_bytes(text);
}

#include "scan_simd.inc.h"
#include "scan_mask.inc.h"
#include "scan_walk.inc.h"
#include "scan_json.inc.h"

#undef WS_TARGET
#undef V
#undef WS_LEVEL
#undef WS_LEVEL_NAME

/* ---- AVX2 ---- */

#define WS_TARGET __attribute__((target("avx2,popcnt,bmi,bmi2,pclmul")))
#define V(name) avx2_##name
#define WS_LEVEL WS_LEVEL_AVX2
#define WS_LEVEL_NAME "avx2"
#define avx2_table ws_kernels_avx2
#define AVX2 static inline __attribute__((always_inline)) WS_TARGET

typedef struct {
    __m256i a, b;
} avx2_block;

AVX2 uint64_t avx2_mask(__m256i a, __m256i b)
{
    return (uint32_t)_mm256_movemask_epi8(a) | (uint64_t)(uint32_t)_mm256_movemask_epi8(b) << 32;
}

#define AVX2_EACH(f) avx2_mask(f(x.a), f(x.b))

AVX2 avx2_block avx2_load(const uint8_t *p)
{
    const __m256i *v = (const __m256i *)(const void *)p;
    return (avx2_block){_mm256_loadu_si256(v), _mm256_loadu_si256(v + 1)};
}

AVX2 void avx2_store(uint8_t *p, avx2_block x)
{
    __m256i *v = (__m256i *)(void *)p;
    _mm256_storeu_si256(v, x.a);
    _mm256_storeu_si256(v + 1, x.b);
}

AVX2 avx2_block avx2_repeat(uint32_t word)
{
    const __m256i v = _mm256_set1_epi32((int)word);
    return (avx2_block){v, v};
}

AVX2 avx2_block avx2_xor(avx2_block x, avx2_block y)
{
    return (avx2_block){_mm256_xor_si256(x.a, y.a), _mm256_xor_si256(x.b, y.b)};
}

AVX2 avx2_block avx2_load_part(const uint8_t *p, size_t n)
{
    uint8_t padded[64];
    ws_pad(padded, p, n);
    return avx2_load(padded);
}

AVX2 uint64_t avx2_eq(avx2_block x, char c)
{
    const __m256i v = _mm256_set1_epi8(c);
#define F(y) _mm256_cmpeq_epi8(y, v)
    return AVX2_EACH(F);
#undef F
}

AVX2 uint64_t avx2_eq_folded(avx2_block x, char c)
{
    const __m256i v = _mm256_set1_epi8(c), bit = _mm256_set1_epi8(0x20);
#define F(y) _mm256_cmpeq_epi8(_mm256_or_si256(y, bit), v)
    return AVX2_EACH(F);
#undef F
}

/* movemask reads the top bit of a byte. */
AVX2 uint64_t avx2_has_bit(avx2_block x, char c)
{
    const int shift = __builtin_clz((unsigned)c) - 24;
#define F(y) _mm256_slli_epi16(y, shift)
    return AVX2_EACH(F);
#undef F
}

AVX2 uint64_t avx2_high(avx2_block x)
{
    return avx2_mask(x.a, x.b);
}

AVX2 uint64_t avx2_control(avx2_block x)
{
    const __m256i v = _mm256_set1_epi8(0x1F);
#define F(y) _mm256_cmpeq_epi8(_mm256_max_epu8(y, v), v)
    return AVX2_EACH(F);
#undef F
}

/* Bytes from lo to lo + span, unsigned. */
AVX2 __m256i avx2_range(__m256i y, char lo, char span)
{
    const __m256i v = _mm256_set1_epi8(span);
    return _mm256_cmpeq_epi8(_mm256_max_epu8(_mm256_sub_epi8(y, _mm256_set1_epi8(lo)), v), v);
}

AVX2 uint64_t avx2_digit(avx2_block x)
{
#define F(y) avx2_range(y, '0', 9)
    return AVX2_EACH(F);
#undef F
}

AVX2 uint64_t avx2_above_digits(avx2_block x)
{
    const __m256i v = _mm256_set1_epi8('9' + 1);
#define F(y) _mm256_cmpeq_epi8(_mm256_max_epu8(y, v), y)
    return AVX2_EACH(F);
#undef F
}

AVX2 uint64_t avx2_hex(avx2_block x)
{
    const __m256i bit = _mm256_set1_epi8(0x20);
#define F(y) \
    _mm256_or_si256(avx2_range(y, '0', 9), avx2_range(_mm256_or_si256(y, bit), 'a', 5))
    return AVX2_EACH(F);
#undef F
}

AVX2 __m256i avx2_lookup(const uint8_t *entries, __m256i by)
{
    const __m128i *v = (const __m128i *)(const void *)entries;
    return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(_mm_loadu_si128(v)), by);
}

AVX2 uint64_t avx2_space(avx2_block x)
{
#define F(y) _mm256_cmpeq_epi8(y, avx2_lookup(ws_spaces, y))
    return AVX2_EACH(F);
#undef F
}

/* Not 0 where the nibbles of a byte have a bit in common; bytes from 0x80 have none. */
AVX2 __m256i avx2_escapables(__m256i y)
{
    const __m256i high = _mm256_and_si256(_mm256_srli_epi16(y, 4), _mm256_set1_epi8(0x0F));
    return _mm256_and_si256(avx2_lookup(ws_escapable_low, y), avx2_lookup(ws_escapable_high, high));
}

AVX2 uint64_t avx2_escapable(avx2_block x)
{
    const __m256i zero = _mm256_setzero_si256();
#define F(y) _mm256_cmpeq_epi8(avx2_escapables(y), zero)
    return ~AVX2_EACH(F);
#undef F
}

AVX2 uint64_t avx2_prefix_xor(uint64_t m)
{
    const __m128i product =
        _mm_clmulepi64_si128(_mm_cvtsi64_si128((long long)m), _mm_set1_epi8(-1), 0);
    return (uint64_t)_mm_cvtsi128_si64(product);
}

AVX2 size_t avx2_special16(const uint8_t *p)
{
    return sse2_special16(p);
}

AVX2 int avx2_special(avx2_block x)
{
    const __m256i quote = _mm256_set1_epi8('"'), backslash = _mm256_set1_epi8('\\');
    const __m256i space = _mm256_set1_epi8(' ');
    /* signed: bytes from 0x80 are negative */
#define F(y)                                                                                  \
    _mm256_or_si256(_mm256_or_si256(_mm256_cmpeq_epi8(y, quote), _mm256_cmpeq_epi8(y, backslash)), \
                    _mm256_cmpgt_epi8(space, y))
    const __m256i any = _mm256_or_si256(F(x.a), F(x.b));
    return !_mm256_testz_si256(any, any);
#undef F
}

/* Faults that end in y. earlier: the vector before it. */
AVX2 __m256i avx2_utf8_faults(__m256i y, __m256i earlier)
{
    const __m256i low = _mm256_set1_epi8(0x0F);
    const __m256i across = _mm256_permute2x128_si256(earlier, y, 0x21);
    const __m256i y1 = _mm256_alignr_epi8(y, across, 15);
    const __m256i y2 = _mm256_alignr_epi8(y, across, 14);
    const __m256i y3 = _mm256_alignr_epi8(y, across, 13);
    const __m256i pair = _mm256_and_si256(
        _mm256_and_si256(
            avx2_lookup(ws_utf8_high_1, _mm256_and_si256(_mm256_srli_epi16(y1, 4), low)),
            avx2_lookup(ws_utf8_low_1, _mm256_and_si256(y1, low))),
        avx2_lookup(ws_utf8_high_2, _mm256_and_si256(_mm256_srli_epi16(y, 4), low)));
    const __m256i third = _mm256_subs_epu8(y2, _mm256_set1_epi8(0xE0 - 0x80));
    const __m256i fourth = _mm256_subs_epu8(y3, _mm256_set1_epi8(0xF0 - 0x80));
    const __m256i tail = _mm256_and_si256(_mm256_or_si256(third, fourth), _mm256_set1_epi8(-128));
    return _mm256_xor_si256(tail, pair);
}

AVX2 int avx2_utf8_bad(avx2_block x, avx2_block before)
{
    const __m256i faults =
        _mm256_or_si256(avx2_utf8_faults(x.a, before.b), avx2_utf8_faults(x.b, x.a));
    return !_mm256_testz_si256(faults, faults);
}

#include "scan_simd.inc.h"
#include "scan_mask.inc.h"
#include "scan_walk.inc.h"
#include "scan_json.inc.h"

#undef WS_TARGET
#undef V
#undef WS_LEVEL
#undef WS_LEVEL_NAME

/* ---- AVX-512 F, BW, VL, VBMI and VBMI2 ---- */

#define WS_TARGET                                                                  \
    __attribute__((target("avx512f,avx512bw,avx512vl,avx512vbmi,avx512vbmi2,avx2," \
                          "popcnt,bmi,bmi2,pclmul")))
#define V(name) avx512_##name
#define WS_LEVEL WS_LEVEL_AVX512
#define WS_LEVEL_NAME "avx512"
#define avx512_table ws_kernels_avx512
#define AVX512 static inline __attribute__((always_inline)) WS_TARGET

typedef __m512i avx512_block;

AVX512 avx512_block avx512_load(const uint8_t *p)
{
    return _mm512_loadu_si512(p);
}

AVX512 void avx512_store(uint8_t *p, avx512_block x)
{
    _mm512_storeu_si512(p, x);
}

/* A masked load does not touch the bytes that are masked out. */
AVX512 avx512_block avx512_repeat(uint32_t word)
{
    return _mm512_set1_epi32((int)word);
}

AVX512 avx512_block avx512_xor(avx512_block x, avx512_block y)
{
    return _mm512_xor_si512(x, y);
}

#define WS_HAS_MASK_PART
AVX512 void avx512_mask_part(uint8_t *dst, const uint8_t *src, size_t n, uint32_t word)
{
    const __mmask64 part = _cvtu64_mask64(_bzhi_u64(UINT64_MAX, (unsigned)n));
    const __m512i x = _mm512_maskz_loadu_epi8(part, src);
    _mm512_mask_storeu_epi8(dst, part, _mm512_xor_si512(x, avx512_repeat(word)));
}

AVX512 avx512_block avx512_load_part(const uint8_t *p, size_t n)
{
    return _mm512_mask_loadu_epi8(_mm512_set1_epi8(' '), _bzhi_u64(~UINT64_C(0), (unsigned)n), p);
}

/* 64 times c, from memory: gcc would rather build it anew for each block. */
AVX512 __m512i avx512_all(char c)
{
    return _mm512_load_si512(ws_repeated[(uint8_t)c]);
}

/* A mask as an integer: gcc would rather go on in mask registers, and copy back and forth. */
AVX512 uint64_t avx512_integer(__mmask64 m)
{
    uint64_t integer = m;
    __asm__("" : "+r"(integer));
    return integer;
}

AVX512 uint64_t avx512_eq(avx512_block x, char c)
{
    return avx512_integer(_mm512_cmpeq_epi8_mask(x, avx512_all(c)));
}

AVX512 uint64_t avx512_eq_folded(avx512_block x, char c)
{
    return avx512_eq(_mm512_or_si512(x, avx512_all(' ')), c);
}

AVX512 uint64_t avx512_has_bit(avx512_block x, char c)
{
    return avx512_integer(_mm512_test_epi8_mask(x, avx512_all(c)));
}

AVX512 uint64_t avx512_high(avx512_block x)
{
    return avx512_integer(_mm512_movepi8_mask(x));
}

AVX512 uint64_t avx512_control(avx512_block x)
{
    return avx512_integer(_mm512_cmplt_epu8_mask(x, avx512_all(' ')));
}

/* Bytes from lo to lo + span, unsigned. */
AVX512 uint64_t avx512_range(avx512_block x, char lo, char span)
{
    const __m512i distance = _mm512_sub_epi8(x, avx512_all(lo));
    return avx512_integer(_mm512_cmple_epu8_mask(distance, avx512_all(span)));
}

AVX512 uint64_t avx512_digit(avx512_block x)
{
    return avx512_range(x, '0', 9);
}

AVX512 uint64_t avx512_hex(avx512_block x)
{
    return avx512_digit(x) | avx512_range(_mm512_or_si512(x, avx512_all(' ')), 'a', 5);
}

AVX512 __m512i avx512_lookup(const uint8_t *entries, __m512i by)
{
    const __m128i *v = (const __m128i *)(const void *)entries;
    return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(_mm_loadu_si128(v)), by);
}

AVX512 uint64_t avx512_space(avx512_block x)
{
    return avx512_integer(_mm512_cmpeq_epi8_mask(x, avx512_lookup(ws_spaces, x)));
}

#define WS_HAS_PEXT
AVX512 uint64_t avx512_pext(uint64_t m, uint64_t of)
{
    return _pext_u64(m, of);
}

AVX512 uint64_t avx512_operator(avx512_block x)
{
    const __m512i folded = _mm512_or_si512(x, avx512_all(' '));
    return avx512_integer(_mm512_cmpeq_epi8_mask(folded, avx512_lookup(ws_operators, x)));
}

AVX512 size_t avx512_positions(uint8_t *index, uint64_t m, unsigned base)
{
    const __m512i from0 = _mm512_load_si512(ws_positions);
    const __m512i all = _mm512_add_epi8(from0, _mm512_set1_epi8((char)base));
    _mm512_storeu_si512(index, _mm512_maskz_compress_epi8(m, all));
    return (size_t)__builtin_popcountll(m);
}

AVX512 uint64_t avx512_escapable(avx512_block x)
{
    const __m512i high = _mm512_and_si512(_mm512_srli_epi16(x, 4), _mm512_set1_epi8(0x0F));
    return avx512_integer(_mm512_test_epi8_mask(avx512_lookup(ws_escapable_low, x),
                                                avx512_lookup(ws_escapable_high, high)));
}

AVX512 uint64_t avx512_prefix_xor(uint64_t m)
{
    const __m128i product =
        _mm_clmulepi64_si128(_mm_cvtsi64_si128((long long)m), _mm_set1_epi8(-1), 0);
    return (uint64_t)_mm_cvtsi128_si64(product);
}

AVX512 size_t avx512_special16(const uint8_t *p)
{
    return sse2_special16(p);
}

AVX512 int avx512_special(avx512_block x)
{
    /* signed: bytes from 0x80 are negative */
    const uint64_t low = _mm512_cmplt_epi8_mask(x, avx512_all(' '));
    return (low | avx512_eq(x, '"') | avx512_eq(x, '\\')) != 0;
}

AVX512 int avx512_utf8_bad(avx512_block x, avx512_block before)
{
    const __m512i low = _mm512_set1_epi8(0x0F);
    const __m512i across = _mm512_alignr_epi64(x, before, 6);
    const __m512i x1 = _mm512_alignr_epi8(x, across, 15);
    const __m512i x2 = _mm512_alignr_epi8(x, across, 14);
    const __m512i x3 = _mm512_alignr_epi8(x, across, 13);
    const __m512i pair = _mm512_and_si512(
        _mm512_and_si512(
            avx512_lookup(ws_utf8_high_1, _mm512_and_si512(_mm512_srli_epi16(x1, 4), low)),
            avx512_lookup(ws_utf8_low_1, _mm512_and_si512(x1, low))),
        avx512_lookup(ws_utf8_high_2, _mm512_and_si512(_mm512_srli_epi16(x, 4), low)));
    const __m512i third = _mm512_subs_epu8(x2, _mm512_set1_epi8(0xE0 - 0x80));
    const __m512i fourth = _mm512_subs_epu8(x3, _mm512_set1_epi8(0xF0 - 0x80));
    const __m512i tail = _mm512_and_si512(_mm512_or_si512(third, fourth), _mm512_set1_epi8(-128));
    return _mm512_cmpneq_epi8_mask(tail, pair) != 0;
}

#define WS_HAS_TRIPLES
AVX512 __m512i avx512_ascii(const uint8_t *entries, __m512i by)
{
    return _mm512_permutex2var_epi8(_mm512_load_si512(entries), by,
                                    _mm512_load_si512(entries + 64));
}

AVX512 uint64_t avx512_bad_triples(avx512_block x, avx512_block before)
{
    const __m512i across = _mm512_alignr_epi64(x, before, 6);
    const __m512i x1 = _mm512_alignr_epi8(x, across, 15);
    const __m512i x2 = _mm512_alignr_epi8(x, across, 14);
    const __m512i a = _mm512_and_si512(avx512_ascii(ws_triples[0].last, x),
                                       avx512_ascii(ws_triples[0].middle, x1));
    const __m512i b = _mm512_and_si512(avx512_ascii(ws_triples[1].last, x),
                                       avx512_ascii(ws_triples[1].middle, x1));
    const __m512i a2 = _mm512_or_si512(avx512_ascii(ws_triples[0].first, x2),
                                       _mm512_load_si512(ws_triples[0].any_first));
    const __m512i b2 = _mm512_or_si512(avx512_ascii(ws_triples[1].first, x2),
                                       _mm512_load_si512(ws_triples[1].any_first));
    const __m512i right = _mm512_or_si512(_mm512_and_si512(a, a2), _mm512_and_si512(b, b2));
    return avx512_integer(_mm512_testn_epi8_mask(right, right));
}

#define WS_HAS_INDEX
#include "scan_simd.inc.h"
#include "scan_mask.inc.h"
#include "scan_walk.inc.h"
#include "scan_short.inc.h"
#include "scan_json.inc.h"

#else
typedef int ws_no_x86; /* ISO C wants a declaration */
#endif
