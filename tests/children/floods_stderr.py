"""Writes argv[1] bytes of numbered lines to stderr, then "done" to stdout; ends with stdin."""

import os
import sys

left, number = int(sys.argv[1]), 0
while left > 0:
    lines = b"".join(b"line %06d %s\n" % (number + i, b"x" * 88) for i in range(640))[:left]
    number += 640
    while lines:
        written = os.write(2, lines)
        lines = lines[written:]
        left -= written
os.write(1, b"done\n")
os.read(0, 1)
