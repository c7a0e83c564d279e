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
 * load.h has the rest. */
#include "http_conn.h"

typedef http client;
#define PROGRAM "http_load"
#define PATH "/mcp"
#define CONNECTIONS 16
#define OWN_USAGE \
    "  --progress N     also with {\"count\": N}: N notifications of progress a call (0)\n"
#include "load.h"

static uint64_t progress; /* notifications of a call */

static const char *call_now(http *h) {
    to_send--;
    unfinished++;
    http_call(h, progress ? echo.tool : NULL);
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
    return check_greeting(h, &r);
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
    unfinished--;
    return to_send > 0 ? call_now(h) : NULL;
}

/* A response to a call is over, with this body unless it was a stream. */
static const char *take_response(http *h, jw_span body, uint64_t t) {
    if (!h->flying) return "a response to nothing";
    if (h->status != 200) return "a status that is not 200";
    if (!h->events) take_answer(body, t, h->c.serial);
    if (state[h->call] != DONE) return "a response without the answer to its request";
    if (h->seen != progress) note_wrong("too few notifications of progress", body);
    h->flying = false;
    unfinished--;
    if (h->closes) return "the server closes the connection";
    return to_send > 0 ? call_now(h) : NULL;
}

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
                if (progress && notifications > before) {
                    why = http_progress(h, text, progress);
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

static const char *start_calls(http *h) { return call_now(h); }

static const char *flush(http *h) { return conn_flush(&h->c); }

/* Ends this side: the server answers nothing more, and closes. */
static bool say_goodbye(http *h) {
    shutdown(h->c.fd, SHUT_WR);
    return true;
}

static bool take_late(http *h) {
    note_wrong("bytes behind the last response",
               (jw_span){h->c.in.data + h->c.in.head, h->c.in.data + h->c.in.tail});
    return true;
}

static void forget(http *h) { http_forget(h); }

/* --------------------------------------------------------------------- options */

static bool own_option(const char *name, const char *value) {
    if (strcmp(name, "--progress") != 0) return false;
    progress = (uint64_t)number(value, 0, 1e6);
    return true;
}

static bool options_fit(void) { return !(opt.raw && progress) && (!opt.hold || echo.modern); }

static void prepare(void) {
    char arguments[64];
    snprintf(arguments, sizeof arguments, "\"count\":%" PRIu64, progress);
    http_prepare(opt.path, opt.port);
    http_more(arguments);
}

static void print_own(void) {}
