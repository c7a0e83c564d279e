"""The C kernels for other compiled modules: ``from wirespeed._core._simd cimport kernels``."""

from libc.stdint cimport uint8_t, uint32_t

cdef enum:
    # The layout of all classes that can be cimported: another number for each version that changes
    # a field, a method or its signature.
    WIRESPEED_ABI = 1


cdef extern from "scan.h" nogil:
    ctypedef struct ws_span:
        uint32_t off
        uint32_t len

    ctypedef enum ws_status:
        WS_OK
        WS_EMPTY
        WS_SYNTAX
        WS_UTF8
        WS_DEPTH

    ctypedef enum ws_root:
        WS_ROOT_OTHER
        WS_ROOT_OBJECT
        WS_ROOT_ARRAY

    ctypedef enum ws_id_kind:
        WS_ID_ABSENT
        WS_ID_INTEGER
        WS_ID_STRING
        WS_ID_NULL
        WS_ID_INVALID

    enum:
        WS_JSONRPC
        WS_ID
        WS_METHOD
        WS_PARAMS
        WS_RESULT
        WS_ERROR
        WS_NAME
        WS_URI
        WS_ARGUMENTS
        WS_REQUEST_ID
        WS_PROGRESS_TOKEN
        WS_META
        WS_META_PROGRESS_TOKEN
        WS_META_PROTOCOL_VERSION
        WS_META_CLIENT_CAPABILITIES
        WS_META_CLIENT_INFO
        WS_META_LOG_LEVEL
        WS_META_SUBSCRIPTION_ID
        WS_POI_COUNT

    const char *const ws_point_paths[]

    ctypedef struct ws_scan:
        ws_span value
        uint32_t end
        uint32_t duplicates
        uint32_t error_at
        uint8_t root
        uint8_t id_kind
        ws_span poi[WS_POI_COUNT]

    ctypedef enum ws_level:
        WS_LEVEL_SCALAR
        WS_LEVEL_SSE2
        WS_LEVEL_AVX2
        WS_LEVEL_AVX512
        WS_LEVEL_NEON

    ctypedef struct ws_kernels:
        size_t (*find_newline)(const uint8_t *p, size_t n) noexcept
        int (*utf8_valid)(const uint8_t *p, size_t n) noexcept
        ws_status (*json)(
            const uint8_t *p, size_t n, uint32_t max_depth, ws_scan *out) noexcept
        ws_status (*json_prefix)(
            const uint8_t *p, size_t n, uint32_t max_depth, ws_scan *out) noexcept
        size_t (*json_escape)(uint8_t *dst, const uint8_t *p, size_t n) noexcept
        size_t (*json_plain)(const uint8_t *p, size_t n, int *ascii) noexcept
        void (*mask)(
            uint8_t *dst, const uint8_t *src, size_t n, const uint8_t *key, size_t at) noexcept
        ws_level level
        const char *name

    const ws_kernels *ws_kernels_for(const char *cap)


# The table in use, chosen when this module is imported; never NULL, never changes.
cdef const ws_kernels *kernels
