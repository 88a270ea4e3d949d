"""The benchmark of calls: run as a developer runs it with the smallest numbers, and its arithmetic."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import closing
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any

import attrs
import pytest
from wsproto.connection import Connection as WebSocketConnection
from wsproto.connection import ConnectionType
from wsproto.events import TextMessage

from bench.calls import report
from bench.calls.bars import Bar, of_delays
from bench.calls.crowd import Crowd
from bench.calls.daemons import ECHO
from bench.calls.delays import CALM, Delay, Kind, summed
from bench.calls.memory import Memory
from bench.calls.rest import Rest
from bench.calls.rounds import Row, quantiles, ratio
from bench.calls.targets import Direct, over_stdio
from bench.calls.web import HttpWire, Place, envelope
from bench.calls.wires import Request, Wire, within
from bench.running import Unmeasurable

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]

PATIENCE = 300.0
"""Seconds for one run, which takes a tenth of that where nothing else runs."""


def run(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "bench.calls", *words],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )


@pytest.mark.e2e
def test_everything_is_measured_and_told_in_a_table_and_in_json(tmp_path: Path) -> None:
    ran = run("--tiny", "--json", str(tmp_path / "out.json"))
    assert (ran.returncode, ran.stderr) == (0, "")
    found = json.loads((tmp_path / "out.json").read_text())
    assert {field.name for field in attrs.fields(report.Results)} == set(found)
    for part, kind in (("calls", Row), ("delays", Delay)):
        assert found[part]
        for row in found[part]:
            assert set(row) == {field.name for field in attrs.fields(kind)}
    assert set(found["memory"]) == {field.name for field in attrs.fields(Memory)}
    assert set(found["rest"]) == {field.name for field in attrs.fields(Rest)}
    assert {row["target"] for row in found["calls"]} == {
        "direct",
        "socket",
        "category",
        "connect",
        "naive",
        "bare",
        "http",
        "ws",
        "naive http",
        "bare http",
        "socket, 2 servers",
    }
    for bar in found["bars"]:
        assert set(bar) == {"name", "measured", "limit", "unit", "least", "met"}
        assert bar["name"] in ran.stdout
    for title in ("Bars", "Calls", "Waits of others", "Memory, start and rest"):
        assert f"\n{title}\n" in ran.stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--only", "calls,speed"), "there is no speed"),
        (("--tiny", "--write"), "such numbers mean nothing"),
        (("--quick", "--tiny"), "not allowed with"),
    ],
)
def test_what_makes_no_sense_is_refused_at_once(words: tuple[str, ...], said: str) -> None:
    ran = run(*words)
    assert ran.returncode == 2
    assert said in ran.stderr


@pytest.fixture
def wire() -> Iterator[Wire]:
    made = Direct().connect(0)
    yield made
    made.close()


ECHOED = Request.of("echo_0", {"text": "x" * 50})


def test_the_echo_server_gives_back_what_it_is_sent(wire: Wire) -> None:
    size = wire.try_out(ECHOED)
    assert wire.exchange(ECHOED.line(1)) == size
    assert wire.ask("tools/call", {"name": "echo_0", "arguments": {"text": "ä"}})["content"][0]["text"]


def test_the_echo_server_answers_with_as_many_bytes_as_are_wanted(wire: Wire) -> None:
    empty = wire.try_out(Request.of("answer_0", {"bytes": 0}))
    assert wire.exchange(Request.of("answer_0", {"bytes": 3_000_000}).line(1)) == empty + 3_000_000


def test_the_echo_server_lists_other_tools_once_it_was_told_to() -> None:
    wire = over_stdio([*ECHO, "7", "100"], {})
    try:
        before = wire.ask("tools/list", {})["tools"]
        wire.ask("tools/call", {"name": "change_7", "arguments": {}})
        after = wire.ask("tools/list", {})["tools"]
    finally:
        wire.close()
    assert len(before) == len(after) == 100
    assert sum(old != new for old, new in zip(before, after, strict=True)) == 9


@pytest.fixture
def place() -> Iterator[Place]:
    """An HTTP server that answers each POST with the body that it got, and GET with a refusal."""

    class Echo(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = -1

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if not self.headers["Authorization"]:
                self.send_error(401)
                return
            message = {"id": json.loads(body)["id"], "result": {"content": [self.path]}}
            answer = json.dumps(message).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def do_GET(self) -> None:
            self.send_error(405)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Echo) as listener:
        thread = Thread(target=listener.serve_forever)
        thread.start()
        yield Place(listener.server_port, "/mcp", "token")
        listener.shutdown()
        thread.join()


@pytest.mark.process
def test_calls_over_http_are_of_one_size_and_take_turns(place: Place) -> None:
    wire = HttpWire(place)
    request = wire.wrap(ECHOED)
    size = wire.try_out(request)
    assert wire.exchange(request.line(1), size) == size
    with within(30, "a crowd"):
        assert Crowd([wire], 1, [request], size).run(0.01).calls >= 1
    wire.close()


@pytest.mark.process
def test_a_refusal_over_http_is_no_answer(place: Place) -> None:
    with closing(HttpWire(attrs.evolve(place, token=""))) as wire, pytest.raises(Unmeasurable, match="401"):
        wire.try_out(wire.wrap(ECHOED))
    with closing(HttpWire(place)) as wire, pytest.raises(Unmeasurable, match="a stream was refused"):
        wire.stream()


@pytest.mark.parametrize(("size", "head"), [(5, 6), (125, 6), (126, 8), (65_535, 8), (65_536, 14)])
def test_a_message_is_one_masked_frame(size: int, head: int) -> None:
    frame = WebSocketConnection(ConnectionType.SERVER)
    frame.receive_data(envelope(size) + b"x" * size)
    (event,) = frame.events()
    assert isinstance(event, TextMessage)
    assert (len(event.data), event.message_finished, len(envelope(size))) == (size, True, head)


def test_a_crowd_counts_every_answer(wire: Wire) -> None:
    size = wire.try_out(ECHOED)
    with within(30, "a crowd"):
        ran = Crowd([wire], 8, [ECHOED], size).run(0.01)
    assert ran.calls == wire.number - 1 >= 8


def test_a_crowd_does_not_take_a_refusal_for_an_answer(wire: Wire) -> None:
    size = wire.try_out(ECHOED)
    with within(30, "a crowd"), pytest.raises(Unmeasurable, match="refused"):
        Crowd([wire], 1, [ECHOED], size + 1).run(0.01)


def test_requests_and_answers_larger_than_a_pipe_do_not_block_each_other(wire: Wire) -> None:
    large = Request.of("echo_0", {"text": "x" * 1_500_000})
    size = wire.try_out(large)
    with within(60, "a crowd"):
        assert Crowd([wire], 4, [large], size).run(0.01).calls >= 4


def test_a_window_is_touched_by_every_call_that_overlaps_it() -> None:
    kind = Kind(name="x", prepare=lambda: partial(print), tail=1.0)
    begins = [0.0, 0.1, 10.0, 14.0, 20.0]
    ends = [0.1, 0.2, 13.0, 14.5, 20.1]
    found = summed(kind, begins, ends, [(12.0, 13.5)])
    assert (found.times, found.calls) == (1, 2)
    assert found.longest == found.worst == 3000
    assert found.added == 3000
    assert found.took == 1500


def test_what_took_as_long_before_is_not_added_by_what_happened() -> None:
    kind = Kind(name="x", prepare=lambda: partial(print), tail=0.05)
    begins = [number * 0.01 for number in range(100)]
    ends = [begin + 0.008 for begin in begins]
    assert summed(kind, begins, ends, [(0.5, 0.55)]).added == pytest.approx(0)


def test_quantiles_and_ratios() -> None:
    assert quantiles([float(number) for number in range(1, 101)]) == (50.5, 99.0)
    assert quantiles([1.0]) == (1.0, 1.0)
    assert ratio([(2.0, 1.0), (9.0, 3.0), (None, 1.0), (8.0, 2.0)]) == 3.0
    assert ratio([]) is None


@pytest.mark.parametrize(
    ("bar", "met"),
    [
        (Bar("a", 3.5, 3.5), True),
        (Bar("a", 3.6, 3.5), False),
        (Bar("a", 40, 40, least=True), True),
        (Bar("a", 39, 40, least=True), False),
    ],
)
def test_a_bar_is_met_at_its_limit(bar: Bar, met: bool) -> None:
    assert bar.met is met


def test_calm_is_no_bar() -> None:
    calm = Delay(kind=CALM, times=1, took=1, calls=1, p99=1, longest=1, worst=1, added=1)
    assert [bar.name for bar in of_delays([calm, attrs.evolve(calm, kind="a search")])] == [
        "others wait for a search"
    ]


def made() -> report.Results:
    bars = [Bar("speed", 1234.5, 1000.0, "x"), Bar("rest", 0.125, 0.2, "%")]
    times: dict[str, Any] = {
        "p50_ratio": None,
        "p99_us": None,
        "rate_ratio": None,
        "megabytes": 0.0,
        "cpu_us": None,
    }
    calls = [
        Row(case="100 B", target="direct", p50_us=23.5, rate=0.0, **times),
        Row(case="32 in flight", target="socket", p50_us=None, rate=48_289.0, **times),
        Row(case="crowd", target="socket, 25 servers", p50_us=1.0, rate=1.0, **times),
    ]
    return report.Results(command="c", date="d", machine="m", load=[1.0, 2.0], calls=calls, bars=bars)


def test_the_numbers_take_their_place_in_the_document_and_nothing_else_changes(tmp_path: Path) -> None:
    path = tmp_path / "performance.md"
    path.write_text(f"before\n{report.BEGIN}\nold\n{report.END}\nafter\n")
    for _ in range(2):
        report.write(path, made())
    text = path.read_text()
    assert text.startswith(f"before\n{report.BEGIN}\n")
    assert text.endswith(f"{report.END}\nafter\n")
    assert "old" not in text
    assert text.count("| speed | **1,234 x** | ≤ 1000 |") == 1
    assert "| rest | 0.12 % | ≤ 0.2 |" in text
    assert (
        "| 100 B: p50 us | 23.5 | - | - | - | - |\n| 32 in flight: calls/s | - | 48,289 | - | - | - |\n" in text
    )
    assert "crowd" not in text


def test_a_document_without_a_place_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "performance.md"
    path.write_text("words")
    with pytest.raises(ValueError, match="no place for the numbers"):
        report.write(path, made())
    assert path.read_text() == "words"


def test_the_document_of_the_repo_has_its_place() -> None:
    text = (ROOT / "docs" / "performance.md").read_text()
    assert text.index(report.BEGIN) < text.index(report.END)
