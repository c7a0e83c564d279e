/* echo_ws: an MCP server over WebSocket with one tool, `echo`, for measuring clients and for
 * finding out how fast the load generator itself is.
 *
 *   echo_ws [--era legacy|modern] [--raw yes]
 *
 * Listens on a port of its own choice on 127.0.0.1 and prints it.  Answers as echo_answer.h says;
 * the answers to all that one read brought leave in one write.  `--raw yes` gives every byte back
 * as it is instead.  Ends at end of input. */
#include "echo_answer.h"
#include "serve.h"
#include "ws_conn.h"

static bool raw;

/* Answers the opening handshake once it is whole; false if it is none. */
static bool upgrade(conn *c) {
    char accept[WS_ACCEPT];
    const char *start = c->in.data + c->in.head, *value;
    const char *end = memmem(start, bytes_used(&c->in), "\r\n\r\n", 4);
    if (end == NULL) return bytes_used(&c->in) < 65536;
    end += 4;
    if (ws_header(start, end, "Sec-WebSocket-Key", &value) != WS_KEY) return false;
    ws_accept_of(accept, value);
    BYTES_LIT(&c->out, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n"
                       "Connection: Upgrade\r\nSec-WebSocket-Accept: ");
    bytes_add(&c->out, accept, WS_ACCEPT);
    if (ws_header(start, end, "Sec-WebSocket-Protocol", &value) > 0) {
        BYTES_LIT(&c->out, "\r\nSec-WebSocket-Protocol: mcp");
    }
    BYTES_LIT(&c->out, "\r\n\r\n");
    bytes_consume(&c->in, (size_t)(end - start));
    c->state = READY;
    return true;
}

static bool on_input(conn *c) {
    static bytes text;
    const char *fault;
    ws_frame f;
    bool got, leaving = false;
    if (conn_read(c, &got) != NULL) return false;
    if (raw) {
        bytes_add(&c->out, c->in.data + c->in.head, bytes_used(&c->in));
        bytes_consume(&c->in, bytes_used(&c->in));
        return conn_flush(c) == NULL;
    }
    if (c->state == UPGRADING && !upgrade(c)) return false;
    while (c->state == READY && !leaving && ws_take(&c->in, &f, true, &fault)) {
        if (fault != NULL) return false;
        if (f.opcode == WS_TEXT) {
            text.head = text.tail = 0;
            answer(&text, (jw_span){f.p, f.p + f.n});
            if (text.tail > 0) ws_add(&c->out, WS_TEXT, text.data, text.tail, false);
        } else if (f.opcode == WS_PING) {
            ws_add(&c->out, WS_PONG, f.p, f.n, false);
        } else if (f.opcode == WS_CLOSE) {
            ws_add(&c->out, WS_CLOSE, f.p, f.n < 2 ? 0 : 2, false);
            leaving = true;
        }
    }
    return conn_flush(c) == NULL && !leaving;
}

int main(int argc, char **argv) {
    for (int i = 1; i < argc; i += 2) {
        const bool pair = i + 1 < argc;
        if (pair && !strcmp(argv[i], "--era") && !strcmp(argv[i + 1], "modern")) modern = true;
        else if (pair && !strcmp(argv[i], "--era") && !strcmp(argv[i + 1], "legacy")) modern = false;
        else if (pair && !strcmp(argv[i], "--raw") && !strcmp(argv[i + 1], "yes")) raw = true;
        else {
            fputs("usage: echo_ws [--era legacy|modern] [--raw yes]\n", stderr);
            return 2;
        }
    }
    return serve(raw ? READY : UPGRADING);
}
