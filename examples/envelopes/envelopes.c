/* Frames and envelopes of a file: what a binding for another language does with the kernels.
 *
 *   make && ./envelopes messages.jsonl
 *
 * The file has one JSON-RPC message a line, as MCP has on stdio. Each line of the output is the kind
 * of a message, its id, its method, and where its payload lies: nothing is decoded or copied. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "scan.h"

enum { MAX_DEPTH = 128 };
static const char *const faults[] = {"", "an empty message", "not JSON", "not UTF-8", "too deep"};
static const ws_kernels *kernels;

/* The members that make a message what it is: if one occurs twice, readers disagree about it. */
static const uint32_t envelope = 1u << WS_JSONRPC | 1u << WS_ID | 1u << WS_METHOD |
                                 1u << WS_PARAMS | 1u << WS_RESULT | 1u << WS_ERROR;

static int there(const ws_scan *scan, int poi)
{
    return scan->poi[poi].len != 0;
}

static int starts(const uint8_t *p, const ws_scan *scan, int poi, const char *begin)
{
    size_t n = strlen(begin);
    return scan->poi[poi].len >= n && memcmp(p + scan->poi[poi].off, begin, n) == 0;
}

/* As wirespeed.core has it, but for members that are null and version texts with escapes. */
static const char *kind_of(const uint8_t *p, const ws_scan *scan)
{
    int method = there(scan, WS_METHOD), result = there(scan, WS_RESULT);
    int error = there(scan, WS_ERROR);
    int id = scan->id_kind == WS_ID_INTEGER || scan->id_kind == WS_ID_STRING;
    if (scan->root == WS_ROOT_ARRAY)
        return "batch";
    if (scan->root != WS_ROOT_OBJECT || scan->duplicates & envelope ||
        !starts(p, scan, WS_JSONRPC, "\"2.0\"") || method + result + error != 1)
        return "invalid";
    if (error)
        return starts(p, scan, WS_ERROR, "{") ? "error" : "invalid";
    if (result)
        return id ? "result" : "invalid";
    if (!starts(p, scan, WS_METHOD, "\"") ||
        (there(scan, WS_PARAMS) && !starts(p, scan, WS_PARAMS, "{")))
        return "invalid";
    return id ? "request" : scan->id_kind == WS_ID_ABSENT ? "notification" : "invalid";
}

static void show(const uint8_t *p, const ws_scan *scan, int poi)
{
    if (there(scan, poi))
        printf(" %.*s", (int)scan->poi[poi].len, (const char *)p + scan->poi[poi].off);
    else
        printf(" -");
}

static void read_message(const uint8_t *p, const ws_scan *scan)
{
    static const int payloads[] = {WS_PARAMS, WS_RESULT, WS_ERROR};
    printf("%-12s", kind_of(p, scan));
    show(p, scan, WS_ID);
    show(p, scan, WS_METHOD);
    for (size_t i = 0; i < sizeof payloads / sizeof *payloads; i++)
        if (there(scan, payloads[i]))
            printf(" %s[%u:+%u]", ws_point_paths[payloads[i]], scan->poi[payloads[i]].off,
                   scan->poi[payloads[i]].len);
    putchar('\n');
}

/* A batch (2025-03-26): its elements are read one by one, each byte once. */
static void read_batch(const uint8_t *p, const ws_scan *batch)
{
    const uint8_t *at = p + batch->value.off + 1;
    const uint8_t *end = p + batch->value.off + batch->value.len - 1;
    ws_scan scan;
    while (at < end && kernels->json_prefix(at, (size_t)(end - at), MAX_DEPTH - 1, &scan) == WS_OK) {
        printf("  ");
        read_message(at, &scan);
        at += scan.end;
        while (at < end && *at != ',')
            at++;
        at += at < end;
    }
}

int main(int argc, char **argv)
{
    FILE *file = argc == 2 ? fopen(argv[1], "rb") : NULL;
    size_t room = 1 << 16, n = 0, got, at, length;
    uint8_t *text = malloc(room);
    ws_scan scan;
    if (file == NULL || text == NULL)
        return fprintf(stderr, "usage: envelopes FILE\n"), 64;
    while ((got = fread(text + n, 1, room - n, file)) > 0) {
        n += got;
        if (n == room && (text = realloc(text, room *= 2)) == NULL)
            return fprintf(stderr, "no memory for the file\n"), 1;
    }
    fclose(file);
    kernels = ws_kernels_for(getenv("WIRESPEED_SIMD"));
    for (at = 0; at < n; at += length + 1) {
        length = kernels->find_newline(text + at, n - at); /* up to the end where there is none */
        ws_status status = kernels->json(text + at, length, MAX_DEPTH, &scan);
        if (status != WS_OK)
            printf("%-12s %s at byte %u\n", "invalid", faults[status], scan.error_at);
        else
            read_message(text + at, &scan);
        if (status == WS_OK && scan.root == WS_ROOT_ARRAY)
            read_batch(text + at, &scan);
    }
    free(text);
    return 0;
}
