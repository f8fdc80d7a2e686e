"""X: folders of safetensors with an index; S: shards of them that torch writes."""

import json
import os
import shutil
import struct

from rows import SEED, Row, from_fixture

HF = "hf-index"
INDEX = "model.safetensors.index.json"
FIRST, SECOND = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"


def index(edit):
    """A builder: edit(document) changes the index, or gives its text."""

    def change(path):
        file = os.path.join(path, INDEX)
        with open(file) as f:
            document = json.load(f)
        text = edit(document)
        with open(file, "w" if not isinstance(text, bytes) else "wb") as f:
            f.write(json.dumps(document) if text is None else text)

    return from_fixture(HF, change)


def mapped(value):
    def edit(document):
        name = next(iter(document["weight_map"]))
        document["weight_map"][name] = value

    return index(edit)


def row(id, name, cls, finding, build, **words):
    return Row(id, name, cls, finding, build, **words)


def linked(path):
    os.rename(os.path.join(path, FIRST), os.path.join(os.path.dirname(path), "elsewhere"))
    os.symlink("../elsewhere", os.path.join(path, FIRST))


def drop_from_map(document):
    del document["weight_map"][next(iter(document["weight_map"]))]


def other_file(document):
    name = next(n for n, file in document["weight_map"].items() if file == FIRST)
    document["weight_map"][name] = SECOND


def unknown_tensor(document):
    document["weight_map"]["not.there"] = FIRST


def total(value):
    def edit(document):
        if value is None:
            del document["metadata"]["total_size"]
        else:
            document["metadata"]["total_size"] = value

    return index(edit)


def parts(path):
    with open(path, "rb") as f:
        data = f.read()
    n, = struct.unpack("<Q", data[:8])
    return json.loads(data[8:8 + n]), data[8 + n:]


def second_holds_first(path):
    header, data = parts(os.path.join(path, SECOND))
    others, more = parts(os.path.join(path, FIRST))
    for name, entry in others.items():
        if name != "__metadata__":
            header[name] = {**entry, "data_offsets": [at + len(data) for at in entry["data_offsets"]]}
    text = json.dumps(header).encode()
    with open(os.path.join(path, SECOND), "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + data + more)


def huge(path):
    os.truncate(os.path.join(path, INDEX), 1 << 30)


def duplicated(path):
    file = os.path.join(path, INDEX)
    with open(file) as f:
        text = f.read()
    pair = text[text.index('"weight_map"'):]
    pair = pair[pair.index("{") + 1:pair.index(",")]
    with open(file, "w") as f:
        f.write(text.replace(pair, pair + "," + pair, 1))


def single(path, of=SECOND):
    shutil.copyfile(os.path.join(path, of), os.path.join(path, "model.safetensors"))


def beside(path, name):
    with open(os.path.join(path, name), "wb") as f:
        f.write(b"not looked into")


ROWS = [
    *[row("X01", name, "R", "IDX-PATH", mapped(value)) for name, value in (
        ("up", "../" + FIRST), ("absolute", "/etc/passwd"), ("up-inside", "x/../../" + FIRST), ("empty", ""),
        ("nul", FIRST + "\0"), ("here", "./" + FIRST), ("escape", "/\x1b[31m\nINJECTED"))],
    row("X01", "backslash", "R", "FILE-MISSING", mapped("..\\" + FIRST), settled="here it is a letter of a name as any other"),
    row("X01", "url", "R", "IDX-PATH", mapped("https://example.org/" + FIRST)),
    row("X01", "link", "A", None, from_fixture(HF, linked), settled="links that the owner placed are followed"),
    row("X01", "snapshot", "A", None, from_fixture("hf-snapshot")),
    row("X02", "shard-lost", "R", "FILE-MISSING", from_fixture(HF, lambda p: os.remove(os.path.join(p, SECOND))), says=(SECOND,)),
    row("X02", "both-lost", "R", "FILE-MISSING", from_fixture(HF, lambda p: [os.remove(os.path.join(p, f)) for f in (FIRST, SECOND)]
                                                             and None), says=(FIRST, SECOND)),
    row("X02", "tensor-elsewhere", "R", "IDX-TENSOR", index(other_file)),
    row("X02", "tensor-nowhere", "R", "IDX-TENSOR", index(unknown_tensor), says=("not.there",)),
    row("X02", "in-two-shards", "R", "IDX-DUP", from_fixture(HF, second_holds_first)),
    row("X02", "in-no-map", "W", "IDX-EXTRA", index(drop_from_map)),
    row("X02", "single-file", "W", "IDX-SHADOW", from_fixture(HF, single)),
    row("X02", "single-same", "W", "IDX-SHADOW", from_fixture(HF, lambda p: single(p, FIRST))),
    row("X02", "bin-beside", "A", "WEIGHTS-BESIDE", from_fixture(HF, lambda p: beside(p, "pytorch_model.bin"))),
    row("X02", "named-twice", "R", "IDX-DUP", from_fixture(HF, duplicated)),
    row("X03", "wrong", "W", "IDX-TOTAL", total(5)),
    row("X03", "absent", "A", None, total(None), settled="that it is absent is a note"),
    row("X04", "number", "R", "IDX-JSON", mapped(7)),
    row("X04", "list", "R", "IDX-JSON", mapped([FIRST])),
    row("X04", "empty-map", "R", "IDX-JSON", index(lambda d: d["weight_map"].clear())),
    row("X04", "no-map", "R", "IDX-JSON", index(lambda d: "{}")),
    row("X04", "not-json", "R", "IDX-JSON", index(lambda d: "weight_map")),
    row("X04", "cut", "R", "IDX-JSON", index(lambda d: json.dumps(d)[:40])),
    row("X04", "not-utf8", "R", "IDX-JSON", index(lambda d: b'{"weight_map":{"\xff":"' + FIRST.encode() + b'"}}')),
    row("X04", "deep", "R", "IDX-JSON", index(lambda d: '{"metadata":' + "[" * 100_000 + "]" * 100_000 + "}")),
    row("X04", "1GB", "L", None, from_fixture(HF, huge)),
]

SHARDS = "hf-shards"


def lost(number):
    def change(path):
        for name in os.listdir(path):
            if name.startswith(f"shard-0000{number}-"):
                os.remove(os.path.join(path, name))

    return from_fixture(SHARDS, change)


def cut(path):
    for name in os.listdir(path):
        if name.startswith("shard-00002-"):
            os.truncate(os.path.join(path, name), os.path.getsize(os.path.join(path, name)) - 1)


ROWS += [
    row("S01", "first-lost", "R", "FILE-MISSING", lost(1)),
    row("S01", "middle-lost", "R", "FILE-MISSING", lost(2)),
    row("S01", "last-stated", "R", "FILE-MISSING", lost(4), options=("--source-ranks", "4")),
    row("S02", "cut", "R", "FILE-SHORT", from_fixture(SHARDS, cut)),
]
