"""A login process that does what the scope of its wish says, as a program: for faults that a real one has not.

It writes what it was told to the file `told` in the state directory, for tests to see. A wish of mcpd's own is
obeyed by its client's id, and adds a line to the file of its token.
"""

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


def own(wish: dict[str, Any]) -> None:
    auth = wish["auth"]
    with Path(auth["token_file"]).open("a+") as file:
        file.write(json.dumps({"argv": sys.argv, "environ": sorted(os.environ), "wish": wish}) + "\n")
        file.seek(0)
        number = len(file.readlines())
    match auth["client_id"]:
        case "refused":
            say(type="failed", message=f"no token, attempt {number}")
        case "later":
            say(type="failed", message=f"not now, attempt {number}", temporary=True)
        case "dies":
            sys.exit(3)
        case "mute":
            time.sleep(600)
        case life:
            now = time.time()
            seconds = {"renew": -1, "ends": -2}.get(life, 3600)
            login = {"url": wish["url"], "issuer": auth["issuer"], "tokenEndpoint": "t", "clientId": life}
            ends = {"renewAt": now + seconds, "expiresAt": now + seconds + 2 * (life == "renew") + 1}
            say(type="done", login={**login, **ends, "accessToken": f"s3cret-{number}"})


def main() -> None:
    wish = json.loads(sys.stdin.readline())
    if wish["auth"] is not None:
        own(wish)
        return
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
