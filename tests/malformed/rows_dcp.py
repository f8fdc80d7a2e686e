"""D: folders of torch.distributed.checkpoint."""

import os
import shutil
import socket
import struct
import zlib

import dcp_builder as dcp
from dcp_builder import call, BLOB, FIRST, SECOND, blob, described, folder, index, place
from rows import ANY, FIXTURES, SEED, Row, fixture_bytes, flipped, from_fixture
from pickle_builder import Build, Global, archive, dump, pickle, storage, tensor

FSDP2 = "dcp-fsdp2"
N = len(BLOB)
SWAPPED = "a manifest of the source is not yet checked"


def row(id, name, cls, finding, build, **words):
    return Row(id, name, cls, finding, build, **words)


def bent(change, fixture=FSDP2):
    return from_fixture(fixture, change)


def without(*names):
    def change(path):
        for name in names:
            os.remove(os.path.join(path, name))

    return bent(change)


def cut_by(nbytes):
    def change(path):
        file = os.path.join(path, "__1_0.distcp")
        whole = os.path.getsize(file)
        os.truncate(file, whole - (whole // 2 if nbytes == "half" else whole if nbytes == "all" else nbytes))

    return bent(change)


def in_place_of(name, make):
    """A folder whose shard `name` is what make(path) makes."""

    def change(path):
        file = os.path.join(path, name)
        if os.path.lexists(file):
            os.remove(file)
        make(file)

    return bent(change)


def make_socket(path):
    s = socket.socket(socket.AF_UNIX)
    here = os.getcwd()
    folder, name = os.path.split(path)
    fd = os.open(folder, os.O_RDONLY)
    try:
        s.bind(f"/proc/self/fd/{fd}/{name}")
    finally:
        os.close(fd)
        s.close()


def first_at(path, offset=0, length=N):
    return [((0, 0), path, offset, length), ((2, 0), SECOND, 0, N)]


def shards():
    files = [f"__{r}_0.distcp" for r in range(4)]
    return [
        row("D01", "no-metadata", "R", "SAVE-INCOMPLETE", without(".metadata"),
            says=("did not complete", "copy '.metadata' (a hidden file)")),
        row("D01", "rank-metadata", "A", None, from_fixture("dcp-nocollective"),
            strict=False,
            settled="a folder with a metadata file of each rank is whole; it does not record their number"),
        row("D02", "tmp-alone", "R", "SAVE-INCOMPLETE",
            bent(lambda p: os.rename(p + "/.metadata", p + "/.metadata.tmp")), says=(".metadata.tmp",)),
        row("D03", "one-lost", "R", "FILE-MISSING", without(files[2]), says=(files[2],)),
        row("D03", "a-node-lost", "R", "FILE-MISSING", without(*files[2:]), says=tuple(files[2:])),
        row("D03", "all-lost", "R", "FILE-MISSING", without(*files), says=tuple(files)),
        *[row("D04", f"cut-{n}", "R", "FILE-SHORT", cut_by(n)) for n in (1, 10, 100, 4000, "half", "all")],
        row("D05", "past-end", "R", "FILE-SHORT", folder(places=first_at(FIRST, 0, N + 1)),
            settled="a range that ends behind the file is a file that is too short"),
        row("D05", "offset-past-end", "R", "DCP-RANGE", folder(places=first_at(FIRST, 10**6))),
        row("D05", "negative", "R", "DCP-RANGE", folder(places=first_at(FIRST, -1))),
        row("D05", "negative-length", "R", "DCP-RANGE", folder(places=first_at(FIRST, 0, -N))),
        row("D05", "wraps", "R", "DCP-RANGE", folder(places=first_at(FIRST, 2**63 - 1, 2**63 - 1))),
        row("D05", "wraps-2e64", "R", "DCP-RANGE", folder(places=first_at(FIRST, 2**64 - 1, N))),
        row("D06", "too-small", "R", "ZIP-NOEND", folder(places=first_at(FIRST, 0, N - 1)), at="coverage",
            settled="the zip that is cut by it has no end"),
        row("D06", "too-large", "R", "ZIP-TRAILING", folder(files={FIRST: BLOB + b"tail", SECOND: BLOB},
                                                            places=first_at(FIRST, 0, N + 4)), at="coverage"),
        row("D06", "too-large-by-one", "R", "ZIP-TRAILING", folder(files={FIRST: BLOB + b"tail", SECOND: BLOB},
                                                                   places=first_at(FIRST, 0, N + 1)), at="coverage"),
        row("D07", "overlap", "R", "DCP-RANGE-OVERLAP", folder(files={FIRST: BLOB}, places=[
            ((0, 0), FIRST, 0, N), ((2, 0), FIRST, 10, N - 10)])),
        row("D07", "same", "R", "DCP-RANGE-OVERLAP", folder(files={FIRST: BLOB}, places=[
            ((0, 0), FIRST, 0, N), ((2, 0), FIRST, 0, N)])),
        row("D08", "up", "R", "DCP-PATH", folder(places=first_at("../" + FIRST))),
        row("D08", "up-inside", "R", "DCP-PATH", folder(places=first_at("x/../../step-1/" + FIRST))),
        row("D08", "up-of-prefix", "R", "DCP-PATH", folder(places=first_at("shard0/../../" + FIRST))),
        row("D08", "up-below-prefix", "R", "DCP-PATH", folder(places=first_at("shard0/.."))),
        row("D08", "prefix-empty", "R", "DCP-PATH", folder(places=first_at("shard0//" + FIRST))),
        row("D08", "here", "R", "DCP-PATH", folder(places=first_at("./" + FIRST))),
        row("D08", "absolute", "R", "DCP-PATH", folder(places=first_at("/etc/passwd"))),
        row("D08", "empty", "R", "DCP-PATH", folder(places=first_at(""))),
        row("D08", "nul", "R", "DCP-PATH", folder(places=first_at(FIRST + "\0x"))),
        row("D08", "long", "R", "DCP-PATH", folder(places=first_at("x" * 5000))),
        row("D08", "escape", "R", "DCP-PATH", folder(places=first_at("/\x1b[31m\nINJECTED"))),
    ]


def kinds():
    def outside(path):
        os.rename(path + "/__1_0.distcp", os.path.dirname(path) + "/elsewhere")
        os.symlink("../elsewhere", path + "/__1_0.distcp")

    def below_prefix(target=None):
        def change(path):
            place = os.path.join(path, target or "shard0")
            os.makedirs(place)
            os.rename(path + "/" + FIRST, place + "/" + FIRST)
            if target:
                os.symlink(target, path + "/shard0")
        return change

    def link_itself(path):
        os.rename(path, path + ".real")
        os.symlink(os.path.basename(path) + ".real", path)

    def metadata_is(make):
        def change(path):
            os.remove(path + "/.metadata")
            make(path + "/.metadata")

        return bent(change)

    def fifo_itself(path):
        shutil.rmtree(path)
        os.mkfifo(path)

    return [
        row("D09", "link", "A", None, bent(outside), settled="links that the owner placed are followed"),
        row("D09", "link-refused", "R", "FILE-TYPE", bent(outside), options=("--no-follow",),
            settled="paths found inside files are DCP-PATH, links in the folder what they are"),
        row("D09", "folder-is-link", "A", None, bent(link_itself)),
        # Prefixes of object stores: data files in subfolders.
        row("D09", "prefix", "A", None, folder(below_prefix(), places=first_at("shard0/" + FIRST))),
        row("D09", "prefix-lost", "R", "FILE-MISSING", folder(places=first_at("shard0/" + FIRST)), says=("shard0/" + FIRST,)),
        row("D09", "prefix-link", "A", None, folder(below_prefix("../elsewhere"), places=first_at("shard0/" + FIRST)),
            settled="links that the owner placed are followed"),
        row("D09", "prefix-link-refused", "R", "FILE-TYPE", folder(below_prefix("../elsewhere"), places=first_at("shard0/" + FIRST)),
            options=("--no-follow",)),
        row("D09", "prefix-file", "R", "FILE-MISSING", folder(lambda p: os.rename(p + "/" + FIRST, p + "/shard0"),
                                                              places=first_at("shard0/" + FIRST))),
        row("D10", "fifo", "R", "FILE-TYPE", in_place_of("__1_0.distcp", os.mkfifo)),
        row("D10", "folder", "R", "FILE-TYPE", in_place_of("__1_0.distcp", os.mkdir)),
        row("D10", "socket", "R", "FILE-TYPE", in_place_of("__1_0.distcp", make_socket)),
        row("D10", "device", "R", "FILE-TYPE", in_place_of("__1_0.distcp", lambda p: os.symlink("/dev/zero", p))),
        row("D10", "metadata-fifo", "R", "FILE-TYPE", metadata_is(os.mkfifo)),
        row("D10", "metadata-folder", "R", "FILE-TYPE", metadata_is(os.mkdir)),
        row("D10", "metadata-device", "R", "FILE-TYPE", metadata_is(lambda p: os.symlink("/dev/zero", p))),
        row("D10", "fifo-itself", "R", "FILE-TYPE", bent(fifo_itself)),
    ]


def boxes():
    both = [((0, 0), FIRST, 0, N), ((2, 0), SECOND, 0, N)]
    moved = dict(chunks=[((0, 0), (2, 3)), ((1, 0), (2, 3))], places=[both[0], ((1, 0), SECOND, 0, N)])
    scalar = blob(())
    return [
        row("D11", "gap", "R", "CHUNK-GAP", folder(chunks=[((0, 0), (2, 3))], places=both[:1], files={FIRST: BLOB}), at="coverage",
            says=("[2:4, 0:3]",)),
        row("D11", "gap-row", "R", "CHUNK-GAP", folder(shape=(5, 3)), at="coverage", says=("[4:5, 0:3]",)),
        row("D11", "gap-larger-than-disks", "R", "CHUNK-GAP", folder(shape=(2**41, 3)), at="coverage"),
        row("D12", "different", "R", "CHUNK-OVERLAP", folder(shape=(3, 3), **moved), at="coverage"),
        row("D12", "equal", "R", "CHUNK-OVERLAP", folder(shape=(3, 3), files={FIRST: blob(fill=0), SECOND: blob(fill=0)}, **moved),
            at="coverage"),
        row("D13", "both", "R", "CHUNK-OVERLAP", folder(**moved), at="coverage", also=("CHUNK-GAP",), says=("missing",)),
        row("D14", "out-of-bounds", "R", "CHUNK-BOUNDS", folder(shape=(3, 3))),
        row("D14", "negative", "R", "CHUNK-BOUNDS", folder(chunks=[((0, 0), (2, 3)), ((2, 0), (-2, 3))])),
        row("D14", "negative-offset", "R", "CHUNK-BOUNDS", folder(chunks=[((0, 0), (2, 3)), ((-2, 0), (2, 3))],
                                                                places=[both[0], ((-2, 0), SECOND, 0, N)])),
        row("D14", "negative-shape", "R", "CHUNK-BOUNDS", folder(shape=(-4, 3))),
        row("D14", "offset-wraps", "R", "CHUNK-BOUNDS", folder(chunks=[((0, 0), (2, 3)), ((2**63 - 1, 0), (2, 3))],
                                                             places=[both[0], ((2**63 - 1, 0), SECOND, 0, N)])),
        row("D14", "volume", "R", "CHUNK-BOUNDS", folder(shape=(2**40, 2**40))),
        row("D14", "zero-chunk-outside", "R", "CHUNK-BOUNDS", folder(chunks=[((0, 0), (2, 3)), ((2, 0), (2, 3)), ((5, 0), (0, 3))])),
        row("D15", "less", "R", "DCP-RANK", folder(chunks=[((0, 0), (2, 3)), ((2,), (2,))], places=[both[0], ((2,), SECOND, 0, N)])),
        row("D15", "more", "R", "DCP-RANK", folder(chunks=[((0, 0), (2, 3)), ((2, 0, 0), (2, 3, 1))],
                                                   places=[both[0], ((2, 0, 0), SECOND, 0, N)])),
        row("D15", "offsets-and-sizes", "R", "DCP-RANK", folder(chunks=[((0, 0), (2, 3)), ((2, 0), (2,))])),
        row("D16", "twice", "R", "CHUNK-OVERLAP", folder(shape=(), chunks=[((), ()), ((), ())],
                                                       files={FIRST: scalar, SECOND: scalar},
                                                       places=[((), FIRST, 0, len(scalar)), ((), SECOND, 0, len(scalar))])),
        row("D17", "no-storage", "R", "DCP-ORPHAN", folder(more={"v": described((2, 3), [((0, 0), (2, 3))])})),
        row("D17", "empty-takes-entry", "A", None, folder(
            chunks=[((0, 0), (0, 3)), ((0, 0), (2, 3)), ((2, 0), (2, 3))], places=[],
            more_places=[(index("w", (0, 0), 0), place(FIRST, 0, N)), (index("w", (2, 0), 2), place(SECOND, 0, N))])),
        row("D17", "no-tensor", "W", "DCP-ORPHAN", folder(files={FIRST: BLOB, SECOND: BLOB, "__0_1.distcp": BLOB},
                                                          more_places=[(index("v", (0, 0)), place("__0_1.distcp", 0, N))])),
    ]


def payloads():
    other = lambda data: folder(**dcp.first_is(data))
    return [
        row("D18", "shape", "R", "DCP-PAYLOAD-SHAPE", other(blob((3, 2))), at="coverage"),
        row("D18", "rank", "R", "DCP-PAYLOAD-SHAPE", other(blob((6,))), at="coverage"),
        row("D18", "larger", "R", "DCP-PAYLOAD-SHAPE", other(blob((4, 3))), at="coverage"),
        row("D18", "larger-than-disks", "R", "DCP-PAYLOAD-SHAPE", folder(
            shape=(2**41, 3), chunks=[((0, 0), (2, 3)), ((2, 0), (2**41 - 2, 3))]), at="coverage"),
        row("D19", "same-size", "R", "DCP-PAYLOAD-DTYPE", other(blob(dtype="IntStorage")), at="coverage"),
        row("D19", "int8", "R", "DCP-PAYLOAD-DTYPE", other(blob(dtype="CharStorage", itemsize=1)), at="coverage"),
        row("D19", "double", "R", "DCP-PAYLOAD-DTYPE", other(blob(dtype="DoubleStorage", itemsize=8)), at="coverage"),
        row("D19", "unknown", "U", "DCP-DTYPE", folder(dtype="quint4x2"), says=("quint4x2",)),
        row("D19", "quantised-inside", "U", "PT-TENSOR-KIND", other(archive(pickle(call(
            "torch._utils", "_rebuild_qtensor", storage(kind="QInt8Storage"), 0, (2, 3), (3, 1), (), False,
            call("collections", "OrderedDict"))), {"0": b"\0" * 6})), at="coverage"),
        row("D19", "no-zip", "R", "PT-CONTAINER", other(b"not a zip at all, of some length"), at="coverage"),
    ]


def swapped_files(path):
    a, b = os.path.join(path, FIRST), os.path.join(path, SECOND)
    os.rename(a, a + ".x")
    os.rename(b, a)
    os.rename(a + ".x", b)


def values():
    two = {FIRST: BLOB, SECOND: blob(fill=1)}
    flips = []
    payload_at = BLOB.index(b"archive/data/0") + 14
    for bit, at in enumerate((payload_at, payload_at + 11, payload_at + 23)):
        flips.append(row("D21", f"flip-{at - payload_at}", "R", "ZIP-CRC", folder(files={FIRST: flipped(BLOB, at, bit), SECOND: BLOB}),
                         at="checksum"))
    real = fixture_bytes("dcp-fsdp2/__0_0.distcp")

    def stale(path):
        shutil.copy(path + "/__3_0.distcp", path + "/__9_0.distcp")

    def stale_copy(path):
        shutil.copy(path + "/__3_0.distcp", path + "/__3_0 (copy).distcp")

    def newer_by(seconds, copy=None):
        """The file of rank 3, or a copy of it, is newer than the metadata."""

        def change(path):
            file = path + "/__3_0.distcp"
            if copy is not None:
                file = shutil.copy(file, os.path.join(path, copy))
            date = os.stat(path + "/.metadata").st_mtime + seconds
            os.utime(file, (date, date))

        return change

    def second(data=None, **words):
        """A folder that also has the metadata of a save without collectives, the last or an older one."""

        def change(path):
            with open(path + "/__0.metadata", "wb") as f:
                f.write(data or dcp.Folder(**words).pickled())

        return folder(change)

    swap = [((0, 0), SECOND, 0, N), ((2, 0), FIRST, 0, N)]
    shifted = [((0, 0), FIRST, 1, N), ((2, 0), SECOND, 0, N)]
    elsewhere = [((0, 0), "__0_7.distcp", 0, N), ((2, 0), SECOND, 0, N)]

    def mixed(path):
        shutil.copy(os.path.join(FIXTURES, SEED, "dcp-hsdp", "__0_0.distcp"), path + "/__0_0.distcp")

    return flips + [
        row("D20", "on-disk", "A", None, folder(swapped_files, files=two)),
        row("D20", "in-metadata", "A", None, folder(files=two, places=[((0, 0), SECOND, 0, N), ((2, 0), FIRST, 0, N)])),
        row("D22", "one", "W", "DCP-STALE", bent(stale)),
        row("D22", "other-name", "A", "DCP-STALE", bent(stale_copy)),
        row("D22", "newer", "W", "DCP-NEWER", bent(newer_by(30, "__9_0.distcp")), says=("'__9_0.distcp'",)),
        row("D22", "newer-named", "W", "DCP-NEWER", bent(newer_by(3600)), says=("'__3_0.distcp'",)),
        row("D22", "metadata-equal", "W", "DCP-STALE", second()),
        row("D22", "metadata-unreadable", "W", "DCP-STALE", second(b"junk")),
        row("D22", "metadata-elsewhere", "W", "DCP-STALE", second(places=elsewhere)),
        *[row("D22", f"metadata-{name}", "R", "RANK-MIXED", second(**words), says=("__0.metadata", "remove '.metadata'"))
          for name, words in (("swapped", dict(places=swap)), ("shifted", dict(places=shifted)), ("renamed", dict(fqn="v")))],
        row("D23", "sizes-equal", "A", None, folder(files={FIRST: BLOB, SECOND: blob(fill=7)}),
            settled="nothing recorded tells them apart; a manifest does"),
        row("D23", "other-sizes", "R", "FILE-SHORT", bent(mixed)),
    ]


def other_object(path):
    """An object that rank 1 has otherwise than the others, with the CRC that torch would have written."""
    file = os.path.join(path, "__1_0.distcp")
    with open(file, "rb") as f:
        data = f.read()
    old, new = b"\x80\x02K\x03.", b"\x80\x02K\x04."
    assert data.count(old) == 1
    crc = lambda pickle: struct.pack("<I", zlib.crc32(pickle))
    with open(file, "wb") as f:
        f.write(data.replace(old, new).replace(crc(old), crc(new)))


def large_object(where):
    path = dcp.with_object("extra", b"\0")(where)
    n = (1 << 30) + 1
    os.truncate(path + "/__1_1.distcp", n)
    words = dict(more={"extra": Build(Global(dcp.META, "BytesStorageMetadata"), {})},
                 more_places=[(index("extra", None), place("__1_1.distcp", 0, n))])
    with open(path + "/.metadata", "wb") as f:
        f.write(dcp.Folder(**words).pickled())
    return path


def third_is_empty(change):
    """Rank 2 has no rows of the tensor; `change` is made to its file."""
    none = dcp.blob((0, 3))
    return folder(lambda path: change(path + "/__2_0.distcp"), chunks=[((0, 0), (2, 3)), ((2, 0), (2, 3)), ((4, 0), (0, 3))],
                  places=[((0, 0), FIRST, 0, N), ((2, 0), SECOND, 0, N), ((4, 0), "__2_0.distcp", 0, len(none))],
                  files={FIRST: BLOB, SECOND: BLOB, "__2_0.distcp": none})


def empty_after_data(where):
    """The second file ends with an empty shard, of which the last byte is cut."""
    none = dcp.blob((0, 3))
    return folder(lambda path: os.truncate(path + "/" + SECOND, N + len(none) - 1),
                  chunks=[((0, 0), (2, 3)), ((2, 0), (2, 3)), ((4, 0), (0, 3))],
                  places=[((0, 0), FIRST, 0, N), ((2, 0), SECOND, 0, N), ((4, 0), SECOND, N, len(none))],
                  files={FIRST: BLOB, SECOND: BLOB + none})(where)


def good():
    rows = [
        row("D26", "object-differs", "W", "DCP-DIFFER", from_fixture("dcp-nocollective", other_object), commands=("consolidate",),
            strict=False, settled="objects are compared where they are read"),
        row("D30", "large-object", "L", "DCP-OBJECT", large_object, at="coverage",
            expect={"digest": 0}),
        row("D24", "empty-chunk", "A", None, folder(chunks=[((0, 0), (2, 3)), ((2, 0), (2, 3)), ((4, 0), (0, 3))])),
        *[row("D34", f"empty-{name}", "W", "DCP-EMPTY-LOST", third_is_empty(change), says=says) for name, change, says in (
            ("missing", os.remove, ("'__2_0.distcp' (missing)",)),
            ("cut", lambda path: os.truncate(path, 100), (f"'__2_0.distcp' (100 of {len(dcp.blob((0, 3)))} bytes)",)),
            ("to-nothing", lambda path: os.truncate(path, 0), (f"'__2_0.distcp' (0 of {len(dcp.blob((0, 3)))} bytes)",)))],
        row("D34", "empty-whole", "A", None, third_is_empty(lambda path: None)),
        row("D34", "empty-after-data-cut", "W", "DCP-EMPTY-LOST", empty_after_data, says=("'__1_0.distcp' (",)),
        row("D24", "uneven", "A", None, from_fixture("dcp-fsdp2")),
        row("D24", "zero-dim", "A", None, folder(shape=(0, 3), chunks=[((0, 0), (0, 3))], files={FIRST: blob((0, 3))},
                                                 places=[((0, 0), FIRST, 0, len(blob((0, 3))))])),
        row("D25", "fsdp2-tp", "A", None, from_fixture("dcp-tp"), cut=("--world-size", "4")),
        row("D25", "hsdp-tp", "A", None, from_fixture("dcp-hsdp-tp"), cut=("--world-size", "8")),
        row("D26", "once", "A", None, from_fixture("dcp-tied")),
        row("D26", "by-every-rank-equal", "R", "CHUNK-OVERLAP", folder(
            shape=(2, 3), chunks=[((0, 0), (2, 3)), ((0, 0), (2, 3))],
            places=[((0, 0), FIRST, 0, N)], more_places=[(index("w", (0, 0), 1), place(SECOND, 0, N))])),
    ]
    for name, fqn in (("empty", ""), ("escape", "a\x1b[31m\nINJECTED"), ("path", "../../w"), ("slash", "/etc/passwd"),
                      ("bidi", "a\u202ew\u2066"), ("c1", "a\x9b31m"), ("cr", "a\rINJECTED"), ("long", "w" * 65536)):
        rows.append(row("D28", name, "A", None, folder(fqn=fqn)))
    pair = lambda a, b: folder(fqn=a, more={b: described((4, 3), dcp.Folder().chunks)}, files={
        FIRST: BLOB, SECOND: BLOB, "__0_1.distcp": BLOB, "__1_1.distcp": BLOB}, more_places=[
            (index(b, (0, 0)), place("__0_1.distcp", 0, N)), (index(b, (2, 0)), place("__1_1.distcp", 0, N))])
    rows += [
        *[row("D28", "confusable-" + name, "W", "KEY-CONFUSABLE", pair(a, b)) for name, a, b in (
            ("accent", "caf\u00e9", "cafe\u0301"), ("marks", "a\u0323\u0302", "\u1ead"), ("hangul", "\ud55c", "\u1112\u1161\u11ab"),
            ("hidden", "layer\u200b.weight", "layer.weight"), ("control", "w\x07", "w"), ("kelvin", "\u212a", "K"))],
        *[row("D28", "distinct-" + name, "A", None, pair(a, b)) for name, a, b in (
            ("accent", "caf\u00e9", "cafe"), ("case", "W", "w"), ("order", "a\u0323\u0301", "a\u0301\u0302"))],
        row("D29", "hint", "A", None, folder(places=[], more_places=[(index("w", (0, 0), 1), place(FIRST, 0, N)),
                                                                     (index("w", (2, 0), 7), place(SECOND, 0, N))])),
    ]
    return rows


def million_chunks(tensors=2000, ranks=512):
    """Tensors of [4 * ranks, 8], four rows on each rank; the data files are holes."""
    rows_each, columns = 4, 8
    nbytes = 4 * rows_each * columns + 640
    put = lambda i: b"r" + struct.pack("<I", i)
    get = lambda i: b"j" + struct.pack("<I", i)
    texts = ["offsets", "sizes", "fqn", "offset", "index", "relative_path", "length"]
    globals_ = [(dcp.META, "ChunkStorageMetadata"), ("torch", "Size"), (dcp.META, "MetadataIndex"),
                ("torch.distributed.checkpoint.filesystem", "_StorageInfo"), (dcp.META, "TensorStorageMetadata")]
    files = [f"__{r}_0.distcp" for r in range(ranks)]
    names = [f"layers.{i}.weight" for i in range(tensors)]
    memo, head = {}, b""
    for code, key in [(dump(t), t) for t in texts + files + names] + [(dump(dcp.Global(*g)), g) for g in globals_]:
        memo[key] = get(len(memo))
        head += code + put(len(memo) - 1) + b"0"
    number = lambda v: b"J" + struct.pack("<i", v)
    size = lambda *v: memo[globals_[1]] + b"".join(map(number, v)) + b"\x86\x85R"
    build = lambda g, *pairs: memo[globals_[g]] + b")\x81}(" + b"".join(memo[k] + v for k, v in pairs) + b"ub"
    properties = len(memo)
    head += dump(dcp.properties()) + put(properties) + b"0"
    offsets = [size(rows_each * r, 0) for r in range(ranks)]
    chunks = b"](" + b"".join(build(0, ("offsets", o), ("sizes", size(rows_each, columns))) for o in offsets) + b"e"
    shape = size(rows_each * ranks, columns)
    cls = memo[globals_[4]] + b")\x81}(" + dump("properties") + get(properties) + dump("size") + shape + dump("chunks")
    described_ = cls + chunks + b"ub"
    parts = [b"\x80\x02", head, dump(dcp.Global(dcp.META, "Metadata")), b")\x81}(", dump("state_dict_metadata"), b"}("]
    for name in names:
        parts += [memo[name], described_]
    parts += [b"u", dump("planner_data"), b"N", dump("storage_data"), b"}("]
    before = memo[globals_[2]] + b")\x81}(" + memo["fqn"]
    middle = [memo["offset"] + o + memo["index"] + number(r) + b"ub" + memo[globals_[3]] + b")\x81}(" + memo["relative_path"]
              + memo[files[r]] + memo["offset"] for r, o in enumerate(offsets)]
    behind = memo["length"] + number(nbytes) + b"ub"
    for i, name in enumerate(names):
        start = before + memo[name]
        at = number(i * nbytes)
        for m in middle:
            parts += (start, m, at, behind)
    parts.append(b"uub.")

    def build_(where):
        path = os.path.join(where, "step-1")
        os.mkdir(path)
        with open(path + "/.metadata", "wb") as f:
            f.writelines(parts)
        for file in files:
            with open(os.path.join(path, file), "wb") as f:
                f.truncate(tensors * nbytes)
        return path

    return build_


def objects():
    """Byte entries that torch does not load, and keys that contradict a name."""
    zeros, junk, cut = bytes(1261), bytes(range(1, 200)), b"\x80\x02}q\x00X\x03."
    keys = lambda *path: folder(fields={"planner_data": {"w": path}})
    return [
        row("D31", "zeros", "R", "DCP-BYTES", dcp.with_object("o", zeros), at="coverage", expect={"digest": 0}, says=("1261 bytes",)),
        row("D31", "junk", "W", "DCP-BYTES", dcp.with_object("o", junk), at="checksum", says=("'o'", "199 bytes")),
        row("D31", "pickle-cut", "W", "DCP-BYTES", dcp.with_object("o", cut), at="checksum", says=("'o'", "8 bytes")),
        row("D32", "keys-of-another", "R", "KEY-NEST", keys("v"), says=("('v',)",)),
        row("D32", "keys-too-many", "R", "KEY-NEST", keys("w", 0), says=("('w', 0)",)),
        row("D32", "keys-too-few", "R", "KEY-NEST", folder(fqn="w.0", fields={"planner_data": {"w.0": ("w",)}})),
        row("D32", "keys-without-a-value", "R", "DCP-KEY-LOST", folder(fields={"planner_data": {"w": ("w",), "v.0": ("v", 0)}})),
        row("D32", "keys-omitted", "W", "DCP-KEY-LOST", folder(fields={"planner_data": {"w": ("w",), "v.0": ("v", 0), "u": ("u",)}}),
            options=("--assume", "lost-keys"), says=("2 keys", "'v.0', 'u'")),
        row("D32", "keys-under-an-altered-name", "R", "DCP-KEY-LOST", folder(fields={"planner_data": {"v": ("w",)}}), says=("1 key without one",)),
        row("D32", "keys-twice", "A", None, folder(fields={"planner_data": {"w": ("w",), "v": ("w",)}})),
        row("D32", "keys-of-no-item", "A", None, folder(fields={"planner_data": {"v": ("a", "b")}})),
        row("D32", "keys-of-another-planner", "A", None, folder(fields={"planner_data": {"w": ("w",), "v": ("a", "b")}})),
        row("D32", "keys-of-an-int", "A", None, folder(fqn="w.0", fields={"planner_data": {"w.0": ("w", 0)}})),
        row("D32", "keys-with-dots", "A", None, folder(fqn="w.0.x", fields={"planner_data": {"w.0.x": ("w.0", "x")}})),
    ]


def copies():
    """A save without collectives, whose ranks have one object each in a file of its own."""
    item = archive(pickle(3))

    def saved_by_ranks(change):
        def build(where):
            path = os.path.join(where, "step-1")
            os.mkdir(path)
            for r, file in enumerate((FIRST, SECOND)):
                own = f"__{r}_1.distcp"
                metadata = dcp.Folder(chunks=[((2 * r, 0), (2, 3))], places=[((2 * r, 0), file, 0, N)],
                                      more={"o": Build(Global(dcp.META, "BytesStorageMetadata"), {})},
                                      more_places=[(index("o", None), place(own, 0, len(item)))]).pickled()
                for name, data in ((f"__{r}.metadata", metadata), (file, BLOB), (own, item)):
                    with open(os.path.join(path, name), "wb") as f:
                        f.write(data)
            change(path + "/__1_1.distcp")
            return path

        return build

    return [
        row("D33", "all-there", "A", None, saved_by_ranks(lambda path: None), strict=False, settled="RANKS-UNKNOWN"),
        row("D33", "copy-missing", "R", "FILE-MISSING", saved_by_ranks(os.remove), says=("__1_1.distcp",)),
        row("D33", "copy-short", "R", "FILE-SHORT", saved_by_ranks(lambda path: os.truncate(path, 100)), says=("a file of 100 bytes",)),
        row("D33", "copy-empty", "R", "FILE-SHORT", saved_by_ranks(lambda path: os.truncate(path, 0)), says=("a file of 0 bytes",)),
    ]


def large():
    lazily = lambda where: million_chunks()(where)
    return [
        row("D27", "million-chunks", "A", None, lazily, commands=("inspect", "structure"), sandbox=False, strict=False, seconds=40),
        row("D27", "million-chunks-in-little-memory", "L", None, lazily, commands=("inspect", "structure"), sandbox=True,
            settled="a million chunks need more than 256 MiB"),
        row("D27", "100000-chunks", "A", None, lambda where: million_chunks(200)(where), commands=("inspect", "structure"),
            strict=False),
    ]


def strangers():
    def many(count):
        def change(path):
            for i in range(count):
                os.close(os.open(f"{path}/stranger{i}", os.O_CREAT | os.O_WRONLY, 0o644))

        return change

    def partial(path):
        os.mkdir(path + "/.out.fsdpck-0123abcd.partial")

    commands = ("inspect", "structure", "coverage", "consolidate")
    return [
        # Each file is asked for its size once; under strace that alone may take the 10 s, so the large one runs without.
        row("D30", "100000-files", "A", None, bent(many(100_000)), commands=commands, sandbox=False),
        row("D30", "10000-files", "A", None, bent(many(10_000)), commands=commands),
        row("D30", "own-temporary", "A", None, bent(partial), settled="a note in verify: good folders have neighbours"),
    ]


ROWS = shards() + kinds() + boxes() + payloads() + values() + good() + objects() + copies() + large() + strangers()
