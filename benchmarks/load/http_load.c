/* http_load: a closed-loop load generator for MCP servers on Streamable HTTP, over TCP on this
 * machine.
 *
 *   http_load --port N [options]
 *
 * Opens `--connections` kept connections, shakes hands on each, keeps one call of one tool in
 * flight on each until `--calls` are answered in all, and checks every answer as calls.h says, be
 * it JSON or the last event of a stream.  A call of 2026-07-28 has the header fields of that
 * revision; one of 2025-06-18 has the session's id, if the server gave one.  Prints one JSON line.
 *
 * `--progress N` asks for that many notifications of progress a call, and counts them in order.
 * `--hold yes` opens a `subscriptions/listen` stream on each connection, waits until each is
 * acknowledged, prints the line and keeps the streams until end of input; then a second line.
 * `--raw yes` measures a plain socket echo with the same bytes: no handshake, and what comes back
 * must be the very requests that were sent.
 *
 * Latency runs from the write that hands the request to the kernel to the read that brings its
 * answer.  The loop is closed: a slow server is asked less often, so percentiles describe this
 * load only.  Exit status: 0 all correct, 1 wrong answers, 2 could not run, 3 timed out. */
#include <signal.h>

#include "arguments.h"
#include "http_conn.h"

enum { OPENING = 48 }; /* opened at once: fewer than a listener's usual backlog */

#define LISTEN                                                                          \
    "{\"jsonrpc\":\"2.0\",\"id\":\"load-listen\",\"method\":\"subscriptions/listen\","   \
    "\"params\":{" META ",\"notifications\":{\"toolsListChanged\":true}}}"

static struct {
    uint64_t connections, calls, warmup, sources, pid, progress;
    double timeout;
    bool spin, raw, hold;
} opt = {16, 10000, 200, 1, 0, 0, 60, false, false, false};

static http *conns;
static uint64_t opened, ready, to_send, deadline;
static volatile sig_atomic_t interrupted;

static void on_signal(int number) { interrupted = number; }

static const char *call_now(http *h) {
    to_send--;
    http_call(h, opt.progress ? echo.tool : NULL);
    stamp[h->call] = now();
    return conn_flush(&h->c);
}

/* --------------------------------------------------------------- MCP's handshake */

static void greet(http *h) {
    if (opt.hold) {
        http_post(h, "subscriptions/listen", LISTEN);
        h->c.state = LISTING;
        return;
    }
    if (echo.modern) http_post(h, "server/discover", DISCOVER);
    else http_post(h, "initialize", INITIALIZE);
    h->c.state = GREETING;
}

static const char *open_one(http *h, uint32_t serial) {
    h->c.serial = serial;
    const char *why = conn_connect(&h->c, site.port, 1 + serial % (unsigned)opt.sources);
    opened++;
    if (why != NULL) return why;
    if (opt.raw) {
        h->c.state = READY;
        ready++;
        return NULL;
    }
    greet(h);
    return conn_flush(&h->c);
}

static void now_ready(http *h) {
    h->c.state = READY;
    ready++;
    if (opt.hold) { /* an idle stream needs no buffers here */
        free(h->c.in.data);
        free(h->c.out.data);
        free(h->body.data);
        h->c.in = h->c.out = h->body = (bytes){0};
    }
}

/* A message of the handshake; NULL or what is wrong with it. */
static const char *take_greeting(http *h, jw_span message) {
    reply r;
    char want[160];
    const char *why = read_reply(message, &r);
    if (why != NULL) return why;
    if (opt.hold) {
        if (!r.is_notification || !contains(message, "subscriptions/acknowledged")) {
            return "no acknowledgement";
        }
        now_ready(h);
        return NULL;
    }
    if (r.is_notification) return NULL;
    if (r.is_error || r.result.p == NULL) return "an error answer";
    if (h->c.state == GREETING) {
        if (!JW_IS(r.id, "\"load-init\"")) return "an unexpected id";
        if (!contains(r.result, echo.modern ? "\"2026-07-28\"" : "\"2025-06-18\"")) {
            return "another protocol revision";
        }
        return NULL;
    }
    if (!JW_IS(r.id, "\"load-list\"")) return "an unexpected id";
    snprintf(want, sizeof want, "\"%s\"", echo.tool);
    return contains(r.result, want) ? NULL : "the tool is not listed";
}

/* A response of the handshake is over; NULL or what is wrong. */
static const char *step(http *h) {
    if (opt.hold) return "the stream ended";
    if (h->c.state == GREETING && !echo.modern) {
        http_post(h, "notifications/initialized", INITIALIZED);
        h->c.state = UPGRADING;
    } else if (h->c.state == GREETING || h->c.state == UPGRADING) {
        if (h->c.state == UPGRADING && h->status != 202) return "a notification was not accepted";
        http_post(h, "tools/list", LIST_TOOLS(echo.modern));
        h->c.state = LISTING;
    } else {
        now_ready(h);
    }
    return NULL;
}

/* ------------------------------------------------------------------------ loop */

/* What an echo brought; NULL or why the run is over. */
static const char *take_echo(http *h, uint64_t t) {
    static bytes sent;
    if (!h->flying) return bytes_used(&h->c.in) ? "an echo of what was not sent" : NULL;
    http again = {.c.serial = h->c.serial};
    again.c.out = sent;
    again.c.out.head = again.c.out.tail = 0;
    http_head_of(&again, "POST", "tools/call", echo.tool, true, call_size(h->call));
    write_call(&again.c.out, h->call);
    sent = again.c.out;
    const size_t size = sent.tail;
    if (bytes_used(&h->c.in) < size) return NULL;
    if (bytes_used(&h->c.in) > size || memcmp(h->c.in.data + h->c.in.head, sent.data, size) != 0) {
        return "other bytes came back";
    }
    bytes_consume(&h->c.in, size);
    state[h->call] = DONE;
    stamp[h->call] = t - stamp[h->call];
    answered++;
    h->flying = false;
    return to_send > 0 ? call_now(h) : NULL;
}

/* A response to a call is over, with this body unless it was a stream. */
static const char *take_response(http *h, jw_span body, uint64_t t) {
    if (!h->flying) return "a response to nothing";
    if (h->status != 200) return "a status that is not 200";
    if (!h->events) take_answer(body, t, h->c.serial);
    if (state[h->call] != DONE) return "a response without the answer to its request";
    if (h->seen != opt.progress) note_wrong("too few notifications of progress", body);
    h->flying = false;
    if (h->closes) return "the server closes the connection";
    return to_send > 0 ? call_now(h) : NULL;
}

/* Deals with what a connection has brought; NULL or why the run is over. */
static const char *on_input(http *h) {
    const char *why;
    jw_span text;
    http_got what;
    bool got;
    if ((why = conn_read(&h->c, &got)) != NULL || !got) return why;
    const uint64_t t = now();
    if (opt.raw) return take_echo(h, t);
    while ((what = http_next(h, &text, &why)) != HTTP_MORE) {
        if (h->c.state == READY && !opt.hold) {
            if (what == HTTP_WHOLE) {
                why = take_response(h, text, t);
            } else {
                const uint64_t before = notifications;
                take_answer(text, t, h->c.serial);
                if (opt.progress && notifications > before) {
                    why = http_progress(h, text, opt.progress);
                }
            }
        } else {
            if (h->status != 200 && h->status != 202) why = "the handshake was refused";
            if (why == NULL && jw_len(text) > 0) why = take_greeting(h, text);
            if (why == NULL && what == HTTP_WHOLE) why = step(h);
        }
        if (why != NULL) {
            note_wrong(why, text);
            return why;
        }
    }
    if (why != NULL) return why;
    return bytes_used(&h->c.out) > 0 ? conn_flush(&h->c) : NULL;
}

/* One turn: waits, or only looks if `--spin`; NULL or why the run is over. */
static const char *turn(void) {
    struct epoll_event events[256];
    const uint64_t t = now();
    const char *why;
    if (interrupted) return "interrupted";
    if (t >= deadline) return "timed out";
    const int wait = opt.spin ? 0 : (int)((deadline - t) / 1000000) + 1;
    const int n = epoll_wait(poller, events, 256, wait);
    if (n < 0 && errno != EINTR) return strerror(errno);
    for (int i = 0; i < n; i++) {
        http *h = events[i].data.ptr;
        if (h == NULL) return NULL; /* our own input: the caller looks */
        if ((events[i].events & EPOLLOUT) && (why = conn_flush(&h->c)) != NULL) return why;
        if ((events[i].events & ~(uint32_t)EPOLLOUT) && (why = on_input(h)) != NULL) return why;
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

/* An answer is there before its response is over. */
static bool are_flying(void) {
    for (http *h = conns; h < conns + opt.connections; h++) {
        if (h->flying) return true;
    }
    return false;
}

/* Runs `count` calls to their end; NULL or why not. */
static const char *run_calls(uint64_t count) {
    const uint64_t goal = answered + count;
    const char *why = NULL;
    to_send = count;
    for (http *h = conns; h < conns + opt.connections && to_send > 0 && why == NULL; h++) {
        why = call_now(h);
    }
    while (why == NULL && (answered < goal || are_flying())) why = turn();
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

/* Ends its side of every connection and waits until the server has closed them all, so that a byte
 * too many is seen; a server that lingers is left after two seconds. */
static void finish(void) {
    const uint64_t end = now() + 2 * NS_PER_S;
    uint64_t left = opt.connections;
    for (http *h = conns; h < conns + opt.connections; h++) shutdown(h->c.fd, SHUT_WR);
    while (left > 0 && now() < end) {
        struct epoll_event events[256];
        const int n = epoll_wait(poller, events, 256, 100);
        for (int i = 0; i < n; i++) {
            http *h = events[i].data.ptr;
            bool got;
            if (h == NULL || h->c.fd < 0) continue;
            if (conn_read(&h->c, &got) == NULL) {
                if (!got) continue;
                note_wrong("bytes behind the last response",
                           (jw_span){h->c.in.data + h->c.in.head, h->c.in.data + h->c.in.tail});
            }
            http_forget(h);
            left--;
        }
    }
}

/* ------------------------------------------------------------------------ main */

static void usage(void) {
    fputs("usage: http_load --port N [options]\n"
          "  --path P         where (/mcp)\n"
          "  --connections N  at once, with a call in flight on each (16)\n"
          "  --calls N        timed calls in all (10000)\n"
          "  --warmup N       calls before them (200)\n"
          "  --size N         bytes of text in a call (64, at least 16)\n"
          "  --tool NAME      tool to call with {\"text\": ...} (echo)\n"
          "  --progress N     also with {\"count\": N}: so many notifications of progress (0)\n"
          "  --era E          legacy (2025-06-18, default) or modern (2026-07-28)\n"
          "  --raw yes        a plain echo of the same bytes instead of a server (no)\n"
          "  --hold yes       only open listen streams, and keep them until end of input (no)\n"
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
        if (!strcmp(name, "--port")) site.port = (uint16_t)number(value, 1, 65535);
        else if (!strcmp(name, "--path") && strlen(value) < 512) site.path = value;
        else if (!strcmp(name, "--connections")) opt.connections = (uint64_t)number(value, 1, 1e6);
        else if (!strcmp(name, "--calls")) opt.calls = (uint64_t)number(value, 0, MAX_CALLS);
        else if (!strcmp(name, "--warmup")) opt.warmup = (uint64_t)number(value, 0, MAX_CALLS);
        else if (!strcmp(name, "--size")) echo.size = (uint64_t)number(value, 16, 1 << 28);
        else if (!strcmp(name, "--tool") && strlen(value) < 128) echo.tool = value;
        else if (!strcmp(name, "--progress")) opt.progress = (uint64_t)number(value, 0, 1e6);
        else if (!strcmp(name, "--era") && !strcmp(value, "modern")) echo.modern = true;
        else if (!strcmp(name, "--era") && !strcmp(value, "legacy")) echo.modern = false;
        else if (!strcmp(name, "--raw")) opt.raw = yes(value);
        else if (!strcmp(name, "--hold")) opt.hold = yes(value);
        else if (!strcmp(name, "--spin")) opt.spin = yes(value);
        else if (!strcmp(name, "--sources")) opt.sources = (uint64_t)number(value, 1, 250);
        else if (!strcmp(name, "--pid")) opt.pid = (uint64_t)number(value, 1, 1e9);
        else if (!strcmp(name, "--timeout")) opt.timeout = number(value, 0.001, 86400);
        else usage();
    }
    if (site.port == 0 || (opt.raw && opt.progress) || (opt.hold && !echo.modern)) usage();
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

    char arguments[64];
    const uint64_t started = now(), total = opt.warmup + opt.calls;
    deadline = started + (uint64_t)(opt.timeout * 1e9);
    poller = epoll_create1(EPOLL_CLOEXEC);
    conns = calloc(opt.connections, sizeof *conns);
    if (conns == NULL || !make_table(total, true)) {
        fputs("out of memory\n", stderr);
        return 2;
    }
    for (uint64_t i = 0; i < opt.connections; i++) conns[i].c.fd = -1;
    build_parts();
    http_prepare();
    snprintf(arguments, sizeof arguments, "\"count\":%" PRIu64, opt.progress);
    http_more(arguments);

    const char *why = open_all();
    const double open_s = seconds(now() - started);
    uint64_t first = 0, begun = 0, ended = 0, timed_in = 0, timed_out = 0;
    double server_cpu = 0, load_cpu = 0;
    if (opt.hold) {
        print_line(why, open_s);
        if (why == NULL) print_line(why = hold(), open_s);
    } else {
        if (why == NULL) why = run_calls(opt.warmup);
        first = next_id;
    }
    if (why == NULL && !opt.hold) {
        touch_table(first, total);
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
    const bool late = why != NULL && now() >= deadline;
    if (why == NULL && !opt.hold) finish();
    if (!opt.hold) {
        printf("{\"correct\": %s, \"connections\": %" PRIu64 ", ",
               why == NULL && wrong == 0 ? "true" : "false", opt.connections);
        print_calls(first, ended - begun);
        printf(", \"bytes_to_server\": %" PRIu64 ", \"bytes_from_server\": %" PRIu64
               ", \"server_cpu_s\": %.6f, \"load_cpu_s\": %.6f, \"open_s\": %.6f",
               timed_out, timed_in, server_cpu, load_cpu, open_s);
        print_faults(why);
        printf("}\n");
    }
    for (uint64_t i = 0; i < opt.connections; i++) http_forget(conns + i);
    free(conns);
    free(site.line.data);
    free(more.data);
    free_calls();
    return why == NULL && wrong == 0 ? 0 : late ? 3 : 1;
}
