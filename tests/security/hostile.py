"""What servers say that nobody should be shown: hidden characters everywhere, and secrets in every spelling."""

import base64
import json
from pathlib import Path
from typing import Any

from daemon.counting.measures import NOISE_CHARACTERS, STDERR_LINE
from tests.pages import Page
from tests.scripted_server import command, tool
from tests.unit.cases import rows_of

HIDDEN = "\u202e\u200b\x1b[2J\x9b\ue000\u2066\ufeff\U000e0041\ufe00\ufe01\u00ad\u061c\ufff9"
"""Bidirectional controls, zero width, ANSI, private use, tags, a run of selectors, soft hyphen, annotations."""

READABLE = "❤\ufe0f 👩\u200d💻 می\u200cخواهم שלום क्\u200dष"  # noqa: RUF001 - Persian is meant
"""What must stay as it is: emoji, Persian, Hebrew, Hindi."""


def sly(text: str) -> str:
    """A text with hidden characters in the middle, and readable ones that only look like it at the end."""
    return f"{text[:2]}{HIDDEN}{text[2:]} {READABLE}"


SLY_TOOL = tool(
    "sly",
    title=sly("Title"),
    description=sly("Description."),
    inputSchema={
        "type": "object",
        "title": sly("Schema"),
        "properties": {
            "mode": {"type": "string", "enum": [sly("mode"), "plain"], "description": sly("The mode.")},
            sly("key"): {"type": "string", "default": sly("value")},
        },
        "required": ["mode"],
    },
    outputSchema={"type": "object", "description": sly("Output")},
    annotations={"title": sly("Annotation")},
    icons=[{"src": sly("icon")}],
)
"""Hidden characters in every member of a definition that a model is shown."""

NAMES = [*rows_of(Path(__file__), "names"), "x" * 128]
"""Names that would do harm as a path or a command, and are only names here."""

BAD_NAMES = ["nul\x00l", "x" * 300, "a\u202eb", "a\u200bb", "line\nend", "a\x1b[2J", "a\ufe0fb", "\u3164", ""]
"""Names that nobody may be shown."""

SECRETS = dict(rows_of(Path(__file__), "secrets"))
"""Each in another place of the configuration."""

VARIABLES = {"CANARY_VARIABLE": SECRETS["variable"], "CANARY_ARGUMENT": SECRETS["argument"]}
"""In the daemon's own environment; the configuration refers to them."""


def spellings(secret: str) -> list[str]:
    """A secret as it may turn up."""
    encoded = [base64.b64encode(text.encode()).decode() for text in (secret, f"u:{secret}", f"me:{secret}!")]
    # Most of one is as bad as all of it.
    return [secret[:-4], *written(secret), *(text.rstrip("=")[4:-4] for text in encoded)]


def written(secret: str) -> list[str]:
    """A secret as the JSON of Python, Go and PHP, and a repr, have it."""
    go = json.dumps(secret, ensure_ascii=False).translate({ord(each): f"\\u{ord(each):04x}" for each in "&<>"})
    return [each[1:-1] for each in (json.dumps(secret), go, json.dumps(secret).replace("/", r"\/"))] + [
        repr(secret.encode())[2:-1]
    ]


def everything() -> str:
    """All secrets in all spellings, as a server would print them."""
    words = [
        f"{base64.b64encode(f'{before}{secret}'.encode()).decode()} {secret} {' '.join(written(secret))}"
        for secret in SECRETS.values()
        for before in ("", "u:", "me:")
    ]
    return " ".join(words)


TELLING = tool(
    "telling",
    title=everything(),
    description=f"Connected as {everything()}",
    inputSchema={
        "type": "object",
        "properties": {
            SECRETS["env"]: {"type": "string", "default": SECRETS["go"], "enum": list(SECRETS.values())},
            "count": {"type": "integer", "default": int(SECRETS["number"])},
            "plain": {"type": "string", "pattern": "^[a-z]+$", "description": everything()},
        },
    },
    annotations={"title": everything()},
)
"""Secrets in every member of a definition."""


class Echo(Page):
    """Refuses everything and repeats what it was sent: its headers, its url and the body."""

    def do_POST(self) -> None:
        """Answer a JSON-RPC request with an error full of secrets."""
        body = json.loads(self.body())
        text = f"cannot {self.path} {dict(self.headers)} {everything()}"
        error = {"jsonrpc": "2.0", "id": body.get("id"), "error": {"code": -32000, "message": text}}
        self.say(json.dumps(error).encode(), 200 if body.get("method") == "tools/call" else 400)

    def do_GET(self) -> None:
        """Refuse to open a stream, in the same way."""
        self.send_error(400, explain=everything())


def leaky(place: Path) -> dict[str, Any]:
    """A stdio server that is given secrets in every way and prints them all.

    Args:
        place: where it keeps what it is to do, and notes what it finds around it.
    """
    # Where what is kept of a line ends, within a secret.
    noise, cut = "n" * (NOISE_CHARACTERS - 12) + SECRETS["env"], "c" * (STDERR_LINE - 12) + SECRETS["env"]
    script = {
        "tools": ["env", "act", "plain", TELLING, {**TELLING, "name": SECRETS["env"]}],
        "stdout": f"{noise} and more\n",
        "stderr": f"{cut} and more\n{everything()}\n",
        "record": str(place / "record"),
    }
    (place / "script").write_text(json.dumps(script))
    python, *options, _script = command()
    return {
        "command": python,
        "args": [
            *(*options, f"@{place / 'script'}", "${CANARY_ARGUMENT}"),
            *("--auth", SECRETS["authorised"]),
            *("--connection-string", f"Server=h;Password={SECRETS['connection']};"),
            *("--api-key", SECRETS["literal"], f"${{CANARY_UNSET_TOKEN:-{SECRETS['default']}}}"),
        ],
        "env": {
            "TOKEN": SECRETS["env"],
            "FROM_OUTSIDE": "${CANARY_VARIABLE}",
            "CREDENTIALS": json.dumps({"auth": {"key": SECRETS["nested"]}}),
            "ODD_TOKEN": SECRETS["odd"],
            "GO_KEY": SECRETS["go"],
            "PASSPHRASE": SECRETS["phrase"],
            "N_TOKEN": SECRETS["number"],
        },
    }


def remotes(port: int) -> dict[str, Any]:
    """HTTP servers with secrets in their urls and headers."""
    return {
        "remote": {
            "type": "http",
            "url": f"http://me:{SECRETS['password']}@127.0.0.1:{port}/{SECRETS['path']}/mcp?key={SECRETS['query']}",
            "headers": {"Authorization": f"Bearer {SECRETS['bearer']}", "X-Key": SECRETS["header"]},
        },
        "basic": {
            "type": "http",
            "url": f"http://127.0.0.1:{port}/basic",
            "headers": {
                "Authorization": f"Basic {base64.b64encode(b'me:' + SECRETS['basic'].encode()).decode()}"
            },
        },
        "tokened": {"type": "sse", "url": f"http://{SECRETS['user']}@127.0.0.1:{port}/sse"},
    }
