/* Clients that come and go at random: options, loop, report.
 *
 * `--connections` places are filled, used and vacated at random for `--seconds`.  Every answer that
 * comes is checked as calls.h says; at the end each place that is left is asked once more and must
 * answer.  Prints one JSON line.  Exit status: 0 all correct, 1 not.
 *
 * A program defines `place`, a struct that begins with a conn, the names of the WAYS in which a
 * client leaves, and the macros PROGRAM, MOST_CALLS (that one thing that happens makes) and
 * OWN_USAGE (lines about its own options).  It includes this, and then defines the functions under
 * "the program's part". */
#ifndef BENCH_CHURN_H
#define BENCH_CHURN_H

#include "calls.h"
#include "conn.h"
#include "program.h"

enum { OPENING = 48 }; /* opened at once: fewer than a listener's usual backlog */

static struct {
    uint16_t port;
    uint64_t connections, sources, rate;
    double seconds, grace;
} opt = {0, 2000, 8, 3000, 60, 10};

static place *places;
static uint64_t opened, opening, left[WAYS], most, present;

/* ---------------------------------------------------------- the program's part */

static bool own_option(const char *name, const char *value); /* false: not one of its own */
static void prepare(void);                                   /* before the first connection */
static void enter(place *p);
static void use(place *p);                  /* a place that is taken: a call, or the way out */
static const char *read_all(place *p);      /* deals with what has come; NULL or why it is lost */
static void lose(place *p, const char *why); /* the server ended it, or sent something wrong */
static void ask_again(void);                /* for the last time, and leaves when it is answered */
static void forget(place *p);
static void print_own(void); /* members of the report */

/* ------------------------------------------------------------------------ loop */

static inline conn *conn_of(place *p) { return (conn *)p; }

/* A random number below `n`. */
static uint64_t pick(uint64_t n) {
    static uint64_t x = UINT64_C(0x9e3779b97f4a7c15);
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    return (x >> 32) * n >> 32;
}

/* Opens a connection at a free place; NULL or why not. */
static const char *arrive(place *p) {
    static uint32_t next_serial = 1;
    conn *c = conn_of(p);
    c->serial = next_serial++;
    opened++;
    opening++;
    present++;
    if (present > most) most = present;
    return conn_connect(c, opt.port, 1 + c->serial % (unsigned)opt.sources);
}

/* The client can make calls from now on. */
static void now_ready(place *p) {
    conn_of(p)->state = READY;
    opening--;
}

/* Ends the connection without a word; `reset`: with an RST. */
static void vacate(place *p, bool reset) {
    if (conn_of(p)->state != READY) opening--;
    present--;
    conn_leave(conn_of(p), reset);
    forget(p);
}

static void flush_or_lose(place *p) {
    const char *why = conn_flush(conn_of(p));
    if (why != NULL) lose(p, why);
}

static void turn(int wait) {
    struct epoll_event events[256];
    const int n = epoll_wait(poller, events, 256, wait);
    for (int i = 0; i < n; i++) {
        place *p = events[i].data.ptr;
        const char *why = NULL;
        if (conn_of(p)->fd < 0) continue;
        if (events[i].events & EPOLLOUT) why = conn_flush(conn_of(p));
        if (why == NULL && (events[i].events & ~(uint32_t)EPOLLOUT)) why = read_all(p);
        if (why != NULL) lose(p, why);
    }
}

/* Something at random happens at some place. */
static void happen(void) {
    place *p = places + pick(opt.connections);
    if (conn_of(p)->fd >= 0) use(p);
    else if (opening < OPENING) enter(p);
}

/* Returns whether each place that is in use was answered once more, and left, in time. */
static bool finish(void) {
    const uint64_t end = now() + (uint64_t)(opt.grace * 1e9);
    while (now() < end && present > 0) {
        turn(20);
        ask_again();
    }
    return present == 0;
}

/* ------------------------------------------------------------------------ main */

static void usage(void) {
    fputs("usage: " PROGRAM " --port N [options]\n"
          "  --connections N  at most at once (2000)\n"
          "  --seconds S      how long (60)\n"
          "  --rate N         what happens in a second, at most (3000)\n"
          OWN_USAGE
          "  --size N         bytes of text in a call (64)\n"
          "  --sources N      connect from 127.0.0.1 to 127.0.0.N in turn (8)\n"
          "  --grace S        seconds for the last answers (10)\n",
          stderr);
    exit(2);
}

static void read_options(int argc, char **argv) {
    if (argc % 2 == 0) usage();
    for (int i = 1; i + 1 < argc; i += 2) {
        const char *name = argv[i], *value = argv[i + 1];
        if (own_option(name, value)) continue;
        if (!strcmp(name, "--port")) opt.port = (uint16_t)number(value, 1, 65535);
        else if (!strcmp(name, "--connections")) opt.connections = (uint64_t)number(value, 1, 1e5);
        else if (!strcmp(name, "--seconds")) opt.seconds = number(value, 0.1, 86400);
        else if (!strcmp(name, "--rate")) opt.rate = (uint64_t)number(value, 1, 1e6);
        else if (!strcmp(name, "--size")) echo.size = (uint64_t)number(value, 16, 1 << 24);
        else if (!strcmp(name, "--sources")) opt.sources = (uint64_t)number(value, 1, 250);
        else if (!strcmp(name, "--grace")) opt.grace = number(value, 0.1, 3600);
        else usage();
    }
    if (opt.port == 0) usage();
}

int main(int argc, char **argv) {
    read_options(argc, argv);
    catch_signals();
    raise_files();
    /* The last calls come on top: one for each place. */
    const uint64_t calls = (uint64_t)(opt.seconds * (double)opt.rate) * MOST_CALLS;
    poller = epoll_create1(EPOLL_CLOEXEC);
    places = calloc(opt.connections, sizeof *places);
    if (places == NULL || calls > MAX_CALLS || !make_table(calls + opt.connections, true)) {
        fputs("out of memory\n", stderr);
        return 2;
    }
    for (uint64_t i = 0; i < opt.connections; i++) conn_of(places + i)->fd = -1;
    build_parts();
    prepare();

    const uint64_t begun = now(), end = begun + (uint64_t)(opt.seconds * 1e9);
    uint64_t happened = 0, t;
    while ((t = now()) < end && !interrupted) {
        const uint64_t due = (uint64_t)(seconds(t - begun) * (double)opt.rate);
        /* Late, because the server is slow: less happens, not more at once. */
        for (int i = 0; happened < due && i < 64; i++, happened++) happen();
        if (due > happened + 64) happened = due - 64;
        turn(1);
    }
    const bool ended = finish();
    const bool right = ended && wrong == 0 && !interrupted;
    printf("{\"correct\": %s, \"seconds\": %.3f, \"connections\": %" PRIu64 ", \"most\": %" PRIu64
           ", \"calls\": %" PRIu64 ", \"answered\": %" PRIu64 ", ",
           right ? "true" : "false", seconds(now() - begun), opened, most, next_id, answered);
    print_own();
    printf("\"left\": {");
    for (int i = 0; i < WAYS; i++) {
        printf("%s\"%s\": %" PRIu64, i ? ", " : "", way_names[i], left[i]);
    }
    printf("}");
    print_faults(interrupted ? "interrupted"
                 : ended     ? NULL
                             : "connections that the server neither answered nor closed");
    printf("}\n");
    for (uint64_t i = 0; i < opt.connections; i++) {
        conn_forget(conn_of(places + i));
        forget(places + i);
    }
    free(places);
    free_calls();
    return right ? 0 : 1;
}

#endif
