"""Answers with what was sent: imported by a child as well, which starts fast without the rest of the tests."""

import msgspec
from msgspec import Raw, Struct

PAYLOAD = (
    '{ "big":1e400 ,\t"long":12345678901234567890123, "twice":1,"twice" :2.50, "minus":-0,'
    r' "escaped":"\u00fc\/\u0041\ud83d\ude00", "plain":"ü/A😀", "":[ ] ,"deep":{"result":{"id":1}}}'
).encode()


class Params(Struct):
    arguments: Raw


class Call(Struct):
    id: int
    params: Params


def answered(line: bytes) -> bytes:
    """The answer to a call: its arguments as they came, and the payload."""
    call = msgspec.json.decode(line, type=Call)
    return b'{"jsonrpc": "2.0" ,"result":%b, "id":%d}' % (answer_to(bytes(call.params.arguments)), call.id)


def answer_to(arguments: bytes) -> bytes:
    return b'{"given" : %b, "own":%b}' % (arguments, PAYLOAD)
