"""DCP folders written by hand: one tensor `w` of shape [4, 3], two rows on each of two ranks, and what is bent of it."""

import os

from rows import FIXTURES
from pickle_builder import Build, Call, Global, Raw, archive, dump, pickle, storage, tensor

META = "torch.distributed.checkpoint.metadata"


def fixtures_of(release):
    folder = os.path.join(FIXTURES, "torch-" + release)
    return sorted(n for n in os.listdir(folder) if not n.startswith("wrong-") and os.path.exists(os.path.join(folder, n, ".metadata")))


def call(module, name, *args):
    return Call(Global(module, name), *args)


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


def place(path, offset, length, transforms=None):
    cls = Global("torch.distributed.checkpoint.filesystem", "_StorageInfo")
    more = {} if transforms is None else {"transform_descriptors": transforms}
    return Build(cls, {"relative_path": path, "offset": offset, "length": length, **more})


def dump_pairs(pairs):
    """A dict, of keys that Python could not hash."""
    return Raw(b"}(" + b"".join(dump(k) + dump(v) for k, v in pairs) + b"u")


def blob(shape=(2, 3), dtype="FloatStorage", itemsize=4, fill=None):
    """What torch.save writes of one tensor; its bytes count up, or are all `fill`."""
    n = 1
    for d in shape:
        n *= d
    stride, step = [], 1
    for d in reversed(shape):
        stride.insert(0, step)
        step *= max(d, 1)
    t = tensor(size=tuple(shape), stride=tuple(stride), store=storage(numel=n, kind=dtype))
    data = bytes(i % 256 for i in range(n * itemsize)) if fill is None else bytes([fill]) * (n * itemsize)
    return archive(pickle(t), {"0": data})


BLOB = blob()
FIRST, SECOND = "__0_0.distcp", "__1_0.distcp"


class Folder:
    def __init__(self, **words):
        self.files = {FIRST: BLOB, SECOND: BLOB}
        self.shape, self.dtype, self.fqn = (4, 3), "float32", "w"
        self.chunks = [((0, 0), (2, 3)), ((2, 0), (2, 3))]
        self.places = [((0, 0), FIRST, 0, len(BLOB)), ((2, 0), SECOND, 0, len(BLOB))]
        self.more, self.more_places, self.fields, self.metadata, self.without = {}, [], {}, None, ()
        for key, v in words.items():
            if not hasattr(self, key):
                raise TypeError(key)
            setattr(self, key, v)

    def pickled(self):
        if self.metadata is not None:
            return self.metadata
        w = described(self.shape, self.chunks, self.dtype)
        stored = [(index(self.fqn, at), place(path, offset, n)) for at, path, offset, n in self.places]
        fields = {
            "state_dict_metadata": {self.fqn: w, **self.more},
            "planner_data": None,
            "storage_data": dump_pairs(stored + self.more_places),
            **self.fields,
        }
        return pickle(Build(Global(META, "Metadata"), {k: v for k, v in fields.items() if k not in self.without}))

    def write(self, folder):
        os.makedirs(folder, exist_ok=True)
        files = {".metadata": self.pickled(), **self.files}
        for name, data in files.items():
            if data is not None:
                with open(os.path.join(folder, name), "wb") as f:
                    f.write(data)
        return folder


def folder(change=None, **words):
    """A builder of a bent folder; change(path) bends what is on disk."""

    def build(where):
        path = Folder(**words).write(os.path.join(where, "step-1"))
        return (change(path) or path) if change is not None else path

    return build


def first_is(data):
    """Words for another payload of the first chunk."""
    return dict(files={FIRST: data, SECOND: BLOB},
                places=[((0, 0), FIRST, 0, len(data)), ((2, 0), SECOND, 0, len(BLOB))])


def with_object(name, item, **words):
    """A builder of a folder that also has the byte entry `item`."""
    return folder(more={name: Build(Global(META, "BytesStorageMetadata"), {})},
                  more_places=[(index(name, None), place("__1_1.distcp", 0, len(item)))],
                  files={FIRST: BLOB, SECOND: BLOB, "__1_1.distcp": item}, **words)
