from libc.stdint cimport uint64_t, uint8_t

from wirespeed._core.framing.http.rfc9112 cimport Fault


cdef enum ChunksResult:
    CHUNKS_MORE = 0
    CHUNKS_DONE = 1
    CHUNKS_BAD = 2            # `fault` says why


# A body in chunks. Its owner says where the body is (`body`, `n_body`) and where bytes of it that
# were not looked at begin (`at`), each counted from the same place; these three follow when bytes
# move.
cdef struct Chunks:
    size_t body, n_body
    size_t at
    uint64_t moved            # bytes of the body that were moved together
    int state
    int n_digits              # of the size of the current chunk
    uint64_t left             # bytes of the current chunk
    size_t n_lines            # bytes of chunk extensions and trailers
    size_t max_body, max_lines
    bint in_pieces            # see `take_chunks`
    Fault fault


cdef int begin_chunks(Chunks *chunks, size_t at) noexcept
# Look at the bytes from `at` to `end`, and move those of the body together. Bytes behind `n_body`
# are undefined afterwards, up to `at`. In pieces: nothing is moved, the look ends behind a run of
# bytes of the body, the owner takes the run and sets `n_body` to 0, and a limit is one of a chunk.
cdef int take_chunks(Chunks *chunks, uint8_t *p, size_t end) noexcept
