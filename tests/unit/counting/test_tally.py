"""The tally: it only rises, and what is counted apart is bounded whatever arrives."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from daemon import errors
from daemon.counting.tally import (
    CODES,
    LATENCIES,
    LATENCY_BOUNDS,
    MAX_CLIENTS,
    MAX_NAME,
    MAX_SERVERS,
    MAX_TOOLS,
    MINUTE,
    MINUTES,
    OK,
    OPERATOR,
    OTHER,
    OUTCOMES,
    REPAIRS,
    CallStats,
    ServerCalls,
    Spared,
    Tally,
    Window,
    counters,
    hourly,
    in_all,
    most_called,
    summary,
    tokens_in,
)
from daemon.kit.wording import BYTES_PER_TOKEN
from tests.tallies import new_tally
from tests.unit.cases import rows_of

HOSTILE = st.text() | st.sampled_from(["git", "time", "search", "load", "call_tool", OK, OTHER, "auto", "\x00"])
NUMBERS = st.integers(-5, 10**12)
SECONDS = st.lists(st.floats(), min_size=1, max_size=3)

EVENTS: st.SearchStrategy[Callable[[Tally], None]] = st.one_of(
    st.builds(lambda *said: lambda tally: tally.call(*said), HOSTILE, HOSTILE, HOSTILE, SECONDS, HOSTILE),
    st.builds(lambda *said: lambda tally: tally.meta_call(*said), HOSTILE, HOSTILE, HOSTILE),
    st.builds(lambda *said: lambda tally: tally.load(*said), st.booleans(), HOSTILE),
    st.builds(lambda *said: lambda tally: tally.loaded(*said), HOSTILE, NUMBERS),
    st.builds(lambda *said: lambda tally: tally.invalidated(*said), HOSTILE, NUMBERS),
    st.builds(lambda *said: lambda tally: tally.repaired(*said), HOSTILE),
    st.builds(lambda *said: lambda tally: tally.listed(*said), HOSTILE, NUMBERS, NUMBERS),
    st.builds(lambda *said: lambda tally: tally.spared(*said), HOSTILE, NUMBERS, HOSTILE),
    st.builds(lambda *said: lambda tally: tally.refused(*said), HOSTILE),
    st.builds(lambda *said: lambda tally: tally.turned_away(*said), HOSTILE),
    st.builds(lambda *said: lambda tally: tally.request(*said), HOSTILE, HOSTILE, HOSTILE),
    st.builds(lambda *said: lambda tally: tally.relayed(*said), HOSTILE, HOSTILE, HOSTILE),
)


COUNTERS = ("tools", "meta_calls", "lookups", "loads", "invalidations", "repairs", "refusals", "http_refusals")


def everything(tally: Tally) -> Iterator[tuple[object, float]]:
    """Every number, with what it counts."""
    for server, calls in [*tally.servers.items(), (OTHER, tally.elsewhere)]:
        for key, count in calls.outcomes.items():
            yield (server, *key), count
        for bound, bucket in enumerate(calls.buckets):
            yield (server, bound), bucket
        yield (server, "seconds"), calls.seconds
        for number, counts in enumerate((calls.requests, calls.relays)):
            for key, count in counts.items():
                yield (server, number, *key), count
    for name in COUNTERS:
        for counted, number in getattr(tally, name).items():
            yield (name, counted), number
    for surface, lists in tally.lists.items():
        for number, what in enumerate((lists.count, lists.sent, lists.full, lists.spared, lists.instead)):
            yield ("lists", surface, number), what


@settings(deadline=None)
@given(st.lists(EVENTS, max_size=30))
def test_whatever_happens_no_number_ever_falls(events: list[Callable[[Tally], None]]) -> None:
    tally = new_tally(["git", "time"])
    before = dict(everything(tally))
    for happen in events:
        happen(tally)
        now = dict(everything(tally))
        assert all(now[what] >= number for what, number in before.items())
        before = now


@settings(deadline=None)
@given(
    st.lists(st.lists(st.sampled_from("abcde"), unique=True), max_size=8), st.lists(st.sampled_from("abcde"))
)
def test_no_call_is_lost_when_servers_come_and_go(configured: list[list[str]], called: list[str]) -> None:
    tally = new_tally("abc")
    for names in configured:
        for server in called:
            tally.call(server, "full", OK, [0.5])
            tally.request(server, "prompts/get", OK)
            tally.relayed(server, "roots/list", "relayed")
        tally.serve(names)
        assert list(tally.servers) == names
    every = [*tally.servers.values(), tally.elsewhere]
    assert sum(calls.count for calls in every) == len(called) * len(configured)
    for counts in ("outcomes", "requests", "relays"):
        counted = sum(sum(getattr(calls, counts).values()) for calls in every)
        assert counted == len(called) * len(configured), counts
    assert sum(calls.seconds for calls in every) == 0.5 * len(called) * len(configured)


def test_names_that_nobody_configured_are_counted_together() -> None:
    tally = new_tally(["git"])
    size = sum(1 for _ in everything(tally))
    for number in range(1000):
        name = f"hostile{number}"
        tally.call(name, name, name, [0.1])
        tally.call("git", name, name, [0.1])
        tally.request(name, name, name)
        tally.relayed("git", name, name)
        tally.meta_call(name, name, name)
        tally.meta_call("search", name, OK)
        tally.load(True, name)
        tally.loaded(name)
        tally.invalidated(name)
        tally.repaired(name)
        tally.listed(name, 1, 2)
        tally.refused(name)
        tally.turned_away(name)
    # Two each for calls, for meta-calls and for requests, five for a list, and one for everything else.
    assert sum(1 for _ in everything(tally)) == size + 11 + 6
    assert tally.servers["git"].outcomes == {(OTHER, OTHER): 1000}
    assert tally.meta_calls == {(OTHER, OTHER, OTHER): 1000, ("search", OTHER, OK): 1000}


def test_more_servers_than_are_counted_apart_share_one_place() -> None:
    names = [f"s{number}" for number in range(MAX_SERVERS + 44)]
    tally = new_tally(names)
    for name in names:
        tally.call(name, "full", OK, [0.0])
    assert len(tally.servers) == MAX_SERVERS
    assert tally.elsewhere.count == 44


def test_a_server_that_stays_keeps_its_counts_and_one_that_goes_leaves_them_to_the_others() -> None:
    tally = new_tally(["git", "time"])
    tally.call("git", "load", OK, [0.004])
    tally.call("time", "load", "UpstreamLost", [3.0])
    tally.serve(["new", "git"])
    assert tally.servers["git"].outcomes == {("load", OK): 1}
    assert tally.servers["new"] == ServerCalls()
    assert tally.elsewhere.outcomes == {("load", "UpstreamLost"): 1}
    tally.call("time", "load", "UpstreamLost", [3.0])
    assert tally.elsewhere.outcomes == {("load", "UpstreamLost"): 2}
    tally.serve(["time"])
    assert tally.servers["time"] == ServerCalls()


@pytest.mark.parametrize(
    ("seconds", "bucket"),
    [
        (0.0, 0),
        (LATENCY_BOUNDS[0], 0),
        (LATENCY_BOUNDS[0] * 1.01, 1),
        (LATENCY_BOUNDS[-1], len(LATENCY_BOUNDS) - 1),
        (LATENCY_BOUNDS[-1] + 1, len(LATENCY_BOUNDS)),
        (-1.0, 0),
        (float("nan"), 0),
        (float("inf"), 0),
    ],
)
def test_a_latency_falls_into_the_first_bucket_that_holds_it(seconds: float, bucket: int) -> None:
    tally = new_tally(["git"])
    tally.call("git", "full", OK, [seconds])
    assert tally.servers["git"].buckets.index(1) == bucket
    assert tally.servers["git"].seconds == (seconds if 0 <= seconds < float("inf") else 0.0)


def test_bounds_rise_from_a_millisecond_to_the_longest_call() -> None:
    assert list(LATENCY_BOUNDS) == sorted(set(LATENCY_BOUNDS))
    assert (LATENCY_BOUNDS[0], LATENCY_BOUNDS[-1]) == (0.001, 600.0)


def test_every_error_that_a_call_can_meet_is_an_outcome_of_its_own() -> None:
    assert {"UnknownTool", "ToolNotLoaded", "Overloaded", "InternalError"} <= CODES
    assert errors.ConnectionLost.__name__ not in CODES
    tally = new_tally(["git"])
    for outcome in sorted(OUTCOMES):
        tally.call("git", "load", outcome, [0.1])
        tally.meta_call("load", "load_mcp_tool", outcome)
    assert len(tally.servers["git"].outcomes) == len(tally.meta_calls) == len(CODES) + 2


def test_calls_of_operators_are_told_from_those_of_models() -> None:
    tally = new_tally(["git"])
    tally.call("git", OPERATOR, OK, [0.1])
    assert tally.servers["git"].outcomes == {(OPERATOR, OK): 1}


def test_lists_are_counted_with_what_all_tools_would_have_taken_and_what_was_sent_instead() -> None:
    tally = new_tally()
    tally.listed("search", sent=500, full=100)
    tally.listed("search", sent=500, full=600)
    lists = tally.lists["search"]
    assert (lists.count, lists.sent, lists.full) == (2, 1000, 700)
    tally.spared("search", 7 * BYTES_PER_TOKEN)
    tally.spared("search", -9 * BYTES_PER_TOKEN)
    assert (tokens_in(lists.spared), tokens_in(lists.instead)) == (7, 9)


def test_what_was_spared_is_counted_by_client_and_of_only_so_many() -> None:
    tally = new_tally()
    for name in ("a", "", "nul\x00", "x" * (MAX_NAME + 1), *map(str, range(MAX_CLIENTS)), "a"):
        tally.spared("search", 10, name)
        tally.spared("search", -1, name)
    assert tally.clients["a"] == Spared(20, 2)
    assert tally.clients[OTHER] == Spared(50, 5)
    assert len(tally.clients) == MAX_CLIENTS


def test_fewer_bytes_than_none_are_as_many_tokens_as_they_would_be() -> None:
    assert [tokens_in(size) for size in (-9, -8, -3, 0, 3, 8, 9)] == [-2, -2, 0, 0, 0, 2, 2]


def called(tally: Tally, *tools: str) -> None:
    for name in tools:
        tally.call("s", "full", OK, [0.1], name)


def test_so_many_tools_are_counted_apart_and_those_of_earlier_lives_keep_their_places() -> None:
    tally = new_tally(["s"])
    tally.know([("s", "old")])
    called(tally, *(f"t{number}" for number in range(MAX_TOOLS)), "old")
    assert len(tally.tools) == MAX_TOOLS
    assert tally.tools["s", "old"] == 1
    assert ("s", f"t{MAX_TOOLS - 1}") not in tally.tools


@pytest.mark.parametrize("name", ["x" * (MAX_NAME + 1), "nul\x00", "half\ud800"])
def test_a_name_that_not_every_store_takes_is_not_counted_as_a_tool(name: str) -> None:
    tally = new_tally(["s"])
    called(tally, name)
    assert not tally.tools
    assert tally.servers["s"].count == 1


def test_the_summary_says_what_loading_spared_and_cost() -> None:
    tally = new_tally(["git"])
    tally.loaded("manual", 3)
    tally.loaded("auto")
    for hit in (True, True, True, False):
        tally.load(hit, "manual")
    tally.invalidated("invalid_changed")
    tally.invalidated("invalid_renamed", 2)
    tally.repaired(min(REPAIRS))
    tally.refused("ToolNotLoaded")
    tally.request("git", "prompts/get", OK)
    tally.request("gone", "prompts/get", "UpstreamLost")
    tally.relayed("git", "roots/list", "relayed")
    tally.relayed("git", "elicitation/create", "relayed")
    tally.relayed("gone", "elicitation/create", "refused")
    tally.meta_call("load", "load_mcp_tool", OK)
    tally.meta_call("browse", "get_tools", "UnknownCategory")
    tally.spared("load", 4000)
    tally.spared("browse", 400)
    tally.spared("browse", -200)
    (expected,) = rows_of(Path(__file__), "the_summary_says_what_loading_spared_and_cost")
    assert summary(tally) == {**expected, "repairs": {min(REPAIRS): 1}}


def test_what_is_counted_can_be_kept_and_told_over_restarts() -> None:
    tally = new_tally(["s"])
    tally.loaded("manual", 4)
    tally.load(True, "manual")
    tally.load(True, "manual")
    tally.load(False, "auto")
    tally.invalidated("invalid_changed", 1)
    tally.spared("load", 4400)
    tally.spared("load", -400)
    tally.request("s", "resources/read", OK)
    kept = counters(tally)
    assert "estimatedTokensNotSent" not in kept, "which may fall"
    assert kept["invalidations.invalid_changed"] == 1
    assert (kept["loads"], kept["loadHits"], kept["loadMisses"]) == (4, 2, 1)
    told = in_all({name: 10 * count for name, count in kept.items()}, 5.00049)
    assert told["since"] == pytest.approx(5, abs=0.001)
    assert told["invalidations"] == {"invalid_changed": 10}
    assert told["requests"] == {"resources/read": 10}
    assert (told["loads"], told["loadHits"], told["loadMisses"]) == (40, 20, 10)
    assert told["estimatedTokensNotSent"] == 10_000
    assert (told["loadHitRate"], told["invalidationRate"]) == (0.6667, 0.25)
    nothing = {"since": 0.0, "estimatedTokensNotSent": 0, "loadHitRate": None, "invalidationRate": None}
    assert in_all({}, 0.0) == nothing


def test_tokens_are_kept_by_the_hour_for_each_client() -> None:
    tally = new_tally()
    tally.spared("load", 4400, "zed")
    tally.spared("load", -400, "zed")
    kept = hourly(tally)
    assert (kept["spared:zed"], kept["instead:zed"]) == (1100, 100)


def test_the_tools_called_most_come_first_and_count_on_over_restarts_without_showing_in_the_summary() -> None:
    tally = new_tally(["s"])
    tally.know([("s", "never called in this life")])
    for name in ("a", "b", "b", "c/d", "c/d"):
        tally.call("s", "full", OK, [0.1], name)
    tally.call("s", "full", "UpstreamLost", [0.1], "a")
    tally.call("s", "full", OK, [0.1])
    assert most_called(counters(tally)) == [("s", "b"), ("s", "c/d"), ("s", "a")]
    assert in_all(counters(tally), 0.0).keys() == in_all(counters(new_tally(["s"])), 0.0).keys()


@pytest.mark.parametrize(("share", "expected"), [(0.0, 1.0), (0.5, 51.0), (0.95, 96.0), (1.0, 100.0)])
def test_percentiles_are_taken_over_the_sorted_latencies(share: float, expected: float) -> None:
    stats = CallStats()
    for milliseconds in range(100, 0, -1):
        stats.record([milliseconds / 1000], ok=True)
    assert stats.percentile_ms(share) == expected


def test_calls_and_errors_are_counted_for_life_and_latencies_only_lately() -> None:
    stats = CallStats()
    assert stats.percentile_ms(0.5) is None
    for number in range(LATENCIES * 2):
        stats.record([1.0 if number < LATENCIES else 0.002], ok=number % 2 == 0)
    assert (stats.calls, stats.errors) == (LATENCIES * 2, LATENCIES)
    assert stats.percentile_ms(1.0) == 2.0


def test_a_window_counts_what_has_ended_in_the_minutes_it_looks_back() -> None:
    stats = CallStats()
    for minute in range(4):
        for _ in range(10):
            stats.record([0.1 * (minute + 1)], ok=minute != 0)
        stats.turn((minute + 1) * MINUTE)
    stats.record([1.0], ok=True)
    now = 4 * MINUTE + 1
    assert stats.window(1, now) == Window(calls=11, errors=0, p50_ms=400.0, p95_ms=1000.0)
    assert stats.window(2, now).calls == 21
    assert (stats.window(60, now).calls, stats.window(60, now).errors) == (41, 10)


def test_a_turn_returns_the_minute_that_it_ends() -> None:
    stats = CallStats()
    stats.record([0.5], ok=False)
    assert stats.turn(60) == Window(calls=1, errors=1, p50_ms=500.0, p95_ms=500.0)
    assert stats.turn(120) == Window()


def test_windows_reach_no_further_back_than_minutes_are_kept() -> None:
    stats = CallStats()
    for minute in range(MINUTES * 3):
        stats.record([0.1], ok=True)
        stats.turn(minute * MINUTE)
    assert stats.window(1000, MINUTES * 3 * MINUTE).calls == MINUTES


@given(st.lists(st.floats(0.0001, 100), min_size=1, max_size=3000))
def test_percentiles_of_a_window_are_near_those_of_all_its_calls(latencies: list[float]) -> None:
    stats = CallStats()
    for each in latencies:
        stats.record([each], ok=True)
    stats.turn(60)
    window, newest = stats.window(5, 61), sorted(latencies[-LATENCIES:])
    assert window.calls == len(latencies)
    for found, share in ((window.p50_ms, 0.5), (window.p95_ms, 0.95)):
        assert found is not None
        around = [
            min(len(newest) - 1, max(0, round(len(newest) * each))) for each in (share - 0.03, share + 0.03)
        ]
        assert newest[max(0, around[0] - 2)] * 0.999 <= found / 1000
        assert found / 1000 <= newest[min(len(newest) - 1, around[1] + 2)] * 1.001
