"""Values that hurt readers of any format: deep, long, repeated, half written, and no text."""

from __future__ import annotations

import base64

TEN_MEGABYTES = 10_000_000


def varint(number: int) -> bytes:
    """A number as Protobuf and Avro (without its sign) write it."""
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def large() -> dict[str, bytes]:
    """Values of about ten megabytes."""
    size = TEN_MEGABYTES
    half = size // 2
    return {
        "brackets": b"[" * size,
        "zeros": b"\x00" * size,
        "ones": b"\xff" * size,
        "quotes": b'"' * (size + 1),
        "twos": b"\x02" * size,
        "groups": b"\x0b" * size,
        "commas": b"," * size,
        "line breaks": b"\n" * size,
        "nested objects": b'{"a":' * (size // 6) + b"1" + b"}" * (size // 6),
        "nested arrays in an unknown field": b'{"unknown":' + b"[" * half + b"]" * half + b"}",
        "a long text": b'{"b":"' + b"x" * size + b'"}',
        "escapes": b'{"b":"' + b"\\u00e9" * (size // 6) + b'"}',
        "a long number": b'{"a":' + b"9" * size + b"}",
        "a long exponent": b'{"a":1e' + b"9" * size + b"}",
        "repeated keys": b"{" + b'"a":1,' * (size // 6) + b'"a":2}',
        "a long array": b'{"c":{"d":[' + b"1," * half + b"1]}}",
        "a long field": b"\x0a" + varint(size) + b"x" * size,
        "a field that is longer than the value": b"\x0a" + varint(1 << 40) + b"x" * 100,
        "base64": b'{"specversion":"1.0","id":"1","source":"s","type":"t","data_base64":"'
        + base64.b64encode(b"[" * half)
        + b'"}',
        "columns": b"1," * half,
        "quoted": b'"' + b'""' * half + b'"',
    }


def small() -> list[bytes]:
    """Short values that are wrong in ways of their own."""
    surrogate = b'{"a":1,"b":"\\ud800"}'
    deep = [b'{"a":' * n + b"1" + b"}" * n for n in (64, 255, 256, 257, 1_000, 2_000)]
    return [
        *deep,
        *(b"[" * n + b"]" * n for n in (256, 257, 3_000)),
        *(b'{"a":1,"a":"x","a":2}', b'{"op":"c","op":"d"}', b'{"a":{"a":1},"a":1}', b'{"":1}', b'{"\\u0000":1}'),
        *(b'{"a":' + digits + b"}" for digits in (b"9" * 5_000, b"-" + b"9" * 400, b"1e999", b"-0", b"1E400", b"0x1")),
        *(b'{"a":' + constant + b"}" for constant in (b"NaN", b"Infinity", b"-Infinity", b"01", b"1.", b".5", b"+1")),
        *(
            surrogate,
            surrogate.replace(b"d800", b"dc00"),
            b'{"b":"\xed\xa0\x80"}',
            b'{"b":"\xc0\x80"}',
            b"\xf5\x80\x80\x80",
        ),
        *(b'{"b":"\x00"}', b'{"b":"a\nb"}', b"\xef\xbb\xbf{}", b"\xff\xfe{\x00}\x00", b"{}{}", b"{}\n{}", b'{"a":1},'),
        *(
            b"\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
            b"\x0a\xff",
            b"\x0b" * 200,
            b"\x0c",
            b"\x00\x00\x00\x00\x01{}",
        ),
        *(b"\x02\x80", varint((1 << 63) - 1), b"\x01" * 12, b"Obj\x01", b"\xc3\x01" + b"\x00" * 8 + b"\x02"),
        *(b'"a""b', b'a"b', b'"', b'""', b"\r\n", b"a\rb", b",", b"\t", b" ", b"'", b"\\"),
    ]
