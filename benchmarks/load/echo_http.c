/* echo_http: an MCP server on Streamable HTTP with one tool, `echo`, for measuring clients and for
 * finding out how fast the load generator itself is.
 *
 *   echo_http [--era legacy|modern]
 *
 * Listens on a port of its own choice on 127.0.0.1 and prints it.  Answers as echo_answer.h says,
 * in JSON, at any path, without sessions; there is no stream of the server's own.  Request bodies
 * have a length.  Ends at end of input. */
#include <strings.h>

#include "echo_answer.h"
#include "serve.h"

static void respond(bytes *out, const char *status, const bytes *body) {
    bytes_reserve(out, 256 + body->tail);
    out->tail += (size_t)sprintf(out->data + out->tail,
                                 "HTTP/1.1 %s\r\nContent-Type: application/json\r\n"
                                 "Content-Length: %zu\r\n\r\n",
                                 status, body->tail);
    bytes_add(out, body->data, body->tail);
}

/* The bytes of the body of the request whose head is [p, end). */
static size_t length_of(const char *p, const char *end) {
    static const char name[] = "\r\ncontent-length:";
    const size_t n = sizeof name - 1;
    for (; (size_t)(end - p) > n && (p = memchr(p, '\r', (size_t)(end - p) - n)) != NULL; p++) {
        if (strncasecmp(p, name, n) == 0) return strtoull(p + n, NULL, 10);
    }
    return 0;
}

static bool on_input(conn *c) {
    static bytes text = {0};
    bytes *in = &c->in;
    bool got;
    if (conn_read(c, &got) != NULL) return false;
    while (bytes_used(in) > 0) {
        const char *start = in->data + in->head;
        const char *end = memmem(start, bytes_used(in), "\r\n\r\n", 4);
        if (end == NULL && bytes_used(in) > 65536) return false;
        if (end == NULL) break;
        const size_t size = length_of(start, end), whole = (size_t)(end + 4 - start) + size;
        if (bytes_used(in) < whole) break;
        text.head = text.tail = 0;
        if (memcmp(start, "POST", 4) == 0) {
            answer(&text, (jw_span){end + 4, end + 4 + size});
            respond(&c->out, text.tail > 0 ? "200 OK" : "202 Accepted", &text);
        } else {
            respond(&c->out, "405 Method Not Allowed", &text);
        }
        bytes_consume(in, whole);
    }
    return conn_flush(c) == NULL;
}

int main(int argc, char **argv) {
    for (int i = 1; i < argc; i += 2) {
        const bool pair = i + 1 < argc && !strcmp(argv[i], "--era");
        if (pair && !strcmp(argv[i + 1], "modern")) modern = true;
        else if (pair && !strcmp(argv[i + 1], "legacy")) modern = false;
        else {
            fputs("usage: echo_http [--era legacy|modern]\n", stderr);
            return 2;
        }
    }
    return serve(READY);
}
