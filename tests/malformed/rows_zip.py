"""Z: the zip container."""

import os
import struct
import zlib

import dcp_builder as dcp
from rows import ANY, SEED, Row, as_file, fixture_bytes, flipped, from_fixture
from pickle_builder import FLOATS, Entry, archive, pickle, storage, tensor, with_serial, zip_file

PKL = pickle({"w": tensor()})
END_NBYTES = 22


def good(**w):
    return [Entry("archive/data.pkl", PKL), Entry("archive/data/0", FLOATS, **w), Entry("archive/version", b"3\n")]


PLAIN = zip_file(good())
MODULE = "pt-module/checkpoint.pt"
module = fixture_bytes(MODULE)


def row(id, name, cls, finding, data, **words):
    build = data if callable(data) else as_file(data)
    return Row(id, name, cls, finding, build, **words)


def lazily(make):
    return as_file(make)


def offset_of_end(data):
    return data.rindex(b"PK\x05\x06")


# ---- Z02: a file of more than 4 GiB, almost all of it a hole ----

BIG = 2**32


def sparse(cut=None):
    """A storage of 4 GiB and a bit; `cut`: the length the file is truncated to."""

    def build(folder):
        numel = BIG // 4 + 250
        pkl = pickle({"w": tensor((numel,), (1,), 0, storage(numel=numel))})
        path = os.path.join(folder, "input.pt")
        crc = 0
        with open(path, "wb") as f:
            first = zip_file([Entry("archive/data.pkl", pkl)])
            f.write(first[:first.index(b"PK\x01\x02")])
            at = f.tell()
            extra = struct.pack("<HHQQ", 1, 16, numel * 4, numel * 4)
            f.write(struct.pack("<IHHHHHIIIHH", 0x04034B50, 45, 0, 0, 0, 0, crc, 2**32 - 1, 2**32 - 1, 14, 20))
            f.write(b"archive/data/0" + extra)
            f.seek(numel * 4, os.SEEK_CUR)
            version_at = f.tell()
            f.write(struct.pack("<IHHHHHIIIHH", 0x04034B50, 45, 0, 0, 0, 0, zlib.crc32(b"3\n"), 2, 2, 15, 0))
            f.write(b"archive/version3\n")
            where = f.tell()
            entry = first[first.index(b"PK\x01\x02"):offset_of_end(first)]
            f.write(entry)
            f.write(struct.pack("<IHHHHHHIIIHHHHHII", 0x02014B50, 45, 45, 0, 0, 0, 0, crc, 2**32 - 1, 2**32 - 1, 14, 20,
                                0, 0, 0, 0, at) + b"archive/data/0" + extra)
            wide = struct.pack("<HHQ", 1, 8, version_at)
            f.write(struct.pack("<IHHHHHHIIIHHHHHII", 0x02014B50, 45, 45, 0, 0, 0, 0, zlib.crc32(b"3\n"), 2, 2, 15,
                                len(wide), 0, 0, 0, 0, 2**32 - 1) + b"archive/version" + wide)
            nbytes = f.tell() - where
            end64 = f.tell()
            f.write(struct.pack("<IQHHIIQQQQ", 0x06064B50, 44, 45, 45, 0, 0, 3, 3, nbytes, where))
            f.write(struct.pack("<IIQI", 0x07064B50, 0, end64, 1))
            f.write(struct.pack("<IHHHHIIH", 0x06054B50, 0, 0, 3, 3, nbytes, 2**32 - 1, 0))
            if cut is not None:
                f.truncate(cut)
        return path

    return build


# ---- bombs, and archives of very many entries ----


def bomb():
    """1 MB of deflated zeros that would be 1 GB of data.pkl."""
    deflate = zlib.compressobj(9, zlib.DEFLATED, -15)
    zeros = b"\0" * (1 << 20)
    crc, out = 0, bytearray()
    for _ in range(1024):
        crc = zlib.crc32(zeros, crc)
        out += deflate.compress(zeros)
    out += deflate.flush()
    sizes = dict(crc=crc, usize=1 << 30)
    return zip_file([Entry("archive/data.pkl", method=8, stored=bytes(out), local=sizes, central=sizes)] + good()[1:])


def many_entries(count, name_nbytes):
    names = [b"archive/data/" + (b"%07d" % i).rjust(name_nbytes - 13, b"x") for i in range(count)]
    local, central, at = [], [], 0
    for e in [Entry("archive/data.pkl", PKL), Entry("archive/data/0", FLOATS), Entry("archive/version", b"3\n")]:
        one = zip_file([e])
        where = one.index(b"PK\x01\x02")
        local.append(one[:where])
        entry = bytearray(one[where:offset_of_end(one)])
        entry[42:46] = struct.pack("<I", at)
        central.append(bytes(entry))
        at += where
    head = struct.pack("<IHHHHHIIIHH", 0x04034B50, 20, 0, 0, 0, 0, 0, 0, 0, name_nbytes, 0)
    for name in names:
        local.append(head)
        local.append(name)
        central.append(struct.pack("<IHHHHHHIIIHHHHHII", 0x02014B50, 20, 20, 0, 0, 0, 0, 0, 0, 0, name_nbytes, 0, 0, 0, 0,
                                   0, at))
        central.append(name)
        at += 30 + name_nbytes
    directory = b"".join(central)
    n = count + 3
    tail = struct.pack("<IQHHIIQQQQ", 0x06064B50, 44, 45, 45, 0, 0, n, n, len(directory), at)
    tail += struct.pack("<IIQI", 0x07064B50, 0, at + len(directory), 1)
    tail += struct.pack("<IHHHHIIH", 0x06054B50, 0, 0, 65535, 65535, len(directory), at, 0)
    return b"".join(local) + directory + tail


def too_many(folder):
    """An end that names more entries than are read, behind a directory that is a hole."""
    path = os.path.join(folder, "input.pt")
    count = (1 << 24) + 1
    with open(path, "wb") as f:
        f.write(PLAIN[:64])
        f.truncate(64 + count * 46)
        f.seek(0, os.SEEK_END)
        at = f.tell()
        f.write(struct.pack("<IQHHIIQQQQ", 0x06064B50, 44, 45, 45, 0, 0, count, count, count * 46, 64))
        f.write(struct.pack("<IIQI", 0x07064B50, 0, at, 1))
        f.write(struct.pack("<IHHHHIIH", 0x06054B50, 0, 0, 65535, 65535, count * 46, 64, 0))
    return path


def bad_crc(names):
    """The module's file with a wrong CRC for the records that names(name) picks, in directory and descriptor."""
    data = bytearray(module)
    at = module.index(b"PK\x01\x02")
    while data[at:at + 4] == b"PK\x01\x02":
        n, e, c = struct.unpack("<HHH", data[at + 28:at + 34])
        name = bytes(data[at + 46:at + 46 + n])
        local, = struct.unpack("<I", data[at + 42:at + 46])
        nbytes, = struct.unpack("<I", data[at + 20:at + 24])
        ln, le = struct.unpack("<HH", data[local + 26:local + 30])
        descriptor = local + 30 + ln + le + nbytes
        if names(name):
            data[at + 16] ^= 1
            if data[descriptor:descriptor + 4] == b"PK\x07\x08":
                data[descriptor + 4] ^= 1
        at += 46 + n + e + c
    return bytes(data)


def records(data):
    """[(name, offset of data, size)] of a zip's directory."""
    found = []
    at = data.index(b"PK\x01\x02")
    while data[at:at + 4] == b"PK\x01\x02":
        n, e, c = struct.unpack("<HHH", data[at + 28:at + 34])
        local, = struct.unpack("<I", data[at + 42:at + 46])
        nbytes, = struct.unpack("<I", data[at + 20:at + 24])
        ln, le = struct.unpack("<HH", data[local + 26:local + 30])
        found.append((data[at + 46:at + 46 + n].decode(), local + 30 + ln + le, nbytes))
        at += 46 + n + e + c
    return found


def flips():
    """One bit in every record in turn: what is parsed is refused at once, what is tensor data at level checksum."""
    rows = []
    for name, at, nbytes in records(module):
        if nbytes == 0:
            continue
        rows.append(row("Z15", "flip-" + name.split("/", 1)[1].replace("/", "-"), "R", "ZIP-CRC",
                        flipped(module, at + nbytes // 2, 3), at="open" if parsed(name) else "checksum"))
    return rows


def parsed(name):
    return name.split("/", 1)[1] in ("data.pkl", "byteorder", "version")


def opened():
    rows = [
        row("Z01", "nothing", "R", "ZIP-EMPTY", b""),
        row("Z01", "one-byte", "R", "PT-CONTAINER", b"P", settled="one byte is no zip that is empty, it is no zip"),
        row("Z01", "end-alone", "R", "ZIP-EMPTY", zip_file([])),
        row("Z02", "sparse-whole", "A", None, sparse(), commands=("inspect", "structure", "coverage")),
        row("Z03", "two-ends", "R", "ZIP-AMBIGUOUS-END", PLAIN + PLAIN[-END_NBYTES:], offset=ANY),
        row("Z03", "end-in-comment", "R", "ZIP-AMBIGUOUS-END", zip_file(good(), comment=PLAIN[-END_NBYTES:]), offset=ANY),
        row("Z04", "locator-elsewhere", "R", "ZIP64", zip_file(good(), zip64={"locator": 0}), offset=ANY),
        row("Z04", "locator-past-end", "R", "ZIP64", zip_file(good(), zip64={"locator": 2**40}), offset=ANY),
        row("Z04", "locator-wraps", "R", "ZIP64", zip_file(good(), zip64={"locator": 2**64 - 1}), offset=ANY),
        row("Z04", "counts-disagree", "R", "ZIP64", zip_file(good(), zip64={"here": 2, "all": 2})),
        row("Z04", "places-disagree", "R", "ZIP64", zip_file(good(), zip64={"offset": 5})),
        row("Z05", "size-ffffffff", "R", "ZIP64", zip_file(good(central={"csize": 2**32 - 1, "usize": 2**32 - 1}))),
        row("Z05", "extra-short", "R", "ZIP64", zip_file(good(central={"extra": b"\x01\x00\x30\x00" + b"\0" * 8,
                                                                       "usize": 2**32 - 1}))),
        row("Z05", "extra-without-size", "R", "ZIP64", zip_file(good(central={"extra": b"\x01\x00\x00\x00",
                                                                             "usize": 2**32 - 1}))),
        row("Z06", "torch", "A", None, from_fixture(MODULE)),
        row("Z06", "not-needed", "A", None, zip_file(good(), zip64={})),
        row("Z07", "none", "R", "ZIP-COUNT", zip_file(good(), here=0, all=0)),
        row("Z07", "one-more", "R", "ZIP-COUNT", zip_file(good(), here=4, all=4)),
        row("Z07", "one-less", "R", "ZIP-COUNT", zip_file(good(), here=2, all=2)),
        row("Z07", "two-counts", "R", "ZIP-COUNT", zip_file(good(), here=3, all=4)),
        row("Z07", "2e64", "R", "ZIP-COUNT", zip_file(good(), zip64={"here": 2**64 - 1, "all": 2**64 - 1}, here=65535,
                                                       all=65535)),
        row("Z08", "past-end", "R", "ZIP-DIR", zip_file(good(), offset=2**31), offset=ANY),
        row("Z08", "in-data", "R", "ZIP-DIR", zip_file(good(), offset=0), offset=ANY),
        row("Z08", "wraps", "R", "ZIP-DIR", zip_file(good(), zip64={"offset": 2**64 - 8}, offset=2**32 - 1)),
        row("Z08", "too-long", "R", "ZIP-DIR", zip_file(good(), nbytes=2**31)),
        row("Z09", "apart", "R", "ZIP-DUPNAME", zip_file(good() + [Entry("archive/data/0", b"\xff" * 24)])),
        row("Z09", "adjacent", "R", "ZIP-DUPNAME", zip_file(good()[:2] + good()[1:])),
        row("Z09", "data-pkl", "R", "ZIP-DUPNAME", zip_file(good() + good()[:1])),
        row("Z10", "both", "R", "ZIP-CASE", zip_file(good() + [Entry("archive/DATA/0", b"\xff" * 24)])),
        row("Z10", "upper", "R", "ZIP-CASE", zip_file([Entry("archive/DATA.PKL", PKL)] + good()[1:])),
        row("Z11", "other-name", "R", "ZIP-LOCAL-NAME", zip_file(good(local={"name": b"archive/data/1"})), offset=ANY),
        row("Z11", "shorter-name", "R", "ZIP-LOCAL-NAME", zip_file(good(local={"name": b"archive/data"})), offset=ANY),
        row("Z12", "encrypted", "R", "ZIP-FLAGS", zip_file(good(local={"flags": 1}, central={"flags": 1})), offset=ANY),
        row("Z12", "encrypted-central", "R", "ZIP-FLAGS", zip_file(good(central={"flags": 1})), offset=ANY),
        row("Z12", "encrypted-local", "R", "ZIP-FLAGS", zip_file(good(local={"flags": 1})), offset=ANY),
        row("Z12", "masked", "R", "ZIP-FLAGS", zip_file(good(local={"flags": 1 << 13}, central={"flags": 1 << 13}))),
        row("Z12", "reserved", "R", "ZIP-FLAGS", zip_file(good(local={"flags": 1 << 14}, central={"flags": 1 << 14}))),
        row("Z13", "torch-1.13", "A", None, from_fixture(MODULE, release="torch-1.13.1/")),
    ]
    whole = len(module)
    for cut in range(64, whole, 64):
        rows.append(row("Z02", f"cut-{cut}", "R", "ZIP-NOEND", module[:cut]))
    rows.append(row("Z02", "cut-1", "R", "ZIP-NOEND", module[:-1]))
    for name, cut in (("below-2e32", BIG - 1), ("at-2e32", BIG), ("above-2e32", BIG + 1)):
        rows.append(row("Z02", name, "R", "ZIP-NOEND", sparse(cut)))
    return rows


def described(crc, csize, usize, wide=False, mark=True):
    return (b"PK\x07\x08" if mark else b"") + struct.pack("<IQQ" if wide else "<III", crc, csize, usize)


def read():
    late = {"flags": 8, "crc": 0, "csize": 0, "usize": 0}
    crc, n = zlib.crc32(FLOATS), len(FLOATS)
    wide_extra = struct.pack("<HHQQ", 1, 16, n, n)
    streamed = lambda after, **w: zip_file(good(local={**late, **w}, central={"flags": 8}, after=after))
    overlap = zip_file(good())
    second = overlap.index(b"PK\x03\x04", 4)
    return [
        row("Z14", "right", "A", None, streamed(described(crc, n, n))),
        row("Z14", "missing", "R", "ZIP-DESCRIPTOR", streamed(b""), offset=ANY),
        row("Z14", "other-crc", "R", "ZIP-DESCRIPTOR", streamed(described(crc ^ 1, n, n)), offset=ANY),
        row("Z14", "other-size", "R", "ZIP-DESCRIPTOR", streamed(described(crc, n, n + 1)), offset=ANY),
        row("Z14", "32-bit", "R", "ZIP-DESCRIPTOR", zip_file(good(
            local={**late, "csize": 2**32 - 1, "usize": 2**32 - 1, "extra": wide_extra},
            central={"flags": 8, "csize": 2**32 - 1, "usize": 2**32 - 1, "extra": wide_extra},
            after=described(crc, n, n))), offset=ANY),
        row("Z16", "every-storage", "R", "ZIP-CRC", bad_crc(lambda name: b"/data/" in name), at="checksum",
            settled="torch's set_crc32_options(False) writes 0 for every CRC; wrong ones are no such file's"),
        row("Z16", "torch-without", "A", "CHECKSUM-NONE", from_fixture("pt-nocrc/checkpoint.pt"), at="checksum",
            settled="what a released torch writes is a good file: that nothing is recorded is a note"),
        row("Z17", "same-header", "R", "ZIP-OVERLAP", zip_file(good() + [Entry("archive/data/1", FLOATS,
                                                                               central={"offset": 0})])),
        row("Z17", "partial", "R", "ZIP-OVERLAP", zip_file(good(local={"csize": n + 40, "usize": n + 40},
                                                               central={"csize": n + 40, "usize": n + 40}))),
        row("Z17", "quoted", "R", "ZIP-OVERLAP", quoted()),
        row("Z17", "into-directory", "R", "ZIP-OVERLAP", into_directory()),
        row("Z18", "between", "R", "ZIP-GAP", zip_file(good(after=b"hidden" * 20)), offset=second + 30 + 14 + n),
        row("Z18", "hidden-entry", "R", "ZIP-GAP", zip_file(good(after=overlap[:second])), offset=ANY),
        row("Z18", "before-directory", "R", "ZIP-GAP", zip_file(good(), gap=b"hidden" * 20), offset=ANY),
        row("Z19", "deflated", "A", None, zip_file(good(method=8))),
        row("Z19", "deflated-pkl", "A", None, zip_file([Entry("archive/data.pkl", PKL, method=8)] + good()[1:])),
        row("Z19", "damaged", "R", "ZIP-DEFLATE", zip_file(good(method=8, stored=b"\x07" * 20)), at="payload"),
        row("Z19", "damaged-pkl", "R", "ZIP-DEFLATE", zip_file(
            [Entry("archive/data.pkl", PKL, method=8, stored=b"\x07" * 20)] + good()[1:])),
        row("Z19", "inside", "U", "ZIP-METHOD", dcp.folder(**dcp.first_is(zip_file(
            [Entry("archive/data.pkl", pickle(tensor())), *good(method=8)[1:]]))), at="coverage"),
        row("Z19", "inside-object", "U", "ZIP-METHOD", dcp.with_object("extra", zip_file(good(method=8))), at="coverage",
            expect={"coverage": 0, "checksum": 0, "digest": 0, "latest": 0}, settled="an error only where objects are carried"),
        row("Z20", "bomb", "L", "ZIP-BOMB", lazily(bomb)),
        row("Z20", "stream-longer", "R", "ZIP-SIZE", zip_file(
            [Entry("archive/data.pkl", PKL + b"\0" * 4000, method=8, local={"usize": len(PKL)},
                   central={"usize": len(PKL)})] + good()[1:])),
        row("Z20", "stream-shorter", "R", "ZIP-SIZE", zip_file(
            [Entry("archive/data.pkl", PKL, method=8, local={"usize": len(PKL) + 9}, central={"usize": len(PKL) + 9})]
            + good()[1:])),
        *[row("Z21", name, "U", "ZIP-METHOD", zip_file(good(local={"method": m}, central={"method": m})))
          for name, m in (("bzip2", 12), ("lzma", 14), ("zstd", 93), ("aes", 99))],
        row("Z22", "stored-longer", "R", "ZIP-SIZE", zip_file(good(local={"usize": 48}, central={"usize": 48}))),
        row("Z22", "stored-shorter", "R", "ZIP-SIZE", zip_file(good(local={"usize": 12}, central={"usize": 12}))),
    ]


def quoted():
    """CVE-2024-0450: the local header of one entry lies in what the other quotes as its data."""
    inner = zip_file([Entry("archive/data/1", FLOATS)])
    inner = inner[:inner.index(b"PK\x01\x02")]
    outer = Entry("archive/data/0", inner)
    entries = [good()[0], outer, good()[2]]
    at = zip_file(entries).index(b"archive/data/0") + 14
    return zip_file(entries + [Entry("archive/data/1", FLOATS, central={"offset": at})])


def into_directory():
    """The last record's size takes in the first bytes of the directory."""
    sizes = {"csize": 2 + 20, "usize": 2 + 20}
    return zip_file(good()[:2] + [Entry("archive/version", b"3\n", local=sizes, central=sizes)])


def named():
    extra = lambda name: zip_file(good() + [Entry(name, b"x")])
    names = (("dotdot", "archive/../../marker"), ("absolute", "/marker"), ("drive", "C:/archive/marker"),
             ("backslash", "archive\\marker"), ("nul", "archive/a\0b"), ("empty", ""), ("dot", "archive/./a"),
             ("long", "archive/" + "x" * 65527), ("escape", "archive/../\x1b[31m\nINJECTED"))
    rows = [row("Z23", name, "R", "ZIP-NAME", extra(text)) for name, text in names]
    utf8 = {"flags": 1 << 11}
    rows.append(row("Z23", "not-utf8", "R", "ZIP-NAME", zip_file(good() + [Entry(b"archive/\xff\xfe", b"x", local=utf8,
                                                                               central=utf8)])))
    return rows


def around():
    tar = b"pickle".ljust(257, b"\0") + b"ustar\x0000" + b"\0" * 760
    imitation = zip_file([Entry("archive/data/1", FLOATS)])
    imitation = imitation[imitation.index(b"PK\x01\x02"):offset_of_end(imitation)]
    st = fixture_bytes("st-official/model.safetensors")
    elf = b"\x7fELF\x02\x01\x01" + b"\0" * 57
    contents = (("7z", b"7z\xbc\xaf\x27\x1c" + b"\0" * 60, "7z"), ("gzip", b"\x1f\x8b\x08\0" + b"\0" * 60, "gzip"),
                ("rar", b"Rar!\x1a\x07\x01\0" + b"\0" * 60, "RAR"),
                ("git-lfs", b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 5\n", ""))
    rows = [
        row("Z24", "two-roots", "R", "ZIP-ROOT", zip_file(good() + [Entry("other/data.pkl", PKL)])),
        row("Z24", "no-root", "R", "ZIP-ROOT", zip_file(good() + [Entry("data.pkl", PKL)])),
        row("Z25", "script", "R", "ZIP-PREFIX", zip_file(good(), prefix=b"#!/bin/sh\ntouch marker\n"), offset=0),
        row("Z25", "elf", "R", "ZIP-PREFIX", zip_file(good(), prefix=elf), offset=0),
        row("Z25", "pdf", "R", "ZIP-PREFIX", zip_file(good(), prefix=b"%PDF-1.7\n"), offset=0),
        row("Z25", "script-moved", "R", "ZIP-PREFIX", b"#!/bin/sh\ntouch marker\n" + PLAIN, offset=0),
        row("Z26", "words", "R", "ZIP-TRAILING", PLAIN + b"trailing", offset=ANY),
        row("Z26", "500-zeros", "R", "ZIP-TRAILING", PLAIN + b"\0" * 500, offset=ANY),
        row("Z26", "one-byte", "R", "ZIP-TRAILING", PLAIN + b"\n", offset=ANY),
        row("Z27", "entry-in-comment", "A", None, zip_file(good(central={"comment": imitation}))),
        row("Z27", "counted", "R", "ZIP-COUNT", zip_file(good(central={"comment": imitation}), here=4, all=4)),
        row("Z28", "disks", "R", "ZIP-DISK", zip_file(good(), disk=1, directory_disk=1)),
        row("Z28", "entry", "R", "ZIP-DISK", zip_file(good(central={"disk": 1}))),
        row("Z28", "zip64", "R", "ZIP-DISK", zip_file(good(), zip64={"disk": 1, "directory_disk": 1})),
        row("Z29", "million", "A", None, lazily(lambda: many_entries(1_000_000, 60)),
            commands=("inspect", "structure"), sandbox=False),
        row("Z29", "million-in-little-memory", "L", None, lazily(lambda: many_entries(1_000_000, 60)),
            commands=("inspect", "structure"), sandbox=True, settled="a million entries need more than 256 MiB"),
        row("Z29", "too-many", "L", "ZIP-ENTRIES", too_many, commands=("inspect", "structure")),
        row("Z30", "tar", "U", "PT-TAR", tar, settled="the tar form of old releases is told by its own name"),
        *[row("Z30", name, "R", "PT-CONTAINER", data, says=(says,)) for name, data, says in contents],
        row("Z30", "safetensors", "A", None, st, settled="what a file is is told by its content; a name is a hint"),
        row("Z30", "safetensors-as-pt", "R", "PT-CONTAINER", st, options=("--source-format=pt",), says=("safetensors",)),
        row("Z31", "unaligned", "A", None, PLAIN),
    ]
    for name, version in (("missing", None), ("empty", b""), ("99", b"99\n"), ("text", b"three\n"),
                          ("long", b"3\n" * 500_000)):
        rows.append(row("Z32", name, "R", "PT-VERSION", archive(PKL, {"0": FLOATS}, version=version)))
    return rows


def directory():
    """One byte of the last entry of a real directory, inverted: whatever it is, it is seen."""
    entry = module.rindex(b"PK\x01\x02")
    fields = (("flags", 8, "ZIP-FLAGS"), ("stored-size", 20, "ZIP-SIZE"), ("size", 24, "ZIP-SIZE"), ("place", 42, None))
    return [row("Z11", "directory-" + name, "R", finding, module[:entry + at] + bytes([module[entry + at] ^ 255])
                + module[entry + at + 1:]) for name, at, finding in fields]


def other_id():
    """Another serialization id, whose CRC is right."""
    data = bytearray(module)
    at = module.index(b"PK\x01\x02")
    for name, where, nbytes in records(module):
        n, e, c = struct.unpack("<HHH", data[at + 28:at + 34])
        if name.endswith("serialization_id"):
            data[where + nbytes - 1] ^= 1
            crc = struct.pack("<I", zlib.crc32(bytes(data[where:where + nbytes])))
            data[at + 16:at + 20] = crc
            data[where + nbytes + 4:where + nbytes + 8] = crc
        at += 46 + n + e + c
    return [row("Z33", "other-id", "W", "PT-SERID", bytes(data), at="checksum"),
            row("Z33", "other-record", "W", "PT-SERID", with_serial({"w": tensor()}, b"\x40" * 24), at="checksum"),
            row("Z33", "other-record-inside", "W", "PT-SERID",
                dcp.folder(**dcp.first_is(with_serial(tensor(), b"\x40" * 24))), at="checksum"),
            row("Z33", "right", "A", None, with_serial({"w": tensor()}), at="checksum"),
            row("Z33", "right-inside", "A", None, dcp.folder(**dcp.first_is(with_serial(tensor()))), at="checksum"),
            row("Z33", "torch-right", "A", None, module, at="checksum"),
            row("Z33", "torch-right-inside", "A", None, from_fixture("dcp-fsdp2"), at="checksum")]


ROWS = directory() + other_id() + opened() + flips() + read() + named() + around()
