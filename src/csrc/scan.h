/* Contract of the kernels. Plain C11, no Python.h.
 *
 * Every kernel reads only [p, p+n): the payload may live in a foreign buffer without padding.
 * Every implementation of a kernel returns the same results as the scalar one.
 */
#ifndef WS_SCAN_H
#define WS_SCAN_H

#include <stddef.h>
#include <stdint.h>

/* A span of bytes relative to the start of the scanned text. len == 0: absent. */
typedef struct {
    uint32_t off;
    uint32_t len;
} ws_span;

/* The result of ws_kernels.json. All but WS_OK name the first fault of the text. */
typedef enum {
    WS_OK = 0,
    WS_EMPTY = 1,  /* only whitespace */
    WS_SYNTAX = 2, /* not RFC 8259 JSON, cut short, or followed by further text */
    WS_UTF8 = 3,   /* not UTF-8 (RFC 3629): overlong, surrogate, above U+10FFFF, cut short */
    WS_DEPTH = 4   /* an array or object opens below max_depth levels; JSON up to there */
} ws_status;

typedef enum { WS_ROOT_OTHER = 0, WS_ROOT_OBJECT = 1, WS_ROOT_ARRAY = 2 } ws_root;

typedef enum {
    WS_ID_ABSENT = 0,
    WS_ID_INTEGER = 1, /* -?(0|[1-9][0-9]*) of any length */
    WS_ID_STRING = 2,
    WS_ID_NULL = 3,
    WS_ID_INVALID = 4 /* boolean, number with fraction or exponent, array, object */
} ws_id_kind;

/* Points of interest: values of members, as spans of raw JSON text (strings with their quotes).
 * A key written with escapes ("me\u0074hod") is the same key. */
#define WS_MCP "io.modelcontextprotocol/"
#define WS_POINTS(X)                                                        \
    /* members of the message itself */                                     \
    X(ROOT, WS_JSONRPC, "jsonrpc")                                          \
    X(ROOT, WS_ID, "id")                                                    \
    X(ROOT, WS_METHOD, "method")                                            \
    X(ROOT, WS_PARAMS, "params")                                            \
    X(ROOT, WS_RESULT, "result")                                            \
    X(ROOT, WS_ERROR, "error")                                              \
    /* members of params, where params is an object */                      \
    X(PARAMS, WS_NAME, "name")                                              \
    X(PARAMS, WS_URI, "uri")                                                \
    X(PARAMS, WS_ARGUMENTS, "arguments")                                    \
    X(PARAMS, WS_REQUEST_ID, "requestId")                                   \
    X(PARAMS, WS_PROGRESS_TOKEN, "progressToken") /* of progress */         \
    X(PARAMS, WS_META, "_meta")                                             \
    /* members of params._meta, where it is an object */                    \
    X(META, WS_META_PROGRESS_TOKEN, "progressToken")                        \
    X(META, WS_META_PROTOCOL_VERSION, WS_MCP "protocolVersion")             \
    X(META, WS_META_CLIENT_CAPABILITIES, WS_MCP "clientCapabilities")       \
    X(META, WS_META_CLIENT_INFO, WS_MCP "clientInfo")                       \
    X(META, WS_META_LOG_LEVEL, WS_MCP "logLevel")                           \
    X(META, WS_META_SUBSCRIPTION_ID, WS_MCP "subscriptionId")

#define WS_POINT(object, poi, name) poi,
enum { WS_POINTS(WS_POINT) WS_POI_COUNT };
#undef WS_POINT

/* The paths of the points of interest, such as "params._meta.progressToken". */
extern const char *const ws_point_paths[WS_POI_COUNT];

/* A point of interest that occurs twice in its object sets its bit, 1 << WS_..., in `duplicates`;
 * the span is the first occurrence's. */
typedef struct {
    ws_span value;       /* the value without surrounding whitespace */
    uint32_t end;        /* first byte behind the value: value.off + value.len */
    uint32_t duplicates; /* bits of the points of interest that occur twice */
    uint32_t error_at;   /* offset of the fault, when the status is not WS_OK */
    uint8_t root;        /* ws_root */
    uint8_t id_kind;     /* ws_id_kind */
    uint8_t pad[2];
    ws_span poi[WS_POI_COUNT];
} ws_scan;

typedef enum {
    WS_LEVEL_SCALAR = 0,
    WS_LEVEL_SSE2,
    WS_LEVEL_AVX2,
    WS_LEVEL_AVX512,
    WS_LEVEL_NEON
} ws_level;

typedef struct {
    /* Offset of the first '\n' in [p, p+n), or n. */
    size_t (*find_newline)(const uint8_t *p, size_t n);

    /* 1 when [p, p+n) is well-formed UTF-8, else 0. */
    int (*utf8_valid)(const uint8_t *p, size_t n);

    /* Validate the JSON text [p, p+n), n <= UINT32_MAX, and note the points of interest, in one
     * pass. The whole text must be one value with whitespace around it. On any status but WS_OK
     * and WS_DEPTH only `error_at` is meaningful. On WS_DEPTH `end` is `error_at`, and the points
     * of interest are those whose values end before it; the member of the message whose value does
     * not has its `off`, and a `len` of 0. Where params or _meta occur twice, only the first is
     * looked into. max_depth: how many levels of arrays and objects may be open at once, 1..1024
     * (a scalar has depth 0). */
    ws_status (*json)(const uint8_t *p, size_t n, uint32_t max_depth, ws_scan *out);

    /* The same for the one value that starts at p after optional whitespace: whatever follows the
     * value is not looked at (beyond what tells that a number has ended), and out->end tells where
     * it ends. For array elements. */
    ws_status (*json_prefix)(const uint8_t *p, size_t n, uint32_t max_depth, ws_scan *out);

    /* Write the text [p, p+n), valid UTF-8, as the inside of a JSON string (no quotes): escapes
     * '"', '\\' and bytes below 0x20. dst must have room for 6 * n bytes. Returns bytes written. */
    size_t (*json_escape)(uint8_t *dst, const uint8_t *p, size_t n);

    /* How many bytes from p on stand inside a JSON string as they are: the offset of the first
     * '"', '\\' or byte below 0x20 in [p, p+n), or n. *ascii: 1 when all of them are below 0x80. */
    size_t (*json_plain)(const uint8_t *p, size_t n, int *ascii);

    /* WebSocket masking (RFC 6455, section 5.3): byte i of dst becomes byte i of src XOR
     * key[(at + i) % 4]. dst may be src, or start anywhere below it, or not overlap it. */
    void (*mask)(uint8_t *dst, const uint8_t *src, size_t n, const uint8_t key[4], size_t at);

    ws_level level;
    const char *name; /* "scalar", "sse2", "avx2", "avx512", "neon" */
} ws_kernels;

/* The table for this CPU, at most the level that cap names (NULL or unknown name: no cap).
 * Thread-safe; the table is never freed. */
const ws_kernels *ws_kernels_for(const char *cap);

#endif
