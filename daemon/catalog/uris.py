"""Whose resource a URI is, as a client asks for it.

In this order: a URI may say itself whose it is; what a session was given a link to is the linking server's;
then come who lists it, and whose template can become it; and what nobody knows belongs to the only server that
has resources at all. What one server lists never goes to another that links to it, or whose template fits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from daemon.catalog.kinds import switch_of
from daemon.catalog.naming import Template, fitting, is_mcpd, read_mcpd_uri
from daemon.model import Kind

if TYPE_CHECKING:
    from collections.abc import Mapping

    from daemon.catalog.offer import Offer
    from daemon.catalog.snapshot import Catalog
    from daemon.model import ToolKey


def locate(catalog: Catalog, offer: Offer, uri: str, linked: Mapping[str, str]) -> ToolKey | None:
    """The server that a URI is read from, and the server's own URI.

    Args:
        catalog: the present catalog.
        offer: what the client's profile offers.
        uri: as the client wrote it.
        linked: the servers whose results have linked to URIs in this session.

    Returns:
        None if it is nobody's in this profile, or is switched off.
    """
    if not offer.reads_resources:
        return None
    key = _said(catalog, offer, uri) or _linked(catalog, offer, uri, linked)
    if key is None and not is_mcpd(uri):
        key = _listed(catalog, offer, uri) or _from_template(offer, uri) or _only_one(catalog, offer, uri)
    return None if key is None or _is_switched_off(catalog, key) else key


def _said(catalog: Catalog, offer: Offer, uri: str) -> ToolKey | None:
    """What a URI of ours says itself; one of another daemon's, behind this one, says nothing here."""
    if not is_mcpd(uri):
        return None
    key = catalog.uris.owners.get(uri) or read_mcpd_uri(uri)
    return key if key is not None and key[0] in offer.servers_of(Kind.RESOURCE) else None


def _linked(catalog: Catalog, offer: Offer, uri: str, linked: Mapping[str, str]) -> ToolKey | None:
    """The server that linked to a URI, unless others list it and that one does not."""
    server = linked.get(uri)
    entry = None if server is None else catalog.servers.get(server)
    if server is None or entry is None or entry.disabled:
        return None
    listed = uri in catalog.lists[Kind.RESOURCE].get(server, ())
    return (server, uri) if listed or _listed(catalog, offer, uri) is None else None


def _listed(catalog: Catalog, offer: Offer, uri: str) -> ToolKey | None:
    """The server that lists a URI: of several, the one whose resource is shown under it."""
    lists = catalog.lists[Kind.RESOURCE]
    owner = catalog.uris.owners.get(uri)
    found = [server for server in offer.servers_of(Kind.RESOURCE) if uri in lists.get(server, ())]
    if not found:
        return None
    return owner if owner is not None and owner[0] in found else (found[0], uri)


def _from_template(offer: Offer, uri: str) -> ToolKey | None:
    """The server whose template can become a URI: that with the longest literal beginning.

    A template whose scheme is a variable counts only if no other server has such a one: it could be anybody's.
    """
    found = next(fitting(offer.templates, uri), None)
    if found is None:
        return None
    if not found.has_scheme and len({each.server for each in offer.templates if not each.has_scheme}) > 1:
        return None
    return found.server, uri


def _only_one(catalog: Catalog, offer: Offer, uri: str) -> ToolKey | None:
    """The only server of the profile that has resources."""
    with_some = [
        server
        for server in offer.servers_of(Kind.RESOURCE)
        if any(
            (known := catalog.servers[server].lists.get(kind)) is not None and known.declared
            for kind in (Kind.RESOURCE, Kind.TEMPLATE)
        )
    ]
    return (with_some[0], uri) if len(with_some) == 1 else None


def _is_switched_off(catalog: Catalog, key: ToolKey) -> bool:
    """Whether an operator has switched off a resource, or the only templates that it can have come from."""
    server, own = key
    if (server, switch_of(Kind.RESOURCE, own)) in catalog.switched:
        return True
    listed = catalog.lists[Kind.RESOURCE].get(server, ())
    if own in listed or not any(each == server for each, _ in catalog.switched):
        return False
    known = catalog.servers[server].lists.get(Kind.TEMPLATE)
    templates = [Template(server=server, text=text) for text in (known.definitions if known else ())]
    fit = [each.text for each in fitting(templates, own)]
    on = catalog.lists[Kind.TEMPLATE].get(server, {})
    return bool(fit) and not any(text in on for text in fit)
