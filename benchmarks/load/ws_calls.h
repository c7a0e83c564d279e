/* MCP's messages as frames of a WebSocket client, or as lines. */
#ifndef BENCH_WS_CALLS_H
#define BENCH_WS_CALLS_H

#include "calls.h"
#include "ws_conn.h"

/* Queues a call with the next id; returns the id. */
static inline uint64_t ws_call(conn *c) {
    const uint64_t id = next_id++;
    const size_t size = call_size(id);
    const uint32_t mask = ws_random();
    ws_add_head(&c->out, WS_TEXT, size, mask);
    write_call(&c->out, id);
    ws_mask(c->out.data + c->out.tail - size, size, mask);
    state[id] = FLYING;
    owner[id] = c->serial;
    return id;
}

/* The same as a line. */
static inline void line_call(conn *c) {
    const uint64_t id = next_id++;
    write_call(&c->out, id);
    BYTES_LIT(&c->out, "\n");
    state[id] = FLYING;
    owner[id] = c->serial;
}

static inline void line_say(conn *c, const char *text) {
    bytes_add(&c->out, text, strlen(text));
    BYTES_LIT(&c->out, "\n");
}

/* Takes a line off the input; false if there is no whole one. */
static inline bool conn_line(conn *c, jw_span *text, const char **why) {
    const char *start = c->in.data + c->in.head;
    const char *end = bytes_used(&c->in) ? memchr(start, '\n', bytes_used(&c->in)) : NULL;
    *why = NULL;
    if (end == NULL) return false;
    *text = (jw_span){start, end};
    bytes_consume(&c->in, (size_t)(end - start) + 1);
    return true;
}

static inline void ws_say(conn *c, const char *text) {
    ws_add(&c->out, WS_TEXT, text, strlen(text), true);
}

static inline void ws_goodbye(conn *c) {
    static const char normal[] = {3, (char)0xe8};
    ws_add(&c->out, WS_CLOSE, normal, sizeof normal, true);
}

#endif
