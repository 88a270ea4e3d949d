"""What the store remembers of a server; and two daemons that share what they remember."""

from collections.abc import Sequence
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemon.catalog.entry import EMPTIED, ServerEntry
from daemon.catalog.snapshot import Catalog, fold
from daemon.facts import DefinitionsListed, Fact, ServerRecord, Summarized
from daemon.model import Kind, Summary
from tests.unit.catalog.one_server import ANOTHER, BEGUN, CONFIG, UP, as_seen, different, git, names
from tests.unit.catalog.samples import (
    after,
    configured,
    definition,
    listed,
    prompts,
    recalled,
    status,
    switched,
)

# --- what is remembered --------------------------------------------------------------------------------------


def test_before_any_list_the_remembered_tools_are_served() -> None:
    catalog = fold(BEGUN, recalled("git", "log", "add"))
    assert as_seen(catalog) == (["log", "add"], 5, True)
    assert list(catalog.categories["git"].members) == ["log", "add"]
    assert not git(catalog).usable
    assert not git(catalog).awaits(Kind.TOOL)


def test_a_remembered_server_that_lists_the_same_goes_on_with_its_epoch() -> None:
    catalog = after(BEGUN, [recalled("git", "log", "add"), status("git"), listed("git", "add", "log")])
    assert as_seen(catalog) == (["log", "add"], 5, False)


@pytest.mark.parametrize("now", [["log"], ["log", "add", "show"], []])
def test_a_remembered_server_that_lists_others_rises_by_one(now: list[str]) -> None:
    catalog = after(BEGUN, [recalled("git", "log", "add"), listed("git", *now)])
    assert as_seen(catalog) == (now, 6, False)


def nothing(*, first: bool, incarnation: int = 2) -> DefinitionsListed:
    return DefinitionsListed(kind=Kind.TOOL, server="git", incarnation=incarnation, definitions=(), first=first)


@pytest.mark.parametrize("known", [UP, after(BEGUN, [recalled("git", "log", "add", epoch=1)])])
def test_a_server_that_comes_back_with_nothing_keeps_what_is_known(known: Catalog) -> None:
    catalog = fold(known, nothing(first=True))
    assert (names(catalog), git(catalog).epoch, git(catalog).tool_list.problem) == (
        ["log", "add"],
        1,
        EMPTIED.format("tool"),
    )
    assert fold(catalog, nothing(first=True)) is catalog
    listing = fold(catalog, listed("git", "log", incarnation=2))
    assert (names(listing), git(listing).epoch, git(listing).tool_list.problem) == (["log"], 2, "")


def test_a_server_that_lets_go_of_what_it_has_listed_has_nothing() -> None:
    catalog = fold(UP, nothing(first=False))
    assert (names(catalog), git(catalog).epoch, git(catalog).tool_list.problem) == ([], 2, "")


def test_a_memory_that_comes_after_another_list_makes_that_a_change() -> None:
    assert as_seen(fold(UP, recalled("git", "log"))) == (["log", "add"], 6, False)


def test_tools_of_another_configuration_are_not_its_own() -> None:
    catalog = fold(BEGUN, recalled("git", "log", of=ANOTHER))
    assert as_seen(catalog) == (None, 5, False)
    assert as_seen(fold(catalog, listed("git", "log"))) == (["log"], 6, False)


def test_an_epoch_that_was_ahead_of_the_memory_meant_something_else() -> None:
    back = after(UP, [configured({"mcpServers": {"git": {"command": "other"}}}), configured(CONFIG)])
    assert as_seen(back) == (None, 2, False)
    assert as_seen(fold(back, recalled("git", "log", "add", epoch=1))) == (["log", "add"], 3, True)
    assert as_seen(fold(back, recalled("git", "log", "add", epoch=2))) == (["log", "add"], 2, True)


# --- what another daemon writes ------------------------------------------------------------------------------


def test_what_another_daemon_lists_is_taken_until_the_own_server_has_listed() -> None:
    catalog = fold(BEGUN, recalled("git", "log", epoch=5))
    newer = fold(catalog, recalled("git", "log", "add", epoch=6, by_another=True))
    assert as_seen(newer) == (["log", "add"], 6, True)
    assert fold(newer, recalled("git", "log", epoch=5, by_another=True)) is newer


def test_a_record_without_lists_still_raises_the_epoch() -> None:
    assert git(fold(UP, recalled("git", epoch=9, listed=False))).epoch == 9


def test_an_epoch_that_another_daemon_gave_to_other_tools_is_not() -> None:
    assert fold(UP, recalled("git", "log", epoch=9, by_another=True)) is UP
    assert fold(UP, recalled("git", "log", "add", epoch=9, of=ANOTHER, by_another=True)) is UP


def test_one_change_that_two_daemons_see_is_one_change() -> None:
    told = fold(UP, recalled("git", "log", "add", "new", epoch=2, by_another=True))
    assert git(fold(told, listed("git", "log", "add", "new"))).epoch == 2


@attrs.define
class Store:
    """What two daemons share: a row per server, with the store's rule for epochs."""

    rows: dict[str, tuple[str, ServerRecord]] = attrs.field(factory=dict)

    def write(self, writer: str, entry: ServerEntry) -> int:
        """Keep an entry; returns the epoch that it has got."""
        new = _record(entry)
        old_writer, old = self.rows.get(entry.name, ("", None))
        if old is None:
            self.rows[entry.name] = writer, new
            return new.epoch
        epoch = max(old.epoch, new.epoch)
        known = Kind.TOOL in new.lists
        if known and old.epoch >= new.epoch and _contents(old) != _contents(new):
            mine = old_writer == writer and old.epoch == new.epoch
            epoch = old.epoch if mine else old.epoch + 1
        self.rows[entry.name] = writer, attrs.evolve(new if known else old, epoch=epoch)
        return epoch


@attrs.define
class Daemon:
    """What matters here of a daemon: its catalog, and what it has written and read."""

    name: str
    catalog: Catalog
    written: dict[str, ServerEntry] = attrs.field(factory=dict)

    def write(self, store: Store) -> bool:
        """Write what changed. Returns whether anything did."""
        wrote = False
        for name in self.catalog.servers:
            entry = self.catalog.servers[name]
            if (entry.tools is None and not entry.epoch) or _same(self.written.get(name), entry):
                continue
            wrote = True
            epoch = store.write(self.name, entry)
            told = recalled(name, epoch=epoch, of=entry.fingerprint, listed=False, by_another=True)
            self.catalog = fold(self.catalog, told)
            self.written[name] = self.catalog.servers[name]
        return wrote

    def read(self, store: Store) -> None:
        """Take in what the other wrote."""
        for writer, record in store.rows.values():
            if writer != self.name:
                self.catalog = fold(self.catalog, attrs.evolve(record, by_another=True))


def _record(entry: ServerEntry) -> ServerRecord:
    return ServerRecord(
        server=entry.name,
        fingerprint=entry.fingerprint,
        epoch=entry.epoch,
        lists={} if entry.tools is None else {Kind.TOOL: tuple(entry.tools.values())},
        summary=entry.summary,
        sentences=entry.sentences,
    )


def _contents(record: ServerRecord) -> set[str] | None:
    tools = record.lists.get(Kind.TOOL)
    return None if tools is None else {each.schema_hash for each in tools}


def _same(one: ServerEntry | None, other: ServerEntry) -> bool:
    return one is not None and _record(one) == _record(other)


def rounds_until_quiet(daemons: Sequence[Daemon], store: Store, *, at_most: int = 10) -> int:
    """Let daemons write and read in turns until nobody has anything to say."""
    for round_ in range(at_most):
        wrote = [daemon.write(store) for daemon in daemons]
        for daemon in daemons:
            daemon.read(store)
        if not any(wrote):
            return round_
    raise AssertionError(f"still talking after {at_most} rounds: {store.rows}")


def said(content: str, at: float, of: str = "") -> Summary:
    return Summary(text=content, at=at, of=of)


OURS, THEIRS = different("log"), different("log", "add")
SUMMARIES = st.builds(
    lambda content, at: Summarized(
        server="git",
        summary=said(content, at),
        sentences={each.schema_hash: said(content, at) for each in THEIRS},
    ),
    st.sampled_from(["one", "two"]),
    st.integers(0, 3),
)
HAPPENINGS = st.one_of(
    st.sampled_from([listed("git", *OURS), listed("git", *THEIRS), listed("git"), listed("git", "new")]),
    st.sampled_from([switched(), switched("git"), switched("git/log"), switched("fs")]),
    st.sampled_from([configured(CONFIG), configured({"mcpServers": {"git": {"command": "another"}}})]),
    SUMMARIES,
)


@given(
    st.lists(st.tuples(st.integers(0, 1), HAPPENINGS), max_size=8),
    st.lists(st.tuples(st.integers(0, 1), HAPPENINGS), max_size=8),
)
def test_two_daemons_on_one_store_always_come_to_rest(
    earlier: list[tuple[int, Fact]], later: list[tuple[int, Fact]]
) -> None:
    store, daemons = Store(), [Daemon("a", BEGUN), Daemon("b", BEGUN)]
    for facts in (earlier, later):
        for which, fact in facts:
            daemons[which].catalog = fold(daemons[which].catalog, fact)
        before = {name: record.epoch for name, (_, record) in store.rows.items()}
        rounds_until_quiet(daemons, store)
        assert all(store.rows[name][1].epoch >= epoch for name, epoch in before.items())


def test_two_daemons_whose_servers_list_the_same_agree_on_the_epoch() -> None:
    store, daemons = Store(), [Daemon("a", UP), Daemon("b", UP)]
    rounds_until_quiet(daemons, store)
    for daemon in daemons:
        daemon.catalog = after(daemon.catalog, [listed("git", "log"), switched("git/log")])
        rounds_until_quiet(daemons, store)
    assert [git(daemon.catalog).epoch for daemon in daemons] == [3, 3]


# --- what a model said ---------------------------------------------------------------------------------------


def test_sentences_leave_with_their_tools_and_strangers_are_not_kept() -> None:
    log, add = different("log", "add")
    sentences = {each.schema_hash: said("x", 1) for each in (log, add)} | {"0" * 64: said("y", 1)}
    catalog = after(BEGUN, [listed("git", log, add), Summarized(server="git", sentences=sentences)])
    assert set(git(catalog).sentences) == {log.schema_hash, add.schema_hash}
    assert set(git(fold(catalog, listed("git", add))).sentences) == {add.schema_hash}


@pytest.mark.parametrize(("tools", "newest"), [(["log"], said("b", 2)), (["log", "add"], said("a", 1))])
def test_a_later_summary_is_taken_only_if_it_is_of_the_same_tools(tools: list[str], newest: Summary) -> None:
    ours = Summarized(server="git", summary=said("a", 1), sentences={})
    theirs = recalled("git", *tools, summary=said("b", 2), by_another=True)
    assert git(after(BEGUN, [listed("git", "log"), ours, theirs])).summary == newest


# --- what is remembered of other lists -----------------------------------------------------------------------


def memory(
    *of_prompts: str, epoch: int = 5, tools: tuple[str, ...] = ("log", "add"), **more: Any
) -> ServerRecord:
    """The store remembers these prompts beside some tools."""
    listing = tuple(definition(Kind.PROMPT, "git", each) for each in of_prompts)
    return recalled("git", *tools, epoch=epoch, lists={Kind.PROMPT: listing}, **more)


def told(catalog: Catalog) -> tuple[list[str], int]:
    """Its prompts, and its epoch."""
    known = git(catalog).lists.get(Kind.PROMPT)
    return list(known.definitions if known else ()), git(catalog).epoch


def test_a_server_that_lists_the_remembered_prompts_goes_on_with_its_epoch() -> None:
    catalog = after(BEGUN, [memory("plan"), status("git"), listed("git", "log", "add"), prompts("git", "plan")])
    assert told(catalog) == (["plan"], 5)
    assert not git(catalog).lists[Kind.PROMPT].recalled
    assert told(fold(catalog, prompts("git", "plan", "review"))) == (["plan", "review"], 6)


def test_a_memory_of_prompts_that_comes_late_changes_no_list_and_never_repeats_an_epoch() -> None:
    listing = after(UP, [prompts("git", "review")])
    assert told(listing) == (["review"], 2)
    assert told(fold(listing, memory("review"))) == (["review"], 5)
    assert told(fold(listing, memory("plan"))) == (["review"], 6), "at 5 it listed others"
    assert told(fold(listing, memory("plan", epoch=1))) == (["review"], 2)


def test_newer_prompts_of_another_daemon_are_taken_until_the_own_server_has_listed() -> None:
    catalog = fold(BEGUN, memory("plan"))
    assert told(fold(catalog, memory("review", epoch=6, by_another=True))) == (["review"], 6)
    own = fold(catalog, prompts("git", "plan"))
    assert told(fold(own, memory("review", epoch=6, by_another=True)))[0] == ["plan"]
