"""Scripts that stay: a file `scripts/NAME.py` next to a configuration is a tool (docs/surfaces.md).

A file is parsed here, and never run. The scripts are the tools of the server `script`, which mcpd itself is.
"""

from __future__ import annotations

import ast
import hashlib
import importlib.util
from pathlib import Path

import attrs
import msgspec

from daemon.config.config_files import MAX_FILES, SCRIPT_FILES, SCRIPTS, text_of
from daemon.config.config_model import Category, Config, Server, TransportType
from daemon.errors import ConfigError, Fault

SERVER = "script"
"""The name of the server whose tools are the scripts."""

_ABOUT = "The user's own scripts."

MAX_CODE = 64 * 1024
"""Bytes of one script: a long one has a tenth."""

_TYPES = {"int": "integer", "float": "number", "str": "string", "bool": "boolean", "None": "null"}
_KNOWN = "int, float, str, bool, None, list[T], dict[str, T], Literal['a', 1] or T | None"


def with_scripts(config: Config, path: Path) -> Config:
    """A configuration with the scripts that its profiles name, as the tools of a server."""
    names = {name for each in config.profiles.values() for name in each.scripts}
    if "*" in names:
        names = {*names, *(each.stem for each in path.parent.glob(SCRIPT_FILES))} - {"*"}
    if not names:
        return config
    why = f"{len(names)} scripts, of which {MAX_FILES} are read at most" if len(names) > MAX_FILES else ""
    if SERVER in {*config.mcp_servers, *config.categories}:
        why = f"no script is a tool while a server or category has the name {SERVER}: rename that"
    elif importlib.util.find_spec("pydantic_monty") is None:
        why = "no script is a tool without the extra: pip install 'mcpd-supervisor[code]'"
    if why:
        return attrs.evolve(config, script_faults=(Fault(path=SCRIPTS, message=why),))
    scripts, faults = dict[str, tuple[str, bytes]](), tuple[Fault, ...]()
    for name in sorted(names):
        try:
            scripts[name] = _script(name, path.parent / SCRIPTS / f"{name}.py")
        except ConfigError as error:
            faults += tuple(attrs.evolve(each, path=f"{SCRIPTS}/{name}.py") for each in error.faults)
        except (SyntaxError, ValueError, TypeError, OverflowError, RecursionError, MemoryError) as error:
            said, line, column = (getattr(error, each, None) for each in ("msg", "lineno", "offset"))
            said = said or f"cannot be read: {error!r}"
            faults += (Fault(path=f"{SCRIPTS}/{name}.py", message=said, line=line, column=column),)
    made = Server(name=SERVER, description=_ABOUT, identity=SERVER, type=TransportType.SCRIPT, scripts=scripts)
    own = {SERVER: Category(name=SERVER, description=_ABOUT, server=SERVER)} if config.categories else {}
    profiles = {
        name: attrs.evolve(each, categories=each.categories and (*each.categories, SERVER))
        for name, each in config.profiles.items()
    }
    servers, own = {**config.mcp_servers, SERVER: made}, {**config.categories, **own}
    return attrs.evolve(config, mcp_servers=servers, categories=own, profiles=profiles, script_faults=faults)


def _script(name: str, path: Path) -> tuple[str, bytes]:
    """The code of a script, which ends with a call of `main`, and the tool. Raises its fault."""
    if not (name.isidentifier() and name.isascii()) or path.is_symlink():
        raise SyntaxError("write the file itself here, with a name of letters, digits and _")
    tree = ast.parse(text := text_of(path, MAX_CODE, "script"))
    main = next((each for each in tree.body if getattr(each, "name", "") == "main"), None)
    if not (said := ast.get_docstring(tree)) or not isinstance(main, ast.FunctionDef | ast.AsyncFunctionDef):
        raise SyntaxError("write a docstring at the top, which describes the tool, and `async def main(...)`")
    # Trust compares what is called `definition` digit by digit (`catalog.forms`).
    meta = {"mcpd/script": {"definition": hashlib.sha256(text.encode()).hexdigest()}}
    tool = {"name": name, "description": said, "inputSchema": _arguments(main.args), "_meta": meta}
    awaits = "await " * isinstance(main, ast.AsyncFunctionDef)
    return f"{text}\n{awaits}main(**_mcpd_arguments)", msgspec.json.encode(tool)


def _arguments(given: ast.arguments) -> dict[str, object]:
    """The schema of the arguments of `main`. Raises SyntaxError."""
    if given.posonlyargs or given.vararg or given.kwarg:
        raise SyntaxError("callers name all arguments of `main`: write its parameters without *, ** and /")
    defaults = [*[None] * (len(given.args) - len(given.defaults)), *given.defaults, *given.kw_defaults]
    properties: dict[str, dict[str, object]] = {}
    for each, default in zip((*given.args, *given.kwonlyargs), defaults, strict=True):
        try:
            properties[each.arg] = _schema(each.annotation)
            if default is not None:
                properties[each.arg]["default"] = ast.literal_eval(default)
        except ValueError:
            message = f"the type of {each.arg} must be {_KNOWN}, and its default a literal"
            raise SyntaxError(message, ("", each.lineno, each.col_offset + 1, None)) from None
    required = [name for name, each in properties.items() if "default" not in each]
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


def _schema(kind: ast.AST | None) -> dict[str, object]:
    match kind:
        case ast.Name(id=name) | ast.Constant(value=name) if str(name) in _TYPES:
            return {"type": _TYPES[str(name)]}
        case ast.BinOp(left=left, op=ast.BitOr(), right=right):
            return {"anyOf": [_schema(left), _schema(right)]}
        case ast.Subscript(value=ast.Name(id="list"), slice=item):
            return {"type": "array", "items": _schema(item)}
        case ast.Subscript(value=ast.Name(id="dict"), slice=ast.Tuple(elts=[ast.Name(id="str"), item])):
            return {"type": "object", "additionalProperties": _schema(item)}
        case ast.Subscript(value=ast.Name(id="Literal"), slice=words):
            return {"enum": [*map(ast.literal_eval, getattr(words, "elts", [words]))]}
    raise ValueError
