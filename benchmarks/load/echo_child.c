/* echo_child: an MCP server over stdio with one tool, `echo`, for measuring clients.
 *
 *   echo_child [--era legacy|modern]
 *
 * Answers as echo_answer.h says, a line each.  Ends at end of input. */
#include <errno.h>
#include <unistd.h>

#include "echo_answer.h"

static void answer_line(bytes *out, jw_span line) {
    const size_t before = bytes_used(out);
    answer(out, line);
    if (bytes_used(out) > before) BYTES_LIT(out, "\n");
}

static bool write_all(bytes *out) {
    while (bytes_used(out) > 0) {
        ssize_t n = write(STDOUT_FILENO, out->data + out->head, bytes_used(out));
        if (n > 0) bytes_consume(out, (size_t)n);
        else if (n < 0 && errno != EINTR) return false;
    }
    return true;
}

int main(int argc, char **argv) {
    if (argc == 3 && strcmp(argv[1], "--era") == 0 && strcmp(argv[2], "modern") == 0) {
        modern = true;
    } else if (argc != 1 &&
               !(argc == 3 && strcmp(argv[1], "--era") == 0 && strcmp(argv[2], "legacy") == 0)) {
        fputs("usage: echo_child [--era legacy|modern]\n", stderr);
        return 2;
    }
    bytes in = {0}, out = {0};
    size_t searched = 0; /* bytes behind in.head known to hold no newline */
    for (;;) {
        bytes_reserve(&in, 262144);
        ssize_t n = read(STDIN_FILENO, in.data + in.tail, in.size - in.tail);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return 1;
        if (n == 0) break;
        in.tail += (size_t)n;
        const char *newline;
        while ((newline = memchr(in.data + in.head + searched, '\n',
                                 bytes_used(&in) - searched)) != NULL) {
            const char *start = in.data + in.head;
            answer_line(&out, (jw_span){start, newline});
            searched = 0;
            bytes_consume(&in, (size_t)(newline - start) + 1);
        }
        searched = bytes_used(&in);
        if (!write_all(&out)) return 1;
    }
    if (bytes_used(&in) > 0) { /* a last line without its newline is still a message */
        answer_line(&out, (jw_span){in.data + in.head, in.data + in.tail});
    }
    bool written = write_all(&out);
    free(in.data);
    free(out.data);
    return written ? 0 : 1;
}
