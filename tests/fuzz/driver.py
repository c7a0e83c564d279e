"""The command line of the fuzz drivers, and what they report."""

from __future__ import annotations

import argparse
import gc
import math
import random
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable

from wirespeed._core.slab import slabs_live


def main(
    description: str,
    one: Callable[[random.Random], Iterable[str]],
    close: Callable[[], object] = lambda: None,
) -> int:
    """Try inputs. ``one`` makes an input and returns the names of its outcomes; ``close`` ends what
    it uses. The status is 1 after the first exception, whose seed is printed, and if input memory
    is left."""
    arguments = argparse.ArgumentParser(description=description)
    arguments.add_argument("--seed", type=int, default=0)
    arguments.add_argument("--count", type=int, default=10_000, help="inputs (default %(default)s)")
    arguments.add_argument("--seconds", type=float, help="end after that time, too")
    options = arguments.parse_args()
    end = math.inf if options.seconds is None else time.monotonic() + options.seconds
    seen: Counter[str] = Counter()
    for i in range(options.count):
        if time.monotonic() > end:
            break
        try:
            seen.update(one(random.Random(f"{options.seed}:{i}")))
        except Exception:
            traceback.print_exc()
            print(f"seed {options.seed}, input {i}", file=sys.stderr)
            return 1
    close()
    gc.collect()
    if slabs_live() > 16:
        print(f"{slabs_live()} input blocks are left, more than are kept as spare", file=sys.stderr)
        return 1
    for name, n in sorted(seen.items()):
        print(f"{n:9} {name}")
    return 0
