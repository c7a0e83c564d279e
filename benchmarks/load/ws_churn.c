/* ws_churn: connections that connect, call and leave at random, in every way a client can leave.
 *
 *   ws_churn --port N [options]
 *
 * `--connections` places are filled, used and vacated at random for `--seconds`.  A connection
 * leaves before it says a word, in the middle of the opening handshake, before MCP's, with calls
 * in flight, in the middle of a frame, with a close frame, with a FIN or with an RST.  Every answer
 * that comes is checked as calls.h says; at the end each place that is left is asked once more,
 * must answer, and says goodbye.  Prints one JSON line.  Exit status: 0 all correct, 1 not. */
#include <signal.h>

#include "arguments.h"
#include "calls.h"
#include "ws_conn.h"

enum { OPENING = 48, IN_FLIGHT = 8 };
typedef enum { SILENT, HALF_HEAD, NO_HELLO, IN_CALLS, HALF_FRAME, GOODBYE, FIN, RST, WAYS } way;
static const char *const way_names[WAYS] = {"silent",     "half_head", "no_hello", "in_calls",
                                            "half_frame", "goodbye",   "fin",      "rst"};

static struct {
    uint64_t port, connections, sources, rate;
    double seconds, grace;
} opt = {0, 2000, 8, 3000, 60, 10};

typedef struct {
    conn c; /* first: the poller's pointer is to it */
    way leaves; /* how it will leave */
    uint32_t flying;
    bool going; /* its close frame is sent */
} place;

static place *places;
static uint64_t opened, opening, left[WAYS], most, present, lost;
static uint32_t next_serial = 1;
static volatile sig_atomic_t interrupted;

static void on_signal(int number) { interrupted = number; }

static uint64_t pick(uint64_t n) { return (uint64_t)ws_random() * n >> 32; }

static void forget(place *p, bool reset) {
    if (p->c.state != READY) opening--;
    present--;
    p->flying = 0;
    p->going = false;
    conn_leave(&p->c, reset);
}

/* The server ended it, or something is wrong with what it sent. */
static void lose(place *p, const char *why) {
    if (!p->going && lost++ == 0) note_wrong(why, (jw_span){"", ""});
    forget(p, false);
}

static void call_once(place *p) {
    const uint64_t id = next_id++;
    const size_t size = call_size(id);
    const uint32_t mask = ws_random();
    ws_add_head(&p->c.out, WS_TEXT, size, mask);
    write_call(&p->c.out, id);
    ws_mask(p->c.out.data + p->c.out.tail - size, size, mask);
    state[id] = FLYING;
    owner[id] = p->c.serial;
    stamp[id] = now();
    p->flying++;
}

static void send_text(conn *c, const char *text) {
    ws_add(&c->out, WS_TEXT, text, strlen(text), true);
}

static void leave(place *p) {
    static const char normal[] = {3, (char)0xe8};
    conn *c = &p->c;
    left[p->leaves]++;
    switch (p->leaves) {
    case IN_CALLS:
        for (int i = 0; i < IN_FLIGHT; i++) call_once(p);
        conn_flush(c);
        forget(p, pick(2) == 0);
        break;
    case HALF_FRAME:
        call_once(p);
        c->out.tail -= 1 + pick(bytes_used(&c->out) - 1);
        conn_flush(c);
        forget(p, pick(2) == 0);
        break;
    case GOODBYE:
        ws_add(&c->out, WS_CLOSE, normal, sizeof normal, true);
        conn_flush(c);
        p->going = true; /* until the server has closed */
        break;
    case RST: forget(p, true); break;
    default: forget(p, false);
    }
}

static void enter(place *p) {
    conn *c = &p->c;
    c->serial = next_serial++;
    const char *why = conn_connect(c, (uint16_t)opt.port, 1 + c->serial % (unsigned)opt.sources);
    opened++;
    opening++;
    present++;
    if (present > most) most = present;
    p->leaves = (way)pick(WAYS);
    if (why != NULL) {
        lose(p, why);
        return;
    }
    conn_upgrade(c, "/", (uint16_t)opt.port);
    if (p->leaves == SILENT) {
        c->out.tail = c->out.head;
        leave(p);
    } else if (p->leaves == HALF_HEAD) {
        c->out.tail -= 1 + pick(bytes_used(&c->out) - 1);
        conn_flush(c);
        leave(p);
    } else if ((why = conn_flush(c)) != NULL) {
        lose(p, why);
    }
}

/* A message of MCP's handshake; NULL or what is wrong with it. */
static const char *greet(place *p, jw_span message) {
    reply r;
    const char *why = read_reply(message, &r);
    if (why != NULL || r.is_notification) return why;
    if (r.is_error || r.result.p == NULL) return "an error answer";
    send_text(&p->c, INITIALIZED);
    p->c.state = READY;
    opening--;
    return NULL;
}

static const char *read_all(place *p) {
    conn *c = &p->c;
    const char *why;
    jw_span message;
    bool got, done;
    if ((why = conn_read(c, &got)) != NULL || !got) return why;
    const uint64_t t = now();
    if (c->state == UPGRADING) {
        if ((why = conn_upgraded(c, &done)) != NULL || !done) return why;
        send_text(c, INITIALIZE);
        c->state = GREETING;
        if (p->leaves == NO_HELLO) {
            conn_flush(c);
            leave(p);
            return NULL;
        }
    }
    while (conn_message(c, &message, false, &why)) {
        const uint64_t before = answered;
        if (c->state == GREETING) {
            if ((why = greet(p, message)) != NULL) return why;
            continue;
        }
        take_answer(message, t, c->serial);
        if (answered > before) p->flying--;
    }
    if (why != NULL) return why;
    return conn_flush(c);
}

static void turn(int wait) {
    struct epoll_event events[256];
    const int n = epoll_wait(poller, events, 256, wait);
    for (int i = 0; i < n; i++) {
        place *p = events[i].data.ptr;
        const char *why = NULL;
        if (p->c.fd < 0) continue;
        if (events[i].events & EPOLLOUT) why = conn_flush(&p->c);
        if (why == NULL && (events[i].events & ~(uint32_t)EPOLLOUT)) why = read_all(p);
        if (why != NULL) lose(p, why);
    }
}

/* Something at random happens at some place. */
static void happen(void) {
    place *p = places + pick(opt.connections);
    if (p->c.fd < 0) {
        if (opening < OPENING) enter(p);
    } else if (p->c.state == READY && !p->going) {
        if (pick(4) == 0) {
            leave(p);
        } else if (p->flying < IN_FLIGHT) {
            call_once(p);
            const char *why = conn_flush(&p->c);
            if (why != NULL) lose(p, why);
        }
    }
}

/* Everybody who is there asks once more, is answered, says goodbye and is gone.  False if not. */
static bool finish(void) {
    const uint64_t end = now() + (uint64_t)(opt.grace * 1e9);
    bool asked = false;
    while (now() < end && present > 0) {
        turn(20);
        if (!asked && opening == 0) {
            for (place *p = places; p < places + opt.connections; p++) {
                if (p->c.fd >= 0 && !p->going) {
                    call_once(p);
                    conn_flush(&p->c);
                }
            }
            asked = true;
        }
        for (place *p = places; asked && p < places + opt.connections; p++) {
            if (p->c.fd >= 0 && !p->going && p->flying == 0) {
                p->leaves = GOODBYE;
                leave(p);
            }
        }
    }
    return present == 0;
}

static void usage(void) {
    fputs("usage: ws_churn --port N [options]\n"
          "  --connections N  at most at once (2000)\n"
          "  --seconds S      how long (60)\n"
          "  --rate N         what happens in a second, at most (3000)\n"
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
        if (!strcmp(name, "--port")) opt.port = (uint64_t)number(value, 1, 65535);
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
    struct sigaction action = {.sa_handler = on_signal};
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    raise_files();
    /* What happens once makes at most IN_FLIGHT calls; finish() adds one for each place. */
    const uint64_t calls = (uint64_t)(opt.seconds * (double)opt.rate) * IN_FLIGHT;
    poller = epoll_create1(EPOLL_CLOEXEC);
    places = calloc(opt.connections, sizeof *places);
    if (places == NULL || calls > MAX_CALLS || !make_table(calls + opt.connections, true)) {
        fputs("out of memory\n", stderr);
        return 2;
    }
    for (uint64_t i = 0; i < opt.connections; i++) places[i].c.fd = -1;
    build_parts();

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
           ", \"calls\": %" PRIu64 ", \"answered\": %" PRIu64 ", \"left\": {",
           right ? "true" : "false", seconds(now() - begun), opened, most, next_id, answered);
    for (int i = 0; i < WAYS; i++) {
        printf("%s\"%s\": %" PRIu64, i ? ", " : "", way_names[i], left[i]);
    }
    printf("}");
    print_faults(interrupted ? "interrupted"
                 : ended     ? NULL
                             : "connections that the server neither answered nor closed");
    printf("}\n");
    for (uint64_t i = 0; i < opt.connections; i++) conn_forget(&places[i].c);
    free(places);
    free_calls();
    return right ? 0 : 1;
}
