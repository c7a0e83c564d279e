"""The admin listener: who may come in, health, and numbers that are exact."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import sys
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from lab.operation import Watched, basic, bearer, fetch
from lab.proxy import call, said
from lab.wording import raises
from prometheus_client.openmetrics.parser import text_string_to_metric_families as open_metrics
from prometheus_client.parser import text_string_to_metric_families as plain

from wirespeed import Client
from wirespeed.proxy import AdminConfig, ListenConfig, Proxy
from wirespeed.proxy.operation import meter
from wirespeed.proxy.operation.snapshot import take
from wirespeed.transport.net.tls import Certificate, expiry_of

# off_schema: the proxy passes on what its test servers say, which is not always in the schema.
pytestmark = pytest.mark.off_schema

ERROR = '{"jsonrpc":"2.0","id":"$id","error":{"code":%s,"message":"no"}}'


def values(text: str, parse: Any = plain) -> dict[tuple[str, ...], float]:
    """The value of each line, by its name and the values of its labels."""
    return {
        (sample.name.removeprefix("wirespeed_proxy_"), *sample.labels.values()): sample.value
        for family in parse(text)
        for sample in family.samples
    }


# -- who may come in ------------------------------------------------------------------------------


async def test_only_those_with_the_token_see_something(tmp_path: Path) -> None:
    lab = Watched(tmp_path, "shared")
    async with lab.serving():
        for path in ("/", "/status", "/metrics"):
            for good in (bearer(), basic(), basic(user="anne")):
                assert (await lab.get(path, good)).status == 200
            for wrong in ({}, bearer("x"), basic("x"), {"Authorization": "Basic é"}):
                got = await lab.get(path, wrong)
                assert got.status == 401
                assert got.headers["www-authenticate"].startswith("Basic realm=")
                assert "secret" not in got.text
        for path in ("/healthz", "/readyz"):
            assert (await lab.get(path, {})).status == 200
        assert (await lab.get("/else")).status == 404
        assert (await fetch(lab.port, "/status", method="POST")).status == 405
        got = await fetch(lab.port, "/status", method="HEAD")
        assert (got.status, got.text) == (200, "")


async def test_other_names_and_pages_are_refused(tmp_path: Path) -> None:
    lab = Watched(tmp_path, "shared")
    async with lab.serving():
        for path in ("/", "/status", "/metrics"):
            assert (await lab.get(path, {**bearer(), "Host": "evil.example"})).status == 403
        for path in ("/", "/status", "/metrics", "/readyz"):
            foreign = {**bearer(), "Origin": "https://evil.example"}
            assert (await lab.get(path, foreign)).status == 403


@pytest.mark.parametrize("path", ["/healthz", "/readyz"])
async def test_probes_may_name_no_host_or_any(tmp_path: Path, path: str) -> None:
    """HAProxy's `option httpchk` sends HTTP/1.0 without Host; other probes name their own host."""
    lab = Watched(tmp_path, "shared")
    async with lab.serving():
        assert (await lab.get(path, {"Host": "east.internal:9464"})).status == 200
        reader, writer = await asyncio.open_connection("127.0.0.1", lab.port)
        writer.write(f"GET {path} HTTP/1.0\r\n\r\n".encode())
        assert (await reader.read()).startswith(b"HTTP/1.1 200 ")
        writer.close()


async def test_a_websocket_is_not_opened_there(tmp_path: Path) -> None:
    lab = Watched(tmp_path, "shared")
    upgrade = {
        **bearer(),
        "Connection": "Upgrade",
        "Upgrade": "websocket",
        "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
    }
    async with lab.serving(), asyncio.timeout(10):
        reader, writer = await asyncio.open_connection("127.0.0.1", lab.port)
        lines = [f"{name}: {value}" for name, value in upgrade.items()]
        writer.write("\r\n".join(["GET / HTTP/1.1", "Host: localhost", *lines, "", ""]).encode())
        assert b"101" not in await reader.readline()
        writer.close()


def test_a_token_is_made_where_none_is_configured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lab = Watched(tmp_path, "shared")
    object.__setattr__(lab.proxy.config, "admin", AdminConfig())
    assert lab.proxy.admin is lab.proxy.admin
    said = capsys.readouterr().err
    assert said.startswith("wirespeed: the token of the admin listener is ")
    assert len(said.split()[-1]) == 32


@pytest.mark.parametrize("listen", ["http://h:1/path", "ws://h:1", "unix:/x", "http://h:1?q", "x"])
def test_a_wrong_url_is_refused(listen: str) -> None:
    with pytest.raises(ValueError):
        AdminConfig(listen=listen)


def test_the_token_is_not_shown() -> None:
    assert "hidden" not in repr(AdminConfig(token="hidden"))
    with raises(ValueError):
        AdminConfig(token="a b")


# -- health ---------------------------------------------------------------------------------------


async def test_a_server_that_cannot_be_started_makes_the_proxy_not_ready(tmp_path: Path) -> None:
    lab = Watched(tmp_path, "shared")
    async with lab.serving():
        assert (await lab.get("/readyz", {})).text == "ready\n"
        client = await lab.connect()
        (tmp_path / "backend.py").write_text("raise SystemExit('it is <b>broken</b>')")
        await client.ask(call(1, "crash"))
        async with asyncio.timeout(30):
            while (status := (await lab.get("/status")).json)["backends"][0][
                "state"
            ] != "crash-loop":
                await asyncio.sleep(0.05)
        got = await lab.get("/readyz", {})
        assert (got.status, got.text) == (503, "not ready: b\n")
        got = await lab.get("/readyz", {"Host": "evil.example"})
        assert (got.status, got.text) == (503, "not ready\n")
        assert (await lab.get("/healthz", {})).status == 200
        assert not status["ready"] and status["not_ready"] == ["b"]
        (server,) = status["backends"][0]["servers"]
        assert server["state"] == "crash-loop" and "ended in its handshake" in server["error"]
        assert status["backends"][0]["restarts"] >= 4
        assert any(
            "<b>broken</b>" in event["text"] or "exited" in event["text"]
            for event in status["events"]
        )


# -- numbers --------------------------------------------------------------------------------------


@pytest.mark.smoke
@pytest.mark.parametrize("isolation", ["session", "shared", "pool"])
async def test_numbers_are_exact(isolation: str, tmp_path: Path) -> None:
    lab = Watched(tmp_path, isolation)
    async with lab.serving():
        client = await lab.connect()
        for id in range(5):
            assert said(await client.ask(call(id, "echo", nonce=id)))["nonce"] == id
        for code in ("-5", "-5", "-32022", "7.5", "1", "12345678901234567890"):
            await client.ask(call(9, "fail", text=ERROR % code))
        await client.ask({"jsonrpc": "2.0", "id": 10, "method": "vendor/else"})
        await client.send(call("slow", "hold", token="t", **{"as": "x"}))
        await client.recv()  # its progress
        text = (await lab.get("/metrics")).text
        found = values(text)
        assert found["requests_in_flight", "b"] == 1
        await client.send(
            {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "slow"}}
        )
        await client.silent()
        await client.ask(call(11, "free", **{"as": "x"}))
        found = values((await lab.get("/metrics")).text)
        while not found["servers", "b", "up"]:  # its start is over a moment after its first answer
            found = values((await lab.get("/metrics")).text)
        durations = "request_duration_seconds"
        assert found[f"{durations}_count", "b", "tools/call"] == 5 + 6 + 1 + 1
        assert found[f"{durations}_bucket", "b", "tools/call", "+Inf"] == 13
        assert found[f"{durations}_count", "b", "other"] == 1
        errors = {key[2:]: n for key, n in found.items() if key[0] == "request_errors_total"}
        assert errors == {
            ("tools/call", "-5"): 2,
            ("tools/call", "-32022"): 1,
            ("tools/call", "other"): 3,
            ("tools/call", "cancelled"): 1,
        }
        assert found["clients", "b"] == 1
        assert found["clients_connected_total", "b"] == 1
        assert found["servers", "b", "up"] == 1
        assert found["server_starts_total", "b"] == 1
        assert found["server_restarts_total", "b"] == 0
        assert found["messages_dropped_total", "b", "late"] >= 1
        before = found["received_bytes_total", "b", "client"]
        assert before > 0
        await client.close()
        gone = ("servers", "b", "up") if isolation == "session" else ("clients", "b")
        async with asyncio.timeout(10):  # with session, its server leaves as well
            while (found := values((await lab.get("/metrics")).text))[gone]:
                await asyncio.sleep(0.01)
        assert found["clients", "b"] == 0
        assert found["received_bytes_total", "b", "client"] == before
        assert found[f"{durations}_count", "b", "tools/call"] == 13
        assert found["server_starts_total", "b"] == 1
        assert found["received_bytes_total", "b", "server"] > 0


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_clients_over_http_are_counted(era: Any, tmp_path: Path) -> None:
    lab = Watched(tmp_path, "shared")
    listen = ("http://127.0.0.1:0/mcp",)
    lab.proxy = Proxy(dataclasses.replace(lab.proxy.config, listen=listen))
    async with lab.serving():
        url = next(url for url in lab.urls if url.endswith("/mcp"))
        async with Client(url, era=era) as client:
            await client.call_tool("echo")
            status = (await lab.get("/status")).json
            assert status["backends"][0]["bytes_to_clients"] > 50
            (endpoint,) = status["endpoints"]
            here = endpoint["clients"], endpoint["clients_so_far"], status["totals"]["clients"]
            assert here == ((1, 1, 1) if era == "legacy" else (0, 0, 0))


async def test_sessions_that_nobody_ends_are_seen(tmp_path: Path) -> None:
    lab = Watched(tmp_path, "shared")
    lab.proxy = Proxy(dataclasses.replace(lab.proxy.config, listen=("http://127.0.0.1:0/mcp",)))
    async with lab.serving():
        url = next(url for url in lab.urls if url.endswith("/mcp"))
        async with Client(url, era="legacy"):
            (endpoint,) = (await lab.get("/status")).json["endpoints"]
            assert endpoint["sessions"] == 1
            async with asyncio.timeout(30):
                before = endpoint["longest_idle"]
                while endpoint["longest_idle"] <= before:
                    (endpoint,) = (await lab.get("/status")).json["endpoints"]
            found = values((await lab.get("/metrics")).text)
            assert found["sessions", "b"] == 1 and found["session_idle_seconds", "b"] > 0
        (endpoint,) = (await lab.get("/status")).json["endpoints"]
        assert (endpoint["sessions"], endpoint["longest_idle"]) == (0, 0)


async def test_requests_that_a_crash_ends_are_counted(tmp_path: Path) -> None:
    lab = Watched(tmp_path, "shared")
    async with lab.serving():
        client = await lab.connect()
        await client.ask(call(1, "crash"))
        await client.ask(call(2, "echo"))
        found = values((await lab.get("/metrics")).text)
        assert found["request_errors_total", "b", "tools/call", "-31004"] == 1
        assert found["server_restarts_total", "b"] == 1
        gone = await lab.connect()
        await gone.send(call(1, "hold", token=1, **{"as": "x"}))
        await gone.recv()
        await gone.close()
        async with asyncio.timeout(10):
            key = "request_errors_total", "b", "tools/call", "cancelled"
            while key not in (found := values((await lab.get("/metrics")).text)):
                await asyncio.sleep(0.01)
        assert found[key] == 1


async def test_both_formats_are_parsed_and_say_the_same(tmp_path: Path) -> None:
    lab = Watched(tmp_path, "shared")
    async with lab.serving():
        client = await lab.connect()
        await client.ask(call(1, "echo"))
        first = await lab.get("/metrics")
        assert first.headers["content-type"].startswith("text/plain; version=0.0.4")
        accept = "application/openmetrics-text; version=1.0.0, text/plain; q=0.5"
        second = await lab.get("/metrics", {**bearer(), "Accept": accept})
        assert second.headers["content-type"].startswith("application/openmetrics-text")
        assert second.text.endswith("\n# EOF\n")
        one, other = values(first.text), values(second.text, open_metrics)
        assert one.keys() == other.keys()
        for family in plain(first.text):
            assert family.documentation.endswith(".")
            assert family.type in ("counter", "gauge", "histogram")
        refused = {**bearer(), "Accept": "application/openmetrics-text; q=0"}
        assert (await lab.get("/metrics", refused)).text.startswith("# HELP")


async def test_the_name_and_the_end_of_certificates_are_shown(tmp_path: Path) -> None:
    ends = datetime(2049, 12, 31, 23, 59, 58, tzinfo=UTC)
    certfile, keyfile = make_certificate(tmp_path, ends)
    secure = ListenConfig(url="https://127.0.0.1:0/mcp", certfile=certfile, keyfile=keyfile)
    lab = Watched(tmp_path, "shared")
    lab.proxy = Proxy(dataclasses.replace(lab.proxy.config, listen=(secure,), name="east"))
    async with lab.serving():
        status = (await lab.get("/status")).json
        assert status["name"] == "east"
        (shown,) = status["certificates"]
        entry = {"listen": secure.url, "file": certfile, "expires": ends.timestamp()}
        assert shown == entry
        metrics = (await lab.get("/metrics")).text
        assert 'wirespeed_proxy_info{name="east"} 1' in metrics
        label = f'wirespeed_proxy_certificate_expiry_time_seconds{{listen="{secure.url}"}}'
        assert float(metrics.partition(label)[2].split()[0]) == ends.timestamp()
        page = (await lab.get("/")).text
        assert "wirespeed proxy east" in page and "expires at 2049-12-31 23:59 UTC" in page


async def test_without_jinja2_the_page_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab = Watched(tmp_path, "shared")
    async with lab.serving():
        monkeypatch.setitem(sys.modules, "jinja2", None)
        monkeypatch.delitem(sys.modules, "wirespeed.proxy.operation.page", raising=False)
        got = await lab.get("/")
        assert (got.status, got.headers["content-type"]) == (501, "text/plain; charset=utf-8")
        assert got.text == (
            "the status page needs the package jinja2: pip install 'wirespeed[proxy]'\n"
        )
        assert (await lab.get("/status")).status == (await lab.get("/metrics")).status == 200
        assert (await lab.get("/", {})).status == 401
        monkeypatch.undo()
        assert (await lab.get("/")).text.startswith("<!doctype html>")


@pytest.mark.parametrize("year", [2026, 2049, 2050, 2051, 9999])
def test_the_end_of_a_certificate_is_read(tmp_path: Path, year: int) -> None:
    """Up to 2049 it has two digits of the year, and four from 2050 on."""
    ends = datetime(year, 12, 31, 23, 59, 59, tzinfo=UTC)
    certfile, keyfile = make_certificate(tmp_path, ends)
    assert Certificate(certfile, keyfile).expires == ends.timestamp()


@pytest.mark.parametrize("text", ["", "-----BEGIN CERTIFICATE-----\nMAMCAQE=\n", "no certificate"])
def test_the_end_of_what_is_no_certificate_is_not_known(text: str) -> None:
    assert expiry_of(f"{text}-----END CERTIFICATE-----\n") is None


def make_certificate(folder: Path, ends: datetime) -> tuple[str, str]:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "127.0.0.1")])
    start = datetime(2020, 1, 1, tzinfo=UTC)
    made = x509.CertificateBuilder(name, name, key.public_key(), 1, start, ends)
    signed = made.sign(key, hashes.SHA256())
    pem = serialization.Encoding.PEM
    parts = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    (folder / "cert.pem").write_bytes(signed.public_bytes(pem))
    (folder / "key.pem").write_bytes(key.private_bytes(pem, *parts))
    return str(folder / "cert.pem"), str(folder / "key.pem")


async def test_labels_that_need_it_are_escaped() -> None:
    from wirespeed.proxy.operation.metrics import Family, MetricLine, text_of

    hostile = 'a"b\\c\nd{}=,'
    sample = MetricLine("", (("name", hostile),), 1.5)
    family = Family("x", "gauge", 'A "help" \\ text\nof two lines.', [sample])
    for parse, is_open in ((plain, False), (open_metrics, True)):
        (found,) = parse(text_of([family, Family("y", "gauge", "", [])], open_metrics=is_open))
        assert found.documentation == family.help
        assert found.samples[0].labels == {"name": hostile}
        assert found.samples[0].value == 1.5


async def test_codes_of_a_server_are_bounded(tmp_path: Path) -> None:
    lab = Watched(tmp_path, "shared")
    async with lab.serving():
        client = await lab.connect()
        for code in range(100, 150):
            await client.ask(call(1, "fail", text=ERROR % code))
        found = values((await lab.get("/metrics")).text)
        errors = {key[3]: n for key, n in found.items() if key[0] == "request_errors_total"}
        assert len(errors) == 33
        assert errors["other"] == 50 - 32


async def test_without_an_admin_listener_nothing_is_measured(tmp_path: Path) -> None:
    from lab.proxy import Lab

    lab = Lab(tmp_path, "shared")
    async with lab.serving():
        client = await lab.connect()
        await client.ask(call(1, "echo"))
        (service,) = lab.proxy.services.values()
        (supervisor,) = service.meter.supervisors
        assert supervisor.upstream is not None and supervisor.upstream.observer is None


async def test_a_registry_of_ones_own_shows_the_same(tmp_path: Path) -> None:
    from prometheus_client import CollectorRegistry, generate_latest

    from wirespeed.ext.prometheus import instrument

    lab = Watched(tmp_path, "shared")
    registry = CollectorRegistry()
    with raises(ValueError):
        instrument(lab.proxy, registry=registry, peer="x")
    metrics = instrument(lab.proxy, registry=registry)
    with raises(ValueError):
        instrument(lab.proxy, registry=registry)
    async with lab.serving():
        client = await lab.connect()
        await client.ask(call(1, "echo"))
        ours = (await lab.get("/metrics")).text
        theirs = generate_latest(registry).decode()
        lines = [
            {(one.name, frozenset(one.labels.items())) for f in plain(text) for one in f.samples}
            for text in (ours, theirs)
        ]
        assert lines[0] == lines[1]
        kinds = [{f.name: (f.type, f.documentation) for f in plain(t)} for t in (ours, theirs)]
        assert kinds[0] == kinds[1]
    metrics.remove()
    metrics.remove()
    assert generate_latest(registry) == b""


# -- thousands of clients -------------------------------------------------------------------------


def reading(lab: Watched) -> Any:
    """The steps in which the numbers of a proxy are read."""
    return take(lab.proxy.endpoints, lab.proxy.facts(), 0.0, [], 0)


def calls_in(step: Any) -> int:
    """How many functions are called in a step."""
    n = 0

    def count(frame: Any, event: str, argument: Any) -> None:
        nonlocal n
        n += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        step()
    finally:
        sys.setprofile(None)
    return n


async def test_a_step_is_not_longer_with_more_clients(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(meter, "PART", 4)
    lab = Watched(tmp_path, "shared")
    async with lab.serving():
        steps, longest = [], []
        for n in (8, 32):
            for _ in range(n):
                await lab.connect()
            found = [
                calls_in(partial(next, one, None)) for one in [reading(lab)] for _ in range(99)
            ]
            steps.append(sum(n > 1 for n in found))
            longest.append(max(found))
        assert longest[0] == longest[1]
        assert steps[1] == steps[0] + 2 * 32 / 4  # each client is looked at twice


async def test_who_leaves_while_the_numbers_are_read_counts_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(meter, "PART", 2)
    lab = Watched(tmp_path, "shared")
    async with lab.serving():
        (service,) = lab.proxy.services.values()
        clients = [await lab.connect() for _ in range(12)]
        for client in clients:
            await client.ask(call(1, "echo"))
        expected = meter.at_once(reading(lab)).endpoints[0].of_clients
        steps, leaving = reading(lab), iter(clients)
        found = None
        while found is None:
            if (client := next(leaving, None)) is not None:
                n = len(service.downstreams)
                await client.close()
                while len(service.downstreams) == n:
                    await asyncio.sleep(0.01)
            try:
                next(steps)
            except StopIteration as end:
                found = end.value
        assert len(service.downstreams) < 6
        assert found.endpoints[0].of_clients == expected
        assert meter.at_once(reading(lab)).endpoints[0].of_clients == expected


async def test_open_descriptors_are_counted(tmp_path: Path) -> None:
    lab = Watched(tmp_path, "shared")
    async with lab.serving():
        (process,) = meter.at_once(reading(lab)).processes
        assert process.open_fds == len(os.listdir("/proc/self/fd")) - 1  # that of the folder


# -- what people see ------------------------------------------------------------------------------


async def test_rates_and_latencies_are_of_the_last_ticks(tmp_path: Path) -> None:
    lab = Watched(tmp_path, "shared")
    async with lab.serving():
        client = await lab.connect()
        (service,) = lab.proxy.services.values()
        service.meter.sample()
        for _ in range(20):
            await client.ask(call(1, "echo"))
        await client.ask(call(1, "fail", text=ERROR % "-5"))
        service.meter.sample()
        status = (await lab.get("/status")).json
        (backend,) = status["backends"]
        assert status["totals"]["rate"] == backend["rate"] == 2.1
        assert backend["error_rate"] == 0.1
        assert 0 < backend["p50"] <= backend["p95"] <= backend["p99"] <= 10
        assert len(backend["history"]["rate"]) == 90
        assert sum(n or 0 for n in backend["history"]["rate"]) == 21 / 2
        assert backend["errors"] == {"-5": 1}
        (method,) = backend["methods"]
        assert (method["method"], method["requests"], method["errors"]) == ("tools/call", 21, 1)
        (entry,) = status["clients"]
        assert (entry["endpoint"], entry["version"]) == ("b", "2025-11-25")
        assert entry["bytes_in"] > 0


def test_quantiles_are_those_of_prometheus() -> None:
    from wirespeed.proxy.operation.status import quantile

    empty = [0] * 17
    assert quantile(empty, 0.5) is None
    assert quantile([10, *empty[1:]], 0.5) == 0.00005
    assert quantile([0, 10, *empty[2:]], 1.0) == 0.00025
    assert quantile([*empty[:-1], 3], 0.5) == 10.0
    assert quantile([5, 0, 5, *empty[3:]], 0.75) == pytest.approx(0.000375)


async def test_all_servers_as_one_have_clients_of_their_own(tmp_path: Path) -> None:
    from dataclasses import replace

    from wirespeed.proxy import Proxy

    lab = Watched(tmp_path, "shared")
    (one,) = lab.proxy.config.backends
    lab.proxy = Proxy(replace(lab.proxy.config, backends=(one, replace(one, name="c"))))
    async with lab.serving():
        client = await lab.connect()
        await client.ask(call(1, "c_echo"))
        status = (await lab.get("/status")).json
        assert status["totals"]["clients"] == 1
        assert {one["name"]: one["clients"] for one in status["endpoints"]} == {
            "b": 1, "c": 1, "proxy": 1,
        }  # fmt: skip
        assert [one["endpoint"] for one in status["clients"]] == ["proxy"]
        found = values((await lab.get("/metrics")).text)
        assert found["request_duration_seconds_count", "c", "tools/call"] == 1
        assert found["clients", "proxy"] == 1


async def test_the_page_has_no_text_that_is_not_escaped(tmp_path: Path) -> None:
    import logging
    from html.parser import HTMLParser

    lab = Watched(tmp_path, "shared")
    hostile = """<script>alert(1)</script>'" onload=x & <b>"""
    async with lab.serving():
        client = await lab.connect()
        await client.ask(call(1, "echo"))
        logging.getLogger("wirespeed.proxy").warning("%s", hostile)
        (service,) = lab.proxy.services.values()
        next(iter(service.meter.supervisors)).status.error = hostile
        next(iter(service.downstreams)).peer.user = hostile
        got = await lab.get("/")
    assert "<script>alert" not in got.text and "<b>" not in got.text
    assert got.text.count("&lt;script&gt;alert(1)&lt;/script&gt;") == 3
    policy = got.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; style-src 'sha256-")
    assert "unsafe" not in policy and "http" not in policy
    found: list[str] = []

    class Parser(HTMLParser):
        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            found.append(tag)
            for name, value in attrs:
                assert name != "style" and not name.startswith("on"), (tag, name)
                assert name not in ("src", "action") and not (value or "").startswith("//")

    Parser().feed(got.text)
    assert found.count("script") == 1 and found.count("style") == 1
    for table in ("table", "th"):
        assert table in found
