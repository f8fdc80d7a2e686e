"""N: manifests; those of D20 and D21 that a manifest tells. verify reads them, and latest their text: other commands pass over them."""

import json
import os

import dcp_builder as dcp
import manifest_builder as manifest
from dcp_builder import BLOB, FIRST, SECOND, blob
from rows import ANY, Row, flipped
from pickle_builder import FLOATS

W = bytes(range(24))
FILES = (".metadata", FIRST, SECOND)
TENSORS = {"w": ("float32", (4, 3), W + W)}
OTHER = blob(fill=1)
NO_TENSORS = (2).to_bytes(8, "little") + b"{}"  # of a safetensors file
SAFETENSORS = b'{"w":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]}}'


def row(id, name, cls, finding, build, **words):
    words.setdefault("at", "manifest")
    if finding in ("MAN-TENSOR", "MAN-EXTRA", "FILE-TYPE"):  # no fault of the text, and no lost file
        words.setdefault("expect", {"latest": 0})
    return Row(id, name, cls, finding, build, **words)


def with_manifest(edit=None, after=None, tensors=TENSORS, names=FILES, **words):
    """A DCP folder with a manifest: edit(document) changes it or gives another text; after(path) changes the folder."""

    def build(where):
        path = dcp.Folder(**words).write(os.path.join(where, "step-1"))
        document = manifest.described(path, names, tensors)
        text = edit(document) if edit is not None else None
        manifest.write(path, document if text is None else text)
        if after is not None:
            after(path)
        return path

    return build


def safetensors(edit=None, after=None, extra=()):
    """The same of a folder of one safetensors file; extra: (name, bytes) of files that the manifest does not list."""

    def build(where):
        path = os.path.join(where, "step-1")
        os.mkdir(path)
        with open(path + "/model.safetensors", "wb") as f:
            f.write(len(SAFETENSORS).to_bytes(8, "little") + SAFETENSORS + FLOATS)
        document = manifest.described(path, ["model.safetensors"], {"w": ("float32", (2, 3), FLOATS)})
        text = edit(document) if edit is not None else None
        manifest.write(path, document if text is None else text)
        for name, data in extra:
            with open(os.path.join(path, name), "wb") as f:
                f.write(data)
        if after is not None:
            after(path)
        return path

    return build


def file_named(name):
    """The first file of the manifest has this name."""
    return with_manifest(lambda d: d["files"][0].update(name=name))


def changed(which, **words):
    return lambda d: d[which][-1].update(words)


def retold(**words):
    """Another tensor than there is, of a list whose digest is right."""

    def edit(document):
        document["tensors"][0].update(words)
        document["digest"] = manifest.total(document["tensors"])

    return with_manifest(edit)


def more_tensors(document):
    document["tensors"].append({"name": "x", "dtype": "float32", "shape": [1], "digest": "0" * 16})
    document["digest"] = manifest.total(document["tensors"])


def no_tensors(document):
    document["tensors"] = []
    document["digest"] = manifest.total([])


def text_of(change):
    return with_manifest(lambda d: change(json.dumps(d, indent=1)))


def crlf(path):
    file = os.path.join(path, manifest.NAME)
    with open(file, "rb") as f:
        text = f.read()
    with open(file, "wb") as f:
        f.write(text.replace(b"\n", b"\r\n"))


def bent(name, change):
    """A folder in which the file was changed after the manifest was made."""

    def after(path):
        file = os.path.join(path, name)
        with open(file, "rb") as f:
            data = f.read()
        with open(file, "wb") as f:
            f.write(change(data))

    return after


def swap(path):
    a, b = os.path.join(path, FIRST), os.path.join(path, SECOND)
    os.rename(a, a + ".x")
    os.rename(b, a)
    os.rename(a + ".x", b)


def add(name, data=b"{}"):
    def after(path):
        with open(os.path.join(path, name), "wb") as f:
            f.write(data)

    return after


def in_its_place(make):
    def after(path):
        file = os.path.join(path, manifest.NAME)
        os.remove(file)
        make(file)

    return with_manifest(after=after)


def names():
    rows = [row("N01", name, "R", "MAN-PATH", file_named(text)) for name, text in (
        ("up", "../" + FIRST), ("absolute", "/etc/passwd"), ("up-inside", "x/../../" + FIRST), ("empty", ""),
        ("nul", FIRST + "\0"), ("escape", "/\x1b[31m\nINJECTED"), ("folder", "..")) ]
    missing = ("a\x1b[31m\nINJECTED", "a\u202eb\u2066", "x" * 250)
    rows += [row("N01", f"escaped-{i}", "R", "MAN-MISSING", with_manifest(lambda d, t=text: d["files"].append(
        {"name": t, "nbytes": 1, "crc64": "0" * 16})), expect={"latest": 1}) for i, text in enumerate(missing)]
    return rows + [
        row("N01", "file-twice", "R", "MAN-DUP", with_manifest(lambda d: d["files"].append(d["files"][0])), offset=ANY),
        row("N01", "tensor-twice", "R", "MAN-DUP", with_manifest(lambda d: d["tensors"].append(d["tensors"][0])), offset=ANY),
        row("N01", "crlf", "A", None, with_manifest(after=crlf), at="manifest-bytes"),
        row("N01", "no-newline", "A", None, text_of(str.rstrip), at="manifest-bytes"),
        row("N01", "right", "A", None, with_manifest(), at="manifest-bytes"),
        row("N01", "right-safetensors", "A", None, safetensors(), at="manifest-bytes"),
    ]


def checksums():
    sha = lambda text: with_manifest(changed("files", sha256=text))
    return [
        row("N02", "unknown-algorithm", "U", "MAN-ALG", with_manifest(lambda d: d.update(checksum="md5")), offset=ANY),
        row("N02", "no-algorithm", "R", "MAN-JSON", with_manifest(lambda d: d.pop("checksum") and None)),
        row("N02", "short", "R", "MAN-ALG", with_manifest(changed("files", crc64="0" * 15)), offset=ANY),
        row("N02", "long", "R", "MAN-ALG", with_manifest(changed("files", crc64="0" * 17)), offset=ANY),
        row("N02", "no-digits", "R", "MAN-ALG", with_manifest(changed("files", crc64="g" * 16)), offset=ANY),
        row("N02", "short-digest", "R", "MAN-ALG", with_manifest(changed("tensors", digest="0" * 15)), offset=ANY),
        row("N02", "short-sha256", "R", "MAN-ALG", sha("0" * 63), offset=ANY),
        row("N02", "upper-case", "A", None, with_manifest(lambda d: [f.update(crc64=f["crc64"].upper()) for f in d["files"]]
                                                          and None), at="manifest-bytes"),
        row("N05", "newer", "U", "MAN-VERSION", with_manifest(lambda d: d.update(version=2)), offset=ANY),
        row("N05", "much-newer", "U", "MAN-VERSION", with_manifest(lambda d: d.update(version=2**63)), offset=ANY),
        row("N05", "none", "R", "MAN-VERSION", with_manifest(lambda d: d.pop("version") and None)),
        row("N05", "zero", "R", "MAN-VERSION", with_manifest(lambda d: d.update(version=0)),
            settled="version 1 is the oldest that there is"),
        row("N05", "more-members", "A", None, with_manifest(lambda d: d.update(later=[1, {"a": None}])), at="manifest-bytes"),
        row("N05", "other-schema", "R", "MAN-JSON", with_manifest(lambda d: d.update(schema="in-toto"))),
    ]


def files():
    gone = lambda *names: lambda path: [os.remove(os.path.join(path, n)) for n in names] and None
    return [
        row("N03", "missing", "R", "MAN-MISSING", with_manifest(lambda d: d["files"].append(
            {"name": "tokenizer.json", "nbytes": 2, "crc64": "0" * 16})), says=("tokenizer.json",), expect={"latest": 1}),
        row("N03", "shard-missing", "R", "FILE-MISSING", with_manifest(after=gone(SECOND)), says=(SECOND,),
            expect=dict.fromkeys(("inspect", "inspect-all", "consolidate", "reshard", "diff", "digest",
                                  "layout"), 3) | {"latest": 1}),
        row("N03", "folder-in-its-place", "R", "MAN-MISSING", with_manifest(lambda d: d["files"].append(
            {"name": "sub", "nbytes": 2, "crc64": "0" * 16}), after=lambda p: os.mkdir(p + "/sub")), expect={"latest": 1}),
        row("N03", "size", "R", "MAN-SIZE", with_manifest(after=bent(SECOND, lambda data: data + b"tail")),
            expect={"latest": 1, "consolidate": 3, "reshard": 3}),
        row("N03", "size-safetensors", "R", "MAN-SIZE", safetensors(changed("files", nbytes=5)),
            expect={"latest": 1, "consolidate": 3, "reshard": 3}),
        row("N03", "hash", "R", "MAN-HASH", with_manifest(changed("files", crc64="0" * 16)), at="manifest-bytes"),
        row("N03", "hash-of-metadata", "R", "MAN-HASH", with_manifest(lambda d: d["files"][0].update(crc64="0" * 16)),
            at="manifest-bytes", says=(".metadata",)),
        row("N03", "hash-of-bytes", "R", "MAN-HASH", safetensors(after=bent("model.safetensors", lambda data: flipped(
            data, len(data) - 5))), at="manifest-bytes"),
        row("N03", "hash-of-list", "R", "MAN-HASH", with_manifest(lambda d: d.update(digest="0" * 16))),
        row("N03", "sha256", "R", "MAN-HASH", with_manifest(changed("files", sha256="0" * 64)), at="manifest-bytes",
            options=("--sha256",), commands=("checksum",)),
        row("N03", "digest-of-tensor", "A", None, retold(digest="0" * 16), at="manifest-bytes",
            settled="a tensor is read again only where a file is not what it was"),
        row("N03", "tensor-hurt", "R", "MAN-HASH", safetensors(after=bent("model.safetensors", lambda data: flipped(
            data, len(data) - 5))), at="manifest-bytes", says=("digest ",)),
        row("N03", "tensor-missing", "R", "MAN-TENSOR", with_manifest(more_tensors)),
        row("N03", "tensor-extra", "R", "MAN-TENSOR", with_manifest(no_tensors), says=("w",)),
        row("N03", "tensor-shape", "R", "MAN-TENSOR", retold(shape=[3, 4])),
        row("N03", "tensor-dtype", "R", "MAN-TENSOR", retold(dtype="int32")),
        row("N04", "weights", "R", "MAN-EXTRA", with_manifest(after=add("model.safetensors", NO_TENSORS)), says=("model.safetensors",)),
        row("N04", "weights-cut", "W", "WEIGHTS-CUT", with_manifest(after=add("model.safetensors")), options=("--set", "MAN-EXTRA=note"),
            commands=("structure", "coverage"), says=("model.safetensors",)),
        row("N04", "shard", "R", "MAN-EXTRA", with_manifest(after=add("__9_0.distcp", BLOB)), says=("__9_0.distcp",)),
        row("N04", "not-listed", "R", "MAN-EXTRA", with_manifest(lambda d: d["files"].pop() and None), says=(SECOND,)),
        row("N04", "weights-allowed", "A", "MAN-EXTRA", with_manifest(after=add("model.safetensors", NO_TENSORS)),
            options=("--set", "MAN-EXTRA=note"), commands=("structure", "coverage")),
        row("N04", "other", "A", "MAN-OTHER", with_manifest(after=add("README.md")),
            settled="files without weights are a note"),
        row("N06", "signature", "W", "SIG-UNCHECKED", with_manifest(after=add("model.sig"))),
        row("N06", "sigstore", "W", "SIG-UNCHECKED", with_manifest(after=add("step-1.sigstore.json"))),
    ]


def texts():
    twice = lambda text: text.replace('"version": 1', '"version": 1, "version": 1')
    deep = lambda text: text.replace('"version": 1', '"version": 1, "x": ' + "[" * 100_000 + "]" * 100_000)
    json_rows = (("cut", lambda text: text[:-9]), ("empty", lambda text: ""), ("not-json", lambda text: "files"),
                 ("array", lambda text: "[" + text + "]"), ("two", lambda text: text + text), ("twice", twice), ("deep", deep),
                 ("bom", lambda text: "\ufeff" + text), ("float", lambda text: text.replace('"version": 1', '"version": 1.5')),
                 ("negative", lambda text: text.replace('"nbytes": ', '"nbytes": -')),
                 ("wraps", lambda text: text.replace('"nbytes": ', '"nbytes": 99999999999999999999')),
                 ("rank", lambda text: text.replace('"shape": [', '"shape": [' + "1," * 100)))
    rows = [row("N07", name, "R", "MAN-VERSION" if name == "float" else "MAN-JSON", text_of(change)) for name, change in json_rows]
    return rows + [
        row("N07", "not-utf8", "R", "MAN-JSON", with_manifest(lambda d: json.dumps(d).encode() + b"\xff")),
        row("N07", "folder", "R", "FILE-TYPE", in_its_place(os.mkdir),
            commands=("inspect", "layout", "structure", "coverage", "checksum", "consolidate", "reshard", "digest", "diff")),
        row("N07", "folder-latest", "R", "SIDE-UNREAD", in_its_place(os.mkdir), at="open", commands=("latest",)),
        row("N07", "fifo", "R", "FILE-TYPE", in_its_place(os.mkfifo)),
        row("N07", "device", "R", "FILE-TYPE", in_its_place(lambda p: os.symlink("/dev/zero", p))),
    ]


def told():
    """What only a manifest tells of shards."""
    two = dict(files={FIRST: BLOB, SECOND: OTHER}, tensors={"w": ("float32", (4, 3), W + b"\1" * 24)})
    return [
        row("D20", "swapped-with-manifest", "R", "MAN-HASH", with_manifest(after=swap, **two), at="manifest-bytes", says=("w",)),
        row("D20", "unswapped-with-manifest", "A", None, with_manifest(**two), at="manifest-bytes"),
        row("D23", "mixed-with-manifest", "R", "MAN-HASH", with_manifest(after=add(SECOND, OTHER)), at="manifest-bytes"),
    ]


ROWS = names() + checksums() + files() + texts() + told()
