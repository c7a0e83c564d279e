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
#include <poll.h>

#include "calls.h"
#include "child.h"

enum { LINE_LIMIT = 1 << 30 };

static struct {
    uint64_t calls, warmup, window, burst;
    double timeout, grace;
    bool spin;
    char **command;
} opt = {10000, 200, 64, 0, 60, 5, false, NULL};

static child_process child = {-1, -1, -1, 0};
static bool child_eof;
static bytes out, in;
static size_t searched; /* bytes behind in.head known to hold no newline */
static uint64_t deadline, bytes_in, bytes_out;

static uint64_t unstamped; /* first id queued but not yet handed to the kernel */

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

static void queue_call(void) {
    const uint64_t id = next_id++;
    write_call(&out, id);
    BYTES_LIT(&out, "\n");
    state[id] = FLYING;
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

/* Handshake, then tools/list; NULL or what went wrong.  Sets the time the child took. */
static const char *shake_hands(uint64_t *ready, jw_span *line) {
    reply r;
    char want[160];
    if (echo.modern) BYTES_LIT(&out, DISCOVER "\n");
    else BYTES_LIT(&out, INITIALIZE "\n");
    const char *why = await_reply(GREETING_ID, &r, line);
    if (why != NULL) return why;
    *ready = now() - child.spawned_at;
    if (!contains(r.result, echo.modern ? "\"2026-07-28\"" : "\"2025-06-18\"")) {
        return "another protocol revision";
    }
    if (!echo.modern) BYTES_LIT(&out, INITIALIZED "\n");
    const char *list = LIST_TOOLS(echo.modern);
    bytes_add(&out, list, strlen(list));
    BYTES_LIT(&out, "\n");
    if ((why = await_reply(LISTING_ID, &r, line)) != NULL) return why;
    snprintf(want, sizeof want, "\"%s\"", echo.tool);
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
            take_answer(line, t, 0);
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
          "  --tokens yes  each call asks for progress (no)\n"
          "  --burst N     write after N requests, not only after a whole read (0: off)\n"
          "  --spin yes    look for answers without sleeping (no)\n"
          "  --timeout S   seconds for everything up to the last answer (60)\n"
          "  --grace S     seconds for the server to exit after end of input (5)\n",
          stderr);
    exit(2);
}

static void read_options(int argc, char **argv) {
    int i = 1;
    for (; i + 1 < argc && strcmp(argv[i], "--") != 0; i += 2) {
        const char *name = argv[i], *value = argv[i + 1];
        if (call_option(name, value)) continue;
        if (!strcmp(name, "--calls")) opt.calls = (uint64_t)number(value, 0, MAX_CALLS);
        else if (!strcmp(name, "--warmup")) opt.warmup = (uint64_t)number(value, 0, MAX_CALLS);
        else if (!strcmp(name, "--window")) opt.window = (uint64_t)number(value, 1, 1e6);
        else if (!strcmp(name, "--burst")) opt.burst = (uint64_t)number(value, 0, 1e6);
        else if (!strcmp(name, "--spin")) opt.spin = yes(value);
        else if (!strcmp(name, "--timeout")) opt.timeout = number(value, 0.001, 86400);
        else if (!strcmp(name, "--grace")) opt.grace = number(value, 0, 3600);
        else usage();
    }
    if (i + 1 >= argc || strcmp(argv[i], "--") != 0) usage();
    opt.command = argv + i + 1;
}

/* After the last answer: end of input; anything more that comes is an answer too many. */
static const char *finish(void) {
    jw_span line;
    close(child.input);
    child.input = -1;
    deadline = now() + (uint64_t)(opt.grace * 1e9);
    for (;;) {
        while (take_line(&line)) take_answer(line, now(), 0);
        const char *why = more_input();
        if (child_eof) return bytes_used(&in) > 0 ? "an unfinished last line" : NULL;
        if (why != NULL) return "the server did not close its output after end of input";
    }
}

int main(int argc, char **argv) {
    read_options(argc, argv);
    signal(SIGPIPE, SIG_IGN);
    catch_signals();

    /* Before the tables are made: a child starts with its parent's peak memory in its account. */
    int error = child_spawn(&child, opt.command);
    if (error != 0) {
        printf("{\"correct\": false, \"error\": \"cannot start the server: %s\"}\n",
               strerror(error));
        return 2;
    }
    deadline = child.spawned_at + (uint64_t)(opt.timeout * 1e9);
    const uint64_t total = opt.warmup + opt.calls;
    if (!make_table(total, false)) {
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
        touch_table(first, total);
        bytes_in = bytes_out = 0;
        server_cpu = process_cpu(child.pid);
        load_cpu = own_cpu();
        begun = now();
        why = run_calls(opt.calls);
        ended = now();
        load_cpu = own_cpu() - load_cpu;
        server_cpu = server_cpu < 0 ? -1 : process_cpu(child.pid) - server_cpu;
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

    const bool correct = why == NULL && wrong == 0;
    long rss = usage.ru_maxrss;
#ifdef __APPLE__
    rss /= 1024;
#endif
    printf("{\"correct\": %s, \"window\": %" PRIu64 ", ", correct ? "true" : "false", opt.window);
    print_calls(first, ended - begun);
    printf(", \"bytes_to_server\": %" PRIu64 ", \"bytes_from_server\": %" PRIu64
           ", \"server_cpu_s\": %.6f, \"load_cpu_s\": %.6f, \"ready_s\": %.6f, "
           "\"server_peak_rss_kib\": %ld",
           timed_out, timed_in, server_cpu, load_cpu, seconds(ready), rss);
    printf(", \"server_end\": \"%s\", \"server_status\": %d, \"exit_s\": %.3f", end,
           WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status), exit_s);
    print_faults(why);
    printf("}\n");
    free_calls();
    free(in.data);
    free(out.data);
    return correct ? 0 : late ? 3 : 1;
}
