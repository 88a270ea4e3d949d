"""The benchmark of calls: run as a developer runs it with the smallest numbers, and its arithmetic."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import attrs
import pytest

from bench.calls import report
from bench.calls.bars import Bar
from bench.calls.crowd import Crowd
from bench.calls.delays import Delay, Kind, summed
from bench.calls.memory import Memory
from bench.calls.rest import Rest
from bench.calls.rounds import Row
from bench.calls.targets import Direct
from bench.calls.web import HttpWire, Place
from bench.calls.wires import Request, Wire, within
from bench.running import Unmeasurable

ROOT = Path(__file__).parents[2]
PATIENCE = 300.0
"""Seconds for one run, which takes a tenth of that where nothing else runs."""


def run(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "bench.calls", *words]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE, check=False)


@pytest.mark.nightly
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
        *("direct", "socket", "socket, 2 servers", "category", "connect", "http", "ws"),
        *("naive", "bare", "naive http", "bare http"),
    }
    for bar in found["bars"]:
        assert set(bar) == {"name", "measured", "limit", "unit", "least", "met"}
        assert bar["name"] in ran.stdout
    for title in ("Bars", "Calls", "Waits of others", "Memory, start and rest"):
        assert f"\n{title}\n" in ran.stdout


def test_what_makes_no_sense_is_refused_at_once() -> None:
    ran = run("--tiny", "--write")
    assert (ran.returncode, "such numbers mean nothing" in ran.stderr) == (2, True)


@pytest.fixture
def wire() -> Iterator[Wire]:
    made = Direct().connect(0)
    yield made
    made.close()


ECHOED = Request.of("echo_0", {"text": "x" * 50})


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


def test_calls_over_http_are_of_one_size_and_take_turns(place: Place) -> None:
    wire = HttpWire(place)
    request = wire.wrap(ECHOED)
    size = wire.try_out(request)
    assert wire.exchange(request.line(1), size) == size
    with within(30, "a crowd"):
        assert Crowd([wire], 1, [request], size).run(0.01).calls >= 1
    wire.close()


def test_a_refusal_over_http_is_no_answer(place: Place) -> None:
    with closing(HttpWire(attrs.evolve(place, token=""))) as wire, pytest.raises(Unmeasurable, match="401"):
        wire.try_out(wire.wrap(ECHOED))
    with closing(HttpWire(place)) as wire, pytest.raises(Unmeasurable, match="a stream was refused"):
        wire.stream()


def test_a_crowd_counts_every_answer(wire: Wire) -> None:
    size = wire.try_out(ECHOED)
    with within(30, "a crowd"):
        ran = Crowd([wire], 8, [ECHOED], size).run(0.01)
    assert ran.calls == wire.number - 1 >= 8


def test_a_crowd_does_not_take_a_refusal_for_an_answer(wire: Wire) -> None:
    size = wire.try_out(ECHOED)
    with within(30, "a crowd"), pytest.raises(Unmeasurable, match="refused"):
        Crowd([wire], 1, [ECHOED], size + 1).run(0.01)


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


def made() -> report.Results:
    bars = [Bar("speed", 1234.5, 1000.0, "x"), Bar("rest", 0.125, 0.2, "%")]
    times: dict[str, Any] = {**dict.fromkeys(("p50_ratio", "p99_us", "rate_ratio", "cpu_us")), "megabytes": 0.0}
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
    assert "### Missed: 1 of 2 bars\n" in text
    assert text.count("| speed | 1,234 x | ≤ 1000 |") == 1
    assert "| rest |" not in text
    assert (
        "| 100 B: p50 us | 23.5 | - | - | - | - |\n| 32 in flight: calls/s | - | 48,289 | - | - | - |\n" in text
    )
    assert "crowd" not in text


# --- the benchmarks of tokens and of answers' sizes, run as a developer runs them, on two small --------------


SURFACES = ("category", "browse", "search", "load", "full")
AIM = ("--tool", "shed/count_spades", "--need", "count spades", "--arguments", '{"path": "."}')
WAIT = 180.0
"""Seconds for two daemons and a dozen conversations on a busy machine."""


def bench(*words: str, of: str = "tokens") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", f"bench.{of}", *words]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=WAIT, check=False)


def tool(name: str, description: str) -> dict[str, Any]:
    properties = {"path": {"type": "string", "description": "Where to look."}}
    return {
        "name": name,
        "description": description,
        "inputSchema": {"type": "object", "properties": properties, "required": ["path"]},
    }


@pytest.fixture
def lists(tmp_path: Path) -> Path:
    fixtures = {
        "Shed": [tool("count_spades", "Counts the spades in a shed.")],
        "pond": [tool(f"fish_{number}", "Catches a fish. " * 100) for number in range(150)],
    }
    for name, tools in fixtures.items():
        (tmp_path / f"{name}.json").write_text(json.dumps({"tools": tools}, indent=1))
    return tmp_path


def test_every_surface_is_measured_and_reaches_the_call(lists: Path) -> None:
    done = bench(str(lists), *AIM)
    assert done.returncode == 0, (done.stdout, done.stderr)
    lines = done.stdout.splitlines()
    assert lines[0].startswith("2 servers list 151 tools, 151 of them usable")
    totals = [line.split()[0] for line in lines if line.split()[1:2] == ["total"]]
    assert totals == list(SURFACES)
    assert sum(line.endswith("PASS") for line in lines) == 4 * (len(SURFACES) - 1)


@pytest.mark.nightly
def test_a_set_too_small_to_save_anything_misses_the_goal(lists: Path) -> None:
    (lists / "pond.json").unlink()
    done = bench(str(lists), *AIM)
    assert done.returncode == 1, (done.stdout, done.stderr)
    assert {line.split()[0] for line in done.stdout.splitlines() if line.endswith("FAIL")} == set(SURFACES[:-1])


@pytest.mark.nightly
def test_a_call_that_is_not_reached_is_no_measurement(lists: Path) -> None:
    done = bench(str(lists), "--tool", "shed/count_rakes")
    assert done.returncode == 3, (done.stdout, done.stderr)
    assert "no tool shed/count_rakes is listed" in done.stderr


def test_wrong_usage_says_what_is_wrong(lists: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    for words, said in (
        ([str(lists), "--tool", "barn/count"], "no list is named barn"),
        ([str(tmp_path_factory.mktemp("empty"))], "has no *.json"),
    ):
        done = bench(*words)
        assert done.returncode == 2
        assert said in done.stderr


def sizes_in(text: str) -> Iterator[tuple[str, int, int]]:
    """The rows of the table: a meta-tool, and its largest answer in tokens before and after."""
    for line in text.splitlines():
        name, *numbers = line.replace(",", "").split() or [""]
        if len(numbers) > 3 and numbers[0].isdigit() and numbers[1].isdigit():
            yield name, int(numbers[0]), int(numbers[1])


def test_no_answer_is_above_the_limit_and_what_it_was_stands_beside_it(lists: Path) -> None:
    done = bench(str(lists), of="answers")
    assert done.returncode == 0, (done.stdout, done.stderr)
    sizes = {name: (before, after) for name, before, after in sizes_in(done.stdout)}
    assert sizes["get-category-tools"][0] > 50_000
    assert all(after <= 8000 for _before, after in sizes.values())
    assert {"list_categories", "get_tools", "search_tools", "load_mcp_server", "load_mcp_tool"} <= sizes.keys()
