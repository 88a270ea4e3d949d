"""What the tests of surfaces share: a view of a catalog, and what comes out of a call."""

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import msgspec
import pytest

from daemon.catalog.loaded import Loaded
from daemon.catalog.offer import Offers
from daemon.catalog.snapshot import Catalog
from daemon.errors import CallError
from daemon.model import ToolKey
from daemon.search.index import Index
from daemon.surfaces.surface import Action, Forward, Reply, Services, Surface, View
from daemon.surfaces.table import SURFACES, for_profile
from tests.unit.config.reading import config_of

NOW = 2000.0

INDEX_CHARACTERS = 6000
"""The default of `limits.indexCharacters`."""


_READS = config_of({"profiles": {"p": {"readResource": True}}}).profiles["p"]

READING = {name: for_profile(surface, _READS) for name, surface in SURFACES.items()}
"""The surfaces of a profile that asks for `read_resource`."""


def means_of(
    catalog: Catalog,
    *,
    characters: int = INDEX_CHARACTERS,
    indexed: bool = True,
    called: Sequence[ToolKey] = (),
) -> Services:
    """What surfaces work with: an index that knows the catalog, made when it is asked for, or nothing yet."""
    index = cache(lambda: Index().updated(catalog.servers) if indexed else Index())
    return Services(offers=Offers(), index=index, index_characters=characters, most_called=lambda: called)


def view_of(
    catalog: Catalog,
    profile: str = "default",
    *,
    loaded: Loaded | None = None,
    usual: Sequence[ToolKey] = (),
    characters: int = INDEX_CHARACTERS,
    indexed: bool = True,
    now: float = NOW,
) -> View:
    """What a session with that profile sees."""
    return View(
        catalog=catalog,
        profile=catalog.config.profiles[profile],
        now=lambda: now,
        services=means_of(catalog, characters=characters, indexed=indexed),
        loaded=loaded or Loaded(),
        usual=lambda: usual,
    )


def encoded(arguments: Mapping[str, object] | bytes) -> bytes:
    """A raw JSON object."""
    return arguments if isinstance(arguments, bytes) else msgspec.json.encode(arguments)


def listed_names(surface: Surface, view: View) -> list[str]:
    """The names of the tools that a surface lists."""
    return [msgspec.json.decode(tool)["name"] for tool in surface.list_tools(view)]


def act(
    surface: Surface,
    view: View,
    name: str,
    arguments: Mapping[str, object] | bytes = b"{}",
    *,
    patient: bool = True,
) -> Action:
    """What a call means."""
    return surface.call(view, name, encoded(arguments), patient=patient)


def forwarded(*call: Any, patient: bool = True) -> Forward:
    """The decision about a call that goes to a server; arguments as for `act`."""
    action = act(*call, patient=patient)
    assert isinstance(action, Forward), action
    return action


def replied(*call: Any, patient: bool = True) -> Reply:
    """The decision about a call that the surface answers itself; arguments as for `act`."""
    action = act(*call, patient=patient)
    assert isinstance(action, Reply), action
    return action


def answer(*call: Any, patient: bool = True) -> Any:
    """The `structuredContent` of the surface's own answer; arguments as for `act`."""
    return msgspec.json.decode(replied(*call, patient=patient).result)["structuredContent"]


def text_of(action: Action) -> str:
    """The text of an answer."""
    assert isinstance(action, Reply), action
    (item,) = msgspec.json.decode(action.result)["content"]
    assert isinstance(item["text"], str)
    return item["text"]


def refused(
    surface: Surface,
    view: View,
    name: str,
    arguments: Mapping[str, object] | bytes,
    kind: type[CallError],
    *,
    patient: bool = True,
) -> CallError:
    """How a call is refused."""
    with pytest.raises(kind) as caught:
        act(surface, view, name, arguments, patient=patient)
    return caught.value
