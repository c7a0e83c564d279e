/* Clocks: the wall, this process, another process. */
#ifndef BENCH_CLOCK_H
#define BENCH_CLOCK_H

#include <stdint.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/types.h>
#include <time.h>

#define NS_PER_S UINT64_C(1000000000)

static inline uint64_t now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * NS_PER_S + (uint64_t)t.tv_nsec;
}

static inline double seconds(uint64_t ns) { return (double)ns / 1e9; }

/* CPU time of a process so far in seconds, or -1 where the system does not tell. */
static inline double process_cpu(pid_t pid) {
#ifdef __linux__
    clockid_t clock;
    struct timespec t;
    if (pid > 0 && clock_getcpuclockid(pid, &clock) == 0 && clock_gettime(clock, &t) == 0) {
        return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
    }
#endif
    (void)pid;
    return -1;
}

static inline double own_cpu(void) {
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
           (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e6;
}

#endif
