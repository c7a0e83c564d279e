/* http_churn: HTTP clients that connect, call and leave at random, in every way they can leave.
 *
 *   http_churn --port N [options]
 *
 * `--connections` places are filled, used and vacated at random for `--seconds`, half of them by
 * clients of 2026-07-28, half by legacy ones with a session.  A client leaves before it says a
 * word, inside the head or the body of a request, with a call in flight, inside a stream of events,
 * after it has ended its own side, with an RST, with a head that comes a byte at a time, with
 * requests one behind the other, or from a stream that it only listens to (GET, or
 * subscriptions/listen).  Every answer that comes is checked as calls.h says; at the end each place
 * that is left is asked once more and must answer.  Prints one JSON line.
 *
 * `--only WAY` leaves in one way; slow heads alone hold their places as long as the server lets
 * them.  Exit status: 0 all correct, 1 not. */
#include <signal.h>

#include "arguments.h"
#include "http_conn.h"

enum { OPENING = 48, IN_LINE = 8 };
typedef enum {
    SILENT, HALF_HEAD, HALF_BODY, IN_CALL, IN_STREAM, HALF_CLOSE, RST, SLOW_HEAD, PIPELINED,
    LISTENING, WAYS
} way;
static const char *const way_names[WAYS] = {
    "silent",     "half_head", "half_body", "in_call",   "in_stream",
    "half_close", "rst",       "slow_head", "pipelined", "listening"};

#define LISTEN                                                                          \
    "{\"jsonrpc\":\"2.0\",\"id\":\"load-listen\",\"method\":\"subscriptions/listen\","   \
    "\"params\":{" META ",\"notifications\":{\"toolsListChanged\":true}}}"

static struct {
    uint64_t connections, sources, rate;
    double seconds, grace;
    int only;
} opt = {2000, 8, 3000, 60, 10, -1};

/* What a place waits for; a legacy client opens a session first. */
typedef enum { NOTHING, SESSION_ID, ACCEPTED, ANSWER, EVENTS, END, SLOWLY } expects;

typedef struct {
    http h; /* first: the poller's pointer is to it */
    way leaves; /* how it will leave */
    expects waits;
    bool modern, asked; /* asked: for the last time */
    size_t sent; /* of a slow head */
} place;

static place *places;
static uint64_t opened, opening, left[WAYS], most, present, lost, timeouts;
static uint32_t next_serial = 1;
static bytes of_era[2]; /* the constant part behind the text, by era */
static bytes more_of_era[2];
static volatile sig_atomic_t interrupted;

static void on_signal(int number) { interrupted = number; }

static uint64_t pick(uint64_t n) {
    static uint64_t x = UINT64_C(0x9e3779b97f4a7c15);
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    return (x >> 32) * n >> 32;
}

/* Requests are written in the era of the place. */
static void speak(const place *p) {
    echo.modern = p->modern;
    tail = of_era[p->modern];
    more = more_of_era[p->modern];
}

static void forget(place *p, bool reset) {
    if (p->h.c.state != READY) opening--;
    present--;
    if (reset) conn_leave(&p->h.c, true);
    http_forget(&p->h);
    p->waits = NOTHING;
    p->asked = false;
}

/* The server ended it, or something is wrong with what it sent. */
static void lose(place *p, const char *why) {
    if (p->waits != END && p->waits != SLOWLY && lost++ == 0) note_wrong(why, (jw_span){"", ""});
    forget(p, false);
}

static void call_once(place *p, bool streaming) {
    speak(p);
    http_call(&p->h, streaming ? "progress" : NULL);
    stamp[p->h.call] = now();
    p->waits = streaming ? EVENTS : ANSWER;
}

/* Cuts what is queued somewhere between the bytes `from` and `to`. */
static void cut(bytes *out, size_t from, size_t to) {
    out->tail = out->head + from + pick(to - from);
}

/* Leaves, or begins to. */
static void leave(place *p) {
    conn *c = &p->h.c;
    left[p->leaves]++;
    switch (p->leaves) {
    case HALF_HEAD:
    case HALF_BODY:
    case IN_CALL:
        call_once(p, false);
        const char *end = memmem(c->out.data + c->out.head, bytes_used(&c->out), "\r\n\r\n", 4);
        const size_t head_size = (size_t)(end - c->out.data) - c->out.head + 3;
        if (p->leaves == HALF_HEAD) cut(&c->out, 1, head_size);
        else if (p->leaves == HALF_BODY) cut(&c->out, head_size + 1, bytes_used(&c->out));
        conn_flush(c);
        forget(p, pick(2) == 0);
        break;
    case PIPELINED:
        for (int i = 0; i < IN_LINE; i++) call_once(p, false);
        conn_flush(c);
        forget(p, pick(2) == 0);
        break;
    case HALF_CLOSE:
        call_once(p, false);
        conn_flush(c);
        shutdown(c->fd, SHUT_WR);
        p->waits = END; /* an answer may come */
        break;
    case IN_STREAM: /* once the first event is there */
        call_once(p, true);
        conn_flush(c);
        break;
    case LISTENING: /* once the stream is open */
        speak(p);
        if (p->modern) http_post(&p->h, "subscriptions/listen", LISTEN);
        else http_head_of(&p->h, "GET", "", NULL, true, 0);
        conn_flush(c);
        p->waits = EVENTS;
        break;
    case SLOW_HEAD:
        call_once(p, false);
        c->out.tail = c->out.head;
        p->sent = 0;
        p->waits = SLOWLY;
        break;
    case RST: forget(p, true); break;
    default: forget(p, false);
    }
}

static void enter(place *p) {
    conn *c = &p->h.c;
    c->serial = next_serial++;
    const char *why = conn_connect(c, site.port, 1 + c->serial % (unsigned)opt.sources);
    opened++;
    opening++;
    present++;
    if (present > most) most = present;
    p->leaves = opt.only >= 0 ? (way)opt.only : (way)pick(WAYS);
    p->modern = pick(2) == 0;
    if (why != NULL) {
        lose(p, why);
    } else if (p->leaves == SILENT) {
        leave(p);
    } else if (p->modern || opt.only == SLOW_HEAD) {
        c->state = READY;
        opening--;
        if (opt.only == SLOW_HEAD) leave(p);
    } else {
        speak(p);
        http_post(&p->h, "initialize", INITIALIZE);
        p->waits = SESSION_ID;
        if ((why = conn_flush(c)) != NULL) lose(p, why);
    }
}

/* The next byte of a head that never ends. */
static void drip(place *p) {
    static const char start[] = "POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: ";
    const char byte = p->sent < sizeof start - 1 ? start[p->sent] : 'x';
    p->sent++;
    bytes_add(&p->h.c.out, &byte, 1);
    const char *why = conn_flush(&p->h.c);
    if (why != NULL) lose(p, why);
}

/* A response is over; NULL or what is wrong with it. */
static const char *take_response(place *p, jw_span body, uint64_t t) {
    http *h = &p->h;
    switch (p->waits) {
    case SESSION_ID:
        if (h->status != 200 || h->session[0] == 0) return "no session";
        speak(p);
        http_post(h, "notifications/initialized", INITIALIZED);
        p->waits = ACCEPTED;
        return NULL;
    case ACCEPTED:
        if (h->status != 202) return "a notification was not accepted";
        h->c.state = READY;
        opening--;
        p->waits = NOTHING;
        return NULL;
    case ANSWER:
    case END:
        if (h->status != 200) {
            note_wrong("a status that is not 200", body);
            return "a status that is not 200";
        }
        if (!h->events) take_answer(body, t, h->c.serial);
        if (state[h->call] != DONE) return "a response without the answer to its request";
        if (p->waits == ANSWER) p->waits = NOTHING;
        return NULL;
    case SLOWLY: /* 408 */
        timeouts++;
        return h->status == 408 ? NULL : "a slow head is answered otherwise";
    default: return "a response to nothing";
    }
}

/* Deals with what has come; NULL or why the place is lost. */
static const char *read_all(place *p) {
    http *h = &p->h;
    const char *why;
    jw_span text;
    http_got what;
    bool got;
    if ((why = conn_read(&h->c, &got)) != NULL || !got) return why;
    const uint64_t t = now();
    while ((what = http_next(h, &text, &why)) != HTTP_MORE) {
        if (what == HTTP_EVENT && p->waits == EVENTS) {
            forget(p, pick(2) == 0); /* in the middle of the stream */
            return NULL;
        }
        if (what == HTTP_WHOLE && (why = take_response(p, text, t)) != NULL) return why;
    }
    if (why != NULL) {
        note_wrong(why, (jw_span){"", ""});
        return why;
    }
    if (p->waits == EVENTS && p->leaves == LISTENING && h->reading) { /* nothing is said yet */
        if (h->status != 200 || !h->events) return "no stream";
        forget(p, pick(2) == 0);
        return NULL;
    }
    return conn_flush(&h->c);
}

static void turn(int wait) {
    struct epoll_event events[256];
    const int n = epoll_wait(poller, events, 256, wait);
    for (int i = 0; i < n; i++) {
        place *p = events[i].data.ptr;
        const char *why = NULL;
        if (p->h.c.fd < 0) continue;
        if (events[i].events & EPOLLOUT) why = conn_flush(&p->h.c);
        if (why == NULL && (events[i].events & ~(uint32_t)EPOLLOUT)) why = read_all(p);
        if (why != NULL) lose(p, why);
    }
}

/* Something at random happens at some place. */
static void happen(void) {
    place *p = places + pick(opt.connections);
    if (p->h.c.fd < 0) {
        if (opening < OPENING) enter(p);
    } else if (p->waits == SLOWLY) {
        if (opt.only != SLOW_HEAD && pick(4) == 0) forget(p, pick(2) == 0);
        else drip(p);
    } else if (p->h.c.state == READY && p->waits == NOTHING) {
        if (pick(4) == 0) {
            leave(p);
        } else {
            call_once(p, false);
            const char *why = conn_flush(&p->h.c);
            if (why != NULL) lose(p, why);
        }
    }
}

/* Each place that is in use calls once more, is answered, and leaves.  False if one is not. */
static bool finish(void) {
    const uint64_t end = now() + (uint64_t)(opt.grace * 1e9);
    for (place *p = places; p < places + opt.connections; p++) {
        if (p->h.c.fd >= 0 && p->waits == SLOWLY) forget(p, false);
    }
    while (now() < end && present > 0) {
        turn(20);
        for (place *p = places; p < places + opt.connections; p++) {
            if (p->h.c.fd < 0 || p->waits != NOTHING || p->h.c.state != READY) continue;
            if (p->asked) {
                forget(p, false);
            } else {
                p->asked = true;
                call_once(p, false);
                conn_flush(&p->h.c);
            }
        }
    }
    return present == 0;
}

static void usage(void) {
    fputs("usage: http_churn --port N [options]\n"
          "  --connections N  at most at once (2000)\n"
          "  --seconds S      how long (60)\n"
          "  --rate N         what happens in a second, at most (3000)\n"
          "  --only WAY       leave in this way only (all)\n"
          "  --size N         bytes of text in a call (64)\n"
          "  --sources N      connect from 127.0.0.1 to 127.0.0.N in turn (8)\n"
          "  --grace S        seconds for the last answers (10)\n",
          stderr);
    exit(2);
}

static int way_of(const char *name) {
    for (int i = 0; i < WAYS; i++) {
        if (!strcmp(name, way_names[i])) return i;
    }
    usage();
    return -1;
}

static void read_options(int argc, char **argv) {
    if (argc % 2 == 0) usage();
    for (int i = 1; i + 1 < argc; i += 2) {
        const char *name = argv[i], *value = argv[i + 1];
        if (!strcmp(name, "--port")) site.port = (uint16_t)number(value, 1, 65535);
        else if (!strcmp(name, "--connections")) opt.connections = (uint64_t)number(value, 1, 1e5);
        else if (!strcmp(name, "--seconds")) opt.seconds = number(value, 0.1, 86400);
        else if (!strcmp(name, "--rate")) opt.rate = (uint64_t)number(value, 1, 1e6);
        else if (!strcmp(name, "--only")) opt.only = way_of(value);
        else if (!strcmp(name, "--size")) echo.size = (uint64_t)number(value, 16, 1 << 24);
        else if (!strcmp(name, "--sources")) opt.sources = (uint64_t)number(value, 1, 250);
        else if (!strcmp(name, "--grace")) opt.grace = number(value, 0.1, 3600);
        else usage();
    }
    if (site.port == 0) usage();
}

int main(int argc, char **argv) {
    read_options(argc, argv);
    struct sigaction action = {.sa_handler = on_signal};
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    raise_files();
    /* What happens once makes at most IN_LINE calls; finish() adds one for each place. */
    const uint64_t calls = (uint64_t)(opt.seconds * (double)opt.rate) * IN_LINE;
    poller = epoll_create1(EPOLL_CLOEXEC);
    places = calloc(opt.connections, sizeof *places);
    if (places == NULL || calls > MAX_CALLS || !make_table(calls + opt.connections, true)) {
        fputs("out of memory\n", stderr);
        return 2;
    }
    for (uint64_t i = 0; i < opt.connections; i++) places[i].h.c.fd = -1;
    build_parts();
    http_prepare();
    BYTES_LIT(&of_era[0], "\"}}}");
    BYTES_LIT(&of_era[1], "\"}," META "}}");
    free(tail.data);
    for (int era = 0; era < 2; era++) {
        echo.modern = era == 1;
        more = (bytes){0};
        http_more("\"count\":20,\"pause\":0.02");
        more_of_era[era] = more;
    }

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
           ", \"calls\": %" PRIu64 ", \"answered\": %" PRIu64 ", \"timeouts\": %" PRIu64
           ", \"left\": {",
           right ? "true" : "false", seconds(now() - begun), opened, most, next_id, answered,
           timeouts);
    for (int i = 0; i < WAYS; i++) {
        printf("%s\"%s\": %" PRIu64, i ? ", " : "", way_names[i], left[i]);
    }
    printf("}");
    print_faults(interrupted ? "interrupted"
                 : ended     ? NULL
                             : "connections that the server neither answered nor closed");
    printf("}\n");
    for (uint64_t i = 0; i < opt.connections; i++) http_forget(&places[i].h);
    for (int era = 0; era < 2; era++) {
        free(of_era[era].data);
        free(more_of_era[era].data);
    }
    tail = (bytes){0};
    free(site.line.data);
    free(places);
    free_calls();
    return right ? 0 : 1;
}
