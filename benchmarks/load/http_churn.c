/* http_churn: HTTP clients that connect, call and leave at random, in every way they can leave.
 *
 *   http_churn --port N [options]
 *
 * Half of the clients speak 2026-07-28, half are legacy ones with a session.  A client leaves
 * before it says a word, inside the head or the body of a request, with a call in flight, inside a
 * stream of events, after it has ended its own side, with an RST, with a head that comes a byte at
 * a time, with requests one behind the other, or from a stream that it only listens to (GET, or
 * subscriptions/listen).  churn.h has the rest.
 *
 * `--only WAY` leaves in one way; slow heads alone hold their places as long as the server lets
 * them. */
#include "http_conn.h"

enum { IN_LINE = 8 };
typedef enum {
    SILENT, HALF_HEAD, HALF_BODY, IN_CALL, IN_STREAM, HALF_CLOSE, RST, SLOW_HEAD, PIPELINED,
    LISTENING, WAYS
} way;
static const char *const way_names[WAYS] = {
    "silent",     "half_head", "half_body", "in_call",   "in_stream",
    "half_close", "rst",       "slow_head", "pipelined", "listening"};

/* What a place waits for; a legacy client opens a session first. */
typedef enum { NOTHING, SESSION_ID, ACCEPTED, ANSWER, EVENTS, END, SLOWLY } expects;

typedef struct {
    http h; /* first: the poller's pointer is to it */
    way leaves; /* how it will leave */
    expects waits;
    bool modern, asked; /* asked: for the last time */
    size_t sent; /* of a slow head */
} place;

#define PROGRAM "http_churn"
#define MOST_CALLS IN_LINE
#define OWN_USAGE "  --only WAY       leave in this way only (all)\n"
#include "churn.h"

static int only = -1; /* the one way to leave */
static uint64_t timeouts;
static bytes of_era[2]; /* the constant part behind the text, by era */
static bytes more_of_era[2];

/* Requests are written in the era of the place. */
static void speak(const place *p) {
    echo.modern = p->modern;
    tail = of_era[p->modern];
    more = more_of_era[p->modern];
}

static void forget(place *p) {
    http_forget(&p->h);
    p->waits = NOTHING;
    p->asked = false;
}

static void lose(place *p, const char *why) {
    static uint64_t lost;
    if (p->waits != END && p->waits != SLOWLY && lost++ == 0) note_wrong(why, (jw_span){"", ""});
    vacate(p, false);
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
        vacate(p, pick(2) == 0);
        break;
    case PIPELINED:
        for (int i = 0; i < IN_LINE; i++) call_once(p, false);
        conn_flush(c);
        vacate(p, pick(2) == 0);
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
    case RST: vacate(p, true); break;
    default: vacate(p, false);
    }
}

static void enter(place *p) {
    const char *why = arrive(p);
    p->leaves = only >= 0 ? (way)only : (way)pick(WAYS);
    p->modern = pick(2) == 0;
    if (why != NULL) {
        lose(p, why);
    } else if (p->leaves == SILENT) {
        leave(p);
    } else if (p->modern || only == SLOW_HEAD) {
        now_ready(p);
        if (only == SLOW_HEAD) leave(p);
    } else {
        speak(p);
        http_post(&p->h, "initialize", INITIALIZE);
        p->waits = SESSION_ID;
        flush_or_lose(p);
    }
}

/* The next byte of a head that never ends. */
static void drip(place *p) {
    static const char start[] = "POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: ";
    const char byte = p->sent < sizeof start - 1 ? start[p->sent] : 'x';
    p->sent++;
    bytes_add(&p->h.c.out, &byte, 1);
    flush_or_lose(p);
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
        now_ready(p);
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
            vacate(p, pick(2) == 0); /* in the middle of the stream */
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
        vacate(p, pick(2) == 0);
        return NULL;
    }
    return conn_flush(&h->c);
}

static void use(place *p) {
    if (p->waits == SLOWLY) {
        if (only != SLOW_HEAD && pick(4) == 0) vacate(p, pick(2) == 0);
        else drip(p);
    } else if (p->h.c.state == READY && p->waits == NOTHING) {
        if (pick(4) == 0) {
            leave(p);
        } else {
            call_once(p, false);
            flush_or_lose(p);
        }
    }
}

static void ask_again(void) {
    for (place *p = places; p < places + opt.connections; p++) {
        if (p->h.c.fd < 0) continue;
        const bool idle = p->waits == NOTHING && p->h.c.state == READY;
        if (p->waits == SLOWLY || (idle && p->asked)) {
            vacate(p, false);
        } else if (idle) {
            p->asked = true;
            call_once(p, false);
            conn_flush(&p->h.c);
        }
    }
}

static bool own_option(const char *name, const char *value) {
    if (strcmp(name, "--only") != 0) return false;
    for (only = 0; only < WAYS; only++) {
        if (!strcmp(value, way_names[only])) return true;
    }
    usage();
    return false;
}

static void prepare(void) {
    http_prepare("/mcp", opt.port);
    free(tail.data);
    BYTES_LIT(&of_era[0], "\"}}}");
    BYTES_LIT(&of_era[1], "\"}," META "}}");
    tail = of_era[0];
    for (int era = 0; era < 2; era++) {
        echo.modern = era == 1;
        more = (bytes){0};
        http_more("\"count\":20,\"pause\":0.02");
        more_of_era[era] = more;
    }
}

static void print_own(void) { printf("\"timeouts\": %" PRIu64 ", ", timeouts); }
