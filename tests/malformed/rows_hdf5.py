"""H: HDF5 files. What they are made of is in tests/fixtures/hdf5 (make.py, make_bad.py); some is bent here."""

import os
import struct

from rows import ANY, FIXTURES, Row, as_file, flipped

CHILDREN = 2  # diff opens two
BRIEF = ("inspect", "coverage", "consolidate")


def fixture(name):
    with open(os.path.join(FIXTURES, "hdf5", name), "rb") as f:
        return f.read()


def bad(name):
    return fixture(f"bad/{name}.h5")


def row(id, name, cls, finding, data, **words):
    return Row(id, name, cls, finding, as_file(data, words.pop("file", "input.h5")), children=CHILDREN, **words)


def put(data, offset, form, *values):
    return data[:offset] + struct.pack(form, *values) + data[offset + struct.calcsize(form):]


def lookup3(data):
    """Jenkins's, as HDF5 sums what it says of objects."""
    mask = 0xFFFFFFFF

    def rot(x, n):
        return (x << n | x >> (32 - n)) & mask

    a = b = c = (0xDEADBEEF + len(data)) & mask
    last = max(0, (len(data) - 1) // 12) * 12
    for at in range(0, last, 12):
        x, y, z = struct.unpack_from("<3I", data, at)
        a, b, c = (a + x) & mask, (b + y) & mask, (c + z) & mask
        for n in (4, 6, 8, 16, 19, 4):
            a = (a - c & mask) ^ rot(c, n)
            c = c + b & mask
            a, b, c = b, c, a
    if not data:
        return c
    x, y, z = struct.unpack("<3I", data[last:].ljust(12, b"\0"))
    a, b, c = (a + x) & mask, (b + y) & mask, (c + z) & mask
    for n in (14, 11, 25, 16, 4, 14, 24):
        c = ((c ^ b) - rot(b, n)) & mask
        a, b, c = b, c, a
    return b


def resummed(data, begin):
    """With the checksum anew over the first part of an object header, with two bytes of length."""
    end = begin + 8 + struct.unpack_from("<H", data, begin + 6)[0]
    return put(data, end, "<I", lookup3(data[begin:end]))


PLAIN = bad("plain")
END = 40  # of version 0, the address of the file's end
V110 = fixture("layouts-v110.h5")
V110_END = 28
CHUNKS = bad("chunks")
TREE = CHUNKS.rindex(b"TREE\x01")  # of the chunks: 24 bytes, then keys of 8 + 3 * 8 bytes, each before an address
KEY = 8 + 3 * 8
CHILD = TREE + 24 + KEY
NEXT = CHILD + 8 + KEY
FLETCHER = bad("fletcher")
RAW = struct.pack("<12f", *range(12))


def million_links():
    """A million names for one dataset, in few and large nodes of the root group's tree."""
    count, k = 1_000_000, 32767
    undefined, end = 2**64 - 1, len(PLAIN)
    places = struct.pack("<QQ", PLAIN.index(b"TREE"), PLAIN.index(b"HEAP"))
    dataset = struct.unpack_from("<Q", PLAIN, PLAIN.index(b"SNOD") + 8 + 8)[0]
    names = bytes(8) + b"".join(b"%07d\0" % i for i in range(count))
    heap = end
    nodes = heap + 32 + len(names)
    pieces = [b"HEAP" + struct.pack("<4xQQQ", len(names), 1, heap + 32), names]
    keys = [struct.pack("<Q", 0)]
    for first in range(0, count, 2 * k):
        some = range(first, min(first + 2 * k, count))
        node = b"SNOD\1\0" + struct.pack("<H", len(some))
        node += b"".join(struct.pack("<QQ24x", 8 + 8 * i, dataset) for i in some)
        keys.append(struct.pack("<QQ", nodes + (len(pieces) - 2) * (8 + 80 * k), 8 + 8 * some[-1]))
        pieces.append(node.ljust(8 + 80 * k, b"\0"))
    tree = nodes + (len(pieces) - 2) * (8 + 80 * k)
    head = b"TREE\0\0" + struct.pack("<HQQ", len(keys) - 1, undefined, undefined)
    pieces.append((head + b"".join(keys)).ljust(544, b"\0"))
    data = put(PLAIN, 16, "<H", k).replace(places, struct.pack("<QQ", tree, heap)) + b"".join(pieces)
    return put(data, END, "<Q", len(data))


def truncated():
    data = fixture("types.h5")
    rows = [row("H01", f"at-{n}", "R", "FILE-SHORT", data[:n], commands=("inspect", "coverage"))
            for n in range(512, len(data), 512)]
    assert len(V110) == struct.unpack_from("<Q", V110, V110_END)[0]
    rows += [
        row("H01", "last-byte", "R", "FILE-SHORT", data[:-1]),
        row("H01", "v110", "R", "FILE-SHORT", V110[:-1]),
        row("H01", "end-too-large", "R", "FILE-SHORT", put(PLAIN, END, "<Q", len(PLAIN) + 1)),
        row("H01", "end-2e63", "R", "FILE-SHORT", put(PLAIN, END, "<Q", 2**63)),
        row("H01", "end-too-small", "R", "H5-DAMAGED", put(PLAIN, END, "<Q", 700)),
        row("H01", "end-0", "R", "H5-DAMAGED", put(PLAIN, END, "<Q", 0)),
        row("H01", "end-before-data", "R", "H5-CHUNK", put(PLAIN, END, "<Q", PLAIN.rindex(RAW) + 40)),
        row("H01", "more-behind", "A", None, PLAIN + b"\0" * 100, settled="what lies behind the end is none of the file's"),
        row("H01", "v110-end", "R", "FILE-SHORT", put(V110, V110_END, "<Q", len(V110) * 2)),
    ]
    return rows


def super():
    rows = [row("H02", "user-block-512", "A", None, fixture("userblock.mat"), file="input.mat"),
            row("H02", "odd-address-size", "R", "H5-SUPER", put(PLAIN, 13, "B", 3)),
            row("H02", "v110-checksum", "R", "H5-DAMAGED", flipped(V110, 45)),
            row("Z30", "hdf5", "R", "H5-SUPER", PLAIN[:8] + b"\0" * 60, file="input.pt", says=("HDF5",),
                settled="what a file is is told by its content; a name is a hint"),
            row("H02", "named-pt", "A", None, PLAIN, file="input.pt"),
            row("H02", "signature-alone", "R", "FILE-SHORT", PLAIN[:8])]
    rows += [row("H02", f"before-{n}", "A", None, b"\1" * n + PLAIN) for n in (512, 1024, 1 << 20)]
    rows += [row("H02", f"before-{n}", "R", "NO-CHECKPOINT", b"\1" * n + PLAIN, commands=BRIEF) for n in (100, 768)]
    rows += [row("H02", f"version-{n}", "U", "H5-SUPER", put(PLAIN, 8, "B", n)) for n in (4, 9, 255)]
    return rows


def newer():
    """An object of a version that no library knows yet: of a dataspace, in the header that is summed."""
    begin = V110.index(b"OHDR", V110.index(b"OHDR") + 1)
    at = begin + 12
    assert V110[begin + 8:at + 1] == b"\1\x24\0\0\2" and resummed(V110, begin) == V110
    bent = put(V110, at, "B", 7)
    return [
        row("H02", "newer-object", "U", "H5-NEWER", resummed(bent, begin), says=("version", "newer HDF5", "libver")),
        row("H02", "newer-object-unsummed", "R", "H5-DAMAGED", bent),
        row("H02", "newer-object-header", "R", "H5-DAMAGED", resummed(put(V110, begin + 4, "B", 9), begin),
            settled="the version of the header is looked at before its checksum, so it may be damage"),
    ]


def pointing():
    return [
        row("H03", "external", "R", "H5-EXTERNAL", bad("external")),
        row("H03", "external-relative", "R", "H5-EXTERNAL", bad("external-relative")),
        row("H04", "external", "R", "H5-LINK", bad("link-external")),
        row("H04", "through-external", "R", "H5-LINK", bad("link-through")),
        row("H04", "loop", "R", "H5-LINK", bad("link-loop")),
        row("H04", "dangling", "W", "H5-DANGLING", bad("link-dangling")),
        row("H05", "missing", "R", "H5-VIRTUAL", bad("virtual-missing"), says=("run in their folder",)),
        row("H05", "same-file", "R", "H5-VIRTUAL", bad("virtual-same-file")),
        row("H05", "growing", "R", "H5-VIRTUAL", bad("virtual-growing")),
        row("H04", "soft-first", "A", "H5-LEFT-OUT", fixture("soft-first.h5")),
        row("H06", "cycle", "A", "H5-LEFT-OUT", bad("cycle")),
        row("H06", "million-links", "A", None, million_links, commands=("inspect", "coverage"), sandbox=False, seconds=150,
            converts=False),
        row("H06", "million-links-in-little-memory", "L", "LIMIT-MEMORY", million_links, commands=BRIEF, sandbox=True,
            settled="a million tensors are more metadata than the sandbox's address space is given"),
        row("H06", "deep", "L", "H5-DEPTH", bad("deep"), settled="300 groups: more than 256 are too deep"),
        row("H06", "long-name", "L", "H5-DEPTH", bad("long-name"), says=("name", "too long", "65536"),
            settled="80001 bytes: more than 65536 are too long"),
    ]


def growing():
    plugins = (("HDF5_PLUGIN_PATH", "/nowhere/plugins"), ("HDF5_PLUGIN_PRELOAD", "/nowhere/plugins"))
    rows = [
        row("H07", "contiguous", "L", "H5-SPARSE", bad("sparse")),
        row("H07", "chunked", "L", "H5-SPARSE", bad("sparse-chunked")),
        row("H08", "deflate", "L", "H5-BOMB", bad("bomb"), at="payload"),
        row("H08", "chunk-of-2-gib", "L", "H5-BOMB", bad("huge-chunk")),
        row("H08", "32-filters", "U", "H5-FILTER", bad("filters")),
        row("H09", "unknown", "U", "H5-FILTER", bad("filter-unknown"), says=("32099", "hdf5plugin")),
        row("H09", "lzf", "U", "H5-FILTER", bad("filter-lzf"), says=("32000", "h5py")),
        row("H09", "plugin-path", "U", "H5-FILTER", bad("filter-unknown"), env=plugins),
    ]
    rows += [row("H10", name, "U", "H5-TYPE", bad("type-" + name), says=("x",))
             for name in ("vlen", "compound", "reference", "opaque", "enum", "float", "integer", "array")]
    rows += [row("H10", "misnamed", "U", "H5-TYPE", bad("misnamed"), says=("bytes", "torch_dtype", "<f4"))]
    return rows + [row("H11", name, "R", "H5-UNWRITTEN", fixture(name + ".h5"),
                       commands=("structure", "coverage", "checksum", "consolidate", "reshard", "digest"))
                   for name in ("unwritten", "sparse", "sparse-v110")]


def chunks():
    first = struct.unpack_from("<Q", CHUNKS, CHILD)[0]
    plain = "consolidate", "coverage", "checksum"
    deflated = bad("deflated")
    at = deflated.rindex(b"x\x9c", 0) if b"x\x9c" in deflated else deflated.rindex(b"\x78")
    return [
        row("H12", "twice", "R", "H5-CHUNK", put(CHUNKS, NEXT, "<Q", first)),
        row("H12", "overlapping", "R", "H5-CHUNK", put(CHUNKS, NEXT, "<Q", first + 8)),
        row("H12", "past-end", "R", "H5-CHUNK", put(CHUNKS, NEXT, "<Q", len(CHUNKS))),
        row("H12", "reaches-past-end", "R", "H5-CHUNK", put(CHUNKS, NEXT, "<Q", len(CHUNKS) - 8)),
        row("H12", "far-past-end", "R", "H5-CHUNK", put(CHUNKS, NEXT, "<Q", 2**62)),
        row("H12", "size", "R", "H5-CHUNK", put(CHUNKS, CHILD + 8, "<I", 20)),
        row("H12", "corner", "R", "H5-CHUNK", put(CHUNKS, CHILD + 8 + 8, "<Q", 0)),
        row("H12", "cycle", "R", "H5-DAMAGED", put(put(CHUNKS, TREE + 5, "B", 1), CHILD, "<Q", TREE)),
        row("H13", "data", "R", "H5-FLETCHER", flipped(FLETCHER, FLETCHER.rindex(RAW) + 9), at="payload",
            offset=FLETCHER.rindex(RAW)),
        row("H13", "sum", "R", "H5-FLETCHER", flipped(FLETCHER, FLETCHER.rindex(RAW) + 48), at="payload"),
        row("H13", "deflated", "R", "H5-DEFLATE", flipped(deflated, at + 12), at="payload", offset=ANY),
        row("H13", "lost-sector", "R", "H5-DEFLATE", bad("lost-sector"), at="payload", offset=ANY),
        row("H14", "flipped", "A", None, flipped(PLAIN, PLAIN.rindex(RAW) + 9), commands=plain),
        row("H15", "open", "R", "H5-OPEN", put(V110, 11, "B", 1)),
        row("H15", "swmr", "R", "H5-OPEN", put(V110, 11, "B", 5)),
        row("H15", "names-twice", "R", "KEY-DUP", bad("names-twice"), says=("--hdf5-sep=/",)),
        row("H15", "fqns-twice", "R", "KEY-DUP", bad("fqns-twice"), says=("attribute 'fqn'",)),
        row("H15", "name-latin1", "R", "H5-NAME", PLAIN.replace(b"\0w\0", b"\0\xe9\0", 1)),
    ]


def crashes():
    """Files that made releases of libhdf5 crash (fixtures/README.md): 1.10.8 still does on some. Another one may read
    them, or refuse them for another reason."""
    folder = os.path.join(FIXTURES, "hdf5", "cve")
    return [row("H16", name[:-3], "S", None, fixture(f"cve/{name}"))
            for name in sorted(os.listdir(folder)) if name.endswith(".h5")]


ROWS = truncated() + super() + newer() + pointing() + growing() + chunks() + crashes()
