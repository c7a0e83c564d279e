/* HTTP/1.1 on a connection of the load generators: requests of MCP, responses of both kinds.
 *
 * Enough for what an MCP server sends: a length or chunks, JSON or a stream of events.  Anything
 * else is a fault. */
#ifndef BENCH_HTTP_CONN_H
#define BENCH_HTTP_CONN_H

#include <strings.h>

#include "calls.h"
#include "conn.h"

enum { SESSION = 256, HEAD_LIMIT = 65536 };

typedef struct {
    conn c; /* first: the poller's pointer is to it */
    char session[SESSION];
    bytes body; /* what the chunks brought and nothing has used yet */
    size_t left; /* bytes of the body, or of the chunk, that are to come */
    int status;
    bool reading, chunked, in_chunk, events, ended; /* of the response */
    bool closes; /* the server said that this response is the last one */
    bool flying;
    uint64_t call, seen; /* what is in flight: its id, its notifications of progress */
} http;

typedef enum { HTTP_MORE, HTTP_EVENT, HTTP_WHOLE } http_got;

static bytes http_line; /* the request line behind the method, and fields that do not change */

#define LISTEN                                                                          \
    "{\"jsonrpc\":\"2.0\",\"id\":\"load-listen\",\"method\":\"subscriptions/listen\","   \
    "\"params\":{" META ",\"notifications\":{\"toolsListChanged\":true}}}"

/* -------------------------------------------------------------------- requests */

static inline void http_prepare(const char *path, uint16_t port) {
    bytes_reserve(&http_line, 512 + strlen(path));
    http_line.tail = (size_t)sprintf(
        http_line.data,
        " %s HTTP/1.1\r\nHost: 127.0.0.1:%u\r\nAccept: application/json, text/event-stream\r\n",
        path, (unsigned)port);
}

/* Appends the head of a request with a body of `size` bytes; `name`: of a tool, or NULL. */
static inline void http_head_of(http *h, const char *verb, const char *method, const char *name,
                                bool with_version, size_t size) {
    bytes *out = &h->c.out;
    char digits[24];
    bytes_reserve(out, 1024 + http_line.tail + size);
    bytes_add(out, verb, strlen(verb));
    bytes_add(out, http_line.data, http_line.tail);
    if (echo.modern) {
        BYTES_LIT(out, "MCP-Protocol-Version: 2026-07-28\r\nMcp-Method: ");
        bytes_add(out, method, strlen(method));
        if (name != NULL) {
            BYTES_LIT(out, "\r\nMcp-Name: ");
            bytes_add(out, name, strlen(name));
        }
        BYTES_LIT(out, "\r\n");
    } else if (with_version) {
        BYTES_LIT(out, "MCP-Protocol-Version: 2025-06-18\r\n");
        if (h->session[0]) {
            BYTES_LIT(out, "Mcp-Session-Id: ");
            bytes_add(out, h->session, strlen(h->session));
            BYTES_LIT(out, "\r\n");
        }
    }
    if (size > 0) {
        char *p = digits + sizeof digits;
        size_t n = size;
        do *--p = (char)('0' + n % 10);
        while ((n /= 10) > 0);
        BYTES_LIT(out, "Content-Type: application/json\r\nContent-Length: ");
        bytes_add(out, p, (size_t)(digits + sizeof digits - p));
        BYTES_LIT(out, "\r\n");
    }
    BYTES_LIT(out, "\r\n");
}

static inline void http_post(http *h, const char *method, const char *text) {
    http_head_of(h, "POST", method, NULL, strcmp(method, "initialize") != 0, strlen(text));
    bytes_add(&h->c.out, text, strlen(text));
}

/* The arguments of a call beside its text, and what follows them; NULL: a call has its text only.
 * The id of the call follows, which is its progress token, and then the rest. */
static bytes more;
#define AFTER_TOKEN "}}}"

static inline void http_more(const char *arguments) {
    BYTES_LIT(&more, "\",");
    bytes_add(&more, arguments, strlen(arguments));
    BYTES_LIT(&more, "},\"_meta\":{");
    if (echo.modern) BYTES_LIT(&more, META_MEMBERS ",");
    BYTES_LIT(&more, "\"progressToken\":");
}

/* Appends a call with the next id: of the tool of `echo`, or of one that reports progress. */
static inline void http_call(http *h, const char *progress_tool) {
    const uint64_t id = next_id++;
    bytes *out = &h->c.out;
    if (progress_tool == NULL) {
        http_head_of(h, "POST", "tools/call", echo.tool, true, call_size(id));
        write_call(out, id);
    } else {
        char key[TEXT_KEY];
        const char *digits = write_key(key, id);
        const size_t n = (size_t)(key + TEXT_KEY - 1 - digits);
        static const char method[] = ",\"method\":\"tools/call\",\"params\":{\"name\":\"";
        static const char before[] = "\",\"arguments\":{\"text\":\"";
        const size_t size = sizeof BEFORE_ID - 1 + n + sizeof method - 1 + strlen(progress_tool) +
                            sizeof before - 1 + echo.size + more.tail + n +
                            sizeof AFTER_TOKEN - 1;
        http_head_of(h, "POST", "tools/call", progress_tool, true, size);
        BYTES_LIT(out, BEFORE_ID);
        bytes_add(out, digits, n);
        bytes_add(out, method, sizeof method - 1);
        bytes_add(out, progress_tool, strlen(progress_tool));
        bytes_add(out, before, sizeof before - 1);
        bytes_add(out, key, TEXT_KEY);
        bytes_add(out, pattern + id % 64, echo.size - TEXT_KEY);
        bytes_add(out, more.data, more.tail);
        bytes_add(out, digits, n);
        BYTES_LIT(out, AFTER_TOKEN);
    }
    state[id] = FLYING;
    owner[id] = h->c.serial;
    h->call = id;
    h->seen = 0;
    h->flying = true;
}

/* ------------------------------------------------------------------- responses */

static inline void http_forget(http *h) {
    conn_forget(&h->c);
    free(h->body.data);
    h->body = (bytes){0};
    h->session[0] = 0;
    h->left = 0;
    h->reading = h->chunked = h->in_chunk = h->events = h->ended = h->closes = h->flying = false;
}

static inline bool http_says(const char *value, size_t n, const char *word) {
    return n >= strlen(word) && strncasecmp(value, word, strlen(word)) == 0;
}

/* Reads the head of a response, if it is whole. */
static inline bool http_head(http *h, const char **why) {
    bytes *in = &h->c.in;
    const char *p = in->data + in->head, *end, *stop;
    if (bytes_used(in) == 0 || (end = memmem(p, bytes_used(in), "\r\n\r\n", 4)) == NULL) {
        if (bytes_used(in) > HEAD_LIMIT) *why = "a head of more than 64 KiB";
        return false;
    }
    const char *start = p;
    end += 2;
    bool length = false, typed = false;
    h->chunked = h->events = h->ended = h->in_chunk = false;
    h->left = 0;
    if (end - p < 14 || memcmp(p, "HTTP/1.1 ", 9) != 0) {
        *why = "not a response of HTTP/1.1";
        return false;
    }
    h->status = atoi(p + 9);
    for (p = (const char *)memchr(p, '\n', (size_t)(end - p)) + 1; p < end; p = stop + 1) {
        const char *colon = memchr(p, ':', (size_t)(end - p));
        stop = memchr(p, '\n', (size_t)(end - p));
        if (colon == NULL || stop == NULL || colon > stop || stop[-1] != '\r') {
            *why = "a line of the head that is not a field";
            return false;
        }
        const size_t n = (size_t)(colon - p);
        const char *value = colon + 1;
        while (*value == ' ') value++;
        const size_t size = (size_t)(stop - 1 - value);
        if (n == 14 && strncasecmp(p, "content-length", n) == 0) {
            if (length) *why = "two lengths";
            length = true;
            h->left = strtoull(value, NULL, 10);
        } else if (n == 17 && strncasecmp(p, "transfer-encoding", n) == 0) {
            h->chunked = http_says(value, size, "chunked");
        } else if (n == 12 && strncasecmp(p, "content-type", n) == 0) {
            h->events = http_says(value, size, "text/event-stream");
            typed = h->events || http_says(value, size, "application/json");
        } else if (n == 10 && strncasecmp(p, "connection", n) == 0) {
            h->closes = http_says(value, size, "close");
        } else if (n == 14 && strncasecmp(p, "mcp-session-id", n) == 0) {
            if (size >= SESSION) *why = "a session id of more than 255 bytes";
            else {
                memcpy(h->session, value, size);
                h->session[size] = 0;
            }
        }
    }
    if (length && h->chunked) *why = "a length and chunks";
    else if (!length && !h->chunked && h->status != 204) *why = "neither a length nor chunks";
    else if (h->status == 200 && !typed && (h->left > 0 || h->chunked)) *why = "another type";
    bytes_consume(in, (size_t)(end + 2 - start));
    return h->reading = *why == NULL;
}

/* Moves what has come of the chunks, or of the length of a stream, to the body. */
static inline void http_pour(http *h, const char **why) {
    bytes *in = &h->c.in;
    while (!h->ended) {
        if (h->left > 0) {
            const size_t n = bytes_used(in) < h->left ? bytes_used(in) : h->left;
            if (n == 0) return;
            bytes_add(&h->body, in->data + in->head, n);
            bytes_consume(in, n);
            if ((h->left -= n) > 0) return;
        }
        if (!h->chunked) {
            h->ended = true;
            return;
        }
        const char *p = in->data + in->head, *stop;
        if (h->in_chunk) { /* what ends a chunk */
            if (bytes_used(in) < 2) return;
            if (memcmp(p, "\r\n", 2) != 0) *why = "a chunk without its end";
            if (*why != NULL) return;
            bytes_consume(in, 2);
            h->in_chunk = false;
            p += 2;
        }
        if (bytes_used(in) == 0 || (stop = memmem(p, bytes_used(in), "\r\n", 2)) == NULL) return;
        char *digits;
        h->left = strtoull(p, &digits, 16);
        if (digits == p || digits != stop) {
            *why = "not the size of a chunk";
            return;
        }
        h->in_chunk = h->left > 0;
        if (h->left == 0) { /* no trailers are expected */
            if (bytes_used(in) < (size_t)(stop - p) + 4) return;
            if (memcmp(stop, "\r\n\r\n", 4) != 0) {
                *why = "something behind the last chunk";
                return;
            }
            h->ended = true;
            bytes_consume(in, 2);
        }
        bytes_consume(in, (size_t)(stop - p) + 2);
    }
}

/* Takes the next event that has data off the body. */
static inline bool http_event(http *h, jw_span *data, const char **why) {
    const char *p = h->body.data + h->body.head, *end = h->body.data + h->body.tail, *stop;
    *data = (jw_span){NULL, NULL};
    while (p < end && (stop = memchr(p, '\n', (size_t)(end - p))) != NULL) {
        const char *last = stop > p && stop[-1] == '\r' ? stop - 1 : stop;
        if (last == p) { /* the end of an event */
            bytes_consume(&h->body, (size_t)(stop + 1 - h->body.data) - h->body.head);
            if (data->p != NULL && jw_len(*data) > 0) return true;
            *data = (jw_span){NULL, NULL};
        } else if (last - p >= 5 && memcmp(p, "data:", 5) == 0) {
            if (data->p != NULL) *why = "data of two lines";
            p += p[5] == ' ' ? 6 : 5;
            *data = (jw_span){p, last};
        }
        p = stop + 1;
    }
    return false;
}

/* What comes next of the responses: an event's data, the end of one (with its body, if it is not
 * a stream), or nothing yet.  *why is set if it breaks a rule. */
static inline http_got http_next(http *h, jw_span *text, const char **why) {
    bytes *in = &h->c.in;
    *why = NULL;
    *text = (jw_span){"", ""};
    if (!h->reading && !http_head(h, why)) return HTTP_MORE;
    if (!h->chunked && !h->events) {
        if (bytes_used(in) < h->left) return HTTP_MORE;
        if (h->left > 0) *text = (jw_span){in->data + in->head, in->data + in->head + h->left};
        bytes_consume(in, h->left);
        h->left = 0;
        h->reading = false;
        return HTTP_WHOLE;
    }
    http_pour(h, why);
    if (*why != NULL) return HTTP_MORE;
    if (h->events && http_event(h, text, why)) return HTTP_EVENT;
    if (*why != NULL || !h->ended) return HTTP_MORE;
    const size_t n = bytes_used(&h->body);
    if (h->events) *text = (jw_span){"", ""};
    if (h->events && n > 0) *why = "an event without its end";
    else if (n > 0) *text = (jw_span){h->body.data + h->body.head, h->body.data + h->body.tail};
    bytes_consume(&h->body, n);
    h->reading = false;
    return *why == NULL ? HTTP_WHOLE : HTTP_MORE;
}

/* Checks a notification of progress of the call in flight; `all`: how many a call has.  NULL, or
 * what is wrong with it. */
static inline const char *http_progress(http *h, jw_span message, uint64_t all) {
    jw_iter it;
    jw_span key, value, params = {NULL, NULL}, token = {NULL, NULL}, progress = {NULL, NULL};
    uint64_t id;
    bool named = false;
    if (!jw_object(message, &it)) return "not a JSON object";
    while (jw_member(&it, &key, &value) == 1) {
        if (JW_IS(key, "method")) named = JW_IS(value, "\"notifications/progress\"");
        else if (JW_IS(key, "params")) params = value;
    }
    if (!named) return "another notification";
    if (params.p == NULL || !jw_object(params, &it)) return "progress without params";
    while (jw_member(&it, &key, &value) == 1) {
        if (JW_IS(key, "progressToken")) token = value;
        else if (JW_IS(key, "progress")) progress = value;
    }
    if (!parse_id(token, &id) || id != h->call || !h->flying) return "progress of another call";
    if (progress.p == NULL || strtod(progress.p, NULL) != (double)++h->seen) {
        return "progress out of order";
    }
    return h->seen > all ? "progress too often" : NULL;
}

#endif
