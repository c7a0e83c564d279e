"""Memory for the tests of the kernels: up to a page that cannot be read, and at any alignment."""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Iterator

import pytest


@pytest.fixture(scope="module")
def guarded() -> Iterator[memoryview]:
    """A page of memory that ends where an unreadable page starts."""
    size = mmap.PAGESIZE
    area = mmap.mmap(-1, 2 * size)
    anchor = ctypes.c_char.from_buffer(area)
    mprotect = ctypes.CDLL(None, use_errno=True).mprotect
    mprotect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    second = ctypes.addressof(anchor) + size
    assert mprotect(second, size, 0) == 0
    view = memoryview(area)
    page = view[:size]
    yield page
    assert mprotect(second, size, mmap.PROT_READ | mmap.PROT_WRITE) == 0
    page.release()
    view.release()
    del anchor
    area.close()


def put(page: memoryview, data: bytes) -> memoryview:
    """`data` at the very end of the page."""
    end = page[len(page) - len(data) :]
    end[:] = data
    return end


def shifted(data: bytes, by: int) -> memoryview:
    """`data` at `by` bytes behind a multiple of 64, with bytes around it that must not count."""
    room = bytearray(b"\n" * (len(data) + 192))
    start = -ctypes.addressof(ctypes.c_char.from_buffer(room)) % 64 + by
    room[start : start + len(data)] = data
    return memoryview(room)[start : start + len(data)]
