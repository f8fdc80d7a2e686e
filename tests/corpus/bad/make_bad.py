#!/usr/bin/env python3
"""Writes the museum of bad inputs beside this file: `make_bad.py`. What each must lead to is in `expected`.

A name begins with the row of its kind: P pickle, Z zip, D folder of torch.distributed.checkpoint. A payload that
were run would leave a file `marker`. Those that can be cut or bent out of real checkpoints are made by
tests/cli/run_bad itself.
"""

import os
import struct

from pickle_words import (FLOATS, Build, Call, Entry, Global, PersistentId, Raw, archive, dump, pickle, saved, storage,
                          tensor, zip_file)

HERE = os.path.dirname(os.path.abspath(__file__))
PAYLOAD = ("touch marker",)


def put(name, data):
    path = os.path.join(HERE, name)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as f:
        f.write(data)


def raw(code, **words):
    """A .pt whose data.pkl is these opcodes behind PROTO."""
    return archive(b"\x80\x02" + code, {"0": FLOATS}, **words)


def text(s):
    return b"X" + struct.pack("<I", len(s)) + s.encode()


def call(module, name, *args):
    return Call(Global(module, name), *args)


def pickles():
    good = dump({"w": tensor()})
    rows = {
        "P00-good": saved({"w": tensor()}),
        "P01-empty": archive(b"", {"0": FLOATS}),
        "P02-no-stop": raw(good),
        "P03-str-2e63": raw(b"\x8d" + struct.pack("<Q", 2**63) + b"abc."),
        "P03-bytes-2e64": raw(b"\x8e" + struct.pack("<Q", 2**64 - 1) + b"abc."),
        "P03-str-past-end": raw(b"X" + struct.pack("<I", 1000) + b"abc."),
        "P04-long4-negative": raw(b"\x8b" + struct.pack("<i", -4) + b"abcd."),
        "P04-size-255-bytes": saved({"w": tensor(size=(Raw(b"\x8a\xff" + b"\x11" * 255), 3))}),
        "P05-reduce": raw(b"R."),
        "P05-tuple3": raw(b"NN\x87."),
        "P05-build": raw(b"}b."),
        "P05-setitem": raw(b"}Ns."),
        "P05-append": raw(b"Na."),
        "P05-newobj": raw(b")\x81."),
        "P06-tuple-without-mark": raw(b"NNt."),
        "P06-setitems-without-mark": raw(b"}NNu."),
        "P06-mark-open": raw(b"}(."),
        "P06-two-items": raw(b"}}."),
        "P07-get-unknown": raw(b"h\x07."),
        "P07-put-4294967295": raw(b"}r\xff\xff\xff\xff."),
        "P08-odd-items": raw(b"}(" + text("a") + b"NNu."),
        "P10-cycle": raw(b"}q\x00" + text("a") + b"](h\x00es."),
        "P11-doubling": raw(text("x") + b"".join(b"q%ch%c\x86" % (i, i) for i in range(60)) + b"q\x3c0}" + text("a") + b"h\x3cs."),
        "P12-os-system": saved({"w": tensor(), "x": call("os", "system", *PAYLOAD)}),
        "P12-posix-system": saved({"w": tensor(), "x": call("posix", "system", *PAYLOAD)}),
        "P12-eval": saved({"w": tensor(), "x": call("builtins", "eval", "open('marker','w')")}),
        "P12-popen": saved({"w": tensor(), "x": call("subprocess", "Popen", ["touch", "marker"])}),
        "P13-stack-global": raw(text("os") + b"q\x010" + text("system") + b"q\x020}" + text("x") + b"h\x01h\x02\x93"
                                + dump(PAYLOAD) + b"Rs."),
        "P14-torch-load": saved({"w": tensor(), "x": call("torch", "load", "other.pt")}),
        "P14-pip-main": saved({"w": tensor(), "x": call("pip", "main", ["install"])}),
        "P15-space": saved({"w": Call(Global("torch._utils", "_rebuild_tensor_v2 "), storage(), 0, (2, 3), (3, 1))}),
        "P15-cyrillic": saved({"w": Call(Global("t\u043erch._utils", "_rebuild_tensor_v2"), storage(), 0, (2, 3), (3, 1))}),
        "P15-case": saved({"w": Call(Global("Torch._utils", "_rebuild_tensor_v2"), storage(), 0, (2, 3), (3, 1))}),
        "P16-getattr": saved({"x": call("builtins", "getattr", call("os", "environ"), "clear")}),
        "P18-inst": raw(b"(" + text("touch marker") + b"ios\nsystem\n."),
        "P18-obj": raw(b"(cos\nsystem\n" + text("touch marker") + b"o."),
        "P18-ext1": raw(b"\x82\x01."),
        "P18-next-buffer": raw(b"\x97."),
        "P18-undefined": raw(b"\xf0."),
        "P19-call-of-call": saved({"x": Call(call("os", "fspath", "a"), "b")}),
        "P20-trailing": archive(pickle({"w": tensor()}) + b"cos\nsystem\n" + dump(PAYLOAD) + b"R.", {"0": FLOATS}),
        "P21-payload-then-broken": raw(dump(call("os", "system", *PAYLOAD)) + b"\xff\xff"),
        "P24-proto-6": archive(b"\x80\x06" + good + b".", {"0": FLOATS}),
        "P24-proto-255": archive(b"\x80\xff" + good + b".", {"0": FLOATS}),
        "P25-frame-too-long": archive(b"\x80\x04\x95" + struct.pack("<Q", 9999) + good + b".", {"0": FLOATS}),
        "P25-frame-2e64": archive(b"\x80\x04\x95" + b"\xff" * 8 + good + b".", {"0": FLOATS}),
        "P26-offset-negative": saved({"w": tensor(offset=-1)}),
        "P26-offset-2e63": saved({"w": tensor(offset=2**63)}),
        "P26-size-negative": saved({"w": tensor(size=(-2, 3))}),
        "P26-stride-negative": saved({"w": tensor(stride=(-3, 1))}),
        "P26-product": saved({"w": tensor(size=(2**40, 2**40))}),
        "P26-past-end": saved({"w": tensor(size=(3, 3))}),
        "P26-rank": saved({"w": tensor(size=(2, 3, 1))}),
        "P27-storage-short": saved({"w": tensor(store=storage(numel=8))}),
        "P27-storage-long": saved({"w": tensor(size=(2, 2), stride=(2, 1), store=storage(numel=4))}),
        "P28-expanded-2e40": saved({"w": tensor(size=(2**40,), stride=(0,))}),
        "P30-not-a-tuple": saved({"w": tensor(store=PersistentId("0"))}),
        "P30-tag": saved({"w": tensor(store=storage(tag="module"))}),
        "P30-key-up": saved({"w": tensor(store=storage(key="../0"))}),
        "P30-key-missing": saved({"w": tensor(store=storage(key="7"))}),
        "P30-two-dtypes": saved({"w": tensor(), "v": tensor(store=storage(kind="IntStorage"))}),
        "P31-byteorder-middle": saved({"w": tensor()}, byteorder=b"middle"),
        "P32-sparse": saved({"w": call("torch._utils", "_rebuild_sparse_tensor", Raw(b"ctorch.serialization\n_get_layout\n"
                                       + dump(("torch.sparse_coo",)) + b"R"), (tensor(), tensor(), (2, 3)))}),
        "P32-quantised": saved({"w": call("torch._utils", "_rebuild_qtensor", storage(kind="QInt8Storage"), 0, (2, 3), (3, 1),
                                          (), False, call("collections", "OrderedDict"))}),
        "P32-subclass": saved({"w": call("torch._tensor", "_rebuild_from_type_v2", Global("torch._utils", "_rebuild_wrapper"),
                                         Global("mine", "Mine"), (tensor(),), {})}),
        "P33-key-twice": raw(b"}(" + text("w") + dump(tensor()) + text("w") + dump(tensor()) + b"u."),
        "P34-keys": saved({1: tensor(), None: tensor(), (1, 2): tensor(), b"b": tensor()}),
        "P34-surrogate": saved({"\ud800": tensor()}),
        "P35-user-class": saved({"w": tensor(), "x": Build(Global("mine", "Scheduler"), {"lr": 1})}),
    }
    for name, data in rows.items():
        put(name + ".pt", data)


def zips():
    pkl = pickle({"w": tensor()})
    good = lambda **w: [Entry("archive/data.pkl", pkl), Entry("archive/data/0", FLOATS, **w), Entry("archive/version", b"3\n")]
    plain = zip_file(good())
    end = plain[-22:]
    rows = {
        "Z01-nothing": b"",
        "Z01-one-byte": b"P",
        "Z01-end-alone": zip_file([]),
        "Z03-two-ends": plain + end,
        "Z03-end-in-comment": zip_file(good(), comment=end),
        "Z05-size-ffffffff": zip_file(good(central={"csize": 2**32 - 1, "usize": 2**32 - 1})),
        "Z05-extra-short": zip_file(good(central={"extra": b"\x01\x00\x30\x00" + b"\0" * 8, "usize": 2**32 - 1})),
        "Z07-count-0": zip_file(good(), here=0, all=0),
        "Z07-count-off": zip_file(good(), here=4, all=4),
        "Z08-dir-past-end": zip_file(good(), offset=2**31),
        "Z08-dir-in-data": zip_file(good(), offset=0),
        "Z09-twice": zip_file(good() + [Entry("archive/data/0", b"\xff" * 24)]),
        "Z10-case": zip_file(good() + [Entry("archive/DATA/0", b"\xff" * 24)]),
        "Z10-upper": zip_file([Entry("archive/DATA.PKL", pkl), Entry("archive/data/0", FLOATS), Entry("archive/version", b"3\n")]),
        "Z11-local-name": zip_file(good(local={"name": b"archive/data/1"})),
        "Z12-encrypted": zip_file(good(local={"flags": 1}, central={"flags": 1})),
        "Z12-encrypted-central": zip_file(good(central={"flags": 1})),
        "Z12-encrypted-local": zip_file(good(local={"flags": 1})),
        "Z14-no-descriptor": zip_file(good(local={"flags": 8, "crc": 0, "csize": 0, "usize": 0}, central={"flags": 8})),
        "Z17-same-header": zip_file(good() + [Entry("archive/data/1", FLOATS, central={"offset": 0})]),
        "Z18-gap": zip_file(good(after=b"hidden" * 20)),
        "Z18-gap-before-dir": zip_file(good(), gap=b"hidden" * 20),
        "Z19-deflated": zip_file(good(method=8)),
        "Z20-declared-small": zip_file([Entry("archive/data.pkl", pkl + b"\0" * 4000, method=8, local={"usize": len(pkl)},
                                              central={"usize": len(pkl)})] + good()[1:]),
        "Z21-bzip2": zip_file(good(local={"method": 12}, central={"method": 12})),
        "Z22-stored-sizes": zip_file(good(local={"usize": 48}, central={"usize": 48})),
        "Z23-dotdot": zip_file(good() + [Entry("archive/../../marker", b"x")]),
        "Z23-absolute": zip_file(good() + [Entry("/marker", b"x")]),
        "Z23-backslash": zip_file(good() + [Entry("archive\\marker", b"x")]),
        "Z23-nul": zip_file(good() + [Entry("archive/a\0b", b"x")]),
        "Z23-empty": zip_file(good() + [Entry("", b"x")]),
        "Z24-two-roots": zip_file(good() + [Entry("other/data.pkl", pkl)]),
        "Z25-script-before": zip_file(good(), prefix=b"#!/bin/sh\ntouch marker\n"),
        "Z25-moved": b"#!/bin/sh\ntouch marker\n" + plain,
        "Z26-trailing": plain + b"trailing",
        "Z28-disks": zip_file(good(), disk=1, directory_disk=1),
        "Z30-7z": b"7z\xbc\xaf\x27\x1c" + b"\0" * 60,
        "Z30-gzip": b"\x1f\x8b\x08\0" + b"\0" * 60,
        "Z30-hdf5": b"\x89HDF\r\n\x1a\n" + b"\0" * 60,
        "Z30-text": b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 5\n",
        "Z30-tar": b"pickle".ljust(257, b"\0") + b"ustar\x0000" + b"\0" * 760,
        "Z31-unaligned": plain,
        "Z32-version-99": archive(pkl, {"0": FLOATS}, version=b"99\n"),
        "Z32-version-empty": archive(pkl, {"0": FLOATS}, version=b""),
        "Z32-version-missing": archive(pkl, {"0": FLOATS}, version=None),
    }
    for name, data in rows.items():
        put(name + ".pt", data)


META = "torch.distributed.checkpoint.metadata"


def size(*dims):
    return call("torch", "Size", tuple(dims))


def properties(dtype="float32"):
    layout = call("torch.serialization", "_get_layout", "torch.strided")
    memory = call(META, "_MEM_FORMAT_ENCODING", 0)
    return Build(Global(META, "TensorProperties"), (Global("torch", dtype), layout, False, memory, False))


def described(shape, chunks, dtype="float32"):
    cls = Global(META, "ChunkStorageMetadata")
    parts = [Build(cls, {"offsets": size(*o), "sizes": size(*s)}) for o, s in chunks]
    return Build(Global(META, "TensorStorageMetadata"), {"properties": properties(dtype), "size": size(*shape), "chunks": parts})


def index(fqn, offset, hint=None):
    return Build(Global(META, "MetadataIndex"), {"fqn": fqn, "offset": None if offset is None else size(*offset), "index": hint})


def place(path, offset, length):
    cls = Global("torch.distributed.checkpoint.filesystem", "_StorageInfo")
    return Build(cls, {"relative_path": path, "offset": offset, "length": length})


def dump_pairs(pairs):
    """A dict, of keys that Python could not hash."""
    return Raw(b"}(" + b"".join(dump(k) + dump(v) for k, v in pairs) + b"u")


def blob(shape=(2, 3), dtype="FloatStorage", itemsize=4):
    n = 1
    for d in shape:
        n *= d
    stride, step = [], 1
    for d in reversed(shape):
        stride.insert(0, step)
        step *= max(d, 1)
    t = tensor(size=tuple(shape), stride=tuple(stride), store=storage(numel=n, kind=dtype))
    return archive(pickle(t), {"0": bytes(range(n * itemsize))})


class Folder:
    """One tensor `w` of shape [4, 3], two rows on each of two ranks; `words` bend it."""

    def __init__(self, fqn="w"):
        self.files = {"__0_0.distcp": blob(), "__1_0.distcp": blob()}
        self.shape, self.dtype, self.fqn = (4, 3), "float32", fqn
        self.chunks = [((0, 0), (2, 3)), ((2, 0), (2, 3))]
        n = len(self.files["__0_0.distcp"])
        self.places = [((0, 0), "__0_0.distcp", 0, n), ((2, 0), "__1_0.distcp", 0, n)]
        self.more, self.more_places, self.fields, self.metadata = {}, [], {}, None

    def write(self, name):
        w = described(self.shape, self.chunks, self.dtype)
        stored = [(index(self.fqn, at), place(path, offset, n)) for at, path, offset, n in self.places]
        fields = {
            "state_dict_metadata": {self.fqn: w, **self.more},
            "planner_data": None,
            "storage_data": dump_pairs(stored + self.more_places),
            **self.fields,
        }
        root = Build(Global(META, "Metadata"), {k: v for k, v in fields.items() if v is not Folder})
        put(name + "/.metadata", self.metadata if self.metadata is not None else pickle(root))
        for file, data in self.files.items():
            put(name + "/" + file, data)


def bend(name, **words):
    f = Folder(words.pop("fqn", "w"))
    for key, v in words.items():
        setattr(f, key, v(f) if callable(v) else v)
    f.write(name)
    return f


def metadata():
    bend("D00-good")
    bend("P12-metadata", metadata=pickle(call("os", "system", *PAYLOAD)))
    bend("P12-metadata-inside", fields={"planner_data": call("os", "system", *PAYLOAD)})
    bend("P20-metadata-trailing", metadata=pickle(None) + b"N.")
    bend("P36-not-metadata", metadata=pickle({"state_dict_metadata": {}}))
    bend("P36-none", metadata=pickle(None))
    bend("P36-other-class", metadata=pickle(Build(Global("mine", "Metadata"), {})))
    bend("P36-no-storage", fields={"storage_data": Folder})
    bend("P36-no-tensors", fields={"state_dict_metadata": Folder})
    bend("P36-list", fields={"state_dict_metadata": []})
    bend("P36-extra-field", fields={"mine": 1})
    bend("P36-size-of-text", shape=("four", 3))


def places():
    n = len(blob())
    at = lambda path, offset=0, length=n: [((0, 0), path, offset, length), ((2, 0), "__1_0.distcp", 0, n)]
    bend("D05-past-end", places=at("__0_0.distcp", 0, n + 1))
    bend("D05-offset-past-end", places=at("__0_0.distcp", 10**6))
    bend("D05-negative", places=at("__0_0.distcp", -1))
    bend("D05-wraps", places=at("__0_0.distcp", 2**63 - 1, 2**63 - 1))
    bend("D06-too-small", places=at("__0_0.distcp", 0, n - 1))
    bend("D06-too-large", files={"__0_0.distcp": blob() + b"tail", "__1_0.distcp": blob()}, places=at("__0_0.distcp", 0, n + 4))
    bend("D07-overlap", places=[((0, 0), "__0_0.distcp", 0, n), ((2, 0), "__0_0.distcp", 10, n - 10)])
    bend("D08-up", places=at("../__0_0.distcp"))
    bend("D08-up-inside", places=at("x/../../D00-good/__0_0.distcp"))
    bend("D08-absolute", places=at("/etc/passwd"))
    bend("D08-empty", places=at(""))
    bend("D08-nul", places=at("__0_0.distcp\0x"))
    bend("D08-long", places=at("x" * 5000))
    bend("D10-folder", places=at("."))


def boxes():
    n = len(blob())
    both = [((0, 0), "__0_0.distcp", 0, n), ((2, 0), "__1_0.distcp", 0, n)]
    bend("D11-gap", chunks=[((0, 0), (2, 3))], places=both[:1])
    bend("D11-gap-row", shape=(5, 3))
    bend("D12-overlap", chunks=[((0, 0), (2, 3)), ((1, 0), (2, 3))], shape=(3, 3), places=[both[0], ((1, 0), "__1_0.distcp", 0, n)])
    bend("D13-overlap-and-gap", chunks=[((0, 0), (2, 3)), ((1, 0), (2, 3))], places=[both[0], ((1, 0), "__1_0.distcp", 0, n)])
    bend("D14-out-of-bounds", shape=(3, 3))
    bend("D14-negative", chunks=[((0, 0), (2, 3)), ((2, 0), (-2, 3))])
    bend("D14-offset-wraps", chunks=[((0, 0), (2, 3)), ((2**63 - 1, 0), (2, 3))], places=[both[0], ((2**63 - 1, 0), "__1_0.distcp", 0, n)])
    bend("D14-volume", shape=(2**40, 2**40))
    bend("D15-rank", chunks=[((0, 0), (2, 3)), ((2,), (2,))], places=[both[0], ((2,), "__1_0.distcp", 0, n)])
    bend("D16-scalar-twice", shape=(), chunks=[((), ()), ((), ())], files={"__0_0.distcp": blob(()), "__1_0.distcp": blob(())},
         places=[((), "__0_0.distcp", 0, len(blob(()))), ((), "__1_0.distcp", 0, len(blob(())))])
    bend("D17-no-storage", more={"v": described((2, 3), [((0, 0), (2, 3))])})
    bend("D17-no-tensor", more_places=[(index("v", (0, 0)), place("__0_0.distcp", 0, n))])
    bend("D24-empty-chunk", chunks=[((0, 0), (2, 3)), ((2, 0), (2, 3)), ((4, 0), (0, 3))])
    bend("D29-hint", places=[], more_places=[(index("w", (0, 0), 1), place("__0_0.distcp", 0, n)),
                                             (index("w", (2, 0), 7), place("__1_0.distcp", 0, n))])


def payloads():
    def other(data):
        return dict(files={"__0_0.distcp": data, "__1_0.distcp": blob()},
                    places=[((0, 0), "__0_0.distcp", 0, len(data)), ((2, 0), "__1_0.distcp", 0, len(blob()))])

    bend("D18-payload-shape", **other(blob((3, 2))))
    bend("D18-payload-rank", **other(blob((6,))))
    bend("D19-payload-dtype", **other(blob(dtype="IntStorage")))
    bend("D19-payload-itemsize", **other(blob(dtype="DoubleStorage", itemsize=8)))
    bend("D19-payload-call", **other(archive(pickle(call("os", "system", *PAYLOAD)), {"0": FLOATS})))
    bend("D19-payload-text", **other(b"not a zip at all, of some length"))
    item = archive(pickle(call("os", "system", *PAYLOAD)))
    bend("P35-byte-entry-call", more={"extra": Build(Global(META, "BytesStorageMetadata"), {})},
         more_places=[(index("extra", None), place("__1_1.distcp", 0, len(item)))],
         files=lambda f: {**f.files, "__1_1.distcp": item})
    for name, fqn in (("empty", ""), ("escape", "a\x1b[31m\nb"), ("path", "../../w"), ("long", "w" * 3000)):
        bend("D28-name-" + name, fqn=fqn)


pickles()
zips()
metadata()
places()
boxes()
payloads()
