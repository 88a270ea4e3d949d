"""Bundles as their authors make them: a real server with its dependencies, packed by the official tool."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

from tests.e2e.harness import NODE
from tests.waiting import run_to_end

PACKER = NODE / "@anthropic-ai" / "mcpb" / "dist" / "cli" / "cli.js"


def pack(directory: Path, manifest: dict[str, Any]) -> Path:
    """Pack a directory; the tool checks it against the specification."""
    described = {"description": "A server", "author": {"name": "Some One"}, "version": "1.0.0", **manifest}
    (directory / "manifest.json").write_text(json.dumps(described))
    made = directory.with_suffix(".mcpb")
    done = run_to_end(["node", str(PACKER), "pack", str(directory), str(made)])
    assert done.returncode == 0, done.stdout + done.stderr
    return made


def node_bundle(directory: Path, package: str, config: dict[str, Any], **manifest: Any) -> Path:
    """Pack an npm server with its dependencies; `config` has the rest of `mcp_config`."""
    home = directory / "server"
    ignored = shutil.ignore_patterns("node_modules", "*.map", "*.ts", "*.md", "src")
    for source in _packages(NODE / "@modelcontextprotocol" / package):
        target = home / "node_modules" / source.relative_to(NODE)
        shutil.copytree(source, target, ignore=ignored, dirs_exist_ok=True)
    entry = f"server/node_modules/@modelcontextprotocol/{package}/dist/index.js"
    launch = {"command": "node", **config, "args": [f"${{__dirname}}/{entry}", *config.get("args", ())]}
    server = {"type": "node", "entry_point": entry, "mcp_config": launch}
    return pack(directory, {"manifest_version": "0.3", "name": package, "server": server, **manifest})


def _packages(package: Path) -> Iterator[Path]:
    """The npm packages that a package needs, each from the nearest directory above."""
    waiting, seen = [package], set[Path]()
    while waiting:
        found = waiting.pop()
        if found in seen:
            continue
        seen.add(found)
        yield found
        homes = [found / "node_modules", *(each for each in found.parents if each.name == "node_modules")]
        names = json.loads((found / "package.json").read_text()).get("dependencies", {})
        waiting += [next(each / name for each in homes if (each / name).is_dir()) for name in names]


def python_bundle(
    directory: Path, distribution: str, module: str, config: dict[str, Any], **manifest: Any
) -> Path:
    """Pack a PyPI server with its dependencies, in `server/lib`."""
    library = directory / "server" / "lib"
    for each in _distributions(distribution):
        for file in each.files or ():
            if ".." not in file.parts and file.suffix != ".pyc":
                target = library / file
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(str(each.locate_file(file)), target)
    (directory / "server" / "main.py").write_text(f"from {module} import main\n\nmain()\n")
    launch = {
        "command": "python",
        "args": ["${__dirname}/server/main.py", *config.get("args", ())],
        "env": {"PYTHONPATH": "${__dirname}/server/lib", **config.get("env", {})},
    }
    server = {"type": "python", "entry_point": "server/main.py", "mcp_config": launch}
    return pack(directory, {"manifest_version": "0.2", "name": distribution, "server": server, **manifest})


def _distributions(name: str) -> Iterator[metadata.Distribution]:
    waiting, seen = [name], set[str]()
    while waiting:
        name = re.sub(r"[-_.]+", "-", waiting.pop()).lower()
        if name in seen:
            continue
        seen.add(name)
        try:
            found = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            continue  # For another system, or an extra.
        yield found
        waiting += [re.split(r"[^\w.-]", each)[0] for each in found.requires or () if "extra ==" not in each]
