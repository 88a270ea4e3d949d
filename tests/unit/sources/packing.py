"""Bundles of a test: sound ones, and zip archives with damaged headers."""

from __future__ import annotations

import io
import struct
import zipfile
import zlib
from collections.abc import Mapping
from typing import Any

import attrs


def manifest(**change: Any) -> dict[str, Any]:
    """A manifest; `type`, `entry_point` and `mcp_config` are the server's."""
    server = {
        "type": "node",
        "entry_point": "server/index.js",
        "mcp_config": {"command": "node", "args": ["${__dirname}/server/index.js"]},
    }
    server |= {key: change.pop(key) for key in ("type", "entry_point", "mcp_config") if key in change}
    return {"manifest_version": "0.3", "name": "Some Server", "version": "1.2.3", "server": server, **change}


def packed(files: Mapping[str, str | bytes]) -> bytes:
    """A zip archive with these files."""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return made.getvalue()


@attrs.frozen
class Entry:
    """A file of an archive, and what its headers say instead of the truth."""

    name: str
    content: bytes = b""
    mode: int = 0
    method: int = 8
    flags: int = 0
    size: int | None = None
    checksum: int | None = None
    stream: bytes | None = None
    local: str | None = None
    at: int | None = None

    @classmethod
    def read(cls, row: dict[str, Any]) -> Entry:
        """The entry of a case, whose bytes are written as text."""
        return cls(
            **{key: row[key].encode("latin1") if key in {"content", "stream"} else row[key] for key in row}
        )


def bundled(*entries: Entry) -> bytes:
    """A zip archive, byte by byte."""
    made, index = bytearray(), bytearray()
    for each in entries:
        deflate = zlib.compressobj(9, zlib.DEFLATED, -15)
        stream = each.content if each.method == 0 else deflate.compress(each.content) + deflate.flush()
        stream = stream if each.stream is None else each.stream
        crc = zlib.crc32(each.content) if each.checksum is None else each.checksum
        size = len(each.content) if each.size is None else each.size
        flags = each.flags | 0x800
        local, name = (each.name if each.local is None else each.local).encode(), each.name.encode()
        extra = b""
        if size > 0xFFFFFFFF:
            extra, size = struct.pack("<HHQ", 1, 8, size), 0xFFFFFFFF
        at = len(made) if each.at is None else each.at
        common = struct.pack("<HHHHLLL", flags, each.method, 0, 33, crc, len(stream), size)
        if each.at is None:
            made += (
                b"PK\3\4" + struct.pack("<H", 20) + common + struct.pack("<HH", len(local), 0) + local + stream
            )
        index += b"PK\1\2" + struct.pack("<BBH", 20, 3, 20) + common
        index += struct.pack("<HHHHHLL", len(name), len(extra), 0, 0, 0, each.mode << 16, at) + name + extra
    end = struct.pack("<HHHHLLH", 0, 0, len(entries) & 0xFFFF, len(entries) & 0xFFFF, len(index), len(made), 0)
    return bytes(made + index) + b"PK\5\6" + end
