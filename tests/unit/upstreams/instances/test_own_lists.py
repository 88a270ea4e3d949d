"""What one instance lists, beside what the catalog has of its server."""

import pytest

from daemon.catalog.snapshot import Catalog, begin, fold
from daemon.facts import DefinitionsListed, Fact, ServerStatus, StatusChanged
from daemon.model import Kind
from daemon.states import ServerState
from daemon.upstreams.server_instances import OwnLists
from tests.fakes_upstream import tools_of
from tests.unit.config.reading import config_of


class Registry:
    """A catalog that instances tell."""

    def __init__(self) -> None:
        config = config_of({"mcpServers": {"s": {"command": "run", "share": "session"}}})
        status = ServerStatus(state=ServerState.READY, incarnation=4)
        self.catalog = fold(begin(config, 0.0), StatusChanged(server="s", status=status))
        self.told: list[Fact] = []

    def tell(self, fact: Fact) -> None:
        self.told.append(fact)
        self.catalog = fold(self.catalog, fact)

    def instance(self, run: int = 4) -> OwnLists:
        return OwnLists("s", self.tell, lambda: run)


@pytest.fixture
def registry() -> Registry:
    return Registry()


def listed(*names: str, incarnation: int = 1) -> DefinitionsListed:
    return DefinitionsListed(
        kind=Kind.TOOL, server="s", incarnation=incarnation, definitions=tools_of("s", *names)
    )


def tools(catalog: Catalog) -> list[str]:
    return list(catalog.servers["s"].tools or ())


def test_what_an_instance_lists_counts_for_its_server_whatever_run_of_its_own_it_is(registry: Registry) -> None:
    registry.instance().tell(listed("a"))
    assert tools(registry.catalog) == ["a"]
    assert [fact.incarnation for fact in registry.told if isinstance(fact, DefinitionsListed)] == [4]


def test_instances_that_list_the_same_have_the_catalog_of_all(registry: Registry) -> None:
    one, other = registry.instance(), registry.instance()
    for each in (one, other):
        each.tell(listed("a"))
    assert one.own_catalog(registry.catalog) is other.own_catalog(registry.catalog) is registry.catalog


def test_one_that_lists_something_else_than_the_last_has_a_catalog_of_its_own(registry: Registry) -> None:
    one, other = registry.instance(), registry.instance()
    one.tell(listed("a"))
    other.tell(listed("a", "b"))
    assert tools(registry.catalog) == ["a", "b"]
    assert other.own_catalog(registry.catalog) is registry.catalog
    own = one.own_catalog(registry.catalog)
    assert tools(own) == ["a"]
    assert own is one.own_catalog(registry.catalog)
    assert tools(registry.catalog) == ["a", "b"]


def test_a_list_that_failed_takes_nothing_away(registry: Registry) -> None:
    one = registry.instance()
    one.tell(listed("a"))
    one.tell(DefinitionsListed(kind=Kind.TOOL, server="s", incarnation=1, problem="refused"))
    assert registry.catalog.servers["s"].tool_list.problem == "refused"
    assert tools(one.own_catalog(registry.catalog)) == ["a"]


def test_what_is_gone_tells_nothing_and_has_nothing_of_its_own(registry: Registry) -> None:
    one = registry.instance()
    one.tell(listed("a"))
    one.forget()
    one.tell(listed("z"))
    assert tools(registry.catalog) == ["a"]
    assert one.own_catalog(registry.catalog) is registry.catalog


def test_a_server_that_left_the_configuration_leaves_its_instances_the_catalog(registry: Registry) -> None:
    one = registry.instance()
    one.tell(listed("a"))
    without = begin(config_of({}), 0.0)
    assert one.own_catalog(without) is without
