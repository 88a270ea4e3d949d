"""mcpd's own sentences about a run that ended, as they stand in the code, and what is said to each."""

from __future__ import annotations

import pytest

from daemon.cli.checkup.reasons import REASONS
from tests.cli.checkup.tables import holds_its_cases, meant

CASES = [
    ("command not found: /opt/s.py. Install it, or write its full path", "/opt/s.py; or it is", "mcpd doctor"),
    ("command not found: ./s.py; it begins in /root (`cwd`, or the home directory without one). Install it",
     "./s.py; it begins in /root", "`cwd`"),
    ("command not found: uvx. Install it, or write its full path in the config", "program uvx", "command -v"),
    ("cannot start npx: its directory /srv/no: No such file or directory", "/srv/no", "`cwd`"),
    ("cannot start /opt/s: Permission denied", "/opt/s is not executable", "chmod +x"),
    ("cannot start /opt/s: Exec format error", "no program for this machine", "interpreter into `command`"),
    ("cannot start npx: Too many open files", "files open", "LimitNOFILE"),
    ("cannot start npx: Resource temporarily unavailable", "processes", "TasksMax"),
    ("cannot start npx: Cannot allocate memory", "out of memory", "MemoryMax"),
    ("cannot start npx: Argument list too long", "Argument list too long", "`args`"),
    ("tls: the certificate of h:443 is not trusted: certificate has expired", "h:443 has expired", "`date`"),
    ("tls: the certificate of h:443 is not trusted: Hostname mismatch, certificate is not valid for 'h'.",
     "another name", "Write the name"),
    ("tls: the certificate of h:443 is not trusted: self-signed certificate", "Nobody", "SSL_CERT_FILE"),
    ("cannot connect to h:80: [SSL: WRONG_VERSION_NUMBER] wrong version number", "not speak TLS", "http://"),
    ("cannot connect to /run/x.sock: No such file or directory", "no socket /run/x.sock", "Start it"),
    ("cannot connect to /run/x.sock: Permission denied", "may not connect", "owner, group and mode"),
    ("cannot connect to 127.0.0.1:80: Connection refused", "Nobody listens on 127.0.0.1:80", "Start it"),
    ("cannot connect to h:80: Name or service not known", "cannot be looked up", "getent hosts"),
    ("cannot connect to h:80: Temporary failure in name resolution", "cannot be looked up", "getent hosts"),
    ("cannot connect to h:80: No route to host", "no way through the network", "VPN"),
    ("cannot connect to h:80: no answer within 20 s", "h:80 did not answer in time", "timeouts.connect"),
    ("cannot connect to h:80: no connection in time", "h:80 did not answer in time", "timeouts.connect"),
    ("h:80 did not open a WebSocket within 20 s", "h:80 did not answer in time", "timeouts.connect"),
    ("/run/x.sock did not take a connection within 20 s", "/run/x.sock did not answer", "timeouts.connect"),
    ("h:443 wants credentials that it was not given (HTTP 401)", "HTTP 401", '"Bearer ${TOKEN}"'),
    ("h:443 does not allow it with these credentials (HTTP 403)", "HTTP 403", "rights"),
    ("initialize was refused: h:80 answered HTTP 307 Temporary Redirect (-32603)", "elsewhere",
     "final address"),
    ("initialize was refused: h:80 answered HTTP 404 Not Found (-32601)", "(HTTP 404)", "/mcp or /sse"),
    ("h:80 answered HTTP 429 Too Many Requests, retry after 7 s", "come back after 7 s", "mcpd restart git"),
    ("h:80 answered HTTP 429 Too Many Requests", "more often", "by itself"),
    ("h:80 answered HTTP 503 Service Unavailable", "(HTTP 503)", "by itself"),
    ("initialize was refused: h:80 answered HTTP 418 (-32603)", "(HTTP 418)", "`headers`"),
    ("the server ended the session (HTTP 404 from h:80)", "session", "by itself"),
    ("h:80 closed the WebSocket with code 1008 (POLICY_VIOLATION): who?", "1008", "`headers`"),
    ("h:80 closed the WebSocket with code 1006 (ABNORMAL)", "hung up", "by itself"),
    ("the connection to h:80 broke: Connection reset by peer", "hung up", "by itself"),
    ("the url is not valid", "`url`", "mcpd check"),
    ("no common protocol version: the server wants '2031-01-01'", "'2031-01-01'", "Update"),
    ("the answer to the handshake is no object: x", "not MCP", "`type`"),
    ("no answer to 3 pings of 10 s", "3 pings", "timeouts.missedPings"),
    ("floods its stdout with what is not MCP, e.g. 'x'", "stdout", "stderr"),
    ("sent a message over the limit (limits.messageBytes)", "larger", "limits.messageBytes"),
    ("h:80: event over the byte limit", "larger", "limits.messageBytes"),
    ("uses 1.3 GiB of memory, its ceiling is 1 GiB (limits.memoryBytes): mcpd ended it", "1.3 GiB of memory",
     "Raise `limits.memoryBytes`"),
    ("the peer does not read: 5 bytes are waiting for it", "no longer reads", "mcpd logs git"),
    ("the stream wants messages sent to another origin: http://evil:80", "http://evil:80", "public address"),
    ("tools/list was refused: no (-32603)", "refuses to list", "mcpd logs git"),
    ("it lists no tools", "no tool to offer", "mcpd logs git"),
    ("it declares neither tools nor prompts nor resources", "nothing at all", "configuration"),
    ("it lists 9 tools, of which none can be used; t: its inputSchema is no object", "t: its inputSchema",
     "mcpd status --json"),
    ("no answer to tools/list within 15 s", "in time", "timeouts.list"),
    ("no list within 25 s", "in time", "timeouts.list"),
    ("tools/list repeats the cursor 'a'", "does not end", "Update"),
    ("mcpd's own fault: KeyError: 'x'", "mcpd itself", "report"),
]  # fmt: skip


@pytest.mark.parametrize(("said", "happened", "helps"), CASES)
def test_a_reason_is_explained(said: str, happened: str, helps: str) -> None:
    found = meant(REASONS, said)
    assert happened in found.happened
    assert helps in found.helps


def test_every_row_has_its_case_and_says_whole_sentences() -> None:
    holds_its_cases(REASONS, [said for said, _, _ in CASES])
