"""The model of one daemon: its loop against the formulas of queueing, its costs against what was measured."""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING

import attrs
import pytest

from bench.calls import report as calls_report
from bench.calls.daemons import ROOT
from bench.calls.delays import Delay
from bench.calls.memory import Memory
from bench.calls.rest import Rest
from bench.calls.rounds import Row
from bench.scale import agents, report
from bench.scale.__main__ import DOCUMENT, MEASURED, main, modelled
from bench.scale.agents import QUICK, SLOW, Call, Client, Upstream
from bench.scale.beside import Beside
from bench.scale.checking import CROWD, checks, played
from bench.scale.costs import (
    ALONE,
    CATEGORY,
    FEW,
    LARGE,
    LARGER,
    LARGEST,
    PIPELINED,
    SOCKET,
    Costs,
    fitted,
    line,
)
from bench.scale.limits import LOOP_FULL, Use, uses
from bench.scale.loop import Clock, Loop, Message, waiting
from bench.scale.points import Points, Unreadable, from_document, from_json
from bench.scale.scenarios import Scenario, play, under_load
from bench.scale.second import amdahl, herd, ways
from daemon.config.tuning import ServerLimits

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

BESIDE = Beside(
    base_mb=58,
    server_kb=50,
    tool_kb=5,
    base_descriptors=16,
    server_descriptors=4,
    client_descriptors=1,
    connection_us=1000,
    load_ms=2,
    load_us=2000,
    loads=2500,
    idle_share=50,
    busy_share=25,
)

CPU = {
    (ALONE, SOCKET): (101, 7908),
    (ALONE, CATEGORY): (162, 5897),
    (ALONE, "direct"): (None, 42903),
    (LARGER, SOCKET): (136, 5483),
    (LARGE, SOCKET): (5637, 131),
    (LARGEST, SOCKET): (19029, 38.3),
    (PIPELINED, SOCKET): (22.9, 35817),
    (PIPELINED, CATEGORY): (77.7, 11397),
    (PIPELINED, "direct"): (None, 291161),
    (FEW, SOCKET): (60.7, 16428),
    (FEW, "socket, 25 servers"): (87.6, 10702),
    (CROWD, "socket, 25 servers"): (60.9, 14826),
}
"""Microseconds of CPU and calls a second, as they were measured on one machine on one day."""

ADDED = {
    "nothing": -0.8,
    "a call with an answer of 10 MB": 21.3,
    "a list of 5,000 tools is read again, the same": 19.3,
    "a list of 5,000 tools is read again, a tenth is new": 48.4,
    "a search": 9.65,
    "a list of 5,000 tools is given to a client": 4.1,
    "a scrape of the metrics": -0.2,
}


def measured() -> calls_report.Results:
    def row(case: str, target: str, cpu: float | None, rate: float) -> Row:
        return Row(
            case=case,
            target=target,
            p50_us=20.5,
            p99_us=50,
            rate=rate,
            megabytes=1,
            cpu_us=cpu,
            p50_ratio=5,
            rate_ratio=7,
        )

    def delay(kind: str, added: float) -> Delay:
        return Delay(kind=kind, times=2, took=1, calls=1, p99=1, longest=1, worst=1, added=added)

    return calls_report.Results(
        command="python -m bench.calls",
        date="2026-11-22",
        machine="m",
        load=[0.0, 0.0],
        calls=[row(*names, *values) for names, values in CPU.items()],
        memory=Memory(clients=1000, per_client=17.2, per_client_gone=1, payload=1, peak=1, after=1),
        delays=[delay(*each) for each in ADDED.items()],
        rest=Rest(
            servers=50,
            tools=5000,
            ready_ms=1064,
            first_ready_ms=734,
            listed_ms=2439,
            connect_ms=33,
            connect_rss_kb=12595,
            connect_own_kb=6195.2,
            status_ms=165,
            rss_kb=100557,
            idle_cpu=0.08,
            idle_seconds=5,
        ),
    )


@pytest.fixture
def points(tmp_path: Path) -> Points:
    path = tmp_path / "calls.json"
    path.write_text(json.dumps(measured().as_json()))
    return from_json(path)


@pytest.fixture
def costs(points: Points) -> Costs:
    return fitted(points, BESIDE)


# --- the loop -----------------------------------------------------------------------------------------


class House:
    """A loop, and when things left it."""

    def __init__(self, visit: float = 1.0, most: float = 100.0) -> None:
        self.clock = Clock()
        self.loop = Loop(self.clock, visit, most)
        self.left: list[tuple[str, float]] = []

    def come(self, at: float, link: str, work: float) -> None:
        self.clock.at(at, lambda: self.loop.arrive(link, Message(work, lambda: self._leave(link))))

    def _leave(self, link: str) -> None:
        self.left.append((link, self.clock.now))


def test_a_message_that_finds_the_loop_idle_costs_a_visit_and_its_work() -> None:
    house = House()
    house.come(5, "a", 2)
    house.clock.run(100)
    assert house.left == [("a", 8)]
    assert house.loop.busy == 3


def test_messages_of_one_link_share_a_visit_and_leave_together() -> None:
    house = House()
    for work in (1, 1, 1):
        house.come(0, "first", 0)
        house.come(0.5, "a", work)
    house.clock.run(100)
    # The first one's own turn, then what came during it: two more of the first, and the three together.
    assert house.left[-3:] == [("a", 6)] * 3
    assert house.loop.busy == 6


def test_what_comes_during_a_turn_waits_for_the_next_one() -> None:
    house = House(visit=0)
    house.come(0, "a", 10)
    house.come(1, "b", 1)
    house.come(2, "a", 1)
    house.clock.run(100)
    assert house.left == [("a", 10), ("b", 11), ("a", 12)]


def test_a_large_message_lets_others_in_between_its_slices() -> None:
    house = House(visit=0, most=10)
    house.come(0, "large", 30)
    house.come(1, "small", 1)
    house.clock.run(100)
    assert house.left == [("small", 21), ("large", 31)]


def test_only_work_that_is_done_counts_as_done() -> None:
    house = House(visit=0)
    house.come(0, "a", 10)
    house.clock.run(4)
    assert house.loop.busy == 4


def waited(work: Callable[[random.Random], float], rate: float) -> float:
    clock, dice = Clock(), random.Random(3)
    loop = Loop(clock, 0.0, 1e9)

    def come() -> None:
        loop.arrive(object(), Message(work(dice), lambda: None))
        clock.at(clock.now + dice.expovariate(rate), come)

    clock.at(0, come)
    clock.run(20_000 / rate)
    return sum(loop.waits) / len(loop.waits)


def test_with_random_arrivals_the_loop_is_the_single_server_of_the_formula() -> None:
    # Work of one length (M/D/1), and of exponential lengths, whose mean square is 2 (M/M/1).
    assert waited(lambda _: 1.0, 0.7) == pytest.approx(waiting(0.7, 1, 1), rel=0.15)
    assert waited(lambda dice: dice.expovariate(1), 0.5) == pytest.approx(waiting(0.5, 1, 2), rel=0.15)


def test_a_server_that_is_asked_for_more_than_it_can_do_waits_without_end() -> None:
    assert waiting(1.0, 1.0, 1.0) == float("inf")
    assert waiting(0.5, 1.0, 1.0) == 0.5


def test_a_call_waits_for_the_loop_as_the_formula_says(costs: Costs) -> None:
    found = under_load(0.6 / costs.wrapped, costs, calls=8_000)
    assert found.busy == pytest.approx(0.6, rel=0.05)
    assert found.wait == pytest.approx(found.formula, rel=0.15)
    assert costs.wrapped <= found.p50 <= found.p99


# --- what things cost ---------------------------------------------------------------------------------


def test_a_line_goes_through_what_lies_on_one_and_never_below_zero() -> None:
    assert line([(2, 90), (1, 50), (0.1, 14)]) == pytest.approx((10, 40))
    assert line([(1, 10), (2, 30)]) == pytest.approx((0.0, 11.538), rel=0.01)
    assert line([(1, 30), (2, 10)]) == pytest.approx((12, 0.0))


def test_costs_are_what_calls_share_and_what_they_do_not(costs: Costs) -> None:
    assert costs.call == pytest.approx(101e-6, rel=0.05)
    assert costs.wrapper == pytest.approx(57.9e-6, rel=0.01)
    assert costs.byte == pytest.approx(1.9e-9, rel=0.05)
    assert costs.slice == pytest.approx(0.0213)
    assert costs.scrape == 0, "noise below nothing is nothing"


def test_a_document_and_a_file_of_the_same_run_say_the_same(points: Points, tmp_path: Path) -> None:
    path = tmp_path / "performance.md"
    path.write_text(f"# Words\n{calls_report.BEGIN}\n{calls_report.END}\n")
    calls_report.write(path, measured())
    read = from_document(path)
    assert read.calls.keys() == points.calls.keys()
    assert attrs.asdict(fitted(read, BESIDE)) == pytest.approx(attrs.asdict(fitted(points, BESIDE)), rel=0.01)


@pytest.mark.parametrize(
    ("lost", "said"),
    [
        (lambda points: attrs.evolve(points, calls={}), "have no row 'one at a time, 100 B' of 'socket'"),
        (lambda points: attrs.evolve(points, added={}), "do not say what others wait for a call"),
        (lambda points: attrs.evolve(points, values={}), "have no 'an idle client'"),
    ],
)
def test_what_was_not_measured_is_named(points: Points, lost: Callable[[Points], Points], said: str) -> None:
    with pytest.raises(Unreadable, match=said):
        fitted(lost(points), BESIDE)


def test_rows_that_the_model_was_not_made_from_are_foreseen(points: Points, costs: Costs) -> None:
    found = list(checks(points, costs, 1000))
    assert len(found) == 5
    assert sum(check.fitted for check in found) == 3
    for check in found:
        assert check.model_rate == pytest.approx(check.rate, rel=0.25), check
        assert check.model_us == pytest.approx(check.cpu_us, rel=0.25), check


def test_a_client_alone_waits_for_its_call_and_for_the_other_sides(costs: Costs) -> None:
    rate, cpu = played(costs, 1, 1, 1, hop=50e-6, each=5e-6)
    assert rate == pytest.approx(1 / (costs.call + 2 * 55e-6), rel=0.01)
    assert cpu == pytest.approx(costs.call, rel=0.01)


# --- houses -------------------------------------------------------------------------------------------


def test_a_server_takes_what_it_has_places_for_and_refuses_the_rest(costs: Costs) -> None:
    clock, dice = Clock(), random.Random(1)
    loop = Loop(clock, costs.visit, costs.slice)
    upstream = Upstream(clock, dice, SLOW, ServerLimits())
    client = Client(clock, loop, dice, costs, [upstream], [1.0])
    for _ in range(130):
        Call(client, upstream, costs)
    clock.run(0.1)
    assert upstream.refused == 2
    clock.run(1000)
    assert upstream.crowd == 128
    assert len(client.added) >= 128


def test_a_quick_server_is_called_more_often_than_a_slow_one() -> None:
    upstreams = agents.upstreams_of(Clock(), random.Random(1), 20)
    shares = agents.weights(upstreams)
    assert len(upstreams) == 20
    assert sum(shares) == pytest.approx(1)
    of = {
        kind: sum(s for u, s in zip(upstreams, shares, strict=True) if u.kind is kind) for kind in (QUICK, SLOW)
    }
    assert (of[QUICK], of[SLOW]) == pytest.approx((0.60, 0.05))


SMALL = Scenario(name="small", clients=10, servers=5)

FEW_CALLS = 2000


def test_the_same_costs_give_the_same_numbers(costs: Costs) -> None:
    assert play(SMALL, costs, calls=FEW_CALLS) == play(SMALL, costs, calls=FEW_CALLS)
    assert play(SMALL, costs, calls=FEW_CALLS, seed=7) != play(SMALL, costs, calls=FEW_CALLS)


def test_more_clients_are_more_work(costs: Costs) -> None:
    few, many = (
        play(SMALL, costs, calls=FEW_CALLS),
        play(attrs.evolve(SMALL, clients=400), costs, calls=FEW_CALLS),
    )
    assert few.rate < many.rate
    assert few.busy < many.busy < 1
    assert costs.wrapped <= few.p50 <= few.p99


def test_dearer_calls_fill_the_loop_first(costs: Costs) -> None:
    found = play(attrs.evolve(SMALL, clients=400), costs, calls=FEW_CALLS)
    dear = attrs.evolve(found, busy=LOOP_FULL * 0.999)
    rooms = {use.name: use.room for use in uses(dear, costs, BESIDE)}
    assert rooms["the loop"] == pytest.approx(1.001, rel=0.01)
    assert rooms["`limits.connections`"] == pytest.approx(1024 / 400)
    assert rooms["descriptors"] > 100


def test_what_does_not_grow_with_clients_takes_no_part_in_how_many_fit() -> None:
    assert Use(name="x", used=60, limit=100, fixed=50).room == 5
    assert Use(name="x", used=50, limit=100, fixed=50).room == float("inf")


def test_amdahls_law() -> None:
    assert amdahl(0, 2) == 2
    assert amdahl(1, 4) == 1
    assert amdahl(0.5, 1_000_000) == pytest.approx(2, rel=0.001)


def test_who_passes_every_call_on_wins_less_than_who_passes_connections_on(costs: Costs) -> None:
    found = list(ways(play(SMALL, costs, calls=FEW_CALLS), costs))
    sessions, passed, full, category, aside = (way.gain(2) for way in found)
    assert 2 >= sessions >= passed > 1.8 > category > full > 1
    assert 1 <= aside <= 2
    assert [way.copies for way in found] == [2, 2, 1, 1, 1]


def test_after_a_restart_clients_come_back_one_after_the_other(costs: Costs) -> None:
    assert herd(costs, 1000) == pytest.approx(1.064 + 1.0, rel=0.01)


# --- the document -------------------------------------------------------------------------------------


def test_what_was_measured_beside_is_read_back(tmp_path: Path) -> None:
    path = tmp_path / "scale.md"
    path.write_text("before\n{}\nold\n{}\nafter\n".format(*report.marks(report.BESIDE)))
    report.put(path, report.BESIDE, report.beside_markdown(BESIDE, "`how it was had`"))
    assert report.beside_from(path) == (BESIDE, "`how it was had`")
    text = path.read_text()
    assert text.startswith("before\n")
    assert text.endswith("\nafter\n")
    assert "old" not in text


def test_a_document_without_a_place_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "scale.md"
    path.write_text("words")
    with pytest.raises(Unreadable, match="has no numbers"):
        report.put(path, "first", "text")
    assert path.read_text() == "words"


@pytest.mark.parametrize("content", [None, "no JSON", "[]", '{"command": "x"}'])
def test_a_file_that_is_no_result_is_named(
    content: str | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "calls.json"
    if content is not None:
        path.write_text(content)
    assert main(["--costs", str(path)]) == 1
    assert f"no model: {path}" in capsys.readouterr().err


def test_the_documents_of_the_repo_feed_the_model_and_have_a_place_for_each_table() -> None:
    measured_beside, head = report.beside_from(DOCUMENT)
    assert "--measure" in head
    model = modelled(from_document(MEASURED), measured_beside, [SMALL, attrs.evolve(SMALL, clients=1000)], 300)
    places = {*report.tables(model), "source", report.BESIDE}
    text = DOCUMENT.read_text(encoding="utf-8")
    for place in places:
        begin, end = report.marks(place)
        assert text.index(begin) < text.index(end)
    for tables in report.tables(model).values():
        for table in tables:
            title, heads, rows = table
            assert all(len(row) == len(heads) for row in rows), title
            assert report.text(table).startswith(title)


def test_the_document_names_only_files_that_exist() -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    for name in (
        "daemon/state/sqlite.py",
        "daemon/sockets.py",
        "daemon/actors/front.py",
        "daemon/state/writing.py",
    ):
        assert f"`{name}`" in text
        assert (ROOT / name).exists()


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(2.0, "2.00 s"), (0.05, "50.0 ms"), (0.0000411, "41.1 us"), (float("inf"), "without end")],
)
def test_times_have_the_unit_that_suits_them(seconds: float, words: str) -> None:
    assert report.time(seconds) == words
