"""What servers give back as texts: text as it is, anything else in a line."""

from __future__ import annotations

from typing import Any

import pytest

from daemon.cli.use import texts


@pytest.mark.parametrize(
    ("item", "text"),
    [
        ({"type": "image", "mimeType": "image/png", "data": "QUJDRA=="},
            "[image: image/png, 4 bytes; --json prints them]"),
        ({"type": "audio", "mimeType": "audio/wav"}, "[audio: audio/wav, 0 bytes; --json prints them]"),
        ({"type": "resource_link", "uri": "file:///a", "name": "a"}, "[resource_link: file:///a a]"),
        ({"type": "resource", "resource": {"uri": "u:1", "text": "body"}}, "[resource: u:1]\nbody"),
        ({"type": "resource", "resource": {"uri": "u:1", "blob": "QUI="}},
            "[resource: u:1, 2 bytes; --json prints them]"),
        ({"type": "hologram"}, "[hologram; --json prints it]"),
    ],
)  # fmt: skip
def test_what_is_no_text_is_a_line(item: dict[str, Any], text: str) -> None:
    assert texts({"content": [item]}) == [text]


def test_structured_content_stands_in_for_missing_text() -> None:
    assert texts({"content": [], "structuredContent": {"a": 1}}) == ['{\n  "a": 1\n}']
    assert texts({"content": []}) == []
