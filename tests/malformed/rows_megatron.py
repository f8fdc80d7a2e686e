"""G: what Megatron-Core records: the shapes of flattened state, integrity.json, metadata.json."""

import os

from rows import Row, from_fixture

SHA = "0" * 64
RECORD = b"nd_reformulated_orig_global_shape"
SHAPE = b"K\x02K\x0cK\x08\x87"  # the tuple (2, 12, 8)


def edit(change):
    def put(path):
        name = os.path.join(path, ".metadata")
        with open(name, "rb") as f:
            data = f.read()
        changed = change(data)
        assert changed != data
        with open(name, "wb") as f:
            f.write(changed)
    return put


def shape(columns):
    """The first shape (2, 12, 8) that is recorded for flattened state, with another number of columns."""
    def change(data):
        at = data.index(SHAPE, data.index(RECORD))
        return data[:at] + SHAPE.replace(b"\x0c", bytes([columns])) + data[at + len(SHAPE):]
    return change


def write(name, data):
    def put(path):
        with open(os.path.join(path, name), "wb") as f:
            f.write(data)
    return put


def row(id, name, cls, finding, put, fixture="megatron/flattened", **words):
    return Row(id, name, cls, finding, from_fixture(fixture, put, ""), converts=False, **words)


def manifest(id, name, cls, finding, data, **words):
    return row(id, name, cls, finding, write("integrity.json", data), "megatron/buckets", commands=("coverage", "checksum"), **words)


ROWS = [
    # 12 columns become 11, 13 and 0: of a parameter of [2, 12, 8], so that the shards do not fit.
    row("G01", "shape-smaller", "R", "MEGATRON-SHAPE", edit(shape(11))),
    row("G01", "shape-larger", "R", "MEGATRON-SHAPE", edit(shape(13))),
    row("G01", "shape-empty", "R", "MEGATRON-SHAPE", edit(shape(0))),
    manifest("G02", "no-json", "R", "MEGATRON-MANIFEST", b"{"),
    manifest("G02", "empty", "R", "MEGATRON-MANIFEST", b""),
    manifest("G02", "list", "R", "MEGATRON-MANIFEST", b"[]"),
    manifest("G02", "no-files", "R", "MEGATRON-MANIFEST", b'{"algorithm": "sha256"}'),
    manifest("G02", "files-list", "R", "MEGATRON-MANIFEST", b'{"algorithm": "sha256", "files": []}'),
    manifest("G02", "algorithm", "R", "MEGATRON-MANIFEST", b'{"algorithm": "md5", "files": {}}'),
    manifest("G02", "no-digest", "R", "MEGATRON-MANIFEST", b'{"algorithm": "sha256", "files": {".metadata": "zz"}}'),
    manifest("G02", "outside", "R", "MEGATRON-MANIFEST",
             ('{"algorithm": "sha256", "files": {"../secret": "%s"}}' % SHA).encode()),
    manifest("G03", "absent", "R", "FILE-MISSING", ('{"algorithm": "sha256", "files": {"absent": "%s"}}' % SHA).encode()),
]
