"""The clients that have roots: which of them is asked, and who is told when one comes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from daemon.clients.connected_clients import RootsOfClients
from daemon.clients.notifications import ConnectedClient
from tests.unit.clients.asking import question

if TYPE_CHECKING:
    from daemon.wire.requests import PeerRequest


class Rooted(ConnectedClient):
    """A client that sees some servers."""

    def __init__(self, servers: tuple[str, ...] = ("alpha", "beta")) -> None:
        self.servers, self.asked, self.told = servers, list[str](), list[str]()

    def sees(self, server: str) -> bool:
        return server in self.servers

    def ask_roots(self, request: PeerRequest) -> None:
        self.asked.append(request.server)

    def tell_roots_changed(self, server: str) -> None:
        self.told.append(server)


def test_only_who_alone_can_be_meant_is_asked() -> None:
    roots, anna, ben = RootsOfClients(), Rooted(), Rooted(("beta",))
    roots.join(anna)
    roots.join(ben)
    for server in ("alpha", "beta", "gamma"):
        roots.ask(question("roots/list", server=server).request)
    assert (anna.asked, ben.asked) == (["alpha"], [])
    roots.leave(anna)
    roots.leave(anna)
    roots.ask(question("roots/list", server="beta").request)
    assert ben.asked == ["beta"]


def test_a_server_that_was_refused_is_told_once_when_there_is_a_client_for_it() -> None:
    roots, anna, ben = RootsOfClients(), Rooted(("alpha",)), Rooted()
    for server in ("alpha", "beta"):
        roots.ask(question("roots/list", server=server).request)
    roots.ask(question("elicitation/create", server="gamma").request)
    roots.join(anna)
    assert anna.told == ["alpha"]
    roots.join(ben)
    assert ben.told == ["beta"]
    roots.leave(anna)
    roots.join(anna)
    assert anna.told == ["alpha"]


def test_a_server_that_was_refused_for_two_clients_is_told_when_one_of_them_goes() -> None:
    roots, anna, ben = RootsOfClients(), Rooted(), Rooted()
    roots.join(anna)
    roots.join(ben)
    roots.ask(question("roots/list", server="alpha").request)
    roots.leave(anna)
    assert (anna.told, ben.told) == ([], ["alpha"])
