"""Bundles (`.mcpb`, once `.dxt`): a zip archive with a server's files and a manifest (versions 0.1 to 0.4).

Archives come from outside: their bytes and files are limited, and no file is unpacked outside the directory.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import stat
import zlib
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from shutil import copyfileobj, rmtree
from tempfile import TemporaryDirectory
from typing import Any
from zipfile import BadZipFile, ZipFile, ZipInfo

from daemon.config.config_model import EntryOrigin
from daemon.config.names import slug
from daemon.host.paths import bundles, home
from daemon.kit.wording import MIB
from daemon.safety.escape import visible
from daemon.sources.downloads import fetch
from daemon.sources.offers import Input, ServerOffer, SourceTrouble, as_text, prose

MOST_UNPACKED, MOST_RATIO, MOST_FILES, MOST_NAME = 1024 * MIB, 200, 50_000, 1024
"""Limits of bytes, of the whole's compression ratio, of files and of directories, and of a path's characters.
Programs shrink to a fifth, deflate reaches 1,032 to one; a large `node_modules` has 20,000 files."""

DAMAGED = SourceTrouble, BadZipFile, zlib.error, OSError, EOFError, LookupError, ValueError, RuntimeError
"""The errors that damaged archives and JSON cause; NotImplementedError and RecursionError are RuntimeErrors."""

READ_ONLY, _INDEX_ENTRY, _STORED, _DEFLATED = 0o555, b"PK\1\2", 0, 8


def checked_archive(content: bytes) -> ZipFile:
    """Open an archive and check its index. Raises SourceTrouble.

    zipfile itself reads no more of a file than the index says, and refuses damaged and encrypted ones.
    """
    if content.count(_INDEX_ENTRY) > MOST_FILES:  # zipfile makes an object of each.
        raise SourceTrouble(f"it has more than {MOST_FILES:,} files")
    left = min(MOST_UNPACKED, MIB + MOST_RATIO * len(content))
    archive, folders = ZipFile(io.BytesIO(content)), set[PurePosixPath]()
    for each in archive.infolist():
        left -= each.file_size
        folder = PurePosixPath(each.orig_filename[:MOST_NAME]).parent
        while folder not in folders:  # A path of each file has up to 512.
            folders.add(folder)
            folder = folder.parent
        is_large = left < 0 or len(folders) > MOST_FILES
        if problem := _problem(each) or "makes the bundle too large when it is unpacked" * is_large:
            raise SourceTrouble(f"'{each.orig_filename[:99]}' in it {problem}")
    return archive


def _problem(info: ZipInfo) -> str:
    """The problem of an entry, or ""; files that exist already are refused when they are unpacked."""
    name, kind = info.orig_filename, stat.S_IFMT(info.external_attr >> 16)
    is_plain = name.isprintable() and "\\" not in name and len(name) <= MOST_NAME
    if not is_plain or not {"", ".", ".."}.isdisjoint(name.removesuffix("/").split("/")):
        return "would leave its directory, is too long, or has hidden characters or a backslash in its name"
    if kind not in {0, stat.S_IFDIR if name.endswith("/") else stat.S_IFREG}:
        return "is a link or a device"
    # zipfile bounds the memory of these alone.
    return "" if info.compress_type in {_STORED, _DEFLATED} else "is not compressed by deflate"


def unpack(archive: ZipFile, directory: Path) -> None:
    """Write a checked archive's files, read-only, all or none, unless the directory has them already."""
    # Last made read-only, and first made writable where it is deleted (`delete`) or changed.
    if os.path.lexists(directory) and directory.lstat().st_mode == stat.S_IFDIR | READ_ONLY:
        return
    directory.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with TemporaryDirectory(prefix=".", dir=directory.parent) as beside:
        for each in (info for info in archive.infolist() if not info.orig_filename.endswith("/")):
            name, place = each.orig_filename, Path(beside, "new", each.orig_filename)
            place.parent.mkdir(parents=True, exist_ok=True)
            with whole(f"'{name[:99]}' in it"), archive.open(each) as source, place.open("xb") as target:
                copyfileobj(source, target)
            place.chmod(READ_ONLY if each.external_attr >> 16 & 0o111 else 0o444)
        if directory.is_dir() and not directory.is_symlink():
            directory.chmod(0o700)
            directory.rename(Path(beside, "old"))
        Path(beside, "new").rename(directory)
    for path, _, _ in os.walk(directory, topdown=False):
        Path(path).chmod(READ_ONLY)


@contextmanager
def whole(what: str, kinds: tuple[type[Exception], ...] = DAMAGED) -> Iterator[None]:
    """Turn errors of these kinds into a SourceTrouble whose text begins with `what`."""
    try:
        yield
    except kinds as error:
        raise SourceTrouble(f"{what}: {visible(str(error))[:400]}") from None


MOST_BYTES, MOST_MANIFEST, SECONDS, REDIRECTS = 256 * MIB, MIB, 600.0, 3
"""Bytes of a bundle and of its manifest, seconds over a slow line, redirects (GitHub's releases need one)."""

_VERSIONS, _TAKEN = ("0.1", "0.2", "0.3", "0.4"), "0.1 to 0.4, for Linux"
_PLACES = re.compile(r"\$\{(__dirname|HOME|DESKTOP|DOCUMENTS|DOWNLOADS|pathSeparator|/)\}")
_SETTINGS = re.compile(r"(?<!\$)\$\$\{user_config\.([^}]+)\}")
"""References to settings, in the form that `as_text` gives them."""
_NAME = re.compile(r"[a-z0-9_-]+-[0-9a-f]{32}")


@whole("the bundle is refused, and nothing is unpacked")
def taken(
    source: Path | str, *, environ: Mapping[str, str], sha256: str | None = None, private: bool = False
) -> ServerOffer:
    """Read, check and unpack a bundle (a file or a URL), and offer its server. Raises SourceTrouble.

    `sha256` is the expected digest. `private`: the user has named the URL's host.
    """
    if isinstance(source, str):
        content = fetch(source, most=MOST_BYTES, private=private, seconds=SECONDS, redirects=REDIRECTS)
    else:
        # A pipe would block, for as long as nobody writes to it.
        with os.fdopen(os.open(source, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            content = file.read(MOST_BYTES)
    digest = hashlib.sha256(content).hexdigest()
    if sha256 and sha256.lower().removeprefix("sha256:") != digest:
        raise SourceTrouble(f"its SHA-256 is {digest}, not {sha256}: it differs from the published bundle")
    archive = checked_archive(content)
    with archive.open("manifest.json") as manifest:
        offer = _offer(json.loads(manifest.read(MOST_MANIFEST)), digest, environ, {*archive.namelist()})
    unpack(archive, Path(str(offer.origin.bundle)))
    return offer


@whole("its manifest.json has changed")
def arguments(origin: EntryOrigin, environ: Mapping[str, str]) -> Any:
    """The arguments of a bundle that was unpacked. Raises SourceTrouble."""
    directory, digest = Path(str(origin.bundle)), str(origin.hash).removeprefix("sha256:")
    files = {str(path.relative_to(directory)) for path in directory.rglob("*")}
    return _offer(json.loads((directory / "manifest.json").read_bytes()), digest, environ, files).entry["args"]


def remove(bundle: object, environ: Mapping[str, str], text: str, *, keep: bool = False) -> Path | None:
    """Delete (or `keep`) the directory of a bundle unless `text` still names it; returns it."""
    directory = Path(str(bundle))
    is_ours = directory.parent == bundles(environ) and _NAME.fullmatch(directory.name)
    if not is_ours or directory.name in text or directory.is_symlink() or not directory.is_dir():
        return None
    if not keep:
        delete(directory)
    return directory


@whole("not all of it could be deleted")
def delete(directory: Path) -> int:
    """Delete a directory, and read-only ones in it; returns its files' bytes. Raises SourceTrouble."""
    size = 0
    for _, _, files, descriptor in os.fwalk(directory):
        os.fchmod(descriptor, 0o700)
        size += sum(os.stat(each, dir_fd=descriptor, follow_symlinks=False).st_size for each in files)
    rmtree(directory)
    return size


@whole("its manifest.json is not valid", (*DAMAGED, TypeError, AttributeError))
def _offer(manifest: Any, digest: str, environ: Mapping[str, str], files: Collection[str]) -> ServerOffer:
    name, version, server = (manifest[each] for each in ("name", "version", "server"))
    asked, needs = (manifest.get(each, {}) for each in ("user_config", "compatibility"))
    kind = manifest.get("manifest_version", manifest.get("dxt_version"))
    if kind not in _VERSIONS or "linux" not in (needs.get("platforms") or ["linux"]):
        raise SourceTrouble(
            f"it has version {kind}, for {needs.get('platforms', 'all')}; mcpd accepts {_TAKEN}"
        )
    directory, own = bundles(environ) / f"{slug(name) or 'bundle'}-{digest[:32]}", home(environ)
    places = {"__dirname": str(directory), "HOME": str(own), "pathSeparator": "/", "/": "/"}

    def plain(text: object) -> str:
        text = text if isinstance(text, str) else json.dumps(text)
        text = f"${{__dirname}}/{text}" if "/" in text and text in files else text
        return _PLACES.sub(lambda found: places.get(found[1], f"{own}/{found[1].title()}"), text)

    def words(text: object) -> str:
        escaped = as_text(plain(text))
        return _SETTINGS.sub(lambda found: f"${{input:{found[1]}}}" if found[1] in asked else found[0], escaped)

    launch = server.get("mcp_config", {})
    launch = {**launch, **launch.get("platform_overrides", {}).get("linux", {})}
    if server["type"] == "uv":  # Its environment would be in the bundle, where nothing can be written.
        args = ["run", "--directory", "${__dirname}", server["entry_point"]]
        launch = {"command": "uv", "args": args, **launch}
        launch["env"] = {"UV_ISOLATED": "1", **launch.get("env", {})}
    return ServerOffer(
        name=slug(name) or "bundle",
        entry={
            "description": prose(str(manifest.get("description", ""))),
            "command": "python3" if launch["command"] == "python" else words(launch["command"]),
            "args": [words(each) for each in launch.get("args", ())],
            "env": {key: words(each) for key, each in launch.get("env", {}).items()},
        },
        origin=EntryOrigin(name=name[:128], version=version, hash=f"sha256:{digest}", bundle=str(directory)),
        inputs=tuple(_input(key, each, plain) for key, each in asked.items()),
        notes=tuple(f"it needs {each} {needs['runtimes'][each]}" for each in needs.get("runtimes", ())),
    )


def _input(key: str, setting: Mapping[str, Any], plain: Callable[[object], str]) -> Input:
    value = setting.get("default")
    defaults = [plain(each) for each in (value if isinstance(value, list) else [value]) if each is not None]
    joined = ":".join(defaults)
    parts = [joined, *defaults, *joined.split(":")]
    return Input(
        name=key,
        description=": ".join(filter(None, map(setting.get, ("title", "description")))),
        required=setting.get("required", False),
        secret=setting.get("sensitive", False),
        # A text that would be a reference, as a whole or in parts, is no default.
        default=joined if joined and as_text(parts) == parts else None,
        choices=("true", "false") if setting["type"] == "boolean" else (),
        multiple=setting.get("multiple", False),
    )
