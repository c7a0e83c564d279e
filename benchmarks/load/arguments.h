/* What the programs that measure over TCP read from their command line. */
#ifndef BENCH_ARGUMENTS_H
#define BENCH_ARGUMENTS_H

#include <errno.h>
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

/* As many descriptors as the process may have. */
static inline void raise_files(void) {
    struct rlimit files;
    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
}

#endif
