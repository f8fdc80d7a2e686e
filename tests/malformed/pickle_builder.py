"""Just enough of a pickler (protocol 2) and of torch's zip files to write wrong ones on purpose."""

import struct
import zlib


class Global:
    def __init__(self, module, name):
        self.text = ("c" + module + "\n" + name + "\n").encode()


class Call:
    def __init__(self, function, *args):
        self.function, self.args = function, args


class Build:
    """An object without arguments that gets a state."""

    def __init__(self, cls, state):
        self.cls, self.state = cls, state


class PersistentId:
    def __init__(self, value):
        self.value = value


class Raw:
    def __init__(self, code):
        self.code = code


def dump(v):
    if isinstance(v, Raw):
        return v.code
    if isinstance(v, Global):
        return v.text
    if isinstance(v, Call):
        return dump(v.function) + dump(v.args) + b"R"
    if isinstance(v, Build):
        return dump(v.cls) + b")\x81" + dump(v.state) + b"b"
    if isinstance(v, PersistentId):
        return dump(v.value) + b"Q"
    if v is None:
        return b"N"
    if isinstance(v, bool):
        return b"\x88" if v else b"\x89"
    if isinstance(v, int):
        if -(2**31) <= v < 2**31:
            return b"J" + struct.pack("<i", v)
        return b"\x8a\x0b" + v.to_bytes(11, "little", signed=True)
    if isinstance(v, str):
        code = v.encode("utf-8", "surrogatepass")
        return b"X" + struct.pack("<I", len(code)) + code
    if isinstance(v, bytes):
        return b"C" + bytes([len(v)]) + v
    if isinstance(v, tuple):
        return b"(" + b"".join(map(dump, v)) + b"t"
    if isinstance(v, list):
        return b"](" + b"".join(map(dump, v)) + b"e"
    if isinstance(v, dict):
        return b"}(" + b"".join(dump(k) + dump(x) for k, x in v.items()) + b"u"
    raise TypeError(type(v))


def pickle(v):
    return b"\x80\x02" + dump(v) + b"."


def storage(key="0", numel=6, kind="FloatStorage", tag="storage"):
    return PersistentId((tag, Global("torch", kind), key, "cpu", numel))


def tensor(size=(2, 3), stride=(3, 1), offset=0, store=None):
    ordered = Call(Global("collections", "OrderedDict"))
    return Call(Global("torch._utils", "_rebuild_tensor_v2"), store or storage(), offset, size, stride, False, ordered)


class Entry:
    """A record of a zip; what is given in `local` and `central` overrules what belongs there."""

    def __init__(self, name, data=b"", method=0, local=None, central=None, before=b"", after=b"", stored=None):
        self.name = name if isinstance(name, bytes) else name.encode("utf-8", "surrogateescape")
        self.data, self.method, self.stored = data, method, stored
        self.local, self.central, self.before, self.after = local or {}, central or {}, before, after


FIELDS = "version flags method time date crc csize usize".split()


def zip_file(entries, comment=b"", prefix=b"", suffix=b"", gap=b"", zip64=None, **end):
    """`end` overrules fields of the end record; `zip64` (a dict, perhaps empty) adds the records of zip64, and overrules
    their fields: those of the end record by their names, the place that the locator gives as `locator`."""
    out, directory = bytearray(prefix), bytearray()
    for e in entries:
        out += e.before
        stored = e.data if e.stored is None else e.stored
        if e.method == 8 and e.stored is None:
            deflate = zlib.compressobj(9, zlib.DEFLATED, -15)
            stored = deflate.compress(e.data) + deflate.flush()
        base = dict(version=20, flags=0, method=e.method, time=0, date=0, crc=zlib.crc32(e.data), csize=len(stored),
                    usize=len(e.data), name=e.name, extra=b"", offset=len(out))
        here = {**base, **e.local}
        there = {**base, **e.central}
        out += struct.pack("<IHHHHHIIIHH", 0x04034B50, *[here[f] for f in FIELDS], len(here["name"]), len(here["extra"]))
        out += here["name"] + here["extra"] + stored + e.after
        directory += struct.pack("<IHHHHHHIIIHHHHHII", 0x02014B50, 20, *[there[f] for f in FIELDS], len(there["name"]),
                                 len(there["extra"]), len(there.get("comment", b"")), there.get("disk", 0), 0, 0,
                                 there["offset"])
        directory += there["name"] + there["extra"] + there.get("comment", b"")
    out += gap
    last = dict(disk=0, directory_disk=0, here=len(entries), all=len(entries), nbytes=len(directory), offset=len(out))
    if zip64 is not None:
        wide = {**last, **zip64}
        locator = wide.pop("locator", len(out) + len(directory))
        directory += struct.pack("<IQHHIIQQQQ", 0x06064B50, 44, 45, 45, *wide.values())
        directory += struct.pack("<IIQI", 0x07064B50, 0, locator, 1)
    last.update(end)
    record = struct.pack("<IHHHHIIH", 0x06054B50, *last.values(), len(comment)) + comment
    return bytes(out + directory + record + suffix)


def archive(data_pkl, records=None, version=b"3\n", byteorder=b"little", extra=(), **zip_words):
    """A torch.save file; `records` are {key: bytes}."""
    entries = [Entry("archive/data.pkl", data_pkl)]
    entries += [Entry("archive/byteorder", byteorder)] if byteorder is not None else []
    entries += [Entry("archive/data/" + k, v) for k, v in (records or {}).items()]
    entries += [Entry("archive/version", version)] if version is not None else []
    return zip_file(entries + list(extra), **zip_words)


def serial_id(entries):
    """The record that torch 2.1 and newer append: a hash of names, which is theirs alone, and one of CRCs."""
    code, most = 0, 2**64 - 1
    for e in entries:
        if e.data:
            code ^= (zlib.crc32(e.data) + 0x9E3779B9 + (code << 6 & most) + (code >> 2)) & most
    return b"%020d%020d" % (5768588573859962782, code)


def with_serial(v, data=None, version=b"3\n"):
    """As saved(), with an id: that of the data FLOATS, whatever the data are."""
    entries = lambda floats: [Entry("archive/data.pkl", pickle(v)), Entry("archive/byteorder", b"little"),
                              Entry("archive/data/0", floats), Entry("archive/version", version)]
    last = Entry("archive/.data/serialization_id", serial_id(entries(FLOATS)))
    return zip_file(entries(FLOATS if data is None else data) + [last])


FLOATS = struct.pack("<6f", *range(6))


def saved(v, **words):
    """A torch.save file of v with the storage that storage() names."""
    return archive(pickle(v), {"0": FLOATS}, **words)
