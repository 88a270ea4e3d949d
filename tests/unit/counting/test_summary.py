"""What was counted in short, and what of it is kept over restarts."""

from __future__ import annotations

import pytest

from daemon.counting.tally import OK, REPAIRS, counters, hourly, in_all, most_called, summary
from tests.tallies import new_tally


def test_the_summary_of_nothing_has_no_rates_and_no_reasons() -> None:
    assert summary(new_tally(["git"])) == {
        "loads": 0,
        "loadHits": 0,
        "loadMisses": 0,
        "loadHitRate": None,
        "invalidations": {},
        "invalidationRate": None,
        "repairs": {},
        "refusals": {},
        "requests": {},
        "serverRequests": {},
        "extraRoundTrips": 0,
        "estimatedTokensSpared": 0,
        "estimatedTokensSentInstead": 0,
        "estimatedTokensNotSent": 0,
    }


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
    assert summary(tally) == {
        "loads": 4,
        "loadHits": 3,
        "loadMisses": 1,
        "loadHitRate": 0.75,
        "invalidations": {"invalid_changed": 1, "invalid_renamed": 2},
        "invalidationRate": 0.75,
        "repairs": {min(REPAIRS): 1},
        "refusals": {"ToolNotLoaded": 1},
        "requests": {"prompts/get": 2},
        "serverRequests": {"relayed": 2, "refused": 1},
        "extraRoundTrips": 2,
        "estimatedTokensSpared": 1100,
        "estimatedTokensSentInstead": 50,
        "estimatedTokensNotSent": 1050,
    }


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
