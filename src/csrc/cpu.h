/* What the CPU that we run on can do. */
#ifndef WS_CPU_H
#define WS_CPU_H

#include "scan.h"

/* The best level of kernels that this CPU runs and that this build contains. */
ws_level ws_cpu_level(void);

#endif
