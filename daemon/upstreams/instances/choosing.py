"""Which instance of a server a client gets: its key, its name, and the configuration that it runs with."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from daemon.catalog.loaded import is_anonymous
from daemon.config.model import WORKSPACE, Instance, Share, TransportType
from daemon.errors import NoSession, NoWorkspace
from daemon.host.paths import abbreviated
from daemon.safety.escape import visible

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from daemon.config.model import Server
    from daemon.ports import Holder

HOW_TO_NAME_ONE = (
    "Start the client in the directory of the project, or name it: `mcpd connect --workspace DIR`, the variable"
    " MCPD_WORKSPACE, the header Mcpd-Workspace, or a root (file:///...) of the client's"
)

Key = tuple["Hashable | None", str | None]
"""A session and a workspace: clients with the same key share an instance."""


def key_of(server: Server, holder: Holder) -> Key:
    """What identifies the instance of a client.

    Raises:
        NoWorkspace: the server needs a workspace, and the client has none, or one that cannot be used.
        NoSession: each session has an instance, and the client has none.
    """
    by_session = server.shared_by is Share.SESSION
    if by_session and holder.session is None:
        text = (
            f'each session has an instance of server {server.name} ("share": "session"), and this request is of'
            " none: send `Mcpd-Session: KEY` with it, or use `mcpd connect`. The call was not sent."
        )
        raise NoSession(text, server=server.name)
    # Who has named a directory is not given another one.
    if holder.fault and (server.uses_workspace or not by_session):
        text = f"server {server.name} works in its client's directory: {holder.fault}. The call was not sent."
        raise NoWorkspace(text, server=server.name)
    if holder.workspace is None and server.uses_workspace:
        text = (
            f"server {server.name} works in its client's directory (${{workspace}}), and none is known of this"
            f" client. {HOW_TO_NAME_ONE}. The call was not sent."
        )
        raise NoWorkspace(text, server=server.name)
    return holder.session if by_session else None, holder.workspace


def told_session(holder: Holder) -> str:
    """The session of a client as events name it: its key, or its connection's number; empty if it has none."""
    session = holder.session
    if session is None:
        return ""
    if isinstance(session, str) and not is_anonymous(session):
        return session
    return f"#{holder.number}" if holder.number else ""


def label_of(server: Server, holder: Holder, home: str, is_taken: Callable[[str], bool]) -> str:
    """What an instance is called: `playwright#12`, `filesystem@~/src/app`, `filesystem@`.

    Args:
        server: the server.
        holder: whom the instance is made for.
        home: the home directory, which is abbreviated.
        is_taken: whether an instance has that name: a connection may have several sessions.
    """
    if server.shared_by is Share.SESSION:
        label = f"{server.name}#{holder.number}"
    else:
        label = f"{server.name}@{visible(abbreviated(holder.workspace or '', home))}"
    number, own = 1, label
    while is_taken(own):
        number += 1
        own = f"{label}.{number}"
    return own


def configured(server: Server, holder: Holder, label: str) -> Server:
    """The configuration of an instance: the server's, with the workspace in place of ${workspace}."""
    workspace = holder.workspace
    own = Instance(
        label=label,
        workspace=workspace,
        capabilities=holder.capabilities if server.shared_by is Share.SESSION else None,
    )
    cwd = server.cwd
    if cwd is None and server.type is TransportType.STDIO:
        cwd = workspace
    if workspace is None:
        return attrs.evolve(server, instance=own, cwd=cwd)

    def named(text: str) -> str:
        return text.replace(WORKSPACE, workspace)

    return attrs.evolve(
        server,
        instance=own,
        command=None if server.command is None else named(server.command),
        args=tuple(map(named, server.args)),
        env={key: named(value) for key, value in server.env.items()},
        cwd=None if cwd is None else named(cwd),
    )
