"""What is sent to a server in place of a client's own params."""

from __future__ import annotations

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from daemon.clients.requests.forwarding import forward_to, text_in


@given(st.text(), st.none() | st.dictionaries(st.text(), st.integers()))
def test_the_name_and_the_payload_are_the_params(name: str, arguments: dict[str, int] | None) -> None:
    payload = None if arguments is None else Raw(json.dumps(arguments).encode())
    forward = forward_to("alpha", "prompts/get", "alpha/prompt", "name", name, payload)
    assert (forward.server, forward.method, forward.label) == ("alpha", "prompts/get", "alpha/prompt")
    # No tool of the same name is counted, loaded or looked for.
    assert forward.name == ""
    params = json.loads(b"{%b%b}" % (forward.head, bytes(forward.arguments)))
    assert params == {"name": name, **({} if arguments is None else {"arguments": arguments})}


@pytest.mark.parametrize("written", [b"7", b"null", b"{}", b'["a"]', b"true", None])
def test_what_is_no_text_names_nothing(written: bytes | None) -> None:
    with pytest.raises(msgspec.MsgspecError, match="uri"):
        text_in({} if written is None else {"uri": Raw(written)}, "uri")
    assert text_in({"uri": Raw(b'"\\u00e4:"')}, "uri") == "\u00e4:"
