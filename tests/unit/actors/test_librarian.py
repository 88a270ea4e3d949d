"""The librarian: the index follows the catalog, and a fault of ours does not end it."""

from collections.abc import Mapping

import trio

from daemon.actors.librarian import Librarian
from daemon.catalog.snapshot import ServerEntry
from daemon.config.config_model import Search
from daemon.search.index import Index
from tests.fakes_upstream import Stage, tool


class Refusing(Index):
    """An index with a bug that hits once."""

    failures = 0

    def updated(self, servers: Mapping[str, ServerEntry]) -> Index:
        Refusing.failures += 1
        if Refusing.failures == 1:
            raise ZeroDivisionError
        return super().updated(servers)


async def test_a_fault_while_indexing_costs_one_round_and_not_the_daemon(nursery: trio.Nursery) -> None:
    stage = Stage()
    librarian = Librarian(stage.catalog, Search())
    librarian.index.set(Refusing())
    nursery.start_soon(librarian.run)
    with trio.fail_after(30):
        while Refusing.failures == 0:
            await trio.lowlevel.checkpoint()
        stage.lists("alpha", "brand_new")
        await librarian.index.wait_until(lambda index: index.covers(stage.catalog.value.servers))
    (hit,) = librarian.index.value.search(["brand_new"]).hits
    assert hit.key == ("alpha", "brand_new")


async def test_with_the_extra_tools_are_found_by_meaning_once_the_vectors_are_there(
    nursery: trio.Nursery,
) -> None:
    stage = Stage()
    stage.lists("alpha", tool("t1", description="Rents a bicycle."), "x")
    librarian = Librarian(stage.catalog, Search(semantic=True))
    nursery.start_soon(librarian.run)

    def finds(index: Index) -> bool:
        return [hit.key for hit in index.search(["bike"]).hits][:1] == [("alpha", "t1")]

    with trio.fail_after(30):
        await librarian.index.wait_until(finds)
        stage.lists("beta", "brand_new")
        await librarian.index.wait_until(lambda index: index.covers(stage.catalog.value.servers))
        await librarian.index.wait_until(finds)


async def test_a_model_that_is_not_there_leaves_a_search_by_words_and_a_warning(
    nursery: trio.Nursery, said: list[str]
) -> None:
    stage = Stage()
    librarian = Librarian(stage.catalog, Search(semantic=True, model="/nowhere"))
    nursery.start_soon(librarian.run)
    with trio.fail_after(30):
        await librarian.index.wait_until(lambda index: index.covers(stage.catalog.value.servers))
        while not said:
            await trio.lowlevel.checkpoint()
    assert "tools are found by words only: " in said[0]
    assert "/nowhere" in said[0]
    assert librarian.index.value.search(["echo"]).hits
