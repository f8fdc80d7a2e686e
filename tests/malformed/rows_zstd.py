"""K: DCP folders whose blobs are zstd frames. The frames are written by hand, of blocks that are stored."""

import struct

import dcp_builder as dcp
from dcp_builder import BLOB, FIRST, SECOND, folder, place
from rows import Row

BLOCK = 1 << 16
# More than is decoded to see what a blob is.
COLUMNS = 100_000
LARGE = dcp.blob((2, COLUMNS))


def frame(data, size=None, window=None, checksum=None, cut=0):
    """size: what it says of its content's size; window: the descriptor's byte; checksum: 4 bytes after it."""
    if window is None:
        head = bytes([0xA0 | (4 if checksum else 0)]) + struct.pack("<I", len(data) if size is None else size)
    else:
        head = bytes([0x00 | (4 if checksum else 0), window])
    blocks = bytearray()
    for at in range(0, len(data), BLOCK):
        part = data[at:at + BLOCK]
        last = at + BLOCK >= len(data)
        blocks += struct.pack("<I", len(part) << 3 | last)[:3] + part
    whole = b"\x28\xb5\x2f\xfd" + head + bytes(blocks) + (checksum or b"")
    return whole[:len(whole) - cut]


def skippable(nbytes):
    return b"\x50\x2a\x4d\x18" + struct.pack("<I", nbytes) + b"\0" * nbytes


def compressed(first, columns=3):
    """A folder whose first blob is these bytes and whose second is a good frame."""
    second = frame(BLOB if columns == 3 else LARGE)
    return folder(shape=(4, columns), chunks=[((0, 0), (2, columns)), ((2, 0), (2, columns))], files={FIRST: first, SECOND: second}, places=[], more_places=[
        (dcp.index("w", (0, 0)), place(FIRST, 0, len(first), ["stream.zstd/1"])),
        (dcp.index("w", (2, 0)), place(SECOND, 0, len(second), ["stream.zstd/1"]))])


def row(id, name, cls, finding, first, columns=3, **words):
    return Row(id, name, cls, finding, compressed(first, columns), **words)


def large(id, name, cls, finding, first, **words):
    return row(id, name + "-large", cls, finding, first, COLUMNS, **words)


ROWS = [
    row("K01", "2GiB", "L", "Z-WINDOW", frame(BLOB, window=21 << 3), at="coverage"),
    row("K01", "small", "A", None, frame(BLOB, window=10 << 3)),
    row("K02", "right", "A", None, frame(BLOB)),
    row("K02", "smaller", "R", "Z-DATA", frame(BLOB, size=len(BLOB) - 1), at="coverage",
        settled="the decoder tells a size that is wrong from other damage no more than torch's does"),
    row("K02", "larger", "R", "Z-DATA", frame(BLOB, size=len(BLOB) + 1), at="coverage",
        settled="the decoder tells a size that is wrong from other damage no more than torch's does"),
    row("K02", "skippable", "R", "Z-TRUNCATED", skippable(0) * 50_000 + frame(BLOB), at="coverage",
        settled="one frame is a blob; the first ends without what is due"),
    row("K02", "skippable-alone", "R", "Z-TRUNCATED", skippable(8) * 50_000, at="coverage"),
    row("K03", "truncated", "R", "Z-TRUNCATED", frame(BLOB, cut=1), at="coverage"),
    row("K03", "truncated-half", "R", "Z-TRUNCATED", frame(BLOB, cut=len(BLOB) // 2), at="coverage"),
    row("K03", "empty", "R", "Z-TRUNCATED", b"\x28\xb5\x2f\xfd", at="coverage"),
    row("K03", "checksum", "R", "Z-CHECKSUM", frame(BLOB, checksum=b"\1\2\3\4"), at="coverage"),
    row("K03", "trailing", "R", "Z-TRAILING", frame(BLOB) + b"\0", at="payload"),
    row("K03", "second-frame", "R", "Z-TRAILING", frame(BLOB) + frame(BLOB), at="payload"),
    Row("K04", "unknown", "U", "DCP-TRANSFORM", folder(places=[], more_places=[
        (dcp.index("w", (0, 0)), place(FIRST, 0, len(BLOB), ["stream.lz4/1"])),
        (dcp.index("w", (2, 0)), place(SECOND, 0, len(BLOB), []))]), at="coverage"),
    large("K02", "right", "A", None, frame(LARGE)),
    large("K02", "smaller", "R", "Z-DATA", frame(LARGE, size=len(LARGE) - 1), at="payload"),
    large("K02", "larger", "R", "Z-DATA", frame(LARGE, size=len(LARGE) + 1), at="payload"),
    large("K03", "truncated", "R", "Z-TRUNCATED", frame(LARGE, cut=1), at="payload"),
    large("K03", "checksum", "R", "Z-CHECKSUM", frame(LARGE, checksum=b"\1\2\3\4"), at="payload"),
    large("K03", "trailing", "R", "Z-TRAILING", frame(LARGE) + b"\0", at="payload"),
    row("K03", "no-frame", "R", "Z-DATA", BLOB, at="coverage", settled="it is no frame at all"),
]
