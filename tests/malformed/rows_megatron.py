"""G: what Megatron-Core records: the shapes of flattened state, integrity.json, metadata.json."""

import os

from rows import ANY, Row, from_fixture

SHA = "0" * 64
# The shape of decoder.final_layernorm.weight, (12,), as the pickle of `.metadata` has it, after its key.
KEY = b"nd_reformulated_orig_global_shape"


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


def write(name, data):
    def put(path):
        with open(os.path.join(path, name), "wb") as f:
            f.write(data)
    return put


def row(id, name, cls, finding, put, fixture="megatron/flattened", **words):
    return Row(id, name, cls, finding, from_fixture(fixture, put, ""), converts=False, **words)


def manifest(id, name, cls, finding, data, **words):
    return row(id, name, cls, finding, write("integrity.json", data), "megatron/buckets", commands=("verify",), **words)


ROWS = [
    # 12 columns become 11, 13 and 0: of a parameter of [2, 12, 8], so that the shards do not fit.
    row("G01", "shape-smaller", "R", "MEGATRON-SHAPE", edit(lambda d: d.replace(b"K\x02K\x0cK\x08\x87", b"K\x02K\x0bK\x08\x87"))),
    row("G01", "shape-larger", "R", "MEGATRON-SHAPE", edit(lambda d: d.replace(b"K\x02K\x0cK\x08\x87", b"K\x02K\x0dK\x08\x87"))),
    row("G01", "shape-empty", "R", "MEGATRON-SHAPE", edit(lambda d: d.replace(b"K\x02K\x0cK\x08\x87", b"K\x02K\x00K\x08\x87"))),
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
