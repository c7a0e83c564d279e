/* ws_load: a closed-loop load generator for MCP servers on WebSocket, over TCP on this machine.
 *
 *   ws_load --port N [options]
 *
 * Opens `--connections` connections, shakes hands on each (RFC 6455, then MCP), keeps `--window`
 * calls of one tool in flight on each until `--calls` are answered in all, and checks every answer
 * as calls.h says.  Every frame is masked with a key of its own.  Prints one JSON line.
 *
 * `--raw yes` measures a plain socket echo with the same bytes: no handshake, and what comes back
 * must be the very frames that were sent.  `--lines yes` speaks to a server with a message a line
 * instead of frames, and no opening handshake.  `--hold yes` stops after the handshakes, prints the
 * line and keeps the connections, answering pings, until end of input; then a second line.
 *
 * load.h has the rest. */
#include "ws_calls.h"

typedef conn client;
#define PROGRAM "ws_load"
#define PATH "/"
#define CONNECTIONS 1
#define OWN_USAGE                                                                          \
    "  --window N       calls in flight on each connection (64)\n"                         \
    "  --lines yes      a message a line on TCP, without WebSocket (no)\n"                  \
    "  --burst N        write after N requests, not only after a whole read (0: off)\n"
#include "load.h"

static struct {
    uint64_t window, burst;
    bool lines;
} own = {64, 0, false};

static uint64_t unstamped; /* first id queued but not yet handed to the kernel */

static const char *flush(conn *c) {
    if (unstamped < next_id) {
        const uint64_t t = now();
        for (; unstamped < next_id; unstamped++) stamp[unstamped] = t;
    }
    return conn_flush(c);
}

static void queue_call(conn *c) {
    if (own.lines) line_call(c);
    else ws_call(c);
    to_send--;
}

static void say(conn *c, const char *text) {
    if (own.lines) line_say(c, text);
    else ws_say(c, text);
}

static bool next_message(conn *c, jw_span *text, const char **why) {
    return own.lines ? conn_line(c, text, why) : conn_message(c, text, opt.raw, why);
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

static void say_hello(conn *c) {
    say(c, echo.modern ? DISCOVER : INITIALIZE);
    c->state = GREETING;
}

static void greet(conn *c) {
    if (own.lines) say_hello(c);
    else conn_upgrade(c, opt.path, opt.port);
}

/* A message of the handshake; NULL or what is wrong with it. */
static const char *take_greeting(conn *c, jw_span message) {
    reply r;
    const char *why = read_reply(message, &r);
    if (why != NULL || r.is_notification) return why;
    if ((why = check_greeting(c, &r)) != NULL) return why;
    if (c->state == GREETING) {
        if (!echo.modern) say(c, INITIALIZED);
        say(c, LIST_TOOLS(echo.modern));
        c->state = LISTING;
        return NULL;
    }
    c->state = READY;
    ready++;
    if (opt.hold) { /* an idle connection needs no buffers here */
        free(c->in.data);
        c->in = (bytes){0};
    }
    return NULL;
}

/* ------------------------------------------------------------------------ loop */

static const char *on_input(conn *c) {
    const char *why;
    jw_span message;
    bool got, done;
    if ((why = conn_read(c, &got)) != NULL || !got) return why;
    const uint64_t t = now();
    if (c->state == UPGRADING) {
        if ((why = conn_upgraded(c, &done)) != NULL || !done) return why;
        say_hello(c);
    }
    while (next_message(c, &message, &why)) {
        const uint64_t before = answered;
        if (c->state != READY) {
            if ((why = take_greeting(c, message)) != NULL) {
                note_wrong(why, message);
                return why;
            }
            continue;
        }
        if (opt.raw) take_echo(message, t, c->serial);
        else take_answer(message, t, c->serial);
        if (answered > before && to_send > 0) queue_call(c);
        if (own.burst && next_id - unstamped >= own.burst && (why = flush(c)) != NULL) return why;
    }
    if (why != NULL) return why;
    return bytes_used(&c->out) > 0 ? flush(c) : NULL;
}

static const char *start_calls(conn *c) {
    for (uint64_t i = 0; i < own.window && to_send > 0; i++) queue_call(c);
    return flush(c);
}

static bool say_goodbye(conn *c) {
    if (opt.raw || own.lines) return false;
    ws_goodbye(c);
    return conn_flush(c) == NULL;
}

static bool take_late(conn *c) {
    const char *why;
    jw_span message;
    while (conn_message(c, &message, false, &why)) take_answer(message, now(), c->serial);
    return why != NULL;
}

static void forget(conn *c) { conn_forget(c); }

/* --------------------------------------------------------------------- options */

static bool own_option(const char *name, const char *value) {
    if (!strcmp(name, "--window")) own.window = (uint64_t)number(value, 1, 1e6);
    else if (!strcmp(name, "--lines")) own.lines = yes(value);
    else if (!strcmp(name, "--burst")) own.burst = (uint64_t)number(value, 0, 1e6);
    else return false;
    return true;
}

static bool options_fit(void) { return !(own.lines && opt.raw); }

static void prepare(void) {}

static void print_own(void) { printf("\"window\": %" PRIu64 ", ", own.window); }
