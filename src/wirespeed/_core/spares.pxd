"""A pool of spare memory blocks of one size, shared by all connections of the process (under the
GIL): pages that are touched for the first time cost more than all that is done with them."""

from libc.stdint cimport uint8_t

cdef enum:
    MAX_SPARE = 16


cdef struct Spares:
    uint8_t *blocks[MAX_SPARE]
    int n


cdef inline uint8_t *take_spare(Spares *spares) noexcept:
    """A block, or NULL when there is none."""
    if spares.n == 0:
        return NULL
    spares.n -= 1
    return spares.blocks[spares.n]


cdef inline bint keep_spare(Spares *spares, uint8_t *block) noexcept:
    """False: the pool is full, and the caller frees the block."""
    if spares.n == MAX_SPARE:
        return False
    spares.blocks[spares.n] = block
    spares.n += 1
    return True
