#include "cpu.h"

#include "scan_internal.h"

#if defined(__x86_64__)

/* __builtin_cpu_supports also asks XGETBV whether the kernel saves the wide registers. Each level
 * names every feature that its functions are compiled for. */
ws_level ws_cpu_level(void)
{
    __builtin_cpu_init();
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("bmi")
        || !__builtin_cpu_supports("bmi2") || !__builtin_cpu_supports("pclmul")
        || !__builtin_cpu_supports("popcnt"))
        return WS_LEVEL_SSE2;
    if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512bw")
        || !__builtin_cpu_supports("avx512vl") || !__builtin_cpu_supports("avx512vbmi")
        || !__builtin_cpu_supports("avx512vbmi2"))
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
