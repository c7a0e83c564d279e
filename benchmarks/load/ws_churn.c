/* ws_churn: WebSocket clients that connect, call and leave at random, in every way they can leave.
 *
 *   ws_churn --port N [options]
 *
 * A client leaves before it says a word, in the middle of the opening handshake, before MCP's, with
 * calls in flight, in the middle of a frame, with a close frame, with a FIN or with an RST.  At the
 * end each client makes one more call, is answered, and says goodbye.  churn.h has the rest. */
#include "ws_calls.h"

enum { IN_FLIGHT = 8 };
typedef enum { SILENT, HALF_HEAD, NO_HELLO, IN_CALLS, HALF_FRAME, GOODBYE, FIN, RST, WAYS } way;
static const char *const way_names[WAYS] = {"silent",     "half_head", "no_hello", "in_calls",
                                            "half_frame", "goodbye",   "fin",      "rst"};

typedef struct {
    conn c; /* first: the poller's pointer is to it */
    way leaves; /* how it will leave */
    uint32_t flying;
    bool going; /* its close frame is sent */
} place;

#define PROGRAM "ws_churn"
#define MOST_CALLS IN_FLIGHT
#define OWN_USAGE ""
#include "churn.h"

static void forget(place *p) {
    p->flying = 0;
    p->going = false;
}

static void lose(place *p, const char *why) {
    static uint64_t lost;
    if (!p->going && lost++ == 0) note_wrong(why, (jw_span){"", ""});
    vacate(p, false);
}

static void call_once(place *p) {
    stamp[ws_call(&p->c)] = now();
    p->flying++;
}

static void leave(place *p) {
    conn *c = &p->c;
    left[p->leaves]++;
    switch (p->leaves) {
    case IN_CALLS:
        for (int i = 0; i < IN_FLIGHT; i++) call_once(p);
        conn_flush(c);
        vacate(p, pick(2) == 0);
        break;
    case HALF_FRAME:
        call_once(p);
        c->out.tail -= 1 + pick(bytes_used(&c->out) - 1);
        conn_flush(c);
        vacate(p, pick(2) == 0);
        break;
    case GOODBYE:
        ws_goodbye(c);
        conn_flush(c);
        p->going = true; /* until the server has closed */
        break;
    case RST: vacate(p, true); break;
    default: vacate(p, false);
    }
}

static void enter(place *p) {
    conn *c = &p->c;
    const char *why = arrive(p);
    p->leaves = (way)pick(WAYS);
    if (why != NULL) {
        lose(p, why);
        return;
    }
    conn_upgrade(c, "/", opt.port);
    if (p->leaves == SILENT) {
        c->out.tail = c->out.head;
        leave(p);
    } else if (p->leaves == HALF_HEAD) {
        c->out.tail -= 1 + pick(bytes_used(&c->out) - 1);
        conn_flush(c);
        leave(p);
    } else {
        flush_or_lose(p);
    }
}

/* A message of MCP's handshake; NULL or what is wrong with it. */
static const char *greet(place *p, jw_span message) {
    reply r;
    const char *why = read_reply(message, &r);
    if (why != NULL || r.is_notification) return why;
    if (r.is_error || r.result.p == NULL) return "an error answer";
    ws_say(&p->c, INITIALIZED);
    now_ready(p);
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
        ws_say(c, INITIALIZE);
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

static void use(place *p) {
    if (p->c.state != READY || p->going) return;
    if (pick(4) == 0) {
        leave(p);
    } else if (p->flying < IN_FLIGHT) {
        call_once(p);
        flush_or_lose(p);
    }
}

static void ask_again(void) {
    static bool asked;
    for (place *p = places; !asked && opening == 0 && p < places + opt.connections; p++) {
        if (p->c.fd < 0 || p->going) continue;
        call_once(p);
        conn_flush(&p->c);
    }
    asked = asked || opening == 0;
    for (place *p = places; asked && p < places + opt.connections; p++) {
        if (p->c.fd < 0 || p->going || p->flying > 0) continue;
        p->leaves = GOODBYE;
        leave(p);
    }
}

static bool own_option(const char *name, const char *value) {
    (void)name, (void)value;
    return false;
}

static void prepare(void) {}

static void print_own(void) {}
