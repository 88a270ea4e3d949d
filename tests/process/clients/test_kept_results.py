"""Results on disk: whose they are, how long they stay, and searches that go wrong."""

import json
import re
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import trio
import trio.lowlevel
from trio.testing import MockClock

from daemon import errors
from daemon.clients import kept_results
from daemon.clients.client import LOCAL_USER, Principal
from daemon.clients.kept_results import MAX_AGE, SWEEP_SECONDS, KeptResults
from daemon.processes import marks
from daemon.scripting import text_search
from daemon.surfaces.additions import FRAME
from daemon.surfaces.surface import ReadResult
from tests.waiting import PATIENCE

ROOM = 2000
WHOLE = json.dumps({"content": [{"type": "text", "text": "some words\n" * 900}]}).encode()


class Client:
    """A connection."""

    def __init__(self, principal: Principal = LOCAL_USER) -> None:
        self.principal, self.left, self.selection = principal, False, SimpleNamespace(most_bytes=ROOM)


def call(client: Client, key: str | None = None, profile: str = "default") -> Any:
    """A call of a session, or of a connection without one."""
    request = SimpleNamespace(key=key, profile=SimpleNamespace(name=profile))
    return SimpleNamespace(calls=SimpleNamespace(client=client), request=request, finished=None)


async def keep(results: KeptResults, call: Any, whole: bytes = WHOLE) -> str:
    """Keep a result; returns its id, empty if it passes whole."""
    call.finished = whole
    await results.keep(call, whole)
    if call.finished == whole:
        return ""
    uri: str = json.loads(call.finished)["content"][-1]["uri"]
    return uri.removeprefix("mcpd://results/")


async def read(results: KeptResults, call: Any, result_id: str, **asked: Any) -> str:
    """The first text of an answer."""
    await results.read(call, ReadResult(id=result_id, room=4000, **asked))
    found: str = json.loads(call.finished)["content"][0]["text"]
    return found


async def has(results: KeptResults, call: Any, result_id: str) -> bool:
    """Whether it can be read."""
    try:
        return await read(results, call, result_id) != ""
    except errors.ResultExpired:
        return False


@pytest.fixture
def results(tmp_path: Path) -> KeptResults:
    return KeptResults(tmp_path)


def stored(results: KeptResults) -> set[str]:
    """The ids in the file."""
    return {found for (found,) in results._opened().execute("SELECT id FROM kept")}


# --- whose they are ------------------------------------------------------------------------------------------


async def test_a_result_is_its_sessions_else_its_connections_else_its_tokens(results: KeptResults) -> None:
    mine, again, other = Client(), Client(), Client()
    found = await keep(results, call(mine, "a"))
    assert await has(results, call(again, "a"), found)
    for stranger in (call(mine, "b"), call(other), call(mine), call(mine, "a", profile="small")):
        assert not await has(results, stranger, found)
    # Without a session.
    found = await keep(results, call(mine))
    assert [await has(results, call(each), found) for each in (mine, other)] == [True, False]
    # Where connections carry one request each.
    one, two = (Principal(owner=f"token {name}: ", token=name, keeps=False) for name in ("one", "two"))
    found = await keep(results, call(Client(one)))
    assert [await has(results, call(Client(each)), found) for each in (one, two)] == [True, False]


def names_and_modes(directory: Path) -> tuple[list[str], list[int]]:
    """The names in a directory, and the modes of this process' open files that have, or had, one there."""
    modes = []
    for each in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # the descriptor of this listing
            if str(each.readlink()).startswith(f"{directory}/"):
                modes.append(each.stat().st_mode & 0o777)
    return [each.name for each in directory.iterdir()], modes


async def test_ids_are_long_and_guessing_does_not_help_and_the_file_is_private(
    results: KeptResults, tmp_path: Path
) -> None:
    mine = call(Client())
    found = {await keep(results, mine) for _ in range(3)}
    assert {len(each) for each in found} == {32}
    assert stored(results) == found
    assert not await has(results, mine, "../secret")
    assert names_and_modes(tmp_path) == ([], [0o600])


# --- how long they stay --------------------------------------------------------------------------------------


async def test_all_sessions_together_have_a_bound_and_the_largest_lose_their_oldest(
    results: KeptResults, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept_results, "MAX_ALL_BYTES", 5 * len(WHOLE))
    client = Client()
    small = [await keep(results, call(client, "small"))]
    large = [await keep(results, call(client, key)) for key in ("b", "b", "b", "c", "b", "d")]
    kept = [each for each in (*small, *large) if each in stored(results)]
    assert kept == [*small, *large[2:]]
    monkeypatch.setattr(kept_results, "MAX_ALL_BYTES", 1)
    assert [await keep(results, call(client))] == list(stored(results))


async def leap(clock: MockClock, seconds: float, done: Callable[[], bool]) -> None:
    """Let that time pass, and what a thread does of it."""
    await trio.testing.wait_all_tasks_blocked()
    clock.jump(seconds)
    while not done():
        await trio.lowlevel.checkpoint()


async def test_a_result_leaves_an_hour_after_its_last_use(
    results: KeptResults, mock_clock: MockClock, nursery: trio.Nursery
) -> None:
    nursery.start_soon(results.run)
    await trio.testing.wait_all_tasks_blocked()
    mine = call(Client())
    found = await keep(results, mine)
    mock_clock.jump(MAX_AGE - 1)
    assert await has(results, mine, found)
    mock_clock.jump(MAX_AGE - 1)
    assert await has(results, mine, found)
    mock_clock.jump(MAX_AGE)
    assert not await has(results, mine, found)
    assert not stored(results)
    await keep(results, mine)
    await leap(mock_clock, MAX_AGE + SWEEP_SECONDS, lambda: not stored(results))


async def test_it_leaves_with_its_connection(
    results: KeptResults, mock_clock: MockClock, nursery: trio.Nursery
) -> None:
    nursery.start_soon(results.run)
    await trio.testing.wait_all_tasks_blocked()
    mine, other = Client(), Client()
    await keep(results, call(mine))
    stays = await keep(results, call(other))
    mine.left = True
    await leap(mock_clock, SWEEP_SECONDS, lambda: stored(results) == {stays})


async def test_the_oldest_leaves_where_a_session_has_too_many_bytes(
    results: KeptResults, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept_results, "MAX_BYTES", 2 * len(WHOLE))
    mine, other = call(Client(), "a"), call(Client(), "b")
    theirs = await keep(results, other)
    first, second, third = [await keep(results, mine) for _ in range(3)]
    assert [await has(results, mine, each) for each in (first, second, third)] == [False, True, True]
    assert await has(results, other, theirs)
    assert stored(results) == {theirs, second, third}


async def test_a_file_that_can_no_longer_be_changed_costs_results_alone(
    results: KeptResults, mock_clock: MockClock
) -> None:
    mine = call(Client())
    found = await keep(results, mine)
    results._opened().close()
    assert [await keep(results, mine), await has(results, mine, found)] == ["", False]
    results._expire(MAX_AGE + mock_clock.current_time())


# --- what cannot be kept -------------------------------------------------------------------------------------


async def test_what_cannot_be_written_passes_whole_and_that_is_logged_once(said: list[str]) -> None:
    results = KeptResults()
    assert [await keep(results, call(Client())) for _ in range(2)] == ["", ""]
    (line,) = said
    assert "cannot be kept" in line


async def test_what_is_no_result_passes_unchanged(results: KeptResults) -> None:
    assert await keep(results, call(Client()), b'{"content":1,"x":"' + b"y" * 9000 + b'"}') == ""
    assert not stored(results)


# --- pieces --------------------------------------------------------------------------------------------------


async def test_pieces_end_with_lines_and_are_the_whole_together(results: KeptResults) -> None:
    text = "".join(f"{number}: für jede Zeile\n" for number in range(500)) + "x" * 9000 + "\nend"
    mine = call(Client())
    found = await keep(results, mine, json.dumps({"content": [{"type": "text", "text": text}]}).encode())
    start, _, end, _ = json.loads(mine.finished)["content"]
    assert start["text"].endswith("Zeile\n")
    assert text.startswith(start["text"])
    assert text.endswith(end["text"])
    pieces, note = list[str](), "go on with offset 0]"
    while more := re.search(r"go on with offset (\d+)\]$", note):
        at, most = int(more[1]), 1000 if len(pieces) == 1 else 10**6
        pieces.append(await read(results, mine, found, offset=at, limit=most))
        note = json.loads(mine.finished)["content"][1]["text"]
    assert "".join(pieces) == text
    assert {each[-6:] for each in pieces[:2]} == {"Zeile\n"}
    # There is no line end near.
    assert any(each.endswith("xx") for each in pieces)


async def test_the_last_part_of_a_result_begins_with_a_line(results: KeptResults) -> None:
    mine = call(Client())
    await keep(results, mine)
    end = json.loads(mine.finished)["content"][2]["text"]
    assert set(end.splitlines()) == {"some words"}


# --- searches ------------------------------------------------------------------------------------------------


async def searched(results: KeptResults, said: str, **asked: Any) -> str:
    """What a search finds in a text."""
    mine = call(Client())
    found = await keep(results, mine, json.dumps({"content": [{"type": "text", "text": said}]}).encode())
    return await read(results, mine, found, **asked)


LONG = " " * ROOM + "\n"


async def test_grep_gives_lines_with_number_and_offset(results: KeptResults) -> None:
    assert await searched(results, f"{LONG}é one\ntwo\none more", grep="^(é )?one") == (
        f"2:{len(LONG)}:é one\n4:{len(LONG) + 11}:one more\n"
    )
    assert await searched(results, LONG, grep="none") == ""


async def test_of_a_long_line_grep_shows_what_is_around_the_match(results: KeptResults) -> None:
    line = "é" * 5000 + "here" + "é" * 5000
    number, offset, shown = (await searched(results, f"{LONG}{line}", grep="here")).split(":")
    assert number == "2"
    assert "here" in shown
    assert len(shown.encode()) <= FRAME
    assert line.encode()[int(offset) - len(LONG) :].decode(errors="ignore").startswith(shown.rstrip("\n"))


async def test_grep_takes_no_longer_for_a_catastrophic_pattern(results: KeptResults) -> None:
    assert await searched(results, "a" * 100_000, grep="(a*)*(a|aa)+b$") == ""


async def test_answers_of_searches_are_bounded(results: KeptResults) -> None:
    for found in (
        await searched(results, '"\\\n' * 9000, grep="."),
        await searched(results, json.dumps([*range(9000)]), jq=".[]"),
        await searched(results, json.dumps(['"' * 9000]), jq="."),
    ):
        assert len(json.dumps(found)) <= 4000 - FRAME + 2


def test_a_search_gives_the_daemon_little_more_than_its_room_and_leaves_no_mark() -> None:
    before = marks.living()
    for program in ('"x" * 1000000', "[range(100000)]"):
        assert len(text_search.search(b"{}", 1000, None, program)) <= 1002
    assert marks.living() == before


@pytest.mark.parametrize("program", ["def f: f; f", '"a" * 1e9', "[limit(1e9; repeat(1))] | length"])
async def test_a_program_without_an_end_is_ended(
    results: KeptResults, program: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(text_search, "SECONDS", 0.5)
    with pytest.raises(errors.InvalidArguments) as refusal:
        await searched(results, f"[1]{LONG}", jq=program)
    assert "search for less" in refusal.value.message or "too large" in refusal.value.message


async def test_a_program_without_bounds_on_its_memory_is_ended_by_its_own_limits(
    results: KeptResults, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(text_search, "SECONDS", PATIENCE)
    with pytest.raises(errors.InvalidArguments, match="search for less"):
        await searched(results, f"[1]{LONG}", jq='[range(100) | "a" * 1e7 + tostring] | length')


async def test_a_program_reads_no_file_and_no_environment(
    results: KeptResults, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET_OF_THE_DAEMON", "s3cret")
    (tmp_path / "secret.json").write_text('"s3cret"')
    named = json.dumps(str(tmp_path))
    with pytest.raises(errors.InvalidArguments, match="Could not open"):
        await searched(results, f"[1]{LONG}", jq=f'import "secret" as $s {{search: {named}}}; $s')
    assert "s3cret" not in await searched(results, f"[1]{LONG}", jq="env, $ENV, input_filename")


@pytest.mark.parametrize(
    ("asked", "words"),
    [({"jq": ".a |"}, "syntax error"), ({"jq": ".a.b"}, "Cannot index"), ({"grep": "(é"}, "^missing .* .é$")],
)
async def test_a_fault_is_told(results: KeptResults, asked: dict[str, str], words: str) -> None:
    with pytest.raises(errors.InvalidArguments, match=words):
        await searched(results, f"[1]{LONG}", **asked)


async def test_without_its_package_jq_names_the_extra(
    results: KeptResults, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hidden = tmp_path / "without_jq.py"
    hidden.write_text(
        "import runpy, sys\n"
        "class Hides:\n"
        "    def find_spec(self, name, *_):\n"
        "        if name == 'jq':\n"
        "            raise ModuleNotFoundError(f'No module named {name!r}')\n"
        "sys.meta_path.insert(0, Hides())\n"
        "runpy.run_module(sys.argv[1], run_name='__main__', alter_sys=True)\n"
    )
    monkeypatch.setattr(text_search, "PROGRAM", (sys.executable, "-P", str(hidden), text_search.PROGRAM[-1]))
    with pytest.raises(errors.InvalidArguments, match=r"mcpd-supervisor\[code\]"):
        await searched(results, f"[1]{LONG}", jq=".")
