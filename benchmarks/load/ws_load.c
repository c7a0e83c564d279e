/* ws_load: a closed-loop load generator for MCP servers on WebSocket, over TCP on this machine.
 *
 *   ws_load --port N [options]
 *
 * Opens `--connections` connections, shakes hands on each (RFC 6455, then MCP), keeps `--window`
 * calls of one tool in flight on each until `--calls` are answered in all, and checks every answer
 * as calls.h says.  Every frame is masked with a key of its own.  Prints one JSON line.
 *
 * `--raw yes` measures a plain socket echo with the same bytes: no handshake, and what comes back
 * must be the very frames that were sent.  `--hold yes` stops after the handshakes, prints the
 * line and keeps the connections, answering pings, until end of input; then a second line.
 *
 * Latency runs from the write that hands the request to the kernel to the read that brings its
 * answer.  The loop is closed: a slow server is asked less often, so percentiles describe this
 * load only.  Exit status: 0 all correct, 1 wrong answers, 2 could not run, 3 timed out. */
#include <signal.h>

#include "arguments.h"
#include "calls.h"
#include "ws_conn.h"

enum { OPENING = 48 }; /* opened at once: fewer than a listener's usual backlog */

static struct {
    uint64_t port, connections, window, calls, warmup, burst, sources, pid;
    double timeout;
    const char *path;
    bool spin, raw, hold;
} opt = {0, 1, 64, 10000, 200, 0, 1, 0, 60, "/", false, false, false};

static conn *conns;
static uint64_t opened, ready, to_send, deadline;
static uint64_t unstamped; /* first id queued but not yet handed to the kernel */
static volatile sig_atomic_t interrupted;

static void on_signal(int number) { interrupted = number; }

static const char *flush(conn *c) {
    if (unstamped < next_id) {
        const uint64_t t = now();
        for (; unstamped < next_id; unstamped++) stamp[unstamped] = t;
    }
    return conn_flush(c);
}

static void queue_call(conn *c) {
    const uint64_t id = next_id++;
    to_send--;
    const size_t size = call_size(id);
    const uint32_t mask = ws_random();
    ws_add_head(&c->out, WS_TEXT, size, mask);
    write_call(&c->out, id);
    ws_mask(c->out.data + c->out.tail - size, size, mask);
    state[id] = FLYING;
    owner[id] = c->serial;
}

/* An echo of our own frame is right if it is the request with an id in flight. */
static void take_echo(jw_span message, uint64_t t, uint32_t from) {
    const char *p = message.p + sizeof BEFORE_ID - 1;
    uint64_t id = 0;
    for (; p < message.end && *p >= '0' && *p <= '9' && id < MAX_CALLS; p++) {
        id = id * 10 + (uint64_t)(*p - '0');
    }
    if (id >= next_id || state[id] != FLYING || owner[id] != from) {
        note_wrong("an echo of what was not sent", message);
        return;
    }
    state[id] = DONE;
    stamp[id] = t - stamp[id];
    answered++;
    if (!is_call(message, id)) note_wrong("other bytes came back", message);
}

/* --------------------------------------------------------------- MCP's handshake */

static void send_text(conn *c, const char *text) {
    ws_add(&c->out, WS_TEXT, text, strlen(text), true);
}

static const char *open_one(conn *c, uint32_t serial) {
    c->serial = serial;
    const char *why = conn_connect(c, (uint16_t)opt.port, 1 + serial % (unsigned)opt.sources);
    opened++;
    if (why != NULL) return why;
    if (opt.raw) {
        c->state = READY;
        ready++;
        return NULL;
    }
    conn_upgrade(c, opt.path, (uint16_t)opt.port);
    return conn_flush(c);
}

/* A message of the handshake; NULL or what is wrong with it. */
static const char *greet(conn *c, jw_span message) {
    reply r;
    char want[160];
    const char *why = read_reply(message, &r);
    if (why != NULL || r.is_notification) return why;
    if (r.is_error || r.result.p == NULL) return "an error answer";
    if (c->state == GREETING) {
        if (!JW_IS(r.id, "\"load-init\"")) return "an unexpected id";
        if (!contains(r.result, echo.modern ? "\"2026-07-28\"" : "\"2025-06-18\"")) {
            return "another protocol revision";
        }
        if (!echo.modern) send_text(c, INITIALIZED);
        send_text(c, LIST_TOOLS(echo.modern));
        c->state = LISTING;
        return NULL;
    }
    if (!JW_IS(r.id, "\"load-list\"")) return "an unexpected id";
    snprintf(want, sizeof want, "\"%s\"", echo.tool);
    if (!contains(r.result, want)) return "the tool is not listed";
    c->state = READY;
    ready++;
    if (opt.hold) { /* an idle connection needs no buffers here */
        free(c->in.data);
        c->in = (bytes){0};
    }
    return NULL;
}

/* ------------------------------------------------------------------------ loop */

/* Deals with what a connection has brought; NULL or why the run is over. */
static const char *on_input(conn *c) {
    const char *why;
    jw_span message;
    bool got, done;
    if ((why = conn_read(c, &got)) != NULL || !got) return why;
    const uint64_t t = now();
    if (c->state == UPGRADING) {
        if ((why = conn_upgraded(c, &done)) != NULL || !done) return why;
        send_text(c, echo.modern ? DISCOVER : INITIALIZE);
        c->state = GREETING;
    }
    while (conn_message(c, &message, opt.raw, &why)) {
        const uint64_t before = answered;
        if (c->state != READY) {
            if ((why = greet(c, message)) != NULL) {
                note_wrong(why, message);
                return why;
            }
            continue;
        }
        if (opt.raw) take_echo(message, t, c->serial);
        else take_answer(message, t, c->serial);
        if (answered > before && to_send > 0) queue_call(c);
        if (opt.burst && next_id - unstamped >= opt.burst && (why = flush(c)) != NULL) return why;
    }
    if (why != NULL) return why;
    return bytes_used(&c->out) > 0 ? flush(c) : NULL;
}

/* One turn: waits, or only looks if `--spin`; NULL or why the run is over. */
static const char *turn(void) {
    struct epoll_event events[256];
    const uint64_t t = now();
    const char *why;
    if (interrupted) return "interrupted";
    if (t >= deadline) return "timed out";
    if (opt.spin && opt.connections == 1 && !conns->writing) return on_input(conns);
    const int wait = opt.spin ? 0 : (int)((deadline - t) / 1000000) + 1;
    const int n = epoll_wait(poller, events, 256, wait);
    if (n < 0 && errno != EINTR) return strerror(errno);
    for (int i = 0; i < n; i++) {
        conn *c = events[i].data.ptr;
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
            why = open_one(conns + opened, (uint32_t)opened);
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
    for (conn *c = conns; c < conns + opt.connections && to_send > 0 && why == NULL; c++) {
        for (uint64_t i = 0; i < opt.window && to_send > 0; i++) queue_call(c);
        why = flush(c);
    }
    while (why == NULL && answered < goal) why = turn();
    return why;
}

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

/* Says goodbye on every connection and waits until the server has closed them all, so that an
 * answer too many is seen; a server that lingers is left after two seconds. */
static void finish(void) {
    static const char normal[] = {3, (char)0xe8};
    const uint64_t end = now() + 2 * NS_PER_S;
    uint64_t left = 0;
    for (conn *c = conns; c < conns + opt.connections; c++) {
        if (opt.raw) continue;
        ws_add(&c->out, WS_CLOSE, normal, sizeof normal, true);
        if (conn_flush(c) == NULL) left++;
    }
    while (left > 0 && now() < end) {
        struct epoll_event events[256];
        const int n = epoll_wait(poller, events, 256, 100);
        for (int i = 0; i < n; i++) {
            conn *c = events[i].data.ptr;
            const char *why = NULL;
            jw_span message;
            bool got;
            if (c == NULL || c->fd < 0) continue;
            if (conn_read(c, &got) == NULL) {
                while (conn_message(c, &message, false, &why)) {
                    take_answer(message, now(), c->serial);
                }
                if (why == NULL) continue;
            }
            conn_forget(c);
            left--;
        }
    }
}

/* ------------------------------------------------------------------------ main */

static void usage(void) {
    fputs("usage: ws_load --port N [options]\n"
          "  --path P         where (/)\n"
          "  --connections N  at once (1)\n"
          "  --window N       calls in flight on each (64)\n"
          "  --calls N        timed calls in all (10000)\n"
          "  --warmup N       calls before them (200)\n"
          "  --size N         bytes of text in a call (64, at least 16)\n"
          "  --tool NAME      tool to call with {\"text\": ...} (echo)\n"
          "  --era E          legacy (2025-06-18, default) or modern (2026-07-28)\n"
          "  --raw yes        a plain echo of the same bytes instead of a server (no)\n"
          "  --hold yes       only open, and keep until end of input (no)\n"
          "  --burst N        write after N requests, not only after a whole read (0: off)\n"
          "  --spin yes       look for answers without sleeping (no)\n"
          "  --sources N      connect from 127.0.0.1 to 127.0.0.N in turn (1)\n"
          "  --pid N          the server, to tell its CPU time\n"
          "  --timeout S      seconds for everything (60)\n",
          stderr);
    exit(2);
}

static void read_options(int argc, char **argv) {
    if (argc % 2 == 0) usage();
    for (int i = 1; i + 1 < argc; i += 2) {
        const char *name = argv[i], *value = argv[i + 1];
        if (!strcmp(name, "--port")) opt.port = (uint64_t)number(value, 1, 65535);
        else if (!strcmp(name, "--path") && strlen(value) < 512) opt.path = value;
        else if (!strcmp(name, "--connections")) opt.connections = (uint64_t)number(value, 1, 1e6);
        else if (!strcmp(name, "--window")) opt.window = (uint64_t)number(value, 1, 1e6);
        else if (!strcmp(name, "--calls")) opt.calls = (uint64_t)number(value, 0, MAX_CALLS);
        else if (!strcmp(name, "--warmup")) opt.warmup = (uint64_t)number(value, 0, MAX_CALLS);
        else if (!strcmp(name, "--size")) echo.size = (uint64_t)number(value, 16, 1 << 28);
        else if (!strcmp(name, "--tool") && strlen(value) < 128) echo.tool = value;
        else if (!strcmp(name, "--era") && !strcmp(value, "modern")) echo.modern = true;
        else if (!strcmp(name, "--era") && !strcmp(value, "legacy")) echo.modern = false;
        else if (!strcmp(name, "--raw")) opt.raw = yes(value);
        else if (!strcmp(name, "--hold")) opt.hold = yes(value);
        else if (!strcmp(name, "--burst")) opt.burst = (uint64_t)number(value, 0, 1e6);
        else if (!strcmp(name, "--spin")) opt.spin = yes(value);
        else if (!strcmp(name, "--sources")) opt.sources = (uint64_t)number(value, 1, 250);
        else if (!strcmp(name, "--pid")) opt.pid = (uint64_t)number(value, 1, 1e9);
        else if (!strcmp(name, "--timeout")) opt.timeout = number(value, 0.001, 86400);
        else usage();
    }
    if (opt.port == 0) usage();
    for (const char *p = echo.tool; *p; p++) {
        if ((unsigned char)*p < 0x20 || *p == '"' || *p == '\\') usage();
    }
}

static void print_line(const char *why, double open_s) {
    printf("{\"correct\": %s, \"connections\": %" PRIu64 ", \"open_s\": %.6f",
           why == NULL && wrong == 0 ? "true" : "false", ready, open_s);
    print_faults(why);
    printf("}\n");
    fflush(stdout);
}

int main(int argc, char **argv) {
    read_options(argc, argv);
    struct sigaction action = {.sa_handler = on_signal};
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    raise_files();

    const uint64_t started = now(), total = opt.warmup + opt.calls;
    deadline = started + (uint64_t)(opt.timeout * 1e9);
    poller = epoll_create1(EPOLL_CLOEXEC);
    conns = calloc(opt.connections, sizeof *conns);
    if (conns == NULL || !make_table(total, true)) {
        fputs("out of memory\n", stderr);
        return 2;
    }
    for (uint64_t i = 0; i < opt.connections; i++) conns[i].fd = -1;
    build_parts();

    const char *why = open_all();
    const double open_s = seconds(now() - started);
    if (opt.hold) {
        print_line(why, open_s);
        if (why == NULL) print_line(why = hold(), open_s);
        return why == NULL && wrong == 0 ? 0 : 1;
    }
    if (why == NULL) why = run_calls(opt.warmup);
    const uint64_t first = next_id;
    uint64_t begun = 0, ended = 0;
    double server_cpu = 0, load_cpu = 0;
    if (why == NULL) {
        touch_table(first, total);
        bytes_in = bytes_out = 0;
        server_cpu = process_cpu((pid_t)opt.pid);
        load_cpu = own_cpu();
        begun = now();
        why = run_calls(opt.calls);
        ended = now();
        load_cpu = own_cpu() - load_cpu;
        server_cpu = server_cpu < 0 ? -1 : process_cpu((pid_t)opt.pid) - server_cpu;
    }
    const uint64_t timed_in = bytes_in, timed_out = bytes_out;
    const bool late = why != NULL && now() >= deadline;
    if (why == NULL) finish();

    printf("{\"correct\": %s, \"connections\": %" PRIu64 ", \"window\": %" PRIu64 ", ",
           why == NULL && wrong == 0 ? "true" : "false", opt.connections, opt.window);
    print_calls(first, ended - begun);
    printf(", \"bytes_to_server\": %" PRIu64 ", \"bytes_from_server\": %" PRIu64
           ", \"server_cpu_s\": %.6f, \"load_cpu_s\": %.6f, \"open_s\": %.6f",
           timed_out, timed_in, server_cpu, load_cpu, open_s);
    print_faults(why);
    printf("}\n");
    for (uint64_t i = 0; i < opt.connections; i++) conn_forget(conns + i);
    free(conns);
    free_calls();
    return why == NULL && wrong == 0 ? 0 : late ? 3 : 1;
}
