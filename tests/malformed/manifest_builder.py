"""Manifests written by hand (fsdpck-manifest(5)), for folders and files that other modules make."""

import json
import os

NAME = "fsdpck-manifest.json"


def table():
    values = []
    for i in range(256):
        for _ in range(8):
            i = i >> 1 ^ (0xC96C5795D7870F42 if i & 1 else 0)
        values.append(i)
    return values


TABLE = table()


def crc64(data):
    """CRC-64/XZ, bit by bit as its definition has it."""
    crc = 2**64 - 1
    for byte in data:
        crc = TABLE[(crc ^ byte) & 255] ^ crc >> 8
    return "%016x" % (crc ^ 2**64 - 1)


def head(dtype, shape):
    return f"{dtype}[{','.join(map(str, shape))}]"


def digest(dtype, shape, data):
    return crc64(f"{head(dtype, shape)}\n".encode() + data)


def entry_of(folder, name):
    with open(os.path.join(folder, name), "rb") as f:
        data = f.read()
    return {"name": name, "nbytes": len(data), "crc64": crc64(data)}


def total(tensors):
    lines = [f"{t['digest']}  {head(t['dtype'], t['shape'])}  {t['name']}\n" for t in tensors]
    return crc64("".join(sorted(lines, key=lambda line: line.split("  ", 2)[2])).encode())


def described(folder, names, tensors):
    """The document for these files and {name: (dtype, shape, bytes)}."""
    listed = [{"name": n, "dtype": d, "shape": list(s), "digest": digest(d, s, data)} for n, (d, s, data) in
              sorted(tensors.items())]
    return {"schema": "fsdpck-manifest", "version": 1, "checksum": "crc64-xz", "digest": total(listed),
            "files": [entry_of(folder, n) for n in sorted(names)], "tensors": listed}


def write(folder, document, name=NAME):
    """document: a dict, text or bytes."""
    data = json.dumps(document, indent=1) + "\n" if isinstance(document, dict) else document
    with open(os.path.join(folder, name), "wb") as f:
        f.write(data.encode() if isinstance(data, str) else data)
