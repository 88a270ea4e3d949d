"""What is said of a server that is not well: by its cause, or by its last words if that leaves open why."""

from __future__ import annotations

import re
import signal
import string
from typing import Any

import pytest

from daemon.causes import HEALTHY, Cause, Reason, Remedy
from daemon.safety.redact import Redactor
from daemon.supervision.lifecycle import LINE, LINES, SHOWN, by_cause, by_words, needs_words, table

FAILED = (Cause.EXITED, {"status": 1})
NODE_STACK = """
node:internal/modules/cjs/loader:1148
  throw err;
  ^

Error: Cannot find module '/srv/mcp/index.js'
    at Module._resolveFilename (node:internal/modules/cjs/loader:1145:15)
    at Module._load (node:internal/modules/cjs/loader:986:27)
    at node:internal/main/run_main_module:28:49 {
  code: 'MODULE_NOT_FOUND',
  requireStack: []
}

Node.js v20.18.0
""".splitlines()

CASES: list[tuple[Cause, dict[str, Any], str, str]] = [
    (Cause.COMMAND_NOT_FOUND, {"command": "./s", "file": "/srv/s"}, "no file /srv/s; or", "mcpd doctor"),
    (Cause.COMMAND_NOT_FOUND, {"command": "uvx"}, "no program uvx", "`command -v uvx`"),
    (Cause.DIRECTORY_UNUSABLE, {"command": "npx", "directory": "/srv/no", "error": "x"}, "/srv/no", "`cwd`"),
    (Cause.NOT_EXECUTABLE, {"command": "/opt/s"}, "/opt/s is not executable", "chmod +x"),
    (Cause.NOT_A_PROGRAM, {"command": "/opt/s"}, "no program for this machine", "interpreter into `command`"),
    (Cause.OUT_OF_FILES, {}, "files open", "LimitNOFILE"),
    (Cause.OUT_OF_PROCESSES, {}, "processes", "TasksMax"),
    (Cause.OUT_OF_MEMORY, {}, "out of memory", "MemoryMax"),
    (Cause.CANNOT_START, {"command": "npx", "error": "Argument list too long"}, "list too long", "`args`"),
    (Cause.CANNOT_START, {}, "as it is configured", "mcpd check"),
    (Cause.CONFIGURATION, {"error": "x", "variable": "GH_TOKEN"}, "GH_TOKEN, which is", "line GH_TOKEN=..."),
    (Cause.CONFIGURATION, {"error": "x"}, "entry in the configuration", "mcpd check"),
    (Cause.ENDED, {}, "stays until its stdin is closed", "--stdio"),
    (Cause.EXITED, {"status": 126}, "may not run it", "chmod +x"),
    (Cause.EXITED, {"status": 78}, "own configuration", "mcpd logs git"),
    (Cause.EXITED, {"status": 127}, "did not find the program", "absolute path"),
    (Cause.EXITED, {"status": 64}, "command line (exit status 64)", "--help"),
    (Cause.EXITED, {"status": 125}, "container", "shell"),
    (Cause.EXITED, {"status": 101}, "panicked", "update"),
    (Cause.EXITED, {"status": 20}, "exit status 20", "in a shell"),
    (Cause.EXITED, {"status": 137}, "memory ran out", "killed process"),
    (Cause.EXITED, {"status": 255}, "exit status 255", "in a shell"),
    (Cause.KILLED, {"signal": "SIGKILL"}, "memory ran out", "killed process"),
    (Cause.KILLED, {"signal": "SIGSEGV"}, "bad memory access", "coredumpctl"),
    (Cause.KILLED, {"signal": "SIGABRT"}, "gave up", "more memory"),
    (Cause.KILLED, {"signal": "SIGILL"}, "instruction", "build for this processor"),
    (Cause.KILLED, {"signal": "SIGSYS"}, "system call", "SystemCallFilter"),
    (Cause.KILLED, {"signal": "SIGTERM"}, "told it to stop", "by itself"),
    (Cause.KILLED, {"signal": "SIGPIPE"}, "no longer there", "mcpd logs git"),
    (Cause.KILLED, {"signal": "SIGXCPU"}, "processor time", "LimitCPU"),
    (Cause.KILLED, {"signal": "signal 40"}, "signal 40", "signal(7)"),
    (Cause.MEMORY_CEILING, {"used": 2, "limit": 1}, "more memory", "Raise `limits.memoryBytes`"),
    (Cause.INTERNAL, {"error": "KeyError"}, "mcpd itself", "report"),
    (Cause.HANDSHAKE_TIMEOUT, {"seconds": 30.0}, "for 30 s", "timeouts.firstInitialize"),
    (Cause.HANDSHAKE_REFUSED, {"error": "not today (-32000)"}, "not today", "mcpd logs git"),
    (Cause.NOT_MCP, {"place": "x.org", "form": "text/html"}, "At x.org is a web page", "/mcp or /sse"),
    (Cause.NOT_MCP, {"place": "x.org", "form": "text/plain"}, "x.org answered with text/plain", "`url`"),
    (Cause.NOT_MCP, {}, "not MCP", "`type`"),
    (Cause.NO_COMMON_VERSION, {"version": "'2031-01-01'"}, "'2031-01-01'", "Update"),
    (Cause.CONNECTION_LOST, {}, "hung up", "by itself"),
    (Cause.NOT_ANSWERING, {"count": 3, "seconds": 10.0}, "3 pings", "timeouts.missedPings"),
    (Cause.UNANSWERED_PINGS, {"count": 2, "seconds": 45, "calls": 0}, "2 pings in a row, 45 s", "kill -CONT"),
    (Cause.UNANSWERED_PINGS, {"count": 2, "seconds": 45, "calls": 1}, "silent for 45 s", "Wait"),
    (Cause.NOT_READING, {}, "no longer reads", "mcpd logs git"),
    (Cause.NOISE, {"first": "x"}, "stdout", "stderr"),
    (Cause.MESSAGE_TOO_LARGE, {}, "larger", "limits.messageBytes"),
    (Cause.LIST_REFUSED, {"error": "no (-32603)"}, "refuses to list its tools: no", "mcpd logs git"),
    (Cause.LIST_TIMEOUT, {"seconds": 15.0}, "in time", "timeouts.list"),
    (Cause.LIST_ENDLESS, {}, "does not end", "Update"),
    (Cause.NO_TOOLS, {}, "no tool to offer", "mcpd logs git"),
    (Cause.NOTHING_OFFERED, {}, "nothing at all", "configuration"),
    (Cause.TOOLS_UNUSABLE, {"count": 9, "tool": "t", "error": "its inputSchema is no object"},
     "t: its inputSchema", "mcpd status --json"),
    (Cause.BAD_URL, {}, "`url`", "mcpd check"),
    (Cause.NAME_NOT_FOUND, {"place": "h:80"}, "name in h:80 cannot be looked up", "getent hosts"),
    (Cause.REFUSED, {"place": "127.0.0.1:80"}, "Nobody listens on 127.0.0.1:80", "Start it"),
    (Cause.UNREACHABLE, {"place": "h:80"}, "no way through the network", "VPN"),
    (Cause.CONNECT_TIMEOUT, {"place": "/run/x.sock"}, "/run/x.sock did not answer", "timeouts.connect"),
    (Cause.CANNOT_CONNECT, {"place": "h:80", "error": "path too long"}, "path too long", "`url`"),
    (Cause.SOCKET_MISSING, {"place": "/run/x.sock"}, "no socket /run/x.sock", "Start it"),
    (Cause.SOCKET_DENIED, {"place": "/run/x.sock"}, "may not connect", "owner, group and mode"),
    (Cause.TLS_UNTRUSTED, {"place": "h:443"}, "Nobody", "SSL_CERT_FILE"),
    (Cause.TLS_EXPIRED, {"place": "h:443"}, "h:443 has expired", "`date`"),
    (Cause.TLS_NAME, {"place": "h:443"}, "another name", "Write the name"),
    (Cause.NOT_TLS, {"place": "h:80"}, "not speak TLS", "http://"),
    (Cause.UNAUTHORIZED, {"place": "h:443"}, "HTTP 401", '"Bearer ${TOKEN}"'),
    (Cause.UNAUTHORIZED, {}, "who calls", '"Bearer ${TOKEN}"'),
    (Cause.FORBIDDEN, {"place": "h:443"}, "HTTP 403", "rights"),
    (Cause.LOGIN_NEEDED, {"place": "h:443"}, "wants an OAuth login", "`mcpd login git`"),
    (Cause.SCOPE_MISSING, {"place": "h:443", "scope": "a b"}, "a b is missing", "`mcpd login git`"),
    (Cause.SCOPE_MISSING, {"place": "h:443"}, "not grant enough", "--scope"),
    (Cause.LOGIN_NOT_RENEWED, {"place": "h:443", "error": "Connection refused"}, "refused", "by itself"),
    (Cause.REDIRECT, {"place": "h:80", "status": 307}, "elsewhere", "final address"),
    (Cause.NOT_AN_ENDPOINT, {"place": "h:80", "status": 404}, "(HTTP 404)", "/mcp or /sse"),
    (Cause.BUSY, {"place": "h:80", "status": 429, "seconds": 7.0}, "come back after 7 s", "restart git"),
    (Cause.BUSY, {"place": "h:80", "status": 429}, "more often", "by itself"),
    (Cause.GATEWAY, {"place": "h:80", "status": 502}, "(HTTP 502)", "by itself"),
    (Cause.HTTP_STATUS, {"place": "h:80", "status": 418}, "(HTTP 418)", "`headers`"),
    (Cause.SESSION_OVER, {}, "session", "by itself"),
    (Cause.OTHER_ORIGIN, {"origin": "http://evil:80"}, "http://evil:80", "public address"),
    (Cause.WEBSOCKET_REFUSED, {"place": "h:80"}, "1008", "`headers`"),
]  # fmt: skip


def told(cause: Cause, data: dict[str, Any], *stderr: str) -> Remedy:
    found = by_cause("git", by_words("git", Reason("", cause, data), stderr)).remedy
    assert found is not None, f"nothing is known about {cause}, {data}, {stderr!r}"
    return found


def read_well(found: Remedy) -> None:
    """Whole sentences, without anything that was to be filled in."""
    for text in (found.happened, found.helps):
        assert text[-1] in ".!?"
        assert text[0] in string.ascii_letters + string.digits + "/`'."
        assert "  " not in text
        assert not re.search(r"(?<!\$)\{\w*\}", text)
        # Advice that looks like a password would be shown as one that is hidden.
        assert Redactor(())(text) == text


# --- by cause -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("cause", "data", "happened", "helps"), CASES)
def test_a_cause_is_explained(cause: Cause, data: dict[str, Any], happened: str, helps: str) -> None:
    found = told(cause, data)
    assert happened in found.happened
    assert helps in found.helps
    read_well(found)


@pytest.mark.parametrize(
    ("cause", "data", "stderr", "waits"),
    [
        (Cause.COMMAND_NOT_FOUND, {"command": "s"}, "", False),
        (Cause.LOGIN_NEEDED, {"place": "h:443"}, "", True),
        (Cause.REFUSED, {"place": "h:80"}, "", True),
        (Cause.NOT_AN_ENDPOINT, {"place": "h:80", "status": 404}, "", False),
        (Cause.CONFIGURATION, {"error": "e", "variable": "TOKEN"}, "", True),
        (Cause.CONFIGURATION, {"error": "e"}, "", False),
        (Cause.EXITED, {"status": 1}, "Error: API_KEY is not set", True),
        (Cause.EXITED, {"status": 1}, "Error: connect ECONNREFUSED 127.0.0.1:5432", True),
        (Cause.EXITED, {"status": 1}, "npm ERR! 404 'no-such' is not in this registry", False),
        (Cause.EXITED, {"status": 1}, "oh no", False),
    ],
)
def test_a_server_that_waits_for_what_its_entry_cannot_bring_is_told_from_a_wrong_entry(
    cause: Cause, data: dict[str, Any], stderr: str, *, waits: bool
) -> None:
    assert told(cause, data, stderr).waits is waits


def test_every_cause_has_its_advice_and_every_advice_its_case() -> None:
    assert table("remedies").keys() == set(Cause)
    said = {told(cause, data).happened for cause, data, _, _ in CASES}
    assert len(said) >= sum(map(len, table("remedies").values()))
    assert {cause for cause, *_ in CASES} == set(Cause)


def test_signals_are_named_as_the_system_names_them() -> None:
    named = {name for entry in table("remedies")["killed"] for name in entry.get("when", {}).get("signal", ())}
    assert named <= {each.name for each in signal.Signals}


def test_what_others_have_said_is_cut_and_never_taken_for_a_template() -> None:
    found = told(Cause.HANDSHAKE_REFUSED, {"error": "{server} {9} " + "x" * LINE})
    assert found.happened.startswith("It refused the handshake: {server} {9} xxx")
    assert len(found.happened) < SHOWN + 40


def test_nothing_is_made_up() -> None:
    asked = Reason("an operator asked for it")
    for reason in (HEALTHY, asked):
        assert by_cause("git", by_words("git", reason, ["No module named 'x'"])) == reason


def test_one_logs_in_to_the_server_of_an_instance_and_restarts_the_instance() -> None:
    login = by_cause("git#3", Reason("", Cause.LOGIN_NEEDED, {"place": "h:443"})).remedy
    rights = by_cause("git#3", Reason("", Cause.FORBIDDEN, {"place": "h:443"})).remedy
    assert login is not None
    assert rights is not None
    assert "`mcpd login git`" in login.helps
    assert "`mcpd restart git#3`" in rights.helps


# --- by last words ------------------------------------------------------------------------------------------


def test_a_whole_stack_trace_is_read_for_the_line_that_matters() -> None:
    assert "/srv/mcp/index.js" in told(*FAILED, *NODE_STACK).happened


def test_of_two_lines_that_fit_the_same_entry_the_newer_counts() -> None:
    found = told(*FAILED, "Error: connect ECONNREFUSED 10.0.0.1:1", "Error: connect ECONNREFUSED 10.0.0.2:2")
    assert "10.0.0.2:2" in found.happened


def test_words_from_long_ago_or_far_out_in_a_line_are_not_read() -> None:
    assert told(*FAILED, "No module named 'psycopg'", *["tick"] * LINES) == told(*FAILED)
    assert told(*FAILED, " " * LINE + "No module named 'psycopg'") == told(*FAILED)


@pytest.mark.parametrize(
    ("cause", "data"),
    [
        (Cause.KILLED, {"signal": "SIGKILL"}),
        (Cause.REFUSED, {"place": "h:1"}),
    ],
)
def test_a_cause_that_says_enough_is_not_overruled_by_old_words(cause: Cause, data: dict[str, Any]) -> None:
    assert told(cause, data, "ModuleNotFoundError: No module named 'x'") == told(cause, data)
    assert not needs_words(Reason("", cause, data))


@pytest.mark.parametrize(
    ("cause", "data"),
    [
        FAILED,
        (Cause.EXITED, {"status": 78}),
        (Cause.KILLED, {"signal": "SIGABRT"}),
        (Cause.HANDSHAKE_TIMEOUT, {"seconds": 30.0}),
        (Cause.CONNECTION_LOST, {}),
    ],
)
def test_a_cause_that_leaves_open_why_asks_for_words(cause: Cause, data: dict[str, Any]) -> None:
    assert needs_words(Reason("", cause, data))
    assert "No module" not in told(cause, data).happened
    assert "psycopg" in told(cause, data, "No module named 'psycopg'").happened


@pytest.mark.parametrize("unit", ["A", "A_", "a.", "Error: ", "npm ERR! ", "\x00", "not found: "])
def test_hostile_words_are_read_in_the_end(unit: str) -> None:
    line = unit * (8192 // len(unit))
    told(*FAILED, *[line] * LINES)


def test_a_program_that_prints_its_usage_and_calls_that_a_success_is_told_so() -> None:
    found = told(Cause.ENDED, {}, "Usage: foo --dir DIR")
    assert found.happened == "It printed how it wants to be called: foo --dir DIR."
