/* What the programs that measure share: numbers on the command line, signals, descriptors. */
#ifndef BENCH_PROGRAM_H
#define BENCH_PROGRAM_H

#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

/* Each program has its own; it does not return. */
static void usage(void);

static inline double number(const char *text, double least, double most) {
    char *end;
    errno = 0;
    double value = strtod(text, &end);
    if (errno != 0 || end == text || *end != 0 || !(value >= least && value <= most)) usage();
    return value;
}

static inline bool yes(const char *text) {
    if (strcmp(text, "yes") != 0 && strcmp(text, "no") != 0) usage();
    return text[0] == 'y';
}

static volatile sig_atomic_t interrupted; /* by SIGINT or SIGTERM */

static void on_signal(int which) { interrupted = which; }

static inline void catch_signals(void) {
    struct sigaction action = {.sa_handler = on_signal};
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
}

/* Allows as many descriptors as the process may have. */
static inline void raise_files(void) {
    struct rlimit files;
    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
}

#endif
