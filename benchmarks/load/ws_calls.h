/* MCP's messages as frames of a WebSocket client. */
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

static inline void ws_say(conn *c, const char *text) {
    ws_add(&c->out, WS_TEXT, text, strlen(text), true);
}

static inline void ws_goodbye(conn *c) {
    static const char normal[] = {3, (char)0xe8};
    ws_add(&c->out, WS_CLOSE, normal, sizeof normal, true);
}

#endif
