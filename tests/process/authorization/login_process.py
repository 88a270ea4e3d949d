"""A login process that does what the scope of its wish says, as a program: for faults that a real one has not.

It writes what it was told to the file `told` in the state directory, for tests to see.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

URL = "https://as.example/authorize?state=s3cret"


def say(**message: Any) -> None:
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


def main() -> None:
    wish = json.loads(sys.stdin.readline())
    told = Path(wish["directory"]) / "told"
    seen = {"argv": sys.argv, "environ": sorted(os.environ), "wish": wish}
    told.write_text(json.dumps(seen))
    match wish.get("scope"):
        case "garbage":
            sys.stdout.write("Traceback: s3cret\n")
        case "endless":
            sys.stdout.write("x" * 10_000_000)
            sys.stdout.flush()
        case "dies":
            sys.exit(3)
        case "hangs":
            say(type="link", url=URL, redirect="http://127.0.0.1:1/callback")
            time.sleep(600)
        case "refused":
            say(type="failed", message="the user has refused")
        case "device":
            say(type="device", url="https://as.example/device", code="ABCD-EFGH")
            say(type="done", scope="device")
        case _:
            say(type="link", url=URL, redirect="http://127.0.0.1:1/callback")
            answer = json.loads(sys.stdin.readline())
            sys.stderr.write("noise\n")
            say(type="done", scope=answer["url"], expiresAt=12.5)


if __name__ == "__main__":
    main()
