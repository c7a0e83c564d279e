"""The page of runs: what it shows, and that no text of others becomes a part of it."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from typing import Any

import msgspec
from lab.bench import a_result

from wirespeed.bench.compare import compare_all
from wirespeed.bench.load import Latency, Load, Result, UsersResult, Window
from wirespeed.bench.page import page
from wirespeed.bench.recorder import Counts
from wirespeed.bench.series import encoded
from wirespeed.cli.bench.runs import command_line

HOSTILE = """</script><script>alert(1)</script><img src=x onerror=alert(1)>&amp;"'"""


def histogram(*values: int) -> str:
    counts = Counts()
    for value in values:
        counts.add(value)
    return encoded(counts)


def data_of(text: str) -> Any:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)
    assert found is not None
    return json.loads(found[1])


class Tags(HTMLParser):
    """The elements of a page, and its text outside of scripts and styles."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[str] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.found.append(tag)
        assert not any(name.startswith("on") or name == "style" for name, _ in attrs)

    def handle_data(self, data: str) -> None:
        if self.found[-1:] not in (["script"], ["style"]):
            self.text += data


def test_texts_of_others_stay_texts() -> None:
    hostile = a_result(
        target=HOSTILE, versions={"server": HOSTILE, HOSTILE: "1"}, machine={HOSTILE: HOSTILE}
    )
    plain = a_result()
    for results in ([hostile], [hostile, msgspec.structs.replace(hostile, round=1)]):
        text = page(results, HOSTILE, [], 0.0)
        tags = Tags(text)
        other = Tags(page([plain] * len(results), "wirespeed", [], 0.0))
        assert "img" not in tags.found
        assert tags.found.count("script") == other.found.count("script") == 2
        assert tags.text.count("<img src=x onerror=alert(1)>") >= 4
        assert (
            "Content-Security-Policy" in text and "src=" not in re.sub("<script>.*", "", text)[:0]
        )


def test_names_of_runs_cannot_end_the_data() -> None:
    loads = [Load(duration=1.0, bytes=size) for size in (1, 2)]
    text = page([a_result(load=load) for load in loads], "", [], 0.0)
    assert [run["name"] for run in data_of(text)["runs"]] == ["1 bytes", "2 bytes"]
    # whatever stands in a text there: no "<" is left
    assert "<" not in text.split('id="data">')[1].split("</script>")[0]


def test_plots_get_windows_percentiles_and_ramps() -> None:
    series = [Window(1.0, 100, 2, 5.0, 9.0, 10.0), Window(2.0, 0, 0, 0.0, 0.0, 0.0)]
    rest = Window(2.05, 1, 0, 7.0, 7.0, 7.0)
    values = histogram(*range(1000, 1_001_000, 1000))

    def step(asked: float, rate: float) -> Result:
        return a_result(
            rate=rate, asked=asked, p99=7.0, series=[*series, rest], latency_histogram=values
        )

    data = data_of(page([step(100, 100), step(200, 199), step(400, 250)], "", [], 0.0))
    assert [run["name"] for run in data["runs"]] == ["100/s", "200/s", "400/s"]
    assert data["runs"][0]["series"] == [
        *([0.5, 1.5], [5.0, None], [9.0, None], [10.0, None], [100.0, 0.0], [2.0, 0.0]),
    ]
    curves = data["curves"]
    assert curves["names"] == ["100/s", "200/s", "400/s"]
    found = dict(zip((round(at, 6) for at in curves["at"]), curves["values"][0], strict=True))
    assert abs(found[10.0] - 900) < 2 and abs(found[100.0] - 990) < 2
    (ramp,) = data["ramps"]
    assert ramp["asked"] == [100, 200, 400] and ramp["knee"] == 1


def test_rounds_are_one_curve_and_many_loads_are_thinned_out() -> None:
    one = histogram(1000)
    runs = [
        a_result(latency_histogram=one, round=n, versus=side) for n in (0, 1) for side in (0, 1)
    ]
    text = page(runs, "", compare_all(runs, None), 0.0)
    assert data_of(text)["curves"]["names"] == ["A", "B"]
    assert "B against A" in text and "no difference" in text
    many = [a_result(latency_histogram=one, load=Load(calls=5, bytes=n)) for n in range(1, 21)]
    curves = data_of(page(many, "", [], 0.0))["curves"]
    assert len(curves["names"]) == 8 and curves["left_out"] == 12
    assert (curves["names"][0], curves["names"][-1]) == ("1 bytes", "20 bytes")


def test_a_run_without_an_answer_has_a_page() -> None:
    nothing = a_result(rate=0.0, p99=0.0, series=[], counts={**a_result().counts, "ok": 0})
    text = page([msgspec.structs.replace(nothing, calls=3)], "", [], 0.0)
    assert data_of(text)["curves"]["names"] == []


def test_kinds_of_users_have_a_table() -> None:
    kinds = [UsersResult(HOSTILE, 1234, {"ok": 1230}, Latency(p50=5.0))]
    tags = Tags(page([a_result(users=kinds)], "", [], 0.0))
    assert "Kinds of users" in tags.text and HOSTILE in tags.text and "img" not in tags.found
    assert re.search(r"1,234\n5.00 µs\n(—\n){4}4\n", re.sub(r"\n+", "\n", tags.text))


def test_kinds_of_users_are_shown_for_each_run() -> None:
    kinds = [UsersResult(name, n, {"ok": n}, Latency(p50=5.0)) for name, n in (("a", 1), ("b", 2))]
    runs = [a_result(users=kinds), a_result(users=kinds[:1], round=1)]
    tags = Tags(page(runs, "", [], 0.0))
    rows = tags.text.split("Kinds of users")[1]
    assert re.search(r"\nround 1a1\n.*\nb2\n.*\nround 2a1\n", rows, re.DOTALL)


def test_a_page_shows_the_command_without_secrets() -> None:
    args = ["bench", "--token", "s3cret", "--header=A: s3cret", "--header", "B: s3cret", "x y"]
    shown = command_line([*args, "https://u:s3cret@h/p?k=s3cret", "y" * 1000])
    assert "s3cret" not in shown
    assert shown.startswith("wirespeed bench --token … --header=… --header … 'x y' https://")
    assert len(shown) < 600
