"""V: what released torch writes that other readers, or torch itself, stumble over; each is told by its own id.

V01 to V21 are the defects of that number:

    V01  a box that is not its blob's (2.10 to 2.15, FSDP2 with tensor parallelism, uneven)     DCP-BOX, DCP-PAYLOAD-SHAPE
    V02  0-dim tensors consolidated as zeros (2.9 to 2.15)                                      ST-ZERO-DIM
    V04  a consolidated header without padding (2.9 to 2.15)                                    ST-UNPADDED
    V05  safetensors streams in .distcp, at places that are not stated (2.8 to 2.15)            DCP-ST-INSIDE, DCP-ST-BOX
    V06  HF writer without save_distributed on many ranks                                       IDX-TENSOR, FILE-MISSING
    V07  pathlib._local of Python 3.13                                                          DCP-PATHLIB
    V08  rank files with DTensors, which other versions do not load                             RANK-BOUND
    V09  pieces of one rank beside flat parameters                                              DCP-LEFT-OUT
    V10  a _StridedShard that is no order of the mesh                                           LAYOUT-ORDER
    V11  deflated records, which mmap=True takes for data                                       ZIP-DEFLATED
    V12  a record of another size than its storage                                              PT-STORAGE-SIZE
    V15  tied weights that have become different                                                TIE-DIFFERS (with --model)
    V16  paths and ids in .metadata                                                             DCP-TRACES
    V17  the whole storage saved with a small view                                              PT-WASTE
    V18  2.3 and 2.4: rows of FSDP2 with tensor parallelism in another order                    TP-ORDER
    V19  Partial saved as data                                                                  LAYOUT-PARTIAL
    V20  2.8 and 2.9: boxes larger than their blobs                                             DCP-PAYLOAD-SHAPE

Nothing of V03 (a consolidation that stops), V13 (empty dicts that are lost), V14 (padding of flat parameters, which is
never shown) and V21 (a wrong gather on CPU) can be seen in the bytes.
"""

import json
import os
import struct

import dcp_builder as dcp
from dcp_builder import folder
from rows import Row, as_file, from_fixture
from rows_index import FIRST as HF_FIRST, INDEX, SECOND as HF_SECOND
from rows_ranks import bent
from pickle_builder import FLOATS, Build, Call, Entry, Global, pickle, saved, storage, tensor, zip_file


def row(id, name, cls, finding, build, **words):
    return Row(id, name, cls, finding, build, **words)


def st(header, data):
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def consolidated(where):
    """As torch leaves it: the shards in `sharded`, the header without padding and __metadata__."""
    path = os.path.join(where, "step-1")
    os.makedirs(path + "/sharded")
    header = {"count": {"dtype": "I64", "shape": [], "data_offsets": [0, 8]}, "w": {"dtype": "F32", "shape": [2], "data_offsets": [8, 16]}}
    name = "model-00001-of-00001.safetensors"
    with open(os.path.join(path, name), "wb") as f:
        f.write(st(header, b"\0" * 16))
    with open(os.path.join(path, INDEX), "w") as f:
        json.dump({"metadata": {"total_size": 16}, "weight_map": {"count": name, "w": name}}, f)
    return path


def unpadded(folder):
    text = json.dumps({"w": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}})
    text += " " * (1 if len(text) % 8 == 0 else 0)
    return as_file(struct.pack("<Q", len(text)) + text.encode() + b"\1" * 8, "model.safetensors")(folder)


def one_part(path):
    """The stream's own words say that it holds rows from 1 on."""
    file = os.path.join(path, "__0_0.distcp")
    with open(file, "rb") as f:
        data = f.read()
    with open(file, "wb") as f:
        f.write(data.replace(b"[0, 0]", b"[1, 0]"))


def with_second_alone(name):
    """The last rank's file is there under `name`, which the index gives for all tensors."""
    def change(path):
        with open(os.path.join(path, INDEX)) as f:
            document = json.load(f)
        os.remove(os.path.join(path, HF_FIRST))
        os.rename(os.path.join(path, HF_SECOND), os.path.join(path, name))
        document["weight_map"] = dict.fromkeys(document["weight_map"], name)
        with open(os.path.join(path, INDEX), "w") as f:
            json.dump(document, f)
    return change


def storage_meta(checkpoint_id, save_id):
    return {"storage_meta": Build(Global(dcp.META, "StorageMeta"), {"checkpoint_id": checkpoint_id, "save_id": save_id, "load_id": None})}


def deflated(**words):
    return zip_file([Entry("archive/data.pkl", pickle({"w": tensor()})), Entry("archive/data/0", FLOATS, **words), Entry("archive/version", b"3\n")])


def many_layouts(ranks=55440):
    """Two rows among as many ranks as have thousands of meshes, each of which has to be followed to its last rank."""
    last = f"__{ranks - 1}_0.distcp"
    blobs = {dcp.FIRST: dcp.blob((0, 3)), dcp.SECOND: dcp.blob((1, 3)), last: dcp.blob((0, 3))}
    return folder(shape=(2, 3), chunks=[((0, 0), (1, 3)), ((1, 0), (1, 3)), ((2, 0), (0, 3))], files=blobs,
                  places=[((row, 0), name, 0, len(data)) for row, (name, data) in enumerate(blobs.items())])


PATH = ("/", "home", "someone", "run")
uneven = dict(cut=("--world-size", "2"), at="coverage")
ROWS = [
    row("V01", "box-9", "R", "DCP-PAYLOAD-SHAPE", from_fixture("wrong-boxes9"), also=("DCP-BOX",), **uneven),
    row("V01", "box-7", "R", "DCP-PAYLOAD-SHAPE", from_fixture("wrong-boxes7"), also=("DCP-BOX",), **uneven),
    row("V01", "box-9-2.10", "R", "DCP-PAYLOAD-SHAPE", from_fixture("wrong-boxes9", release="torch-2.10.0/"), also=("DCP-BOX",), **uneven),
    row("V01", "repaired", "A", None, from_fixture("wrong-boxes9"), options=("--repair-strided",), at="coverage"),
    row("V01", "layouts-without-end", "L", "DCP-LAYOUTS", many_layouts(), options=("--repair-strided",), seconds=30,
        commands=("inspect", "coverage", "reshard")),
    row("V02", "zeros", "W", "ST-ZERO-DIM", consolidated, commands=("inspect", "structure", "coverage")),
    row("V04", "unpadded", "A", "ST-UNPADDED", unpadded),
    row("V05", "read", "A", "DCP-ST-INSIDE", from_fixture("dcp-st-inside"), at="coverage"),
    row("V05", "one-part-kept", "R", "DCP-ST-BOX", from_fixture("dcp-st-inside", one_part), at="coverage"),
    row("V06", "lost", "R", "IDX-TENSOR", from_fixture("hf-index", with_second_alone("model-00001-of-00001.safetensors"))),
    row("V06", "of-two", "R", "FILE-MISSING", from_fixture("hf-index", with_second_alone(HF_SECOND))),
    row("V07", "python-3.13", "A", "DCP-PATHLIB", folder(fields=storage_meta(Call(Global("pathlib._local", "PosixPath"), *PATH), None))),
    row("V08", "dtensor", "A", "RANK-BOUND", from_fixture("ranks-dtensor"), cut=("--like", "SRC")),
    row("V09", "pieces", "A", "DCP-LEFT-OUT", from_fixture("fsdp1-orig-dcp", release="torch-2.1.2/"), commands=("inspect", "structure"),
        strict=False, settled="from level coverage on verify warns of what stops a conversion without a description: MODEL-NEEDED"),
    row("V10", "not-an-order", "U", "LAYOUT-ORDER", bent("ranks-tp", b"split_factorq\x99K\x02", b"split_factorq\x99K\x03"), cut=("--like", "SRC")),
    row("V11", "deflated", "A", "ZIP-DEFLATED", as_file(deflated(method=8))),
    row("V12", "record", "R", "PT-STORAGE-SIZE", as_file(saved({"w": tensor(size=(2, 2), stride=(2, 1), store=storage(numel=4))}))),
    row("V16", "path", "A", "DCP-TRACES", folder(fields=storage_meta(Call(Global("pathlib", "PosixPath"), *PATH), None))),
    row("V16", "id", "A", "DCP-TRACES", folder(fields=storage_meta(None, "0b2e9a1c"))),
    row("V16", "torch", "A", "DCP-TRACES", from_fixture("dcp-fsdp2")),
    row("V17", "small-view", "A", "PT-WASTE", as_file(saved({"w": tensor(size=(2,), stride=(1,), offset=3)}))),
    row("V17", "views", "A", "PT-WASTE", from_fixture("pt-views/checkpoint.pt")),
    row("V18", "order", "A", "TP-ORDER", from_fixture("wrong-order", release="torch-2.3.1/"), commands=("inspect", "structure", "coverage")),
    row("V19", "partial", "U", "LAYOUT-PARTIAL", from_fixture("ranks-partial")),
    row("V20", "torch-2.8", "R", "DCP-PAYLOAD-SHAPE", from_fixture("wrong-lost", release="torch-2.8.0/"), at="coverage",
        commands=("inspect", "coverage", "consolidate", "diff")),
    row("V20", "half-of-it", "R", "DCP-PAYLOAD-SHAPE", folder(**dcp.first_is(dcp.blob((1, 3)))), at="coverage"),
]
