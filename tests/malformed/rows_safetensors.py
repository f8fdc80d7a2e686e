"""T: safetensors files."""

import json
import struct

from rows import ANY, Row, as_file, fixture_bytes
from pickle_builder import FLOATS, Entry, pickle, tensor, zip_file

FILE = "model.safetensors"
LIMIT = 100_000_000


def row(id, name, cls, finding, data, **words):
    return Row(id, name, cls, finding, as_file(data, FILE), **words)


def st(header, data=FLOATS, nbytes=None):
    """A file of this header (a dict, text or bytes); nbytes is what it says of the header's length."""
    if isinstance(header, dict):
        header = json.dumps(header)
    if isinstance(header, str):
        header = header.encode()
    return struct.pack("<Q", len(header) if nbytes is None else nbytes) + header + data


def entry(dtype="F32", shape=(2, 3), offsets=(0, 24)):
    return {"dtype": dtype, "shape": list(shape), "data_offsets": list(offsets)}


GOOD = '{"w":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]}}'


def one(**w):
    return st({"w": entry(**w)})


def replaced(old, new, data=FLOATS):
    assert old in GOOD
    return st(GOOD.replace(old, new), data)


def padded(nbytes):
    return lambda: st(GOOD.encode().ljust(nbytes))


def head():
    whole = len(st(GOOD))
    rows = [row("T01", f"{n}-bytes", "R", "FILE-SHORT", st(GOOD)[:n]) for n in range(8)]
    rows += [
        row("T01", "length-0", "R", "ST-HEADER-SIZE", st("", b"")),
        row("T01", "length-0-with-data", "R", "ST-HEADER-SIZE", st("")),
        row("T01", "length-1", "R", "ST-HEADER-SIZE", st("{", b"")),
        row("T02", "100000000", "A", None, padded(LIMIT), commands=("inspect", "structure", "coverage", "consolidate")),
        row("T02", "100000001", "R", "ST-HEADER-SIZE", padded(LIMIT + 1), offset=0),
    ]
    for name, n in (("2e31", 2**31), ("2e63", 2**63), ("2e64", 2**64 - 1), ("file-7", whole - 7)):
        rows.append(row("T03", name, "R", "ST-HEADER-SIZE", st(GOOD, nbytes=n), offset=0))
    rows.append(row("T03", "file-8", "R", "ST-UTF8", st(GOOD, b"\xff" * 24, nbytes=whole - 8),
                    settled="the header fits the file: what follows the object is not text"))
    for name, header in (("latin1", b'{"\xe9":1}'), ("overlong", b'{"\xc0\xaf":1}'), ("bom", b"\xef\xbb\xbf" + GOOD.encode()),
                         ("nul", GOOD.encode() + b"\0"), ("surrogate", b'{"\xed\xa0\x80":1}'), ("cut", b'{"\xe2\x82":1}')):
        rows.append(row("T04", name, "R", "ST-UTF8", st(header), offset=ANY))
    for name, text in (("space", " " + GOOD), ("newline", "\n" + GOOD), ("junk", GOOD + "x"), ("two", GOOD + GOOD),
                       ("newline-behind", GOOD + "\n"), ("array", "[" + GOOD + "]"), ("text", '"w"')):
        rows.append(row("T05", name, "R", "ST-JSON", st(text), offset=ANY))
    rows.append(row("T05", "spaces-behind", "A", None, st(GOOD + " " * 9)))
    return rows


def keys():
    body = GOOD[1:-1]
    meta = lambda text: st('{"__metadata__":' + text + "," + body + "}")
    return [
        row("T06", "twice", "R", "ST-DUPKEY", st("{" + body + "," + body + "}"), offset=ANY),
        row("T06", "unescaped", "R", "ST-DUPKEY", st("{" + body + "," + body.replace('"w"', '"\\u0077"') + "}"), offset=ANY),
        row("T06", "field", "R", "ST-DUPKEY", replaced('"dtype":"F32"', '"dtype":"F32","dtype":"I32"'), offset=ANY),
        row("T07", "twice", "R", "ST-META", st('{"__metadata__":{},"__metadata__":{},' + body + "}")),
        row("T07", "key-twice", "R", "ST-META", meta('{"a":"b","a":"c"}')),
        row("T07", "number", "R", "ST-META", meta('{"a":1}')),
        row("T07", "null", "R", "ST-META", meta('{"a":null}')),
        row("T07", "array", "R", "ST-META", meta("[]")),
        row("T07", "nested", "R", "ST-META", meta('{"a":{"b":"c"}}')),
        row("T07", "50MB", "A", None, lambda: meta(json.dumps({"a": "x" * 50_000_000}))),
        row("T08", "deep", "R", "ST-ENTRY", st('{"w":' + "[" * 100_000 + "]" * 100_000 + "}"), offset=ANY,
            settled="an entry is an object: the first bracket is wrong"),
        row("T08", "deep-inside", "R", "ST-JSON", replaced('"shape":[2,3]', '"x":' + "[" * 100_000 + "]" * 100_000), offset=ANY),
        row("T08", "comment", "R", "ST-JSON", replaced('{"w"', '{/*c*/"w"'), offset=ANY),
        row("T08", "comma", "R", "ST-JSON", replaced("}}", "},}"), offset=ANY),
        row("T08", "quotes", "R", "ST-JSON", st(GOOD.replace('"', "'")), offset=ANY),
        row("T08", "nan", "R", "ST-JSON", replaced("[2,3]", "[NaN,3]"), offset=ANY),
        row("T08", "cut", "R", "ST-JSON", st(GOOD[:-1]), offset=ANY),
    ]


def numbers():
    rows = []
    for name, text in (("float", "2.0"), ("exponent", "2e0"), ("minus-zero", "-0"), ("leading-zero", "02"), ("2e64", str(2**64)),
                       ("400-digits", "1" * 400)):
        rows.append(row("T09", name, "R", "ST-NUMBER", replaced("[2,3]", f"[{text},3]"), offset=ANY))
    rows.append(row("T09", "plus", "R", "ST-NUMBER", replaced("[2,3]", "[+2,3]"), offset=ANY))
    rows.append(row("T09", "2e53", "R", "ST-LENGTH", replaced("[2,3]", f"[{2**53 + 1}]"), says=(str((2**53 + 1) * 4),)))
    rows += [
        row("T10", "overflow", "R", "ST-SHAPE", one(shape=(2**40, 2**40))),
        row("T10", "zero", "A", None, st({"w": entry(shape=(0, 2**62), offsets=(0, 0))}, b"")),
        row("T10", "zero-2e63", "R", "ST-SHAPE", st({"w": entry(shape=(0, 2**63), offsets=(0, 0))}, b""),
            settled="a dim of 2**63 is more than any reader's integers hold"),
        row("T10", "rank", "L", "ST-SHAPE", one(shape=(1,) * 100_000, offsets=(0, 4))),
        row("T10", "rank-64", "A", None, one(shape=(1,) * 62 + (2, 3))),
        row("T10", "negative", "R", "ST-SHAPE", one(shape=(-2, 3))),
        row("T11", "backwards", "R", "ST-OFFSET", one(offsets=(24, 0))),
        row("T11", "gap-at-0", "R", "ST-OFFSET", st({"w": entry(offsets=(4, 28))}, FLOATS + b"\0" * 4)),
        row("T11", "gap-between", "R", "ST-OFFSET", st({"w": entry(), "v": entry(offsets=(28, 52))}, FLOATS * 2 + b"\0" * 4)),
        row("T11", "overlap", "R", "ST-OFFSET", st({"w": entry(), "v": entry(offsets=(20, 44))}, FLOATS * 2)),
        row("T11", "same", "R", "ST-OFFSET", st({"w": entry(), "v": entry()})),
        row("T12", "before", "R", "FILE-SHORT", st(GOOD, FLOATS[:-1])),
        row("T12", "after", "R", "ST-TRAILING", st(GOOD, FLOATS + b"\0")),
        row("T12", "long-after", "R", "ST-TRAILING", st(GOOD, FLOATS + b"PK\x05\x06" + b"\0" * 18)),
        row("T13", "less", "R", "ST-LENGTH", st({"w": entry(offsets=(0, 20))}, FLOATS[:20])),
        row("T13", "more", "R", "ST-LENGTH", st({"w": entry(offsets=(0, 28))}, FLOATS + b"\0" * 4)),
        row("T14", "unknown", "U", "ST-DTYPE", one(dtype="F6_E2M3", shape=(4, 8))),
        row("T14", "unheard-of", "U", "ST-DTYPE", one(dtype="F7")),
        row("T14", "lower", "R", "ST-DTYPE", one(dtype="f32")),
        row("T14", "half-a-byte", "R", "ST-DTYPE", st({"w": entry("F4", (3,), (0, 1))}, b"\0")),
    ]
    for field in ('"dtype":"F32",', '"shape":[2,3],', ',"data_offsets":[0,24]'):
        rows.append(row("T15", "no-" + field.split('"')[1], "R", "ST-ENTRY", replaced(field, "")))
    rows += [
        row("T15", "extra", "W", "ST-FIELD", replaced('"dtype"', '"extra":1,"dtype"')),
        row("T15", "one-offset", "R", "ST-ENTRY", replaced("[0,24]", "[0]")),
        row("T15", "three-offsets", "R", "ST-ENTRY", replaced("[0,24]", "[0,24,24]")),
        row("T15", "shape-of-text", "R", "ST-ENTRY", replaced("[2,3]", '"2,3"')),
    ]
    return rows


def colliding(count):
    """Names that hash to one value where a hash is h * 31 + c, as many do."""
    bits = (count - 1).bit_length()
    return ["".join("BB" if i >> b & 1 else "Aa" for b in range(bits)) for i in range(count)]


def many(names):
    parts = [f'"{name}":{{"dtype":"U8","shape":[1],"data_offsets":[{i},{i + 1}]}}' for i, name in enumerate(names)]
    return st("{" + ",".join(parts) + "}", b"\1" * len(names))


def good():
    hidden = zip_file([Entry("archive/data.pkl", pickle({"w": tensor()}))])
    names = {"empty": "", "nul": "a\0b", "bidi": "a\u202eb\u2066", "escape": "a\x1b[31m\nINJECTED", "cr": "a\rINJECTED",
             "1MB": "n" * 1_000_000, "c1": "a\x9b31m", "path": "../../w"}
    rows = [
        row("T16", "zero-size", "A", None, st({"a": entry(shape=(0, 3), offsets=(0, 0)), "w": entry(),
                                               "z": entry(shape=(0,), offsets=(24, 24))})),
        row("T16", "scalar", "A", None, st({"w": entry(shape=(), offsets=(0, 4))}, FLOATS[:4])),
        row("T16", "nothing", "A", None, st("{}", b""), commands=("inspect", "structure", "coverage"), strict=False,
            settled="from level coverage on verify warns that there is no tensor to convert: KEY-NONE"),
        row("T16", "unaligned", "A", None, st(GOOD + " " * (1 if len(GOOD) % 8 == 0 else 0))),
        row("T16", "unsorted", "A", None, st({"b": entry(offsets=(24, 48)), "a": entry()}, FLOATS * 2)),
        row("T16", "official", "A", None, fixture_bytes("st-official/model.safetensors"),
            commands=("inspect", "structure", "coverage", "consolidate")),
    ]
    for name, text in names.items():
        rows.append(row("T17", name, "A", None, st({text: entry()})))
    rows += [
        row("T18", "500000", "A", None, lambda: many([f"layers.{i:06d}.{'x' * 90}" for i in range(500_000)]), sandbox=False,
            commands=("inspect", "structure", "coverage"), seconds=60),
        row("T18", "500000-in-little-memory", "L", None, lambda: many([f"layers.{i:06d}.{'x' * 90}" for i in range(500_000)]),
            sandbox=True, commands=("inspect", "structure", "coverage"),
            settled="half a million tensors need more than a part of 256 MiB"),
        row("T18", "colliding", "A", None, lambda: many(colliding(1 << 16)), commands=("inspect", "structure", "coverage")),
        row("T19", "zip", "R", "ST-UTF8", st(GOOD.encode() + hidden),
            settled="what does not read as text is found before what does not read as JSON"),
        row("T19", "zip-of-text", "R", "ST-JSON", st(GOOD + " PK ")),
        row("T19", "pickle", "R", "ST-JSON", st(GOOD.encode() + b"cos\nsystem\n(Vtouch marker\ntR.")),
        row("T20", "nan", "W", "NUM-NAN", st({"w": entry()}, struct.pack("<6f", *[float("nan")] * 6)), at="numeric"),
        row("T20", "infinite", "A", "NUM-INF", st({"w": entry()}, struct.pack("<6f", *[float("inf")] * 6)), at="numeric"),
    ]
    return rows


ROWS = head() + keys() + numbers() + good()
