/* A run of a load generator over TCP: options, handshake, loop, report.
 *
 * Latency runs from the write that hands the request to the kernel to the read that brings its
 * answer.  The loop is closed: a slow server is asked less often, so percentiles describe this
 * load only.  Exit status: 0 all correct, 1 wrong answers, 2 could not run, 3 timed out.
 *
 * A program defines `client`, a struct that begins with a conn, and the macros PROGRAM, PATH and
 * CONNECTIONS (its name and defaults) and OWN_USAGE (lines about its own options).  It includes
 * this, and then defines the functions under "the program's part". */
#ifndef BENCH_LOAD_H
#define BENCH_LOAD_H

#include "calls.h"
#include "conn.h"
#include "program.h"

enum { OPENING = 48 }; /* opened at once: fewer than a listener's usual backlog */

static struct {
    uint16_t port;
    uint64_t connections, calls, warmup, sources, pid;
    double timeout;
    const char *path;
    bool spin, raw, hold;
} opt = {
    .connections = CONNECTIONS, .path = PATH, .calls = 10000, .warmup = 200, .sources = 1,
    .timeout = 60};

static client *clients;
static uint64_t opened, ready, to_send, deadline;
static uint64_t unfinished; /* calls whose answer, or what frames it, is not whole */

/* ---------------------------------------------------------- the program's part */

static bool own_option(const char *name, const char *value); /* false: not one of its own */
static bool options_fit(void);             /* with one another */
static void prepare(void);                 /* before the first connection */
static void greet(client *c);              /* queues the first bytes of the handshake */
static const char *start_calls(client *c); /* the first calls of a run; NULL or why not */
static const char *flush(client *c);       /* as conn_flush */
static const char *on_input(client *c);    /* deals with what has come; NULL or why the run ends */
static bool say_goodbye(client *c);        /* false: there is no goodbye to wait for */
static bool take_late(client *c);          /* what came after the goodbye; true: it is the last */
static void forget(client *c);
static void print_own(void);               /* members of the report */

/* ------------------------------------------------------------------- handshake */

static inline conn *conn_of(client *c) { return (conn *)c; }

static const char *open_one(client *c, uint32_t serial) {
    conn_of(c)->serial = serial;
    const char *why = conn_connect(conn_of(c), opt.port, 1 + serial % (unsigned)opt.sources);
    opened++;
    if (why != NULL) return why;
    if (opt.raw) {
        conn_of(c)->state = READY;
        ready++;
        return NULL;
    }
    greet(c);
    return conn_flush(conn_of(c));
}

/* Checks the answer to the greeting, or to the list of tools; NULL or what is wrong with it. */
static const char *check_greeting(const client *c, const reply *r) {
    char want[160];
    if (r->is_error || r->result.p == NULL) return "an error answer";
    if (((const conn *)c)->state == GREETING) {
        if (!JW_IS(r->id, GREETING_ID)) return "an unexpected id";
        const char *revision = echo.modern ? "\"2026-07-28\"" : "\"2025-06-18\"";
        return contains(r->result, revision) ? NULL : "another protocol revision";
    }
    if (!JW_IS(r->id, LISTING_ID)) return "an unexpected id";
    snprintf(want, sizeof want, "\"%s\"", echo.tool);
    return contains(r->result, want) ? NULL : "the tool is not listed";
}

/* ------------------------------------------------------------------------ loop */

/* One turn: waits, or only looks if `--spin`; NULL or why the run is over. */
static const char *turn(void) {
    struct epoll_event events[256];
    const uint64_t t = now();
    const char *why;
    if (interrupted) return "interrupted";
    if (t >= deadline) return "timed out";
    if (opt.spin && opt.connections == 1 && !conn_of(clients)->writing) return on_input(clients);
    const int wait = opt.spin ? 0 : (int)((deadline - t) / 1000000) + 1;
    const int n = epoll_wait(poller, events, 256, wait);
    if (n < 0 && errno != EINTR) return strerror(errno);
    for (int i = 0; i < n; i++) {
        client *c = events[i].data.ptr;
        if (c == NULL) return NULL; /* our own input: the caller looks */
        if ((events[i].events & EPOLLOUT) && (why = flush(c)) != NULL) return why;
        if ((events[i].events & ~(uint32_t)EPOLLOUT) && (why = on_input(c)) != NULL) return why;
    }
    return NULL;
}

static const char *open_all(void) {
    const char *why = NULL;
    while (why == NULL && ready < opt.connections) {
        while (opened < opt.connections && opened - ready < OPENING && why == NULL) {
            why = open_one(clients + opened, (uint32_t)opened);
        }
        if (why == NULL && ready < opt.connections) why = turn();
    }
    return why;
}

/* Runs `count` calls to their end; NULL or why not. */
static const char *run_calls(uint64_t count) {
    const uint64_t goal = answered + count;
    const char *why = NULL;
    to_send = count;
    for (client *c = clients; c < clients + opt.connections && to_send > 0 && why == NULL; c++) {
        why = start_calls(c);
    }
    while (why == NULL && (answered < goal || unfinished > 0)) why = turn();
    return why;
}

/* Keeps what is open until end of input; NULL or why not. */
static const char *hold(void) {
    char text[64];
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = NULL};
    if (epoll_ctl(poller, EPOLL_CTL_ADD, STDIN_FILENO, &event) != 0) return NULL; /* a file */
    fcntl(STDIN_FILENO, F_SETFL, fcntl(STDIN_FILENO, F_GETFL) | O_NONBLOCK);
    for (;;) {
        const char *why = turn();
        if (why != NULL) return why;
        ssize_t n = read(STDIN_FILENO, text, sizeof text);
        if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) return NULL;
    }
}

/* Says goodbye on every connection and waits until the server has closed them all, so that what
 * comes too late is seen; a server that lingers is left after two seconds. */
static void finish(void) {
    const uint64_t end = now() + 2 * NS_PER_S;
    uint64_t left = 0;
    for (client *c = clients; c < clients + opt.connections; c++) left += say_goodbye(c);
    while (left > 0 && now() < end) {
        struct epoll_event events[256];
        const int n = epoll_wait(poller, events, 256, 100);
        for (int i = 0; i < n; i++) {
            client *c = events[i].data.ptr;
            bool got;
            if (c == NULL || conn_of(c)->fd < 0) continue;
            if (conn_read(conn_of(c), &got) == NULL && !(got && take_late(c))) continue;
            forget(c);
            left--;
        }
    }
}

/* ------------------------------------------------------------------------ main */

static void usage(void) {
    fprintf(stderr,
            "usage: " PROGRAM " --port N [options]\n"
            "  --path P         where (" PATH ")\n"
            "  --connections N  at once (%d)\n"
            "  --calls N        timed calls in all (10000)\n"
            "  --warmup N       calls before them (200)\n"
            "  --size N         bytes of text in a call (64, at least 16)\n"
            "  --tool NAME      tool to call with {\"text\": ...} (echo)\n"
            "  --era E          legacy (2025-06-18, default) or modern (2026-07-28)\n"
            "  --tokens yes     each call asks for progress (no)\n"
            "  --raw yes        a plain echo of the same bytes instead of a server (no)\n"
            "  --hold yes       only open, and keep until end of input (no)\n"
            OWN_USAGE
            "  --spin yes       look for answers without sleeping (no)\n"
            "  --sources N      connect from 127.0.0.1 to 127.0.0.N in turn (1)\n"
            "  --pid N          the server, to tell its CPU time\n"
            "  --timeout S      seconds for everything (60)\n",
            CONNECTIONS);
    exit(2);
}

static void read_options(int argc, char **argv) {
    if (argc % 2 == 0) usage();
    for (int i = 1; i + 1 < argc; i += 2) {
        const char *name = argv[i], *value = argv[i + 1];
        if (call_option(name, value) || own_option(name, value)) continue;
        if (!strcmp(name, "--port")) opt.port = (uint16_t)number(value, 1, 65535);
        else if (!strcmp(name, "--path") && strlen(value) < 512) opt.path = value;
        else if (!strcmp(name, "--connections")) opt.connections = (uint64_t)number(value, 1, 1e6);
        else if (!strcmp(name, "--calls")) opt.calls = (uint64_t)number(value, 0, MAX_CALLS);
        else if (!strcmp(name, "--warmup")) opt.warmup = (uint64_t)number(value, 0, MAX_CALLS);
        else if (!strcmp(name, "--raw")) opt.raw = yes(value);
        else if (!strcmp(name, "--hold")) opt.hold = yes(value);
        else if (!strcmp(name, "--spin")) opt.spin = yes(value);
        else if (!strcmp(name, "--sources")) opt.sources = (uint64_t)number(value, 1, 250);
        else if (!strcmp(name, "--pid")) opt.pid = (uint64_t)number(value, 1, 1e9);
        else if (!strcmp(name, "--timeout")) opt.timeout = number(value, 0.001, 86400);
        else usage();
    }
    if (opt.port == 0 || !options_fit()) usage();
}

static void print_correct(const char *why, uint64_t connections) {
    printf("{\"correct\": %s, \"connections\": %" PRIu64 ", ",
           why == NULL && wrong == 0 ? "true" : "false", connections);
}

static void print_end(const char *why, double open_s) {
    printf("\"open_s\": %.6f", open_s);
    print_faults(why);
    printf("}\n");
    fflush(stdout);
}

static void print_held(const char *why, double open_s) {
    print_correct(why, ready);
    print_end(why, open_s);
}

/* Runs all calls and prints the line about the timed ones, or why there are none; NULL or why the
 * run ended early. */
static const char *measure(const char *why, double open_s) {
    uint64_t begun = 0, ended = 0, timed_in = 0, timed_out = 0;
    double server_cpu = 0, load_cpu = 0;
    if (why == NULL) why = run_calls(opt.warmup);
    const uint64_t first = next_id;
    if (why == NULL) {
        touch_table(first, opt.warmup + opt.calls);
        bytes_in = bytes_out = 0;
        server_cpu = process_cpu((pid_t)opt.pid);
        load_cpu = own_cpu();
        begun = now();
        why = run_calls(opt.calls);
        ended = now();
        load_cpu = own_cpu() - load_cpu;
        server_cpu = server_cpu < 0 ? -1 : process_cpu((pid_t)opt.pid) - server_cpu;
        timed_in = bytes_in, timed_out = bytes_out;
    }
    if (why == NULL) finish();
    print_correct(why, opt.connections);
    print_own();
    print_calls(first, ended - begun);
    printf(", \"bytes_to_server\": %" PRIu64 ", \"bytes_from_server\": %" PRIu64
           ", \"server_cpu_s\": %.6f, \"load_cpu_s\": %.6f, ",
           timed_out, timed_in, server_cpu, load_cpu);
    print_end(why, open_s);
    return why;
}

int main(int argc, char **argv) {
    read_options(argc, argv);
    catch_signals();
    raise_files();
    const uint64_t started = now();
    deadline = started + (uint64_t)(opt.timeout * 1e9);
    poller = epoll_create1(EPOLL_CLOEXEC);
    clients = calloc(opt.connections, sizeof *clients);
    if (clients == NULL || !make_table(opt.warmup + opt.calls, true)) {
        fputs("out of memory\n", stderr);
        return 2;
    }
    for (uint64_t i = 0; i < opt.connections; i++) conn_of(clients + i)->fd = -1;
    build_parts();
    prepare();

    const char *why = open_all();
    const double open_s = seconds(now() - started);
    if (!opt.hold) {
        why = measure(why, open_s);
    } else {
        print_held(why, open_s);
        if (why == NULL) print_held(why = hold(), open_s);
    }
    const bool late = why != NULL && now() >= deadline;
    for (uint64_t i = 0; i < opt.connections; i++) forget(clients + i);
    free(clients);
    free_calls();
    return why == NULL && wrong == 0 ? 0 : late ? 3 : 1;
}

#endif
