/* WebSocket on a connection of the load generators: the opening handshake, messages. */
#ifndef BENCH_WS_CONN_H
#define BENCH_WS_CONN_H

#include <strings.h>

#include "conn.h"
#include "json_walk.h"
#include "ws_frame.h"

/* Queues the opening handshake. */
static inline void conn_upgrade(conn *c, const char *path, uint16_t port) {
    uint8_t nonce[16];
    for (int i = 0; i < 4; i++) {
        const uint32_t r = ws_random();
        memcpy(nonce + 4 * i, &r, 4);
    }
    ws_base64(c->key, nonce, sizeof nonce);
    bytes_reserve(&c->out, 512 + strlen(path));
    c->out.tail += (size_t)sprintf(
        c->out.data + c->out.tail,
        "GET %s HTTP/1.1\r\nHost: 127.0.0.1:%u\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        "Sec-WebSocket-Key: %.*s\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Protocol: mcp\r\n\r\n",
        path, (unsigned)port, WS_KEY, c->key);
    c->state = UPGRADING;
}

/* The answer to the opening handshake: *done once it is whole.  NULL or what is wrong. */
static inline const char *conn_upgraded(conn *c, bool *done) {
    char want[WS_ACCEPT];
    const char *start = c->in.data + c->in.head, *value;
    const char *end = memmem(start, bytes_used(&c->in), "\r\n\r\n", 4);
    *done = end != NULL;
    if (end == NULL) return bytes_used(&c->in) > 65536 ? "a head of more than 64 KiB" : NULL;
    end += 4;
    if (memcmp(start, "HTTP/1.1 101 ", 13) != 0) return "the upgrade was refused";
    ws_accept_of(want, c->key);
    if (ws_header(start, end, "Sec-WebSocket-Accept", &value) != WS_ACCEPT ||
        memcmp(value, want, WS_ACCEPT) != 0) {
        return "a wrong Sec-WebSocket-Accept";
    }
    if (ws_header(start, end, "Sec-WebSocket-Extensions", &value) != 0) {
        return "an extension that was not offered";
    }
    bytes_consume(&c->in, (size_t)(end - start));
    return NULL;
}

/* Takes a text message off the input; pings are answered on the way.  False if there is no whole
 * one, or, with *why set, if none can come. */
static inline bool conn_message(conn *c, jw_span *text, bool masked, const char **why) {
    ws_frame f;
    while (ws_take(&c->in, &f, masked, why)) {
        if (*why != NULL) return false;
        if (f.opcode == WS_TEXT) {
            *text = (jw_span){f.p, f.p + f.n};
            return true;
        }
        if (f.opcode == WS_CLOSE) {
            *why = "the server said goodbye";
            return false;
        }
        if (f.opcode == WS_PING) ws_add(&c->out, WS_PONG, f.p, f.n, true);
    }
    *why = NULL;
    return false;
}

#endif
