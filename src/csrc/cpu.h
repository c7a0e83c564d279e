/* The instructions of this machine's CPU. */
#ifndef WS_CPU_H
#define WS_CPU_H

#include "scan.h"

/* Returns the best level of kernels that this CPU runs and this build contains. */
ws_level ws_cpu_level(void);

#endif
