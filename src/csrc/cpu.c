#include "cpu.h"

#include "scan_internal.h"

#if defined(__x86_64__)

#include <cpuid.h>

/* The states of registers that the kernel saves: XCR0. */
enum { SAVES_AVX = 0x06, SAVES_AVX512 = 0xe6 };

static int has(unsigned found, unsigned wanted) { return (found & wanted) == wanted; }

/* Each level names every feature that its functions are compiled for. In a program that zig links,
 * __builtin_cpu_supports finds no feature. */
ws_level ws_cpu_level(void)
{
    unsigned eax, ebx, ecx, edx, saved, high;
    if (!__get_cpuid(1, &eax, &ebx, &ecx, &edx)
        || !has(ecx, bit_OSXSAVE | bit_AVX | bit_PCLMUL | bit_POPCNT))
        return WS_LEVEL_SSE2;
    __asm__("xgetbv" : "=a"(saved), "=d"(high) : "c"(0));
    if (!has(saved, SAVES_AVX) || !__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx)
        || !has(ebx, bit_AVX2 | bit_BMI | bit_BMI2))
        return WS_LEVEL_SSE2;
    if (!has(saved, SAVES_AVX512) || !has(ebx, bit_AVX512F | bit_AVX512BW | bit_AVX512VL)
        || !has(ecx, bit_AVX512VBMI | bit_AVX512VBMI2))
        return WS_LEVEL_AVX2;
    return WS_LEVEL_AVX512;
}

#elif defined(WS_NEON)

ws_level ws_cpu_level(void)
{
    return WS_LEVEL_NEON; /* part of the architecture */
}

#else

ws_level ws_cpu_level(void)
{
    return WS_LEVEL_SCALAR;
}

#endif
