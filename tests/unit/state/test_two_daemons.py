"""Two daemons on one store: whatever their servers list and operators say, both come to rest."""

import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from daemon.catalog.snapshot import Catalog, fold
from daemon.config.state_url import of_file
from daemon.facts import Fact, Summarized
from daemon.kit.waiting import Watch
from daemon.model import Summary
from daemon.state.poll import Recalling
from daemon.state.server_notes import ServerNotes
from daemon.state.store import Store
from tests.unit.catalog.one_server import BEGUN, CONFIG, UP, different
from tests.unit.catalog.samples import configured, listed, switched


class Daemon:
    """What writes and reads the store in a daemon, with its catalog."""

    def __init__(self, store: Store, catalog: Catalog) -> None:
        self.store = store
        self.catalog = Watch(catalog)
        self.version = 0
        self.notes = ServerNotes()
        self.recalling = Recalling(
            self.notes,
            catalog=self.catalog,
            tell=self.tell,
            settle=trio.lowlevel.checkpoint,
            where="here",
            wall=lambda: 0.0,
        )

    def tell(self, fact: Fact) -> None:
        self.catalog.set(fold(self.catalog.value, fact))

    def write(self) -> bool:
        """Write what differs. Returns whether anything did."""
        difference = self.notes.difference(self.catalog.value)
        if difference:
            written = self.store.keep(difference.batch)
            self.notes.was_written(difference, written.epochs)
            self.recalling.epochs(difference.batch.servers, written.epochs)
        return bool(difference)

    def read(self) -> None:
        """Take in what the other wrote."""
        changes = self.store.changes_since(self.version, on_switched=self.recalling.switches)
        self.version = changes.version
        if changes.names is not None:
            self.recalling.names(changes.names, shared=True)
        self.recalling.servers(changes.servers, changes.unreadable)

    def epochs(self) -> dict[str, int]:
        return {record.server: record.epoch for record in self.store.recall().servers}


def come_to_rest(daemons: Sequence[Daemon], at_most: int = 10) -> None:
    """Let daemons write and read in turns until nobody has anything to say."""
    for _ in range(at_most):
        wrote = [daemon.write() for daemon in daemons]
        for daemon in daemons:
            daemon.read()
        if not any(wrote):
            return
    raise AssertionError(f"still talking after {at_most} rounds: {daemons[0].store.recall().servers}")


def two(used: ExitStack, catalog: Catalog) -> list[Daemon]:
    path = Path(used.enter_context(tempfile.TemporaryDirectory(prefix="mcpd-"))) / "state" / "state.db"
    stores = [Store.open(of_file(path), writer=name) for name in "ab"]
    for store in stores:
        used.callback(store.close)
    return [Daemon(store, catalog) for store in stores]


OURS, THEIRS = different("log"), different("log", "add")


def summed(text: str, at: int) -> Summarized:
    said = Summary(text=text, at=at)
    return Summarized(server="git", summary=said, sentences={each.schema_hash: said for each in THEIRS})


HAPPENINGS = st.one_of(
    st.sampled_from([listed("git", *OURS), listed("git", *THEIRS), listed("git"), listed("git", "new")]),
    st.sampled_from([switched(), switched("git"), switched("git/log"), switched("fs")]),
    st.sampled_from([configured(CONFIG), configured({"mcpServers": {"git": {"command": "another"}}})]),
    st.builds(summed, st.sampled_from(["one", "two"]), st.integers(0, 3)),
)
LIVES = st.lists(st.tuples(st.integers(0, 1), HAPPENINGS), max_size=8)


@settings(max_examples=min(25, settings().max_examples))
@given(LIVES, LIVES)
def test_two_daemons_on_one_store_always_come_to_rest(
    earlier: list[tuple[int, Fact]], later: list[tuple[int, Fact]]
) -> None:
    with ExitStack() as used:
        daemons = two(used, BEGUN)
        for facts in (earlier, later):
            before = daemons[0].epochs()
            for which, fact in facts:
                daemons[which].tell(fact)
            come_to_rest(daemons)
            now = daemons[0].epochs()
            assert all(now[name] >= epoch for name, epoch in before.items())


def test_two_daemons_whose_servers_list_the_same_agree_on_the_epoch() -> None:
    with ExitStack() as used:
        daemons = two(used, UP)
        come_to_rest(daemons)
        for daemon in daemons:
            daemon.tell(listed("git", "log"))
        come_to_rest(daemons)
        daemons[0].tell(switched("git/log"))
        come_to_rest(daemons)
        assert [daemon.catalog.value.servers["git"].epoch for daemon in daemons] == [3, 3]
