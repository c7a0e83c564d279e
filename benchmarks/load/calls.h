/* The calls of a load generator: how a request is written, how its answer is checked, and the
 * table of what is in flight.
 *
 * Every answer is checked: its id is outstanding (so each is answered once) on the connection it
 * came on, it is a result, and it carries the text of that call, which no other call has. */
#ifndef BENCH_CALLS_H
#define BENCH_CALLS_H

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "bytes.h"
#include "clock.h"
#include "json_walk.h"
#include "program.h"

enum { TEXT_KEY = 13, SHOWN = 400 };
#define MAX_CALLS UINT64_C(50000000)

typedef enum { UNSENT, FLYING, DONE } call_state;

/* What is called: a tool that returns its one argument, `text`. */
static struct {
    uint64_t size; /* bytes of the text, at least 16 */
    const char *tool;
    bool modern;
    bool tokens; /* each call has its id as its progress token */
} echo = {64, "echo", false, false};

static uint8_t *state;   /* call_state by id */
static uint64_t *stamp;  /* by id: when sent, then the latency; in ns */
static uint32_t *owner;  /* by id: the connection; NULL when there is one only */
static uint64_t next_id, answered, notifications, wrong;
static char *pattern;    /* size + 64 bytes that payloads are cut from */
/* The constant parts of a request around its id, its text and, if it has one, its token. */
static bytes head, tail, closing;
static char wrong_why[96], wrong_line[SHOWN + 1];
static size_t wrong_len;

/* Reads an option about what is called; false if this is not one. */
static inline bool call_option(const char *name, const char *value) {
    if (!strcmp(name, "--size")) {
        echo.size = (uint64_t)number(value, 16, 1 << 28);
    } else if (!strcmp(name, "--era")) {
        echo.modern = !strcmp(value, "modern");
        if (!echo.modern && strcmp(value, "legacy") != 0) usage();
    } else if (!strcmp(name, "--tool")) {
        if (strlen(value) >= 128) usage();
        for (const char *p = value; *p; p++) {
            if ((unsigned char)*p < 0x20 || *p == '"' || *p == '\\') usage();
        }
        echo.tool = value;
    } else if (!strcmp(name, "--tokens")) {
        echo.tokens = yes(value);
    } else {
        return false;
    }
    return true;
}

/* ------------------------------------------------------------------ output */

static void print_string(const char *p, size_t n) {
    putchar('"');
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)p[i];
        if (c == '"' || c == '\\') printf("\\%c", c);
        else if (c < 0x20 || c > 0x7e) printf("\\u%04x", c);
        else putchar(c);
    }
    putchar('"');
}

static void note_wrong(const char *why, jw_span line) {
    if (wrong++ > 0) return;
    snprintf(wrong_why, sizeof wrong_why, "%s", why);
    wrong_len = jw_len(line) < SHOWN ? jw_len(line) : SHOWN;
    memcpy(wrong_line, line.p, wrong_len);
}

static int compare(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* ---------------------------------------------------------------- messages */

#define META_MEMBERS                                                                   \
    "\"io.modelcontextprotocol/protocolVersion\":\"2026-07-28\","                      \
    "\"io.modelcontextprotocol/clientCapabilities\":{},"                               \
    "\"io.modelcontextprotocol/clientInfo\":{\"name\":\"bench-load\",\"version\":\"1\"}"
#define META "\"_meta\":{" META_MEMBERS "}"
/* Numbers beyond those of the calls: some proxies do not bring a string back. */
#define GREETING_ID "4000000001"
#define LISTING_ID "4000000002"
#define INITIALIZE                                                                     \
    "{\"jsonrpc\":\"2.0\",\"id\":" GREETING_ID ",\"method\":\"initialize\",\"params\":{" \
    "\"protocolVersion\":\"2025-06-18\",\"capabilities\":{},"                          \
    "\"clientInfo\":{\"name\":\"bench-load\",\"version\":\"1\"}}}"
#define DISCOVER                                                                       \
    "{\"jsonrpc\":\"2.0\",\"id\":" GREETING_ID ",\"method\":\"server/discover\","        \
    "\"params\":{" META "}}"
#define LIST_TOOLS(modern)                                                             \
    ((modern) ? "{\"jsonrpc\":\"2.0\",\"id\":" LISTING_ID ",\"method\":\"tools/list\","  \
                "\"params\":{" META "}}"                                               \
              : "{\"jsonrpc\":\"2.0\",\"id\":" LISTING_ID ",\"method\":\"tools/list\"}")
#define INITIALIZED "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/initialized\"}"

#define BEFORE_ID "{\"jsonrpc\":\"2.0\",\"id\":"

static void build_parts(void) {
    BYTES_LIT(&head, ",\"method\":\"tools/call\",\"params\":{\"name\":\"");
    bytes_add(&head, echo.tool, strlen(echo.tool));
    BYTES_LIT(&head, "\",\"arguments\":{\"text\":\"");
    if (echo.tokens) {
        BYTES_LIT(&tail, "\"},\"_meta\":{");
        if (echo.modern) BYTES_LIT(&tail, META_MEMBERS ",");
        BYTES_LIT(&tail, "\"progressToken\":");
        BYTES_LIT(&closing, "}}}");
    } else if (echo.modern) {
        BYTES_LIT(&tail, "\"}," META "}}");
    } else {
        BYTES_LIT(&tail, "\"}}}");
    }
    pattern = malloc(echo.size + 64);
    if (pattern == NULL) exit(2);
    for (size_t i = 0; i < echo.size + 64; i++) pattern[i] = (char)('A' + (i * 7 + i / 26) % 26);
}

/* The key that makes a text unique: twelve digits of the id and a colon.
 * Returns where the id's first significant digit is. */
static const char *write_key(char *p, uint64_t id) {
    const char *digits = p + TEXT_KEY - 2;
    p[TEXT_KEY - 1] = ':';
    for (int i = TEXT_KEY - 2; i >= 0; i--, id /= 10) {
        p[i] = (char)('0' + id % 10);
        if (p[i] != '0') digits = p + i;
    }
    return digits;
}

/* How many bytes write_call appends. */
static inline size_t call_size(uint64_t id) {
    char key[TEXT_KEY];
    const size_t digits = (size_t)(key + TEXT_KEY - 1 - write_key(key, id));
    return sizeof BEFORE_ID - 1 + digits + head.tail + echo.size + tail.tail +
           (echo.tokens ? digits + closing.tail : 0);
}

/* Appends the request with this id, without what ends a frame. */
static void write_call(bytes *out, uint64_t id) {
    char key[TEXT_KEY];
    const char *digits = write_key(key, id);
    const size_t n = (size_t)(key + TEXT_KEY - 1 - digits);
    bytes_reserve(out, 64 + head.tail + echo.size + tail.tail + closing.tail);
    BYTES_LIT(out, BEFORE_ID);
    bytes_add(out, digits, n);
    bytes_add(out, head.data, head.tail);
    bytes_add(out, key, TEXT_KEY);
    bytes_add(out, pattern + id % 64, echo.size - TEXT_KEY);
    bytes_add(out, tail.data, tail.tail);
    if (echo.tokens) {
        bytes_add(out, digits, n);
        bytes_add(out, closing.data, closing.tail);
    }
}

typedef struct {
    jw_span id, result;
    bool is_notification, is_request, is_error, version_ok;
} reply;

/* Reads an envelope; NULL or what is wrong with it. */
static const char *read_reply(jw_span line, reply *r) {
    jw_iter it;
    jw_span key, value;
    int more;
    bool method = false;
    memset(r, 0, sizeof *r);
    if (!jw_object(line, &it)) return "not a JSON object";
    while ((more = jw_member(&it, &key, &value)) == 1) {
        if (JW_IS(key, "jsonrpc")) r->version_ok = JW_IS(value, "\"2.0\"");
        else if (JW_IS(key, "id")) r->id = value;
        else if (JW_IS(key, "result")) r->result = value;
        else if (JW_IS(key, "error")) r->is_error = true;
        else if (JW_IS(key, "method")) method = true;
    }
    if (more < 0 || jw_ws(it.p, line.end) != line.end) return "malformed JSON";
    if (!r->version_ok) return "jsonrpc is not \"2.0\"";
    r->is_notification = method && r->id.p == NULL;
    r->is_request = method && r->id.p != NULL;
    return r->is_request ? "a request from the server" : NULL;
}

/* Where the text of the call is in the content (its first byte), or NULL. */
static const char *find_text(jw_span content, uint64_t id) {
    char want[TEXT_KEY + 1];
    const size_t rest = echo.size - TEXT_KEY;
    want[0] = '"';
    write_key(want + 1, id);
    const char *found = memmem(content.p, jw_len(content), want, sizeof want);
    if (found == NULL) return NULL;
    found += sizeof want;
    bool same = (size_t)(content.end - found) > rest && found[rest] == '"' &&
                memcmp(found, pattern + id % 64, rest) == 0;
    return same ? found - TEXT_KEY : NULL;
}

static const char *check_result(jw_span result, uint64_t id, const char **text) {
    jw_iter it;
    jw_span key, value;
    *text = NULL;
    if (!jw_object(result, &it)) return "the result is not an object";
    while (jw_member(&it, &key, &value) == 1) {
        if (JW_IS(key, "isError") && !JW_IS(value, "false")) return "isError is set";
        if (JW_IS(key, "resultType") && !JW_IS(value, "\"complete\"")) return "not complete";
        if (JW_IS(key, "content")) *text = *value.p == '[' ? find_text(value, id) : NULL;
    }
    return *text != NULL ? NULL : "the text did not come back";
}

static bool parse_id(jw_span s, uint64_t *id) {
    uint64_t n = 0;
    if (s.p == NULL || jw_len(s) > 10) return false;
    for (const char *p = s.p; p < s.end; p++) {
        if (*p < '0' || *p > '9') return false;
        n = n * 10 + (uint64_t)(*p - '0');
    }
    *id = n;
    return true;
}

static inline bool owner_is(uint64_t id, uint32_t from) { return owner == NULL || owner[id] == from; }

/* The constant parts of an answer that was checked in full.  An answer that equals them, around
 * its own id and text, is right as well; any other is checked in full.  This keeps the load
 * generator several times cheaper than the servers it drives. */
static struct {
    bytes before_id, before_text, after_text;
} known;

static void keep(bytes *b, const char *p, const char *end) {
    b->head = b->tail = 0;
    bytes_add(b, p, (size_t)(end - p));
}

static void learn(jw_span line, jw_span id, const char *text) {
    if (id.p > text) return;
    keep(&known.before_id, line.p, id.p);
    keep(&known.before_text, id.end, text);
    keep(&known.after_text, text + echo.size, line.end);
}

static bool take(const char **p, const char *end, const void *want, size_t n) {
    if ((size_t)(end - *p) < n || memcmp(*p, want, n) != 0) return false;
    *p += n;
    return true;
}

static bool matches_known(jw_span line, uint64_t *id) {
    const char *p = line.p, *digits;
    char key[TEXT_KEY];
    if (known.before_id.tail == 0) return false;
    if (!take(&p, line.end, known.before_id.data, known.before_id.tail)) return false;
    for (*id = 0, digits = p; p < line.end && *p >= '0' && *p <= '9' && p - digits < 10; p++) {
        *id = *id * 10 + (uint64_t)(*p - '0');
    }
    const char *canonical = write_key(key, *id);
    return p - digits == key + TEXT_KEY - 1 - canonical &&
           take(&p, line.end, known.before_text.data, known.before_text.tail) &&
           take(&p, line.end, key, TEXT_KEY) &&
           take(&p, line.end, pattern + *id % 64, echo.size - TEXT_KEY) &&
           take(&p, line.end, known.after_text.data, known.after_text.tail) && p == line.end;
}

/* Checks that a message is the very request with this id. */
static inline bool is_call(jw_span message, uint64_t id) {
    char key[TEXT_KEY];
    const char *p = message.p, *digits = write_key(key, id);
    const size_t n = (size_t)(key + TEXT_KEY - 1 - digits);
    return take(&p, message.end, BEFORE_ID, sizeof BEFORE_ID - 1) &&
           take(&p, message.end, digits, n) &&
           take(&p, message.end, head.data, head.tail) && take(&p, message.end, key, TEXT_KEY) &&
           take(&p, message.end, pattern + id % 64, echo.size - TEXT_KEY) &&
           take(&p, message.end, tail.data, tail.tail) &&
           (!echo.tokens || (take(&p, message.end, digits, n) &&
                             take(&p, message.end, closing.data, closing.tail))) &&
           p == message.end;
}

/* Checks one message that came at `t` on the connection `from`. */
static void take_answer(jw_span line, uint64_t t, uint32_t from) {
    reply r;
    uint64_t id;
    const char *text;
    if (matches_known(line, &id) && id < next_id && state[id] == FLYING &&
        owner_is(id, from)) {
        state[id] = DONE;
        stamp[id] = t - stamp[id];
        answered++;
        return;
    }
    const char *why = read_reply(line, &r);
    if (why == NULL && r.is_notification) {
        notifications++;
        return;
    }
    if (why != NULL) {
        note_wrong(why, line);
    } else if (!parse_id(r.id, &id) || id >= next_id || state[id] == UNSENT) {
        note_wrong("an answer to an id that was not sent", line);
    } else if (state[id] == DONE) {
        note_wrong("a second answer to one id", line);
    } else if (!owner_is(id, from)) {
        note_wrong("an answer on another connection", line);
    } else {
        state[id] = DONE;
        stamp[id] = t - stamp[id];
        answered++;
        if (r.is_error) why = "an error answer";
        else if (r.result.p == NULL) why = "neither result nor error";
        else why = check_result(r.result, id, &text);
        if (why != NULL) note_wrong(why, line);
        else learn(line, r.id, text);
    }
}

static inline bool contains(jw_span s, const char *text) {
    return memmem(s.p, jw_len(s), text, strlen(text)) != NULL;
}

/* Makes the table for `total` calls; false if there is no memory for it. */
static bool make_table(uint64_t total, bool owners) {
    state = calloc(total + 1, sizeof *state);
    stamp = calloc(total + 1, sizeof *stamp);
    if (owners) owner = calloc(total + 1, sizeof *owner);
    return state != NULL && stamp != NULL && (owner != NULL || !owners);
}

/* Touches the table from `first` on now, so that no timed call does. */
static inline void touch_table(uint64_t first, uint64_t total) {
    for (uint64_t i = first; i < total; i += 512) ((volatile uint64_t *)stamp)[i] = 0;
    for (uint64_t i = first; owner != NULL && i < total; i += 1024) {
        ((volatile uint32_t *)owner)[i] = 0;
    }
}

static double percentile(const uint64_t *sorted, uint64_t n, double q) {
    if (n == 0) return 0;
    uint64_t at = (uint64_t)(q * (double)(n - 1) + 0.5);
    return (double)sorted[at] / 1e3;
}

/* Prints the members about the answered calls from `first` on, as JSON without braces. */
static inline void print_calls(uint64_t first, uint64_t taken_ns) {
    uint64_t done = 0;
    for (uint64_t i = first; i < next_id; i++) {
        if (state[i] == DONE) stamp[first + done++] = stamp[i];
    }
    const uint64_t *sorted = stamp + first;
    if (done > 0) qsort(stamp + first, done, sizeof *sorted, compare);
    const double span = seconds(taken_ns);
    const double rate = span > 0 ? (double)done / span : 0;
    printf("\"calls\": %" PRIu64 ", \"size\": %" PRIu64 ", \"era\": \"%s\", \"seconds\": %.6f, "
           "\"calls_per_s\": %.1f, \"mb_per_s\": %.2f, ",
           done, echo.size, echo.modern ? "modern" : "legacy", span, rate,
           rate * (double)echo.size / 1e6);
    printf("\"p50_us\": %.2f, \"p90_us\": %.2f, \"p99_us\": %.2f, \"max_us\": %.2f",
           percentile(sorted, done, 0.5), percentile(sorted, done, 0.9),
           percentile(sorted, done, 0.99), percentile(sorted, done, 1));
}

/* Prints why the run ended early and the first wrong answer, if any. */
static inline void print_faults(const char *why) {
    printf(", \"notifications\": %" PRIu64 ", \"wrong\": %" PRIu64, notifications, wrong);
    if (why != NULL) {
        printf(", \"error\": ");
        print_string(why, strlen(why));
    }
    if (wrong > 0) {
        printf(", \"first_wrong\": {\"why\": ");
        print_string(wrong_why, strlen(wrong_why));
        printf(", \"line\": ");
        print_string(wrong_line, wrong_len);
        printf("}");
    }
}

static void free_calls(void) {
    free(state);
    free(stamp);
    free(owner);
    free(pattern);
    free(head.data);
    free(tail.data);
    free(closing.data);
    free(known.before_id.data);
    free(known.before_text.data);
    free(known.after_text.data);
}

#endif
