"""The status for people, at the width of a small terminal and without one."""

import json
import re
from typing import Any

import pytest

from daemon.cli import status_view
from daemon.cli.status import exit_status
from daemon.cli.status_servers import STYLES
from daemon.cli.status_view import lately_in_words, render, render_one
from daemon.cli.table import implementation
from daemon.cli.terminal import ROOMY, UNBOUNDED, Screen
from daemon.operators.report_words import MAX_NAMED
from daemon.states import ServerState
from tests.printing import out_of
from tests.unit.cases import cases
from tests.unit.cli.conftest import Captured, Controls
from tests.unit.cli.daemons import (
    diagnosed,
    down,
    metrics_of,
    server,
    session_of,
    status_of,
)

RECENT = {"minutes": 5, "calls": 12, "errors": 2, "p50Ms": 5.0, "p95Ms": 120.0}
NARROW = Screen(width=80, colour=False)
PIPE = Screen(width=UNBOUNDED, colour=False)
NOW = 1000.0 + 2 * 3600 + 5 * 60


def shown(servers: dict[str, Any], screen: Screen = NARROW, **more: Any) -> str:
    return render(status_of(servers, **more), now=NOW, screen=screen)


def test_a_server_is_one_line_with_all_its_numbers() -> None:
    lines = shown({"git": server(restarts=2)}).splitlines()
    head = "server state for tools open calls err p50/p95 restarts memory pid"
    assert lines[0].split() == head.split()
    assert lines[1].split() == ["git", "ready", "2h", "12", "-", "34", "-", "1.2/88", "2", "50M", "4711"]
    assert lines[2] == "open: calls in flight. calls, err and p50/p95 (ms): the last 5 minutes."


LONG = "a-server-with-a-name-as-long-as-names-may-be-" + "x" * 19
BUSY = server(
    state="needs_auth",
    tools=1200,
    pid=4194304,
    recent={**RECENT, "calls": 1234567, "p50Ms": 10000.0, "p95Ms": 60000.0},
)


@pytest.mark.parametrize("width", [20, 40, 60, 80, 100, 120, 200])
def test_any_width_is_kept_and_a_long_name_loses_its_middle(width: int) -> None:
    table = shown({LONG: BUSY, "git": server()}, Screen(width=width, colour=False)).splitlines()[:3]
    assert all(len(line) <= width for line in table)
    assert "needs_auth" in table[1]
    assert LONG in table[1] or re.match(r"a-\S*…x* ", table[1])
    assert table[2].split()[:2] == ["git", "ready"]
    for column, seen in (("for", 40), ("p50/p95", 80), ("memory", 100), ("restarts", 200)):
        assert column in table[0].replace("since", "for") or width < seen


ATTACK = "\x1b]0;owned\x07\u202e\u200b[red]bold[/red]\U000e0041"
SPELT = "\\x1b]0;owned\\x07\\u202e\\u200b[red]bold[/red]\\U000e0041"


@cases("servers", "more", "said")
def test_what_is_unusual_is_said_below_the_table_and_nothing_else(
    servers: dict[str, Any], more: dict[str, Any], said: list[str]
) -> None:
    text = shown({name: server(**changed) for name, changed in servers.items()}, PIPE, **more)
    for phrase in said:
        assert (phrase.removeprefix("!") in text) is not phrase.startswith("!"), phrase


def test_servers_that_are_only_starting_are_one_line() -> None:
    states = ["starting"] * 4 + ["queued"] * 9
    coming = {
        f"s{n}": down(None, state=state, reason="waits for its turn", attempt=0)
        for n, state in enumerate(states)
    }
    status = status_of({"git": server(), **coming})
    status["daemon"] |= {"startsAtATime": 4, "dormant": 2}
    text = " ".join(render(status, now=NOW, screen=NARROW).split())
    said = "13 servers are starting, 4 at a time: s0, s1, s2, s3, s4, s5, s6, s7, s8, s9 and 3 more. mcpd 0.1.0"
    assert said in text
    assert "servers available (2 dormant: started by the next call)" in text


def test_a_cause_that_several_share_is_said_once_with_their_names() -> None:
    helps = {name: f"Run `mcpd login {name}`; see {name}." for name in ("jira", "docs", "mail")}
    ill = {
        name: down("refused", reason="nobody listens", happened="Closed.", helps=f"Run `mcpd login {name}`.")
        for name in helps
    }
    ill["jira"] |= {"nextRetryInMs": 5_000}
    ill["mail"] |= {"nextRetryInMs": 40_000}
    text = shown({**ill, "db": down(reason="boom")})
    assert (
        "jira, docs, mail: backoff\n  nobody listens\n  Closed.\n  What helps: Run `mcpd login SERVER`.\n"
        "  next retries in 5s to 40s\n" in text
    )
    assert text.count("nobody listens") == 1
    assert "db: backoff\n  boom" in text


def test_what_loading_cost_and_saved_is_told_in_words() -> None:
    counted = {
        "loads": 7, "loadHits": 1200, "loadMisses": 34, "invalidations": {"invalid_changed": 2,
        "invalid_renamed": 1}, "extraRoundTrips": 99, "estimatedTokensNotSent": 1_234_567,
    }  # fmt: skip
    assert (
        "Since the start: 7 tools loaded; 1,200 of 1,234 calls found their tool loaded;"
        " 3 tools became invalid (2 changed, 1 renamed); 99 extra round trips;"
        " about 1,234,567 tokens not sent (an estimate).\n"
    ) in shown({}, PIPE, metrics=metrics_of(**counted))
    kept = {**counted, "loads": 70, "since": NOW - 3 * 24 * 3600}
    text = shown({}, PIPE, metrics=metrics_of(**counted, inAll=kept))
    assert re.search(r"\nSince \d{4}-\d\d-\d\d, 3d ago: 70 tools loaded; 1,200 of 1,234 ", text)
    assert "ago" not in shown({}, PIPE, metrics=metrics_of(**counted, inAll={**kept, "since": 0.0}))


def test_the_end_tells_of_the_daemon_and_the_tokens_saved() -> None:
    text = " ".join(shown({"git": server(), "db": down()}).split())
    less = status_of({"git": server(), "db": down(), "old": server(state="disabled")})
    less["daemon"] |= {"off": 1, "available": 1}
    assert "1 of 2 servers available, 1 more switched off." in render(less, now=NOW, screen=PIPE)
    assert "mcpd 0.1.0, pid 99, up 1h 2m, /home/me/.config/mcpd/mcpd.json" in text
    assert "1 of 2 servers available. Models see meta-tools of 2 KiB instead of 120 tools of 200 KiB" in text
    assert "about 50,688 tokens saved in every conversation (an estimate), except with clients that" in text


@cases("daemon", "said")
def test_what_saves_nothing_is_not_said_to(daemon: dict[str, object], said: str) -> None:
    status = status_of({})
    status["daemon"] |= daemon
    assert said in " ".join(render(status, now=NOW, screen=NARROW).split())


def test_nothing_that_a_server_says_reaches_the_terminal_unescaped() -> None:
    session = dict.fromkeys(("client", "protocol", "profile", "surface"), ATTACK)
    evil = down(
        reason=ATTACK,
        stderr=[ATTACK],
        quarantined={ATTACK: ATTACK},
        completed=[ATTACK],
        listingError=ATTACK,
        noise={"count": 1, "first": ATTACK},
    )
    status = status_of(
        {ATTACK: evil}, unresolved=[ATTACK], switchedOff=[ATTACK], sessions=[session_of(**session, key=ATTACK)]
    )
    status["daemon"]["persistence"] = persistence(reason=ATTACK)
    text = render(status, now=NOW, screen=PIPE)
    assert text.replace("\n", "").isprintable()
    # Name (table, heading), reason, stderr, tool and its reason, one completed, listing, noise, unresolved,
    # session (5), its surface once more, what is switched off, persistence.
    assert text.count(SPELT) == 18


def test_every_state_has_a_colour_and_colour_is_only_for_terminals() -> None:
    assert set(STYLES) == set(ServerState)
    coloured = shown({"git": server(), "db": down()}, Screen(width=80, colour=True))
    assert "\x1b[32mready" in coloured
    assert "\x1b[33mbackoff" in coloured
    assert "\x1b[31m" not in coloured
    assert "\x1b" not in shown({"git": server(), "db": down()})


# --- `mcpd status` -------------------------------------------------------------------------------------------


def persistence(
    *, state: str = "degraded", reason: str = "the disk is full", waiting: int = 0
) -> dict[str, Any]:
    """How keeping goes, as `status` answers it."""
    return {
        "state": state,
        "reason": reason if state != "ok" else "",
        "since": 1000.0,
        "where": "",
        "waiting": waiting,
    }


def test_what_is_not_kept_or_audited_is_said_first_and_is_not_well(control: Controls, capsys: Captured) -> None:
    answer = status_of({"git": server()})
    daemon = control({"status": answer})
    for kept, said in (
        (persistence(waiting=3), "persistence: degraded: the disk is full\n  for "),
        (persistence(waiting=1, reason=""), "persistence: degraded: no reason is known\n  for "),
    ):
        answer["daemon"]["persistence"] = kept
        daemon.answers["status"] = answer
        shown = out_of(capsys, implementation("status").main([]), 1)
        things = "3 things are" if kept["waiting"] == 3 else "1 thing is"
        assert shown.startswith(said)
        assert f"; {things} not written yet\n\nserver" in shown
    answer["daemon"] |= {
        "audit": "it cannot be written: \x1b[2J; 3 records lost",
        "persistence": persistence(state="ok"),
    }
    said = "audit: it cannot be written: \\x1b[2J; 3 records lost\n\nserver"
    assert out_of(capsys, implementation("status").main([])).startswith(said)


def test_json_is_the_daemons_answer(control: Controls, capsys: Captured) -> None:
    answer = status_of({"git": server(), "time": down(None, reason="")})
    daemon = control({"status": answer})
    assert json.loads(out_of(capsys, implementation("status").main(["--json"]), 1)) == answer
    assert daemon.asked == [("status", {})]


@pytest.mark.parametrize("lost", ["offeredBytes", "pid", "uptimeSeconds"])
@pytest.mark.parametrize("words", [[], ["--json"]])
def test_an_older_daemon_is_told_as_such_whatever_its_answer_lacks(
    control: Controls, capsys: Captured, lost: str, words: list[str]
) -> None:
    answer = status_of({"git": server()})
    del answer["daemon"][lost]
    control({"status": answer})
    code, said = implementation("status").main(words), capsys.readouterr()
    if words:
        assert code == 0
    else:
        assert (code, said.out) == (1, "")
        assert f"lacks '{lost}': daemon and `mcpd` differ in version. `mcpd start --restart`" in said.err


# --- the line that tells of the night ------------------------------------------------------------------------


def one(outages: int = 0, away: float = 0.0, **tools: list[str]) -> dict[str, Any]:
    return {"outages": outages, "awaySeconds": away, "changed": [], "came": [], "went": [], "held": [], **tools}


def told(servers: dict[str, Any], width: int = 80, lines: int = 2) -> list[str]:
    return lately_in_words({"seconds": 43_200.0, "servers": servers}, width, lines)


def test_an_outage_changed_tools_and_what_waits_for_approval_are_two_lines_at_eighty_columns() -> None:
    night = {"weather": one(changed=["a"], came=["b"], went=["c"]), "notes": one(1, 10_800.0)}
    assert told(night) == [
        "In the last 12h: notes was away 3h; weather changed 1 tool, added 1, removed 1",
        "(mcpd events --since 12h)",
    ]
    assert told({"git": one(held=["log\x1b"])}) == [
        "In the last 12h: git holds log\\x1b until approved (mcpd events git)"
    ]
    assert told({"git": one(went=["a"], held=["b", "c", "d", "e", "f"])}, lines=3)[:1] == [
        "In the last 12h: git removed 1 tool, holds b, c, d and 2 more until approved"
    ]


def test_what_has_no_room_is_counted() -> None:
    many = {f"server-{number}": one(1, 60.0 * (number + 1)) for number in range(20)}
    lines = told(many)
    assert len(lines) == 2
    assert max(map(len, lines)) <= 80
    assert "server-19 was away 20m" in lines[0]
    assert "others (mcpd events --since 12h)" in " ".join(lines)
    assert told(many, width=60, lines=1) == ["In the last 12h: 20 servers (mcpd events --since 12h)"]
    assert told(many, width=20, lines=1) == []


# --- prompts, resources and templates in the status for people, at any width ---------------------------------


WELL = {"known": True, "recalled": False, "switchedOff": 0, "quarantined": {}, "hidden": {}, "listingError": ""}


def listing(**changed: Any) -> Any:
    """A server of which something about its prompts is told."""
    return server(prompts=3, lists={"prompts": {**WELL, **changed}})


def test_each_kind_that_any_server_has_is_a_column_or_on_a_small_terminal_a_line_below() -> None:
    text = shown({"git": server(prompts=3), "docs": server(resources=1200)}, Screen(width=ROOMY, colour=False))
    head, git, docs = (line.split() for line in text.splitlines()[:3])
    assert head[3:7] == ["tools", "prompts", "resources", "open"]
    assert (git[3:6], docs[3:6]) == (["12", "3", "0"], ["12", "0", "1200"])
    assert "Besides tools" not in text
    text = shown(
        {"git": server(prompts=3), "docs": server(prompts=1, resources=2, templates=1), "no": server()}
    )
    assert "Besides tools: git 3 prompts; docs 1 prompt, 2 resources, 1 template." in text
    assert "prompts" not in text.splitlines()[0]


def test_of_many_faults_some_are_named_and_the_rest_is_counted() -> None:
    text = shown({"git": listing(quarantined={f"p{number}": "no name" for number in range(MAX_NAMED + 5)})})
    assert text.count("is not offered: no name") == MAX_NAMED
    assert "5 more of its prompts are not offered: `mcpd status --json` has them" in text


# --- the instances of servers, as people are shown them ------------------------------------------------------


OF_SERVERS = {
    *("type", "epoch", "quarantined", "completed", "hidden", "listingError", "lists", "instances"),
    *("prompts", "resources", "templates", "skills"),
}


def instance(name: str, **changed: Any) -> Any:
    """An instance as `status` answers it, well: without the members that a server alone has."""
    own = {"name": name, "workspace": None, "session": None, "idleMs": 90_000, "differs": False}
    shared = {key: value for key, value in server().items() if key not in OF_SERVERS}
    return {**shared, **own, **{key: value for key, value in changed.items() if key not in OF_SERVERS}}


def divided(*instances: dict[str, Any], **changed: Any) -> Any:
    return server(**{"share": "session", "pid": None, "instances": list(instances), **changed})


PLAYWRIGHT = divided(instance("playwright#3", inFlight=1), instance("playwright#7", workspace="/srv/app"))


def test_an_instance_is_a_row_beneath_its_server_whole_or_short() -> None:
    lines = shown({"playwright": PLAYWRIGHT, "git": server()}, PIPE).splitlines()
    assert lines[0].endswith("pid  idle")
    assert lines[1].startswith("playwright")
    assert "ready, 2 instances" in lines[1]
    assert lines[2].startswith("  playwright#3  ")
    assert lines[2].split()[-2:] == ["4711", "1m"]
    assert lines[3].startswith("  playwright#7 in /srv/app  ")
    assert lines[4].startswith("git")
    assert "idle" not in shown({"git": server()}, PIPE)
    text = shown({"playwright": PLAYWRIGHT}, NARROW)
    assert max(map(len, text.splitlines())) <= 80
    assert "ready (2)" in text
    assert "idle" not in text


def test_the_exit_status_is_that_of_the_worst_state_also_of_instances() -> None:
    well = {state for state in ServerState if exit_status({"a": server(), "b": server(state=str(state))}) == 0}
    assert well == {ServerState.READY, ServerState.DORMANT, ServerState.DISABLED}
    for instances, status in (
        ([], 0),
        ([instance("web#1"), instance("web#2", state="starting")], 0),
        ([instance("web#1"), instance("web#2", **down())], 1),
    ):
        assert exit_status({"web": divided(*instances, state="dormant")}) == status


# --- one server, as people are shown it ----------------------------------------------------------------------


CALL = {
    "id": 7, "tool": "git_log", "script": "", "method": "tools/call", "instance": "", "server": "git",
    "session": 3, "key": None, "client": "claude 2", "since": NOW - 42,
    "ageSeconds": 42.0, "waitsFor": "answer",
}  # fmt: skip
FAILURE = {"at": NOW - 180, "tool": "git_log", "code": "UpstreamTimeout", "text": "showed no life for 60 s"}
EVENT = {
    "at": NOW - 60, "kind": "degraded", "instance": "", "run": 1, "cause": None, "text": "degraded: silent",
}  # fmt: skip


def answered(of: dict[str, Any] | None = None, **more: Any) -> Any:
    return {
        "name": "git", "server": of or server(), "events": [], "calls": [], "moreCalls": 0, "lastErrors": [],
        **more,
    }  # fmt: skip


def shown_alone(answer: Any, width: int = 80) -> str:
    return render_one(answer, now=NOW, screen=Screen(width=width, colour=False))


def test_the_last_hour_is_drawn_as_bars_where_something_was_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    minutes = {"calls": [0, 7, None, 14], "errors": [0, 0, None, 0], "latency": [None, 12.4, None, 3.1]}
    answer = answered(lastHour={**minutes, "memory": [None, 1 << 20, None, 2 << 20]})
    monkeypatch.setattr(status_view, "speaks_unicode", lambda: True)
    assert [line for line in shown_alone(answer).splitlines() if "█" in line] == [
        "  calls   ▁▅ █ 14",
        "  latency  █ ▃ 12 ms",
        "  memory   ▅ █ 2 MiB",
    ]
    monkeypatch.setattr(status_view, "speaks_unicode", lambda: False)
    assert shown_alone(answer) == shown_alone(answered())


def test_a_server_that_is_well_takes_four_lines() -> None:
    assert shown_alone(answered(server(title="git"))).startswith("git: ready for 2h 5m\n")
    assert shown_alone(answered(server(title="Git Tools", restarts=2))).splitlines() == [
        "git (Git Tools): ready for 2h 5m",
        "  stdio, git 1.0, MCP 2025-11-25, pid 4711, 50 MiB, 12 tools, started again 2",
        "  times",
        "  0 calls in flight, 34 in the last 5 minutes, p50 1.2 ms, p95 88 ms, 34 since",
        "  it was configured, 0 of them errors",
        "  last heard 2h ago, its last answer to a ping took 0.4 ms",
    ]


def test_what_goes_on_and_what_went_wrong_is_told() -> None:
    silent = server(
        state="degraded",
        reason="answers no pings while it works on 1 call, last heard 40 s ago",
        cause="unanswered-pings",
        happened="It works on calls.",
        helps="Wait.",
        attempt=0,
        inFlight=1,
        pings={"unanswered": 2, "lastMs": None, "lastHeardAt": NOW - 40},
    )
    text = shown_alone(answered(silent, calls=[CALL], lastErrors=[FAILURE], events=[EVENT], moreCalls=3))
    assert "git: degraded for 2h 5m\n" in text
    assert "last heard 40s ago, 2 pings without an answer since\n" in text
    assert "  answers no pings while it works on 1 call, last heard 40 s ago\n  It works on calls.\n" in text
    assert "What helps: Wait." in text
    assert " 7 42s the answer git/git_log claude 2 #3\nand 3 more: `mcpd calls git`\n" in text
    assert " 3m git_log UpstreamTimeout: showed no life for 60 s\n" in text
    assert "Last events (`mcpd events git` has more)\n" in text
    assert "degraded: silent" in text


def test_only_an_event_of_another_day_has_its_date() -> None:
    text = shown_alone(answered(events=[{**EVENT, "at": NOW - 86_400}, EVENT]), 120)
    found = re.findall(r"(\S+ )?\d\d:\d\d:\d\d", text)
    assert [len(each) for each in found] == [len("2026-11-28 "), 0]


@pytest.mark.parametrize("width", [40, 60, 80, 200])
def test_it_fits_and_what_others_wrote_is_spelt_out(width: int) -> None:
    odd = answered(
        server(title=ATTACK, reason=ATTACK * 30, state="failed", stderr=[ATTACK * 20]),
        calls=[{**CALL, "tool": ATTACK, "client": ATTACK * 9}],
        lastErrors=[{**FAILURE, "text": ATTACK * 30}],
        events=[{**EVENT, "text": ATTACK * 30, "at": NOW - 500_000}],
    )
    text = shown_alone(odd, width)
    assert "\x1b" not in text
    assert all(len(line) <= width for line in text.splitlines())
    assert SPELT in shown_alone(odd, 200)


def test_instances_have_their_table_and_those_that_are_ill_their_reason() -> None:
    of = server(instances=[instance("git#3"), instance("git#7", **down(reason="boom"))], pid=None)
    text = shown_alone(answered(of))
    assert "git#3" in text
    assert "git#7: backoff\n  boom\n" in text


def test_servers_are_asked_for_by_name_and_the_worst_state_is_the_exit_status(
    control: Controls, capsys: Captured
) -> None:
    daemon = control({"status": answered(diagnosed(down("killed", causeData={"signal": "SIGKILL"})))})
    out = out_of(capsys, implementation("status").main(["git"]), 1)
    assert "git: backoff" in out
    assert "What helps: " in out
    assert daemon.asked == [("status", {"server": "git"})]
    daemon.answers["status"] = answered(server())
    assert out_of(capsys, implementation("status").main(["git", "time"])).count("git: ready") == 2
    assert len(out_of(capsys, implementation("status").main(["git", "time", "--json"])).splitlines()) == 2
    assert [asked["server"] for _, asked in daemon.asked[1:]] == ["git", "time"] * 2
