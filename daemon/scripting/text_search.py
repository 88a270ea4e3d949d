"""Searches a text with `grep` (RE2) or a `jq` program, in a process with limits.

The process cannot open files, as a jq program could read any.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys

import msgspec
import re2

from daemon.errors import InvalidArguments
from daemon.kit.later import later
from daemon.processes import marks, proc
from daemon.processes.children import THIS_CODE

jq = later("jq")  # of an extra

PROGRAM = (sys.executable, "-P", "-m", "daemon.scripting.text_search")
SECONDS, MEMORY = 5, 512 * 1024 * 1024  # of a processor, and bytes: 16 MiB of JSON take jq some 300 MiB
END = b"\0"  # the last byte printed, by a search that has come to its end, or to that of its room
MAX_LINE, BEFORE = 400, 100  # bytes shown of a longer line that matches, and those of them before the match
MISSING = "jq needs an extra of mcpd (tell the user: pip install 'mcpd-supervisor[code]')"
TOO_MUCH = f"it took more than {SECONDS} s or {MEMORY >> 20} MiB: search for less"


def search(text: bytes, room: int, pattern: str | None, program: str | None) -> bytes:
    """The lines that match, or the program's values, at most a little over `room` bytes. Blocks.

    Raises InvalidArguments: a fault in pattern or program, or a limit.
    """
    told = msgspec.json.encode((room, pattern, program)) + b"\n" + text
    marks.started(mark := marks.new(), marks.ELSEWHERE)
    try:
        done = subprocess.run(
            PROGRAM, input=told, capture_output=True, timeout=2 * SECONDS, env=THIS_CODE, check=False
        )
    except subprocess.TimeoutExpired:
        raise InvalidArguments(TOO_MUCH) from None
    finally:
        marks.forget(mark)
    if not done.stdout.endswith(END):
        fault = done.stderr.decode().partition("Error: ")[2] or TOO_MUCH
        raise InvalidArguments(fault.replace("No module named 'jq'", MISSING))
    return done.stdout.removesuffix(END)


if __name__ == "__main__":
    proc.hide()
    room, pattern, program = json.loads(sys.stdin.buffer.readline())
    compiled, offset = jq.compile if program else None, 0
    for limit, most in (
        (resource.RLIMIT_AS, MEMORY),
        (resource.RLIMIT_CPU, SECONDS),
        (resource.RLIMIT_NOFILE, 0),
    ):
        resource.setrlimit(limit, (most, most))
    for value in compiled(program).input_text(sys.stdin.read()) if compiled else ():
        room -= sys.stdout.write(json.dumps(value, ensure_ascii=False)[: room + 1] + "\n")
        if room < 0:
            break
    try:
        grep = re2.compile((pattern or "").encode())
    except re2.error as fault:
        sys.exit(f"Error: {fault.args[0].decode()}")
    for number, line in enumerate(sys.stdin.buffer, 1):
        if room > 0 and (match := grep.search(line)):
            begin = max(0, match.start() - BEFORE) if len(line) > MAX_LINE else 0
            shown = line[begin : begin + MAX_LINE].decode(errors="ignore").rstrip("\n")
            room -= sys.stdout.write(f"{number}:{offset + begin}:{shown}\n")
        offset += len(line)
    sys.stdout.write(END.decode())
