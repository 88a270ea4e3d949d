"""The control actor: one operator's connection, whose requests are commands of `operators.command_table`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec
import trio
from loguru import logger
from msgspec import Raw

from daemon.audit.event_records import note_command
from daemon.audit.record import acting
from daemon.errors import CallError, ConfigError, ConnectionLost, McpdError, leaf
from daemon.operators.base import Command, OperatorContext, OperatorPeer
from daemon.operators.command_table import COMMANDS
from daemon.wire import envelope
from daemon.wire.envelope import BadMessage
from daemon.wire.outbox import Link
from daemon.wire.requests import Peer

if TYPE_CHECKING:
    from daemon.clients.client import Principal

MAX_REQUESTS = 64
"""Most requests of one operator in progress at a time; each command makes one."""

IDLE_SECONDS = 30.0
"""Seconds of idleness (at most twice as many) after which mcpd closes one of the few operators' connections."""

CONFIG_FAULT = -32078
"""JSON-RPC error code of `reload` for a faulty configuration (78 is EX_CONFIG); `data` has all faults."""


class Control:
    """Serves one operator over one link."""

    def __init__(self, context: OperatorContext, link: Link, _number: int, operator: Principal) -> None:
        self._context = context
        self._uid, self._pid = operator.uid, operator.pid
        self._peer = Peer(link, context.outbox, self, strict=True)
        self._spawn: Callable[..., None] | None = None
        self._running = 0
        self._asked = 0

    async def run(self) -> None:
        """Serve until the operator hangs up."""
        try:
            async with trio.open_nursery() as nursery:
                self._spawn = nursery.start_soon
                nursery.start_soon(self._end_when_idle)
                await self._peer.run()
        except BaseExceptionGroup as group:
            raise leaf(group) from None

    async def _end_when_idle(self) -> None:
        asked = -1
        while self._running or asked != self._asked:
            asked = self._asked
            await trio.sleep(IDLE_SECONDS)
        raise ConnectionLost(f"no request for {IDLE_SECONDS:.0f} s")

    def on_request(self, request_id: bytes, method: str, params: Raw | None) -> None:
        """Begin to serve a request; the answer may take a while."""
        self._asked += 1
        command = COMMANDS.get(method)
        if command is None:
            text = f"Method not found: {method}. There are: {', '.join(COMMANDS)}"
            self._peer.refuse(request_id, envelope.METHOD_NOT_FOUND, text)
            return
        if self._running >= MAX_REQUESTS:
            text = f"Overloaded: {MAX_REQUESTS} requests are in progress"
            self._peer.refuse(request_id, envelope.INVALID_REQUEST, text)
            return
        assert self._spawn is not None, "requests come while `run` runs"
        self._running += 1
        self._spawn(self._serve, command, request_id, params or Raw(b"{}"))

    def on_notification(self, method: str, params: Raw | None) -> None:
        """Ignore notifications: commands only send requests."""

    def on_lost(self, reason: str) -> None:
        """Do nothing, since `run` ends next."""

    def on_bad_message(self, fault: BadMessage, line: bytes) -> None:
        """Refuse a malformed message; the connection stays for a while (`Peer.refuse_malformed`)."""
        self._peer.refuse_malformed(fault)

    async def _serve(self, command: Command[Any], request_id: bytes, params: Raw) -> None:
        outcome, asked = "abandoned", None
        operator = OperatorPeer(self._peer, self._context.outbox, request_id, self._uid)
        who = acting(self._uid, way="terminal")
        context = msgspec.structs.replace(self._context, operator=operator, principal=who, pid=self._pid)
        try:
            asked = msgspec.json.decode(params, type=command.params)
            answer = await command.run(context, asked)
            self._peer.answer(request_id, msgspec.json.encode(answer))
            outcome = "ok"
        except ConfigError as error:
            outcome = "faulty configuration"
            faults = [{"path": fault.path, "message": fault.message} for fault in error.faults]
            data = {"source": error.source, "faults": faults}
            self._peer.refuse(request_id, CONFIG_FAULT, str(error), data)
        except (msgspec.MsgspecError, McpdError) as error:
            outcome = type(error).__name__
            code = {"code": error.code} if isinstance(error, CallError) else None
            self._peer.refuse(request_id, envelope.INVALID_PARAMS, str(error), code)
        except Exception as error:  # noqa: BLE001 - the boundary: a bug costs this answer, not the connection
            outcome = type(error).__name__
            logger.exception("internal error in mcpd while serving an operator")
            self._peer.refuse(request_id, envelope.INTERNAL_ERROR, f"{type(error).__name__}: {error}")
        finally:
            self._running -= 1
            # One that is cut off midway may have done its work.
            if not command.reads and asked is not None:
                note_command(context.audit, context.principal, command.name, asked, outcome, pid=self._pid)
        self._context.outbox.flush()
