"""Q: folders with a file of each rank. What is bent is in the pickle of one file, whose CRC is made right again."""

import os
import struct
import zlib

from pickle_builder import saved, tensor
from rows import Row, from_fixture


def repickled(path, old, new):
    """Other bytes of the same length in data.pkl, as if torch had written them so."""
    with open(path, "rb") as f:
        data = bytearray(f.read())
    at = data.index(b"PK\x01\x02")
    while data[at:at + 4] == b"PK\x01\x02":
        n, e, c = struct.unpack("<HHH", data[at + 28:at + 34])
        if data[at + 46:at + 46 + n].endswith(b"/data.pkl"):
            break
        at += 46 + n + e + c
    local, = struct.unpack("<I", data[at + 42:at + 46])
    nbytes, = struct.unpack("<I", data[at + 20:at + 24])
    begin = local + 30 + sum(struct.unpack("<HH", data[local + 26:local + 30]))
    pickle = bytes(data[begin:begin + nbytes])
    assert old in pickle and len(old) == len(new)
    pickle = pickle.replace(old, new)
    data[begin:begin + nbytes] = pickle
    crc = struct.pack("<I", zlib.crc32(pickle))
    data[at + 16:at + 20] = crc
    data[begin + nbytes + 4:begin + nbytes + 8] = crc
    with open(path, "wb") as f:
        f.write(data)


def bent(fixture, old, new, all_files=True, release="torch-2.15.0/"):
    def change(path):
        names = sorted(os.listdir(path))
        for name in names if all_files else names[1:2]:
            repickled(os.path.join(path, name), old, new)

    return from_fixture(fixture, change, release)


def renamed(path):
    names = sorted(os.listdir(path))
    first, second = (os.path.join(path, n) for n in names[:2])
    os.rename(first, first + ".x")
    os.rename(second, first)
    os.rename(first + ".x", second)


def lost(path):
    os.remove(os.path.join(path, sorted(os.listdir(path))[1]))


def doubled(path):
    names = sorted(os.listdir(path))
    with open(os.path.join(path, names[0]), "rb") as f:
        data = f.read()
    with open(os.path.join(path, names[1]), "wb") as f:
        f.write(data)


def states(*values):
    """A file of each rank, with a value each beside the model."""
    def build(folder):
        path = os.path.join(folder, "ranks")
        os.mkdir(path)
        for rank, value in enumerate(values):
            with open(os.path.join(path, "model_rank%d.pt" % rank), "wb") as f:
                f.write(saved({"model": {"w": tensor()}, "state": value}))
        return path

    return build


def row(id, name, cls, finding, build, **words):
    words.setdefault("cut", ("--like", "SRC"))
    return Row(id, name, cls, finding, build, **words)


SHARDED = "ranks-sharded-tensor"
ROWS = [
    row("Q01", "dtensor", "A", None, from_fixture("ranks-dtensor")),
    row("Q01", "coordinate", "R", "CHUNK-GAP", bent("ranks-dtensor", b"_coordinate_on_dim", b"_coordinate_on_din"),
        at="coverage", settled="without a place of its own a rank holds nothing, so that something is missing"),
    row("Q01", "layout", "R", "RANK-DTENSOR", bent("ranks-dtensor", b"X\x04\0\0\0axes", b"X\x04\0\0\0axet")),
    row("Q01", "dim", "R", "RANK-DTENSOR", bent("ranks-dtensor", b"X\x03\0\0\0dim", b"X\x03\0\0\0din")),
    row("Q01", "spec", "R", "RANK-DTENSOR", bent("ranks-dtensor", b"DTensorSpec\n", b"DTensorSpeb\n")),
    row("Q02", "placement", "U", "RANK-PLACEMENT", bent("ranks-dtensor", b"placement_types\nShard\n", b"placement_types\nShare\n")),
    row("Q02", "partial", "U", "LAYOUT-PARTIAL", from_fixture("ranks-partial"), at="open"),
    row("Q03", "sharded", "A", None, from_fixture(SHARDED)),
    row("Q03", "metadata", "R", "RANK-SHARDED", bent(SHARDED, b"ShardedTensorMetadata", b"ShardedTensorMetadatb")),
    row("Q03", "shard", "R", "RANK-SHARDED", bent(SHARDED, b"shard_offsets", b"shard_offsett")),
    row("Q04", "renamed", "W", "RANK-NAME", from_fixture("ranks-dtensor", renamed)),
    row("Q04", "twice", "R", "RANK-DOUBLE", from_fixture("ranks-dtensor", doubled)),
    row("Q04", "lost", "R", "FILE-MISSING", from_fixture("ranks-dtensor", lost)),
    row("Q05", "mesh-of-none", "R", "LAYOUT-MESH", bent("ranks-dtensor", b"shapeq0K\x04", b"shapeq0K\x00")),
    row("Q05", "mesh-of-others", "R", "RANK-SHAPE", bent("ranks-dtensor", b"shapeq0K\x04", b"shapeq0K\xff")),
    row("Q06", "equal-keys", "R", "KEY-NEST", states({True: {"a": 1}}, {1: {"b": 1}}), says=("True (bool) of rank 0", "1 (int) of rank 1")),
    row("Q06", "equal-tuples", "R", "KEY-NEST", states({(1, 2): 1}, {(True, 2): 1}), says=("equal in Python", "(True, 2) (tuple) of rank 1")),
    row("Q06", "one-text", "R", "KEY-NEST", states({None: {"a": 1}}, {"None": {"b": 1}}), says=("None (NoneType) of rank 0", "'None' (text) of rank 1")),
    row("Q06", "one-text-in-a-file", "R", "KEY-NEST", states({None: {"a": 1}, "None": {"b": 1}}, {}), says=("rename one of the two",)),
    row("Q06", "containers", "R", "KEY-NEST", states((), {"a": 1}), says=("an empty tuple as on rank 0", "a dict on rank 1")),
]
