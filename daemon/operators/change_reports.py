"""Reports of operators' commands that change something: the JSON of the control socket, as in `reports`."""

from __future__ import annotations

from typing import NotRequired, TypedDict

from daemon.operators.reports import StateReport


class SwitchReport(StateReport):
    """The outcome of `mcpd enable` and `mcpd disable`."""

    server: str
    tool: str | None
    off: bool
    already: bool
    note: str


class RestartReport(StateReport):
    """The outcome of a restart; `instances` where clients do not share the server."""

    server: str
    instances: NotRequired[dict[str, StateReport]]


class RefreshedReport(TypedDict):
    """The changes of one server's lists; a failed one has only `problem`."""

    problem: str
    epoch: int
    tools: int
    came: list[str]
    went: list[str]
    changed: list[str]
    renamed: list[tuple[str, str]]
    lists: dict[str, dict[str, list[str]]]


class RefreshReport(TypedDict):
    """The outcome of `mcpd refresh`."""

    servers: dict[str, RefreshedReport]


class ReloadReport(TypedDict):
    """The outcome of `mcpd reload`: the plan (`config.parse.Plan`), and states of started servers."""

    config: str
    added: list[str]
    removed: list[str]
    enabled: list[str]
    disabled: list[str]
    restarted: list[str]
    changed: list[str]
    kept: list[str]
    sections: list[str]
    needsRestartOfDaemon: list[str]
    faults: list[str]
    states: dict[str, StateReport]


class LogoutReport(StateReport):
    """The outcome of `mcpd logout`; `problem`: why the login could not be revoked."""

    server: str
    existed: bool
    problem: str


class LoginReport(StateReport):
    """The outcome of `mcpd login`."""

    server: str
    tools: list[str]


class PlaceReport(TypedDict):
    """A place in a configuration file, as `$.lazy`."""

    file: str
    place: str


class WrittenReport(PlaceReport):
    """A changed key; `already`: it had this value."""

    already: bool


class DescribeReport(TypedDict):
    """The outcome of `mcpd describe`; no `description`: the server's own."""

    tool: str
    description: str | None
    places: list[PlaceReport]
    already: bool


class ProfileSwitchReport(TypedDict):
    """A profile's switch of loading on demand, and its effect."""

    on: bool
    surface: str
    sessions: int


class LazyReport(TypedDict):
    """The switches of loading on demand."""

    lazy: bool
    profiles: dict[str, ProfileSwitchReport]
    changed: WrittenReport | None
    note: str


class ModelReport(TypedDict, total=False):
    """The progress of the model that shortens descriptions."""

    model: str
    endpoint: str
    off: str
    asked: int
    answered: int
    sentences: int
    refused: int
    waiting: int
    given_up: int
    last_error: str


class ModelTestReport(TypedDict):
    """A model's answer to a question; `fault`: why it cannot be used."""

    answer: str
    seconds: float
    tokensRead: int | None
    tokensWritten: int | None
    fault: str


class SummariesReport(TypedDict):
    """The model that shortens descriptions, and what was asked for."""

    state: ModelReport | None
    config: str
    prompt: str
    sends: str
    models: NotRequired[list[str]]
    changed: NotRequired[WrittenReport]
    test: NotRequired[ModelTestReport]


class GrantReport(TypedDict):
    """A tool that a session may call unasked; no `seconds`: as long as the session is in use."""

    tool: str
    by: str
    seconds: float | None


class AllowReport(TypedDict):
    """The permissions of a session."""

    session: str
    allowed: list[GrantReport]


class UnloadReport(TypedDict):
    """The tools that have left a session."""

    session: str
    unloaded: list[str]
    note: str


class TokenReport(TypedDict):
    """A token of clients over HTTP, without its value; no `profiles`: all of them."""

    name: str | None
    profiles: list[str] | None
    console: NotRequired[str | None]
    workspaces: NotRequired[list[str] | None]
    since: float | None
    counts: bool
    lastUsed: float | None


class TokensReport(TypedDict):
    """The tokens; `value`: of a new one, or of the one asked for."""

    value: str | None
    tokens: list[TokenReport]
    problem: str
