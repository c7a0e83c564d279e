#include <string.h>

#include "cpu.h"
#include "scan_internal.h"

/* Rising order: the last level that the CPU and the cap allow is used. */
static const ws_kernels *const tables[] = {
    &ws_kernels_scalar,
#if defined(__x86_64__)
    &ws_kernels_sse2,
    &ws_kernels_avx2,
    &ws_kernels_avx512,
#elif defined(WS_NEON)
    &ws_kernels_neon,
#endif
};

#define TABLES (sizeof tables / sizeof *tables)

const ws_kernels *ws_kernels_for(const char *cap)
{
    size_t last = TABLES - 1;
    for (size_t i = 0; cap != NULL && i < TABLES; i++)
        if (strcmp(cap, tables[i]->name) == 0)
            last = i;
    const ws_level level = ws_cpu_level();
    while (tables[last]->level > level)
        last--;
    return tables[last];
}
