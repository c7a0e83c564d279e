/* stdio_load: a closed-loop load generator for MCP servers on stdio.
 *
 *   stdio_load [options] -- server-command [arguments]
 *
 * Starts the command, shakes hands, keeps `--window` calls of one tool in flight until `--calls`
 * are answered, and checks every answer: its id is outstanding (so each is answered once), it is
 * a result, and it carries the text of that call, which no other call has.  Prints one JSON line.
 *
 * Latency runs from the write that hands the request to the kernel to the read that brings its
 * answer.  The loop is closed: a slow server is asked less often, so percentiles describe this
 * load only.  Exit status: 0 all correct, 1 wrong answers, 2 could not run, 3 timed out. */
#include <errno.h>
#include <inttypes.h>
#include <poll.h>

#include "bytes.h"
#include "child.h"
#include "json_walk.h"

enum { TEXT_KEY = 13, LINE_LIMIT = 1 << 30, SHOWN = 400 };
#define MAX_CALLS UINT64_C(50000000)

typedef enum { UNSENT, FLYING, DONE } call_state;

static struct {
    uint64_t calls, warmup, window, size, burst;
    double timeout, grace;
    const char *tool;
    bool modern, spin;
    char **command;
} opt = {10000, 200, 64, 64, 0, 60, 5, "echo", false, false, NULL};

static child_process child = {-1, -1, -1, 0};
static bool child_eof;
static bytes out, in;
static size_t searched; /* bytes behind in.head known to hold no newline */
static uint64_t deadline, bytes_in, bytes_out;
static volatile sig_atomic_t interrupted;

static uint8_t *state;    /* call_state by id */
static uint64_t *stamp;   /* by id: when sent, then the latency; in ns */
static uint64_t unstamped; /* first id queued but not yet handed to the kernel */
static uint64_t next_id, answered, notifications, wrong;
static char *pattern;     /* size + 64 bytes that payloads are cut from */
static bytes head, tail;  /* the constant parts of a request around its id and text */
static char wrong_why[96], wrong_line[SHOWN + 1];
static size_t wrong_len;

static double seconds(uint64_t ns) { return (double)ns / 1e9; }

static double own_cpu(void) {
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
           (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e6;
}

static void on_signal(int number) { interrupted = number; }

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

/* ---------------------------------------------------------------------- io */

/* Hands queued requests to the kernel; false if the child closed its input. */
static bool flush(void) {
    if (bytes_used(&out) == 0) return true;
    const uint64_t t = now();
    for (; unstamped < next_id; unstamped++) stamp[unstamped] = t;
    while (bytes_used(&out) > 0) {
        ssize_t n = write(child.input, out.data + out.head, bytes_used(&out));
        if (n > 0) {
            bytes_out += (uint64_t)n;
            bytes_consume(&out, (size_t)n);
        } else if (n < 0 && errno == EAGAIN) {
            return true;
        } else if (n < 0 && errno != EINTR) {
            return false;
        }
    }
    return true;
}

/* Waits for input and reads it, writing what is queued meanwhile.
 * NULL, or why no more can come. */
static const char *more_input(void) {
    for (;;) {
        if (interrupted) return "interrupted";
        if (!flush()) return "the server closed its input";
        const uint64_t t = now();
        if (t >= deadline) return "timed out";
        struct pollfd fds[2] = {{child.output, POLLIN, 0},
                                {bytes_used(&out) > 0 ? child.input : -1, POLLOUT, 0}};
        if (!opt.spin) {
            int ready = poll(fds, 2, (int)((deadline - t) / 1000000) + 1);
            if (ready < 0 && errno != EINTR) return strerror(errno);
            if (ready <= 0 || fds[0].revents == 0) continue;
        }
        if (bytes_used(&in) >= LINE_LIMIT) return "a line of more than 1 GiB";
        bytes_reserve(&in, 262144);
        ssize_t n = read(child.output, in.data + in.tail, in.size - in.tail);
        if (n > 0) {
            in.tail += (size_t)n;
            bytes_in += (uint64_t)n;
            return NULL;
        }
        if (n == 0) {
            child_eof = true;
            return "the server closed its output";
        }
        if (errno != EAGAIN && errno != EINTR) return strerror(errno);
    }
}

/* Takes one line (without its newline) off the input; false if there is no whole one. */
static bool take_line(jw_span *line) {
    if (in.data == NULL) return false;
    char *start = in.data + in.head;
    char *newline = memchr(start + searched, '\n', bytes_used(&in) - searched);
    if (newline == NULL) {
        searched = bytes_used(&in);
        return false;
    }
    searched = 0;
    *line = (jw_span){start, newline};
    bytes_consume(&in, (size_t)(newline - start) + 1);
    return true;
}

/* ---------------------------------------------------------------- messages */

#define META                                                                           \
    "\"_meta\":{\"io.modelcontextprotocol/protocolVersion\":\"2026-07-28\","           \
    "\"io.modelcontextprotocol/clientCapabilities\":{},"                               \
    "\"io.modelcontextprotocol/clientInfo\":{\"name\":\"stdio-load\",\"version\":\"1\"}}"
#define INITIALIZE                                                                     \
    "{\"jsonrpc\":\"2.0\",\"id\":\"load-init\",\"method\":\"initialize\",\"params\":{" \
    "\"protocolVersion\":\"2025-06-18\",\"capabilities\":{},"                          \
    "\"clientInfo\":{\"name\":\"stdio-load\",\"version\":\"1\"}}}\n"
#define DISCOVER                                                                       \
    "{\"jsonrpc\":\"2.0\",\"id\":\"load-init\",\"method\":\"server/discover\","        \
    "\"params\":{" META "}}\n"
#define INITIALIZED "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/initialized\"}\n"

static void build_parts(void) {
    BYTES_LIT(&head, ",\"method\":\"tools/call\",\"params\":{\"name\":\"");
    bytes_add(&head, opt.tool, strlen(opt.tool));
    BYTES_LIT(&head, "\",\"arguments\":{\"text\":\"");
    if (opt.modern) BYTES_LIT(&tail, "\"}," META "}}\n");
    else BYTES_LIT(&tail, "\"}}}\n");
    pattern = malloc(opt.size + 64);
    if (pattern == NULL) exit(2);
    for (size_t i = 0; i < opt.size + 64; i++) pattern[i] = (char)('A' + (i * 7 + i / 26) % 26);
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

static void queue_call(void) {
    const uint64_t id = next_id++;
    char key[TEXT_KEY];
    const char *digits = write_key(key, id);
    bytes_reserve(&out, 64 + head.tail + opt.size + tail.tail);
    BYTES_LIT(&out, "{\"jsonrpc\":\"2.0\",\"id\":");
    bytes_add(&out, digits, (size_t)(key + TEXT_KEY - 1 - digits));
    bytes_add(&out, head.data, head.tail);
    bytes_add(&out, key, TEXT_KEY);
    bytes_add(&out, pattern + id % 64, opt.size - TEXT_KEY);
    bytes_add(&out, tail.data, tail.tail);
    state[id] = FLYING;
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
    const size_t rest = opt.size - TEXT_KEY;
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
    keep(&known.after_text, text + opt.size, line.end);
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
           take(&p, line.end, pattern + *id % 64, opt.size - TEXT_KEY) &&
           take(&p, line.end, known.after_text.data, known.after_text.tail) && p == line.end;
}

static void take_answer(jw_span line, uint64_t t) {
    reply r;
    uint64_t id;
    const char *text;
    if (matches_known(line, &id) && id < next_id && state[id] == FLYING) {
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

/* Waits for the answer with this id (with its quotes); NULL or why there is none. */
static const char *await_reply(const char *id, reply *r, jw_span *line) {
    for (;;) {
        while (take_line(line)) {
            const char *why = read_reply(*line, r);
            if (why != NULL) return why;
            if (r->is_notification) continue;
            if (r->id.p == NULL || !jw_eq(r->id, id, strlen(id))) return "an unexpected id";
            if (r->is_error || r->result.p == NULL) return "an error answer";
            return NULL;
        }
        const char *why = more_input();
        if (why != NULL) {
            *line = (jw_span){"", ""};
            return why;
        }
    }
}

static bool contains(jw_span s, const char *text) {
    return memmem(s.p, jw_len(s), text, strlen(text)) != NULL;
}

/* Handshake, then tools/list; NULL or what went wrong.  Sets the time the child took. */
static const char *shake_hands(uint64_t *ready, jw_span *line) {
    reply r;
    char want[160];
    if (opt.modern) BYTES_LIT(&out, DISCOVER);
    else BYTES_LIT(&out, INITIALIZE);
    const char *why = await_reply("\"load-init\"", &r, line);
    if (why != NULL) return why;
    *ready = now() - child.spawned_at;
    if (!contains(r.result, opt.modern ? "\"2026-07-28\"" : "\"2025-06-18\"")) {
        return "another protocol revision";
    }
    if (!opt.modern) BYTES_LIT(&out, INITIALIZED);
    BYTES_LIT(&out, "{\"jsonrpc\":\"2.0\",\"id\":\"load-list\",\"method\":\"tools/list\"");
    if (opt.modern) BYTES_LIT(&out, ",\"params\":{" META "}}\n");
    else BYTES_LIT(&out, "}\n");
    if ((why = await_reply("\"load-list\"", &r, line)) != NULL) return why;
    snprintf(want, sizeof want, "\"%s\"", opt.tool);
    return contains(r.result, want) ? NULL : "the tool is not listed";
}

/* Runs `count` calls to their end; NULL or why not. */
static const char *run_calls(uint64_t count) {
    const uint64_t end = next_id + count, goal = answered + count;
    while (next_id < end && next_id < end - count + opt.window) queue_call();
    while (answered < goal) {
        const char *why = more_input();
        if (why != NULL) return why;
        const uint64_t t = now();
        jw_span line;
        while (take_line(&line)) {
            const uint64_t before = answered;
            take_answer(line, t);
            if (answered > before && next_id < end) queue_call();
            if (opt.burst && next_id - unstamped >= opt.burst && !flush()) {
                return "the server closed its input";
            }
        }
    }
    return NULL;
}

/* --------------------------------------------------------------------- main */

static void usage(void) {
    fputs("usage: stdio_load [options] -- command [arguments]\n"
          "  --calls N     timed calls (10000); 0 measures the start only\n"
          "  --warmup N    calls before them (200)\n"
          "  --window N    calls in flight (64)\n"
          "  --size N      bytes of text in a call (64, at least 16)\n"
          "  --tool NAME   tool to call with {\"text\": ...} (echo)\n"
          "  --era E       legacy (2025-06-18, default) or modern (2026-07-28)\n"
          "  --burst N     write after N requests, not only after a whole read (0: off)\n"
          "  --spin yes    look for answers without sleeping (no)\n"
          "  --timeout S   seconds for everything up to the last answer (60)\n"
          "  --grace S     seconds for the server to exit after end of input (5)\n",
          stderr);
    exit(2);
}

static double number(const char *text, double least, double most) {
    char *end;
    errno = 0;
    double value = strtod(text, &end);
    if (errno != 0 || end == text || *end != 0 || !(value >= least && value <= most)) usage();
    return value;
}

static void read_options(int argc, char **argv) {
    int i = 1;
    for (; i + 1 < argc && strcmp(argv[i], "--") != 0; i += 2) {
        const char *name = argv[i], *value = argv[i + 1];
        if (!strcmp(name, "--calls")) opt.calls = (uint64_t)number(value, 0, MAX_CALLS);
        else if (!strcmp(name, "--warmup")) opt.warmup = (uint64_t)number(value, 0, MAX_CALLS);
        else if (!strcmp(name, "--window")) opt.window = (uint64_t)number(value, 1, 1e6);
        else if (!strcmp(name, "--size")) opt.size = (uint64_t)number(value, 16, 1 << 28);
        else if (!strcmp(name, "--burst")) opt.burst = (uint64_t)number(value, 0, 1e6);
        else if (!strcmp(name, "--spin") && !strcmp(value, "yes")) opt.spin = true;
        else if (!strcmp(name, "--spin") && !strcmp(value, "no")) opt.spin = false;
        else if (!strcmp(name, "--timeout")) opt.timeout = number(value, 0.001, 86400);
        else if (!strcmp(name, "--grace")) opt.grace = number(value, 0, 3600);
        else if (!strcmp(name, "--tool") && strlen(value) < 128) opt.tool = value;
        else if (!strcmp(name, "--era") && !strcmp(value, "modern")) opt.modern = true;
        else if (!strcmp(name, "--era") && !strcmp(value, "legacy")) opt.modern = false;
        else usage();
    }
    if (i + 1 >= argc || strcmp(argv[i], "--") != 0) usage();
    opt.command = argv + i + 1;
    for (const char *p = opt.tool; *p; p++) {
        if ((unsigned char)*p < 0x20 || *p == '"' || *p == '\\') usage();
    }
}

/* After the last answer: end of input; anything more that comes is an answer too many. */
static const char *finish(void) {
    jw_span line;
    close(child.input);
    child.input = -1;
    deadline = now() + (uint64_t)(opt.grace * 1e9);
    for (;;) {
        while (take_line(&line)) take_answer(line, now());
        const char *why = more_input();
        if (child_eof) return bytes_used(&in) > 0 ? "an unfinished last line" : NULL;
        if (why != NULL) return "the server did not close its output after end of input";
    }
}

static double percentile(const uint64_t *sorted, uint64_t n, double q) {
    if (n == 0) return 0;
    uint64_t at = (uint64_t)(q * (double)(n - 1) + 0.5);
    return (double)sorted[at] / 1e3;
}

int main(int argc, char **argv) {
    read_options(argc, argv);
    signal(SIGPIPE, SIG_IGN);
    struct sigaction action = {.sa_handler = on_signal};
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);

    /* Before the tables are made: a child starts with its parent's peak memory in its account. */
    int error = child_spawn(&child, opt.command);
    if (error != 0) {
        printf("{\"correct\": false, \"error\": \"cannot start the server: %s\"}\n",
               strerror(error));
        return 2;
    }
    deadline = child.spawned_at + (uint64_t)(opt.timeout * 1e9);
    const uint64_t total = opt.warmup + opt.calls;
    state = calloc(total + 1, sizeof *state);
    stamp = calloc(total + 1, sizeof *stamp);
    if (state == NULL || stamp == NULL) {
        kill(child.pid, SIGKILL);
        fputs("out of memory\n", stderr);
        return 2;
    }
    build_parts();

    uint64_t ready = 0, begun = 0, ended = 0;
    double server_cpu = 0, load_cpu = 0;
    jw_span line;
    const char *why = shake_hands(&ready, &line);
    if (why != NULL) note_wrong(why, line);
    if (why == NULL) why = run_calls(opt.warmup);
    const uint64_t first = next_id;
    if (why == NULL) {
        /* Touch the rest of the table now, not during the timed part. */
        for (uint64_t i = first; i < total; i += 512) ((volatile uint64_t *)stamp)[i] = 0;
        bytes_in = bytes_out = 0;
        server_cpu = child_cpu(&child);
        load_cpu = own_cpu();
        begun = now();
        why = run_calls(opt.calls);
        ended = now();
        load_cpu = own_cpu() - load_cpu;
        server_cpu = server_cpu < 0 ? -1 : child_cpu(&child) - server_cpu;
    }
    const uint64_t timed_in = bytes_in, timed_out = bytes_out;
    const bool late = why != NULL && now() >= deadline;
    if (why == NULL) why = finish();

    int status = 0;
    struct rusage usage = {0};
    const char *end = "exit";
    if (child.input >= 0) close(child.input);
    const uint64_t closed = now();
    if (why != NULL || !child_wait(&child, opt.grace, &status, &usage)) {
        end = "killed";
        kill(child.pid, SIGTERM);
        if (!child_wait(&child, 2, &status, &usage)) {
            kill(child.pid, SIGKILL);
            child_wait(&child, 10, &status, &usage);
        }
    }
    const double exit_s = seconds(now() - closed);

    uint64_t done = 0;
    for (uint64_t i = first; i < next_id; i++) {
        if (state[i] == DONE) stamp[first + done++] = stamp[i];
    }
    uint64_t *sorted = stamp + first;
    if (done > 0) qsort(sorted, done, sizeof *sorted, compare);
    const double span = seconds(ended - begun);
    const bool correct = why == NULL && wrong == 0;
    long rss = usage.ru_maxrss;
#ifdef __APPLE__
    rss /= 1024;
#endif
    printf("{\"correct\": %s, \"calls\": %" PRIu64 ", \"window\": %" PRIu64 ", \"size\": %" PRIu64
           ", \"era\": \"%s\", \"seconds\": %.6f, \"calls_per_s\": %.1f, ",
           correct ? "true" : "false", done, opt.window, opt.size,
           opt.modern ? "modern" : "legacy", span, span > 0 ? (double)done / span : 0);
    printf("\"p50_us\": %.2f, \"p90_us\": %.2f, \"p99_us\": %.2f, \"max_us\": %.2f, ",
           percentile(sorted, done, 0.5), percentile(sorted, done, 0.9),
           percentile(sorted, done, 0.99), percentile(sorted, done, 1));
    printf("\"bytes_to_server\": %" PRIu64 ", \"bytes_from_server\": %" PRIu64
           ", \"server_cpu_s\": %.6f, \"load_cpu_s\": %.6f, \"ready_s\": %.6f, "
           "\"server_peak_rss_kib\": %ld, \"notifications\": %" PRIu64 ", \"wrong\": %" PRIu64,
           timed_out, timed_in, server_cpu, load_cpu, seconds(ready), rss, notifications, wrong);
    printf(", \"server_end\": \"%s\", \"server_status\": %d, \"exit_s\": %.3f", end,
           WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status), exit_s);
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
    printf("}\n");
    free(state);
    free(stamp);
    free(pattern);
    free(head.data);
    free(tail.data);
    free(known.before_id.data);
    free(known.before_text.data);
    free(known.after_text.data);
    free(in.data);
    free(out.data);
    return correct ? 0 : late ? 3 : 1;
}
