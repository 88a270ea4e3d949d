"""Damages to a store's file that people, programs and disks cause."""

import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

HOLDER = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None, timeout=20)
connection.execute("BEGIN EXCLUSIVE")
print("held", flush=True)
sys.stdin.read()
"""
"""A program that locks the file until its standard input ends."""


@contextmanager
def held(path: Path) -> Iterator[None]:
    """Lock the file from another program."""
    words = [sys.executable, "-S", "-E", "-c", HOLDER, str(path)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        yield


def rows(path: Path, query: str) -> list[Any]:
    with closing(sqlite3.connect(path, timeout=30, isolation_level=None)) as connection:
        return connection.execute(query).fetchall()


def replaced_by_nonsense(path: Path) -> None:
    other = path.with_name("other")
    other.write_bytes(b"this is not a database" * 1000)
    other.replace(path)


def replaced_by_another(path: Path) -> None:
    other = path.with_name("other")
    rows(other, "CREATE TABLE things (name TEXT)")
    other.replace(path)


def emptied(path: Path) -> None:
    with path.open("r+b") as file:
        file.truncate(0)
