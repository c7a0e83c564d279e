/* The answers of the echo servers: MCP with one tool, `echo`, for measuring clients.
 *
 * legacy (default): initialize, ping, tools/list, tools/call; server/discover gets -32601.
 * modern (2026-07-28): server/discover, tools/list, tools/call; initialize gets -32022.
 * Ids and the text go back byte for byte. */
#ifndef BENCH_ECHO_ANSWER_H
#define BENCH_ECHO_ANSWER_H

#include "bytes.h"
#include "json_walk.h"

typedef struct {
    jw_span jsonrpc, id, method, params;
    bool duplicate;
} message;

static bool modern;

static void set_once(jw_span *slot, jw_span value, message *m) {
    if (slot->p != NULL) m->duplicate = true;
    *slot = value;
}

static bool read_message(jw_span line, message *m) {
    jw_iter it;
    jw_span key, value;
    int more;
    memset(m, 0, sizeof *m);
    if (!jw_object(line, &it)) return false;
    while ((more = jw_member(&it, &key, &value)) == 1) {
        if (JW_IS(key, "jsonrpc")) set_once(&m->jsonrpc, value, m);
        else if (JW_IS(key, "id")) set_once(&m->id, value, m);
        else if (JW_IS(key, "method")) set_once(&m->method, value, m);
        else if (JW_IS(key, "params")) set_once(&m->params, value, m);
    }
    return more == 0 && jw_ws(it.p, line.end) == line.end;
}

/* The last member named `name` of an object; an empty span if there is none. */
static jw_span member(jw_span object, const char *name, size_t n) {
    jw_iter it;
    jw_span key, value, found = {NULL, NULL};
    if (object.p == NULL || !jw_object(object, &it)) return found;
    while (jw_member(&it, &key, &value) == 1) {
        if (jw_eq(key, name, n)) found = value;
    }
    return found;
}

#define MEMBER(object, literal) member((object), (literal), sizeof(literal) - 1)

/* MCP: an id is a string or an integer. */
static bool valid_id(jw_span id) {
    if (*id.p == '"') return true;
    if (*id.p != '-' && (*id.p < '0' || *id.p > '9')) return false;
    for (const char *p = id.p; p < id.end; p++) {
        if (*p == '.' || *p == 'e' || *p == 'E') return false;
    }
    return true;
}

static void add_span(bytes *out, jw_span s) { bytes_add(out, s.p, jw_len(s)); }

static void reply_head(bytes *out, jw_span id) {
    BYTES_LIT(out, "{\"jsonrpc\":\"2.0\",\"id\":");
    if (id.p != NULL) add_span(out, id);
    else BYTES_LIT(out, "null");
}

static void reply_error(bytes *out, jw_span id, const char *error) {
    reply_head(out, id);
    BYTES_LIT(out, ",\"error\":");
    bytes_add(out, error, strlen(error));
    BYTES_LIT(out, "}");
}

static void reply_result(bytes *out, jw_span id, const char *legacy, const char *in_modern) {
    const char *result = modern ? in_modern : legacy;
    reply_head(out, id);
    BYTES_LIT(out, ",\"result\":");
    bytes_add(out, result, strlen(result));
    BYTES_LIT(out, "}");
}

#define SERVER_INFO "{\"name\":\"bench-echo\",\"version\":\"1\"}"
#define DISCOVERED                                                                           \
    "{\"resultType\":\"complete\",\"supportedVersions\":[\"2026-07-28\"],"                   \
    "\"capabilities\":{\"tools\":{}},\"ttlMs\":0,\"cacheScope\":\"private\","                \
    "\"_meta\":{\"io.modelcontextprotocol/serverInfo\":" SERVER_INFO "}}"
#define TOOLS                                                                                \
    "\"tools\":[{\"name\":\"echo\",\"description\":\"Gives the text back.\","               \
    "\"inputSchema\":{\"type\":\"object\",\"properties\":{\"text\":{\"type\":\"string\"}},"  \
    "\"required\":[\"text\"]}}]"

static void initialize(bytes *out, message *m) {
    static const char *const known[] = {"\"2024-11-05\"", "\"2025-03-26\"", "\"2025-06-18\"",
                                        "\"2025-11-25\""};
    jw_span asked = MEMBER(m->params, "protocolVersion");
    const char *version = known[3];
    for (size_t i = 0; asked.p != NULL && i < sizeof known / sizeof *known; i++) {
        if (jw_eq(asked, known[i], strlen(known[i]))) version = known[i];
    }
    reply_head(out, m->id);
    BYTES_LIT(out, ",\"result\":{\"protocolVersion\":");
    bytes_add(out, version, strlen(version));
    BYTES_LIT(out, ",\"capabilities\":{\"tools\":{}},\"serverInfo\":" SERVER_INFO "}}");
}

static void call(bytes *out, message *m) {
    jw_span name = MEMBER(m->params, "name");
    jw_span text = MEMBER(MEMBER(m->params, "arguments"), "text");
    if (name.p == NULL || !JW_IS(name, "\"echo\"")) {
        reply_error(out, m->id, "{\"code\":-32602,\"message\":\"unknown tool\"}");
        return;
    }
    if (text.p == NULL || *text.p != '"') {
        reply_error(out, m->id, "{\"code\":-32602,\"message\":\"text must be a string\"}");
        return;
    }
    reply_head(out, m->id);
    if (modern) BYTES_LIT(out, ",\"result\":{\"resultType\":\"complete\",\"content\":[");
    else BYTES_LIT(out, ",\"result\":{\"content\":[");
    BYTES_LIT(out, "{\"type\":\"text\",\"text\":");
    add_span(out, text);
    BYTES_LIT(out, "}],\"isError\":false}}");
}

/* Appends the answer to one message, without what ends a frame; nothing if there is none. */
static void answer(bytes *out, jw_span line) {
    static const jw_span no_id = {NULL, NULL};
    message m;
    line.p = jw_ws(line.p, line.end);
    if (line.p == line.end) return;
    if (!read_message(line, &m)) {
        const char *end = jw_value_end(line.p, line.end, 0);
        if (end == NULL || jw_ws(end, line.end) != line.end) {
            reply_error(out, no_id, "{\"code\":-32700,\"message\":\"parse error\"}");
        } else {
            reply_error(out, no_id, "{\"code\":-32600,\"message\":\"not an object\"}");
        }
        return;
    }
    if (m.duplicate || (m.id.p != NULL && !valid_id(m.id))) {
        reply_error(out, no_id, "{\"code\":-32600,\"message\":\"invalid request\"}");
        return;
    }
    if (m.method.p == NULL) {
        if (MEMBER(line, "result").p != NULL || MEMBER(line, "error").p != NULL) return;
    }
    if (m.method.p == NULL || *m.method.p != '"' || m.jsonrpc.p == NULL ||
        !JW_IS(m.jsonrpc, "\"2.0\"") || (m.params.p != NULL && *m.params.p != '{')) {
        reply_error(out, m.id, "{\"code\":-32600,\"message\":\"invalid request\"}");
        return;
    }
    if (m.id.p == NULL) return; /* a notification */
    if (JW_IS(m.method, "\"tools/call\"")) {
        call(out, &m);
    } else if (JW_IS(m.method, "\"tools/list\"")) {
        reply_result(out, m.id, "{" TOOLS "}",
                     "{\"resultType\":\"complete\",\"ttlMs\":0,\"cacheScope\":\"private\"," TOOLS
                     "}");
    } else if (modern && JW_IS(m.method, "\"server/discover\"")) {
        reply_result(out, m.id, DISCOVERED, DISCOVERED);
    } else if (modern && JW_IS(m.method, "\"initialize\"")) {
        reply_error(out, m.id,
                    "{\"code\":-32022,\"message\":\"unsupported protocol version\","
                    "\"data\":{\"supported\":[\"2026-07-28\"]}}");
    } else if (!modern && JW_IS(m.method, "\"initialize\"")) {
        initialize(out, &m);
    } else if (!modern && JW_IS(m.method, "\"ping\"")) {
        reply_result(out, m.id, "{}", "{}");
    } else {
        reply_error(out, m.id, "{\"code\":-32601,\"message\":\"method not found\"}");
    }
}

#endif
