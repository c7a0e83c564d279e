"""The cost of processes."""

import os
import subprocess
import sys
import time

from wirespeed.bench.load import Cost
from wirespeed.bench.machine import ProcessCost

BURN = "import time\nwhile time.process_time() < 0.1: pass\n"


def test_a_child_that_has_ended_counts() -> None:
    cost = ProcessCost([os.getpid()], themselves=False)
    subprocess.run([sys.executable, "-S", "-c", BURN], check=True)
    spent = cost.cost().cpu_seconds
    assert spent is not None and spent >= 0.1


def test_what_a_child_took_before_does_not_count() -> None:
    wait = BURN + "print(flush=True)\ninput()"
    with subprocess.Popen(
        [sys.executable, "-S", "-c", wait], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdout is not None and child.stdin is not None
        child.stdout.readline()
        cost = ProcessCost([os.getpid()], themselves=False)
        named = ProcessCost([child.pid])
        alive = named.cost()
        child.stdin.write(b"\n")
        child.stdin.close()
        child.wait()
        spent = cost.cost().cpu_seconds
    assert spent is not None and spent < 0.1
    assert alive.cpu_seconds is not None and alive.cpu_seconds < 0.1
    assert alive.rss_peak is not None and alive.rss_peak > 2**20


def test_it_is_finer_than_a_tick() -> None:
    cost = ProcessCost([os.getpid()])
    until = time.process_time() + 0.002
    while time.process_time() < until:
        pass
    spent = cost.cost().cpu_seconds
    assert spent is not None and spent % 0.01 != 0


def test_nothing_is_known_of_a_server_that_somebody_else_started() -> None:
    assert ProcessCost([]).cost() == Cost(None, None)
