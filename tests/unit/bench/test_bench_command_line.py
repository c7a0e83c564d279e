"""Command lines for people: what is hidden, and what is not."""

from __future__ import annotations

from lab.rows import every

from wirespeed import Stdio
from wirespeed.bench.command_line import command_shown
from wirespeed.bench.run import name_of


@every(
    ("words", "shown"),
    [
        (["a b", "it's", "", "-v", "ok"], """'a b' 'it'"'"'s' '' -v ok"""),
        (["srv", "--api-key", "k", "--token=t", "-p", "1"], "srv --api-key … --token=… -p 1"),
        (["srv", "--dsn", "p://u:p@h", "--dsn=x"], "srv --dsn … --dsn=…"),
        (["curl", "-u", "me:pw", "--user=me:pw"], "curl -u me:… --user=me:…"),
        (["python", "-u", "s.py"], "python -u s.py"),
        (["x", "-H", "X-Foo: s", "--header", "X: s", "-HX: s"], "x -H … --header … -H…"),
        (["ghp_1", "--a=github_pat_2", "sk-3", "xoxb-4"], "ghp_… --a=github_pat_… sk-… xoxb-…"),
        (["disk-usage"], "disk-usage"),
        (["A_KEY=1", "MY_TOKEN=2 3", "--env=A_SECRET=4"], "A_KEY=… MY_TOKEN=… --env=A_SECRET=…"),
        (["x", "http://u:p@h/a?k=v#f", "--to=http://h/?v"], "x http://h/a --to=http://h/"),
        (["--versus", "http://h/a?k=v"], "--versus http://h/a"),
        (["--versus=py o.py --token t http://h?k"], "'--versus=py o.py --token … http://h'"),
        (["sh", "-c", "srv --api-key=k"], "sh -c 'srv --api-key=…'"),
        (["echo", '{"password":"p"}'], """echo '{"password":"…"}'"""),
        (["--token", "--", "echo"], "--token -- echo"),
    ],
)  # fmt: skip
def test_secrets_of_a_command_line_are_hidden(words: list[str], shown: str) -> None:
    assert command_shown(words) == shown


def test_long_words_are_cut() -> None:
    assert command_shown(["x" * 50, "y"], 10) == f"{'x' * 10}… y"


def test_reports_name_a_command_without_secrets() -> None:
    assert name_of(Stdio("srv", ["--api-key", "k", "a b"])) == "srv --api-key … 'a b'"
