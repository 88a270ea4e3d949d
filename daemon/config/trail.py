"""Where in a file something stands, in the file's own spelling: `$.mcpServers.git.args[1]`."""

from __future__ import annotations

import json
import re

ROOT = "$"

_PLAIN = re.compile(r"[A-Za-z_$][\w$-]*", re.ASCII)


def below(trail: str, step: str | int) -> str:
    """The trail of a key or an index of what stands at `trail`. Odd keys are quoted, so that no two collide."""
    if isinstance(step, int):
        return f"{trail}[{step}]"
    if _PLAIN.fullmatch(step):
        return f"{trail}.{step}"
    return f"{trail}[{json.dumps(step)}]"
