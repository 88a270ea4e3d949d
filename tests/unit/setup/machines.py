"""Machines with the files of clients on them: those that clients wrote, or their documentation shows."""

import json
import shutil
import tomllib
from collections.abc import Mapping
from pathlib import Path

from daemon.setup.clients.programs import Machine

CLIENTS = Path(__file__).parent / "clients"
"""A folder for each client, with what stands in the user's home directory and in a project's."""

ORIGINS: dict[str, str] = tomllib.loads((CLIENTS / "origins.toml").read_text())
"""How the files of each client came about."""


def put(path: Path, content: object, mode: int = 0o600) -> Path:
    """A file with a text, or with another value as JSON, and the directories that lead to it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    path.chmod(mode)
    return path


def machine(at: Path, *clients: str, environ: Mapping[str, str] | None = None) -> Machine:
    """A machine below `at` that has the files of some clients, and works in a project of theirs."""
    home, project = at / "home", at / "home" / "proj"
    project.mkdir(parents=True, exist_ok=True)
    for client in clients:
        for half, into in (("home", home), ("project", project)):
            if (CLIENTS / client / half).is_dir():
                shutil.copytree(CLIENTS / client / half, into, dirs_exist_ok=True)
    for path in home.rglob("*"):
        if path.is_file():
            path.write_text(path.read_text().replace("/home/ada", str(home)))
    return Machine(home=home, directory=project, environ={"HOME": str(home), **(environ or {})})
