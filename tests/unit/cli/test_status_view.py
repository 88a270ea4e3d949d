"""The status for people, at the width of a small terminal and without one."""

from __future__ import annotations

import re
from typing import Any

import pytest

from daemon.cli.status_servers import STYLES, shorten
from daemon.cli.status_view import render
from daemon.cli.terminal import UNBOUNDED, Screen
from daemon.states import ServerState
from tests.unit.cli.daemons import down, metrics_of, server, session_of, status_of
from tests.unit.cli.test_status import persistence

RECENT = {"minutes": 5, "calls": 12, "errors": 2, "p50Ms": 5.0, "p95Ms": 120.0}
NARROW = Screen(width=80, colour=False)
WORDS = dict.fromkeys(("client", "protocol", "profile", "surface"), "x")
PIPE = Screen(width=UNBOUNDED, colour=False)
NOW = 1000.0 + 2 * 3600 + 5 * 60


def shown(servers: dict[str, Any], screen: Screen = NARROW, **more: Any) -> str:
    return render(status_of(servers, **more), now=NOW, screen=screen)


def test_a_server_is_one_line_with_all_its_numbers() -> None:
    lines = shown({"git": server(restarts=2)}).splitlines()
    assert lines[0].split() == [
        "server",
        "state",
        "for",
        "tools",
        "open",
        "calls",
        "err",
        "p50/p95",
        "restarts",
        "memory",
        "pid",
    ]
    assert lines[1].split() == ["git", "ready", "2h", "12", "-", "34", "-", "1.2/88", "2", "50M", "4711"]
    assert lines[2] == "open: calls in flight. calls, err and p50/p95 (ms): the last 5 minutes."


def test_where_there_is_room_the_headings_need_no_legend() -> None:
    text = shown({"git": server(inFlight=3, recent=RECENT)}, Screen(width=200, colour=False))
    assert "since" in text
    assert "in flight  calls 5m  errors 5m  p50/p95 ms" in text
    assert text.splitlines()[1].split()[4:8] == ["3", "12", "2", "5.0/120"]
    assert "open:" not in text


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


def test_a_narrow_screen_does_without_the_least_important_columns() -> None:
    heads = [shown({LONG: BUSY}, Screen(width=width, colour=False)).splitlines()[0] for width in (80, 60, 40)]
    assert [head.split()[1:] for head in heads] == [
        ["state", "for", "tools", "open", "calls", "err", "p50/p95", "memory"],
        ["state", "for", "open", "calls", "err", "p50/p95"],
        ["state", "for", "open"],
    ]


def test_names_that_differ_in_the_middle_only_stay_whole() -> None:
    names = [f"{'a' * 30}-{number}-{'b' * 30}" for number in (1, 2)]
    text = shown(dict.fromkeys(names, BUSY), Screen(width=60, colour=False))
    assert "…" not in text
    assert shorten("abcdefghij", 7) == "abc…hij"
    assert shorten("日本語のサーバー", 7) == "日…ー"


ATTACK = "\x1b]0;owned\x07\u202e\u200b[red]bold[/red]\U000e0041"
SPELT = "\\x1b]0;owned\\x07\\u202e\\u200b[red]bold[/red]\\U000e0041"

DEGRADED = {"state": "degraded", "reason": "it lists no tools", "pid": 7}
STARTING = {"state": "starting", "reason": "trying again after: x", "attempt": 3, "nextRetryInMs": None}
FAULTS = {
    "quarantined": {"evil": "its schema is no object"}, "hidden": {"sly": "1 hidden character: U+202E"},
    "completed": ["bare", "bald"], "noise": {"count": 3, "first": "Listening on stdio"},
    "oneClientAtATime": True, "listingError": "timed out",
}  # fmt: skip
MODEL = {"asked": 3, "answered": 2, "sentences": 40, "refused": 0, "givenUp": 1, "waiting": 20}
OVER = {"outages": 1, "awaySeconds": 10_800.0, "changed": [], "came": [], "went": []}


@pytest.mark.parametrize(
    ("servers", "more", "said"),
    [
        ({"db": down(attempt=4, nextRetryInMs=12_400, stderr=["Traceback:", "\tImportError: no pg"])}, {},
            ["db: backoff\n  exited with status 1\n  attempt 4, next retry in 12s\n  stderr| Traceback:",
            "stderr|         ImportError: no pg"]),
        ({"old": down(state="failed", reason="", nextRetryInMs=None)}, {},
            ["old: failed\n  no reason is known\n  attempt 1, no retry is scheduled"]),
        ({"db": down(**DEGRADED, attempt=3, nextRetryInMs=12_400)}, {},
            ["it lists no tools\n  asked for its tools 3 times so far, again in 12s\n"]),
        ({"db": down(**DEGRADED, attempt=0, nextRetryInMs=None)}, {}, ["!retry", "!attempt"]),
        ({"db": server(tools=0, others=["prompts", "resources"])}, {},
            ["db: ready\n  it has no tools, only prompts and resources\n"]),
        ({"db": down(**STARTING)}, {}, ["trying again after: x\n  failed runs before this one: 3\n"]),
        ({"db": down(None, **{**STARTING, "reason": "", "state": "queued"})}, {},
            ["\n\ndb is starting.\n\n", "!no reason"]),
        ({"db": down(happened=f"It lacks {ATTACK}.", helps="Install it.")}, {},
            [f"  exited with status 1\n  It lacks {SPELT}.\n  What helps: Install it.\n  attempt 1,"]),
        ({"git": server(happened="It lacks x.", helps="Install it.")}, {}, ["!git: ready"]),
        ({"git": down(state="dormant", reason="idle", stderr=["bye"])}, {}, ["!git: dormant"]),
        ({"git": down(state="disabled", reason="idle", stderr=["bye"])}, {}, ["!git: disabled"]),
        ({"git": server(**FAULTS)}, {},
            ["git: ready", "tool evil is not offered: its schema is no object",
            "tool sly has 1 hidden character: U+202E: spelt out for models",
            '2 of its tools lack "type": "object" in the inputSchema',
            "3 lines on its stdout were not MCP; the first: Listening on stdio",
            "it serves one client at a time: what it asks", "its tools could not be listed: timed out"]),
        ({"git": server()}, {"unresolved": ["git/git_lgo", "x/y"], "switchedOff": ["fs", "git/git_log"]},
            ["offered by no server:\n  git/git_lgo\n  x/y",
            "Switched off by operators (`mcpd enable` switches on):\n  fs\n  git/git_log\n"]),
        ({}, {"metrics": metrics_of(estimatedTokensNotSent=-1_200)},
            ["No servers are configured.", "`mcpd lazy off` is cheaper.\n",
            "Since the start: loading on demand has cost about 1,200 tokens more than it saved"]),
        ({}, {"metrics": metrics_of(loadHits=0, loadMisses=0, extraRoundTrips=0)},
            ["!Since the start", "!Summaries"]),
        ({}, {"summarizer": {**MODEL, "lastError": f"it said {ATTACK}."}},
            ["Summaries by a model: 40 sentences; 20 to come; 1 without one; the last question failed: ",
            f"failed: it said {SPELT}.\n"]),
        ({}, {"summarizer": {**MODEL, "waiting": 0, "givenUp": 0, "lastError": ""}},
            ["Summaries by a model: 40 sentences.\n"]),
        ({"notes": server()}, {"lately": {"seconds": 43_200.0, "servers": {"notes": OVER}}},
            ["In the last 12h: notes was away 3h (mcpd events notes)\n"]),
    ],
)  # fmt: skip
def test_what_is_unusual_is_said_below_the_table_and_nothing_else(
    servers: dict[str, Any], more: dict[str, Any], said: list[str]
) -> None:
    text = shown(servers, PIPE, **more)
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


def shown_kept(**kept: Any) -> str:
    status = status_of({"git": server()})
    status["daemon"]["persistence"] = persistence(**kept)
    return render(status, now=NOW, screen=NARROW)


def test_that_nothing_is_kept_is_said_before_anything_else() -> None:
    text = shown_kept(state="degraded", waiting=3)
    said = "persistence: degraded: the disk is full\n  for 2h 5m; 3 things are not written yet\n\nserver"
    assert text.startswith(said)
    assert "1 thing is not written yet" in shown_kept(state="degraded", waiting=1)
    assert "degraded: no reason is known" in shown_kept(state="degraded", reason="")


def test_what_was_lost_is_said_although_all_is_kept_again() -> None:
    text = shown_kept(reason="the file was corrupt and is now mcpd.db.corrupt-1")
    assert text.startswith("persistence: ok: the file was corrupt and is now mcpd.db.corrupt-1\n\nserver")


def test_that_all_is_kept_needs_no_words() -> None:
    assert "persistence" not in shown_kept()


def test_that_nobody_will_know_what_is_left_is_said() -> None:
    status = status_of({"git": server()})
    status["daemon"]["unrecorded"] = "/state: no room"
    text = render(status, now=NOW, screen=Screen(width=120, colour=False))
    said = (
        "What is started is not written down (/state: no room): nobody ends what kill -9 would leave.\n\nserver"
    )
    assert text.startswith(said)


def test_keys_of_sessions_are_shown_where_there_is_any() -> None:
    session = session_of(**WORDS, since=NOW)
    text = shown({}, sessions=[{**session, "key": "/home/me/project"}, {**session, "number": 2, "key": None}])
    assert re.search(r"surface +key +since", text)
    assert re.search(r"#1 +x +x +x +x +/home/me/project +0s", text)
    assert re.search(r"#2 +x +x +x +x +- +0s", text)


def test_sessions_are_listed() -> None:
    session = session_of(number=3, since=NOW - 42, calls=7, inFlight=1)
    text = shown({"git": server()}, sessions=[session, {**session, "number": 4, "client": ""}])
    assert re.search(r"#3 +agent 1.0 +2025-06-18 +default +category +42s +7 +1\n", text)
    assert re.search(r"#4 +unnamed +2025", text)
    assert max(map(len, text.splitlines())) <= 80


def test_what_sessions_have_loaded_and_what_was_repaired_is_shown_where_there_is_any() -> None:
    session = session_of(**WORDS, since=NOW, loadedTools=3)
    text = shown({}, sessions=[session], repairs={"agent 1": {"flattened": 2, "stringified": 1}, "": {"x": 1}})
    assert re.search(r"in flight +loaded\n", text)
    assert re.search(r"#1 .* 5 +0 +3\n", text)
    assert "arguments of agent 1 that had to be repaired: 2 flattened, 1 stringified\n" in text
    assert "arguments of other clients that had to be repaired: 1 x" in text


def test_what_loading_cost_and_saved_is_told_in_words() -> None:
    counted = {
        "loads": 7, "loadHits": 1200, "loadMisses": 34, "invalidations": {"invalid_changed": 2,
        "invalid_renamed": 1}, "extraRoundTrips": 99, "estimatedTokensNotSent": 1_234_567,
    }  # fmt: skip
    assert (
        "Since the start: 7 tools loaded; 1,200 of 1,234 calls found theirs loaded;"
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
    assert "about 50,688 tokens saved in every conversation (an estimate), but for clients that" in text


@pytest.mark.parametrize(
    ("daemon", "said"),
    [
        ({"surfaceBytes": 204800, "estimatedTokensSaved": 0},
            "Models see all 120 tools of 200 KiB: nothing is saved."),
        ({"surfaceBytes": 2048, "offeredTools": 1, "offeredBytes": 1024, "estimatedTokensSaved": -256},
            "Models see 2 KiB instead of 1 tool of 1 KiB: about 256 tokens more (an estimate)."),
    ],
)  # fmt: skip
def test_what_saves_nothing_is_not_said_to(daemon: dict[str, object], said: str) -> None:
    status = status_of({})
    status["daemon"] |= daemon
    assert said in " ".join(render(status, now=NOW, screen=NARROW).split())


def test_sessions_say_what_they_were_spared_unless_that_does_not_apply() -> None:
    def session(number: int, spared: int | None) -> Any:
        savings = {"estimatedTokensNotSent": spared, "defersTools": spared is None}
        return session_of(number=number, client=f"client {number}", since=NOW, **savings)

    text = shown({}, PIPE, sessions=[session(1, 17_272), session(2, None), session(3, -40)])
    lines = [line.split() for line in text.splitlines() if line.startswith("#")]
    assert [line[-1] for line in lines] == ["17,272", "n/a", "-40"]
    assert (
        "saved (tokens, an estimate) does not apply to clients that defer tools themselves: client 2\n" in text
    )
    assert "saved" not in shown({}, PIPE, sessions=[session(1, 0)]).partition("\n\nmcpd")[0]


def test_whether_tools_are_shown_on_demand_is_said() -> None:
    status = status_of({"git": server()})
    status["daemon"] |= {"lazy": True, "surfaces": {"default": "category", ATTACK: "full"}}
    text = render(status, now=NOW, screen=PIPE)
    assert f"Lazy loading is on; by profile: default shows category, {SPELT} shows full.\n" in text


def test_a_pipe_gets_whole_lines_without_blanks_at_their_ends() -> None:
    reason = "a reason that goes on " * 30
    lines = shown({"git": down(reason=reason)}, PIPE).splitlines()
    assert f"  {reason.rstrip()}" in lines
    assert all(line == line.rstrip() for line in lines)


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
    status["daemon"]["persistence"] = persistence(state="degraded", reason=ATTACK)
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
    assert "\x1b" not in shown({"git": server(), "db": down()})
