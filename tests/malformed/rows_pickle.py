"""P: pickles, in data.pkl, .metadata and byte entries."""

import struct

import dcp_builder as dcp
from rows import ANY, Row, as_file, fixture_bytes, from_fixture
from pickle_builder import (FLOATS, Build, Call, Global, PersistentId, Raw, archive, dump, pickle, saved, storage, tensor)

PAYLOAD = ("touch marker",)
MEGA = 1_000_000


def row(id, name, cls, finding, data, **words):
    build = data if callable(data) else as_file(data)
    return Row(id, name, cls, finding, build, **words)


def raw(code, proto=2, **words):
    """A .pt whose data.pkl is these opcodes behind PROTO."""
    return archive(b"\x80" + bytes([proto]) + code, {"0": FLOATS}, **words)


def meta(data):
    """A DCP folder with this .metadata."""
    return dcp.folder(metadata=data)


def text(s):
    return b"X" + struct.pack("<I", len(s)) + s.encode()


def call(module, name, *args):
    return Call(Global(module, name), *args)


def with_call(module, name, *args):
    return saved({"w": tensor(), "x": call(module, name, *args)})


def at(data, code):
    """Where these opcodes lie in the file."""
    return data.index(code)


GOOD = dump({"w": tensor()})
DOUBLED = raw(b"}" + text("a") + dump({"w": tensor()})
              + b"".join(b"q%c0}(" % i + text("l") + b"h%c" % i + text("r") + b"h%cu" % i for i in range(60)) + b"s.")


def grammar():
    rows = [
        row("P01", "empty", "R", "PKL-TRUNCATED", archive(b"", {"0": FLOATS})),
        row("P01", "empty-metadata", "R", "PKL-TRUNCATED", meta(b"")),
        row("P02", "no-stop", "R", "PKL-TRUNCATED", raw(GOOD), offset=ANY),
        row("P02", "no-stop-metadata", "R", "PKL-TRUNCATED", meta(dcp.Folder().pickled()[:-1]), offset=ANY),
        row("P03", "str-2e63", "R", "PKL-LENGTH", raw(b"\x8d" + struct.pack("<Q", 2**63) + b"abc."), offset=ANY),
        row("P03", "str-2e64", "R", "PKL-LENGTH", raw(b"\x8d" + b"\xff" * 8 + b"abc."), offset=ANY),
        row("P03", "bytes-2e63", "R", "PKL-LENGTH", raw(b"\x8e" + struct.pack("<Q", 2**63) + b"abc."), offset=ANY),
        row("P03", "bytes-2e64", "R", "PKL-LENGTH", raw(b"\x8e" + b"\xff" * 8 + b"abc."), offset=ANY),
        row("P03", "bytearray-2e64", "R", "PKL-LENGTH", raw(b"\x96" + b"\xff" * 8 + b"abc."), offset=ANY),
        row("P03", "str-past-end", "R", "PKL-LENGTH", raw(b"X" + struct.pack("<I", 1000) + b"abc."), offset=ANY),
        row("P03", "str-past-end-metadata", "R", "PKL-LENGTH", meta(b"\x80\x02X" + struct.pack("<I", 1000) + b"abc."),
            offset=2),
        row("P04", "long4-negative", "R", "PKL-INT", raw(b"\x8b" + struct.pack("<i", -4) + b"abcd."), offset=ANY),
        row("P04", "long4-negative-metadata", "R", "PKL-INT", meta(b"\x80\x02\x8b" + struct.pack("<i", -4) + b"abcd."),
            offset=2),
        row("P04", "size-of-255-bytes", "R", "TENSOR-BOUNDS", saved({"w": tensor(size=(Raw(b"\x8a\xff" + b"\x11" * 255), 3))}),
            settled="a size that is too large, as P26's 2**63 is"),
        row("P04", "size-of-255-bytes-metadata", "R", "CHUNK-BOUNDS", dcp.folder(shape=(Raw(b"\x8a\xff" + b"\x11" * 255), 3)),
            settled="a size that is too large, as D14's are"),
    ]
    for name, code in (("tuple3", b"NN\x87."), ("tuple2", b"N\x86."), ("tuple1", b"\x85."), ("reduce", b"R."),
                       ("build", b"}b."), ("setitem", b"}Ns."), ("append", b"]a."), ("newobj", b")\x81."),
                       ("newobj-ex", b")}\x92."), ("pop", b"0."), ("stop", b"."), ("persid", b"Q."),
                       ("stack-global", text("os") + b"\x93.")):
        rows.append(row("P05", name, "R", "PKL-STACK", raw(code), offset=ANY))
    for name, code in (("tuple", b"NNt."), ("list", b"NNl."), ("dict", b"NNd."), ("setitems", b"}NNu."),
                       ("appends", b"]NNe."), ("additems", b"\x8fNN\x90."), ("open", b"}(."), ("two-items", b"}}."),
                       ("pop-mark", b"N1N.")):
        rows.append(row("P06", name, "R", "PKL-MARK", raw(code), offset=ANY))
    for name, code in (("get-unknown", b"h\x07."), ("long-get-unknown", b"j\x07\0\0\0."), ("text-get-unknown", b"g7\n."),
                       ("put-4294967295", b"}r\xff\xff\xff\xffj\xff\xff\xff\xff0."), ("put-of-nothing", b"q\0.")):
        finding = "PKL-STACK" if name == "put-of-nothing" else "PKL-MEMO"
        rows.append(row("P07", name, "R", finding, raw(code), offset=ANY))
    rows += [
        row("P08", "setitems", "R", "PKL-ODD", raw(b"}(" + text("a") + b"NNu."), offset=ANY),
        row("P08", "dict", "R", "PKL-ODD", raw(b"(" + text("a") + b"NNd."), offset=ANY),
        row("P08", "setitems-metadata", "R", "PKL-ODD", meta(b"\x80\x02}(" + text("a") + b"NNu."), offset=ANY),
        row("P09", "lists", "L", "PKL-DEPTH", lambda_file(lambda: raw(b"]" * MEGA + b"a" * (MEGA - 1) + b"."))),
        row("P09", "tuples", "L", "PKL-DEPTH", lambda_file(lambda: raw(b"N" + b"\x85" * MEGA + b"."))),
        row("P09", "lists-metadata", "L", "PKL-DEPTH", meta(b"\x80\x02" + b"]" * MEGA + b"a" * (MEGA - 1) + b".")),
        row("P09", "tuples-metadata", "L", "PKL-DEPTH", meta(b"\x80\x02N" + b"\x85" * MEGA + b".")),
        row("P09", "marks", "L", "PKL-DEPTH", lambda_file(lambda: raw(b"(" * MEGA + b"t" * MEGA + b"."))),
        row("P10", "list", "R", "PKL-CYCLE", raw(b"}q\0" + text("a") + b"](h\0es.")),
        row("P10", "list-alone", "A", None, raw(b"]q\0h\0a."), expect={"layout": 2, "digest": 2, "reshard": 4},
            settled="what is no state is an object, kept as the graph it is; diff compares objects, digest only tensors"),
        row("P10", "dict", "R", "PKL-CYCLE", raw(b"}q\0" + text("a") + b"h\0s.")),
        row("P11", "tuples", "A", None, raw(
            b"}(" + text("w") + dump(tensor()) + text("a") + text("x") + b"".join(b"q%ch%c\x86" % (i, i) for i in range(60))
            + b"u."), settled="an object is kept as the shared graph it is: nothing is expanded"),
        row("P11", "dicts-of-tensors", "L", "PKL-EXPAND", DOUBLED),
    ]
    small = dcp.Folder(shape=(2, 3), chunks=[((0, 0), (2, 3))], places=dcp.Folder().places[:1]).pickled()
    for cut in range(1, len(small)):
        rows.append(row("P02", f"metadata-cut-{cut}", "R", "PKL-TRUNCATED", meta(small[:cut]),
                        commands=None if cut % 100 == 0 else ("structure",)))
    return rows


def lambda_file(make):
    return as_file(make)


def calls():
    rows = []
    listed = (("os-system", "os", "system", PAYLOAD), ("posix-system", "posix", "system", PAYLOAD),
              ("eval", "builtins", "eval", ("open('marker','w')",)), ("exec", "builtins", "exec", ("open('marker','w')",)),
              ("popen", "subprocess", "Popen", (["touch", "marker"],)))
    for name, module, function, args in listed:
        rows.append(row("P12", name, "R", "PKL-GLOBAL", with_call(module, function, *args), says=(function,)))
        rows.append(row("P12", name + "-metadata", "R", "PKL-GLOBAL", meta(pickle(call(module, function, *args))),
                        says=(function,)))
        rows.append(row("P12", name + "-planner-data", "R", "PKL-GLOBAL",
                        dcp.folder(fields={"planner_data": call(module, function, *args)}), says=(function,)))
        rows.append(row("P12", name + "-payload", "R", "PKL-GLOBAL",
                        dcp.folder(**dcp.first_is(archive(pickle(call(module, function, *args)), {"0": FLOATS}))),
                        at="coverage", says=(function,)))
    rows.append(row("P13", "stack-global", "R", "PKL-GLOBAL", raw(
        text("os") + b"q\x010" + text("system") + b"q\x020}" + text("x") + b"h\x01h\x02\x93" + dump(PAYLOAD) + b"Rs.", 4)))
    rows.append(row("P13", "stack-global-metadata", "R", "PKL-GLOBAL", meta(
        b"\x80\x04" + text("os") + b"q\x010" + text("system") + b"q\x020h\x01h\x02\x93" + dump(PAYLOAD) + b"R.")))
    unknown = (("pip-main", "pip", "main", (["install"],)), ("timeit", "timeit", "timeit", ("open('marker','w')",)),
               ("asyncio", "asyncio.unix_events", "_UnixSubprocessTransport._start", PAYLOAD),
               ("resolve-name", "pkgutil", "resolve_name", ("os:system",)), ("hub-load", "torch.hub", "load", ("x", "y")),
               ("torch-load", "torch", "load", ("other.pt",)))
    for name, module, function, args in unknown:
        rows.append(row("P14", name, "R", "PKL-GLOBAL", with_call(module, function, *args), says=(function,)))
    look_alikes = (("space", "torch._utils", "_rebuild_tensor_v2 "), ("cyrillic", "t\u043erch._utils", "_rebuild_tensor_v2"),
                   ("case", "Torch._utils", "_rebuild_tensor_v2"))
    for name, module, function in look_alikes:
        rows.append(row("P15", name, "R", "PKL-CALL", saved(
            {"w": Call(Global(module, function), storage(), 0, (2, 3), (3, 1))}),
            settled="a name that is none of torch's is an unknown call"))
    rows.append(row("P15", "nul", "R", "PKL-GLOBAL", saved(
        {"w": Call(Global("torch._utils", "_rebuild_tensor_v2\0"), storage(), 0, (2, 3), (3, 1))})))
    symbol = lambda module, name: Global(module, name)
    for name, args in (("os", (symbol("os", "path"), "join")), ("module", (symbol("torch", "ops"), "load_library")),
                       ("builtins", (symbol("builtins", "dict"), "clear")), ("text", ("text", "format"))):
        rows.append(row("P16", name, "R", "PKL-GETATTR", saved({"x": call("builtins", "getattr", *args)})))
        rows.append(row("P16", name + "-metadata", "R", "PKL-GETATTR",
                        dcp.folder(fields={"planner_data": call("builtins", "getattr", *args)})))
    return rows


def benign():
    rows = []
    for release, fixture in (("1.13.1", "dcp-sharded-tensor"), ("2.1.2", "dcp-sharded-tensor"), 
                             ("2.3.1", None), ("2.4.1", None), ("2.6.0", None), ("2.7.1", None), ("2.8.0", None),
                             ("2.9.1", None), ("2.10.0", None), ("2.13.0", None), ("2.15.0", "dcp-fsdp2"),
                             ("2.15.0", "dcp-hsdp-tp"), ("2.15.0", "dcp-float8")):
        for name in [fixture] if fixture else dcp.fixtures_of(release):
            cls, finding, settled = "A", None, ""
            if name == "dcp-fsdp1-tp":
                cls, finding = "A", "TP-ORDER"
                settled = "what torch 2.3 and 2.4 write wrongly looks the same"
            rows.append(row("P17", f"{release}-{name}", cls, finding, from_fixture(name, release=f"torch-{release}/"),
                            cut=("--like", "SRC") if name != "dcp-transposed" else ("--world-size", "2"), settled=settled))
    return rows


def opcodes():
    rows = []
    for name, code in (("inst", b"(" + text("touch marker") + b"ios\nsystem\n."),
                       ("obj", b"(cos\nsystem\n" + text("touch marker") + b"o."), ("ext1", b"\x82\x01."),
                       ("ext2", b"\x83\x01\x01."), ("ext4", b"\x84\x01\x01\0\0."), ("next-buffer", b"\x97."),
                       ("readonly-buffer", b"N\x98."), ("undefined", b"\xf0."), ("nul", b"\0.")):
        rows.append(row("P18", name, "R", "PKL-OPCODE", raw(code, 5), offset=ANY))
    rows += [
        row("P18", "newobj-ex", "A", None, raw(b"}(" + text("w") + dump(tensor()) + text("x") + dump(Global("mine", "Thing"))
                                               + b")}\x92u.", 4),
            settled="it only builds a record"),
        row("P18", "persid-text", "R", "PT-PERSID", raw(b"}" + text("w") + b"P0\ns.", 0),
            settled="it only builds a record, which is no storage"),
        row("P18", "junk-metadata", "R", "PKL-OPCODE", meta(b"\0" * 5000), offset=0),
        row("P19", "call-of-object", "R", "PKL-CALL", saved({"x": Call(Call(Global("collections", "OrderedDict")), "b")})),
        row("P19", "call-of-text", "R", "PKL-CALL", saved({"x": Call("os.system", *PAYLOAD)})),
        row("P19", "call-of-call", "R", "PKL-GLOBAL", saved({"x": Call(call("os", "fspath", "a"), "b")}),
            settled="the inner call is met first"),
        row("P19", "build-on-tensor", "R", "PKL-CALL", saved({"w": Raw(dump(tensor()) + dump({"a": 1}) + b"b")})),
        row("P19", "build-on-text", "R", "PKL-CALL", saved({"w": Raw(text("a") + b"}b")})),
        row("P19", "build-on-unknown-class", "A", None, saved({"w": tensor(), "x": Build(Global("mine", "Thing"), {"a": 1})}),
            settled="unknown classes stay opaque"),
        row("P20", "second-pickle", "R", "PKL-TRAILING", archive(
            pickle({"w": tensor()}) + b"cos\nsystem\n" + dump(PAYLOAD) + b"R.", {"0": FLOATS}), offset=ANY),
        row("P20", "garbage", "R", "PKL-TRAILING", archive(pickle({"w": tensor()}) + b"\0", {"0": FLOATS}), offset=ANY),
        row("P20", "second-pickle-metadata", "R", "PKL-TRAILING", meta(dcp.Folder().pickled() + pickle(None)),
            offset=len(dcp.Folder().pickled())),
        row("P20", "garbage-metadata", "R", "PKL-TRAILING", meta(dcp.Folder().pickled() + b"\n"), offset=ANY),
        row("P21", "truncated", "R", "PKL-TRUNCATED", raw(dump(call("os", "system", *PAYLOAD)) + b"]"), offset=ANY,
            says=("os.system",)),
        row("P21", "truncated-frame", "R", "PKL-TRUNCATED", raw(
            b"\x95" + struct.pack("<Q", 999) + text("os") + text("system") + b"\x93" + dump(PAYLOAD) + b"R]", 4),
            offset=ANY, says=("os.system",)),
        row("P21", "truncated-metadata", "R", "PKL-TRUNCATED", meta(
            b"\x80\x02" + dump(call("posix", "system", *PAYLOAD)) + b"]"), offset=ANY, says=("posix.system",)),
        row("P21", "truncated-length", "R", "PKL-LENGTH", raw(
            dump(call("mine", "make", *PAYLOAD)) + b"X" + struct.pack("<I", 9999) + b"abc"), offset=ANY,
            says=("mine.make",), settled="a text that is longer than the pickle is told as such"),
        row("P21", "junk", "R", "PKL-OPCODE", raw(dump(call("os", "system", *PAYLOAD)) + b"\xff\xff"), offset=ANY,
            says=("os.system",), settled="it is broken by an opcode that is none"),
        row("P22", "protocol-0", "A", None, archive(PROTOCOL0, {"0": FLOATS}), settled="all opcodes only build records"),
        row("P22", "bare-protocol-0", "R", "PT-CONTAINER", b"(dp0\nVw\np1\nI5\ns.",
            settled="a pickle without tensors that torch.save never wrote is no checkpoint, whatever its protocol"),
        row("P22", "bare-protocol-4", "R", "PT-CONTAINER", b"\x80\x04}."),
        row("P22", "bare-payload", "R", "PT-CONTAINER", b"cos\nsystem\n(Vtouch marker\ntR."),
        row("P23", "legacy", "A", None, from_fixture("pt-legacy/checkpoint.pt"), settled="the legacy stream is read"),
        row("P23", "legacy-1.13", "A", None, from_fixture("pt-legacy/checkpoint.pt", release="torch-1.13.1/")),
        row("P23", "legacy-cut", "R", "PKL-TRUNCATED", fixture_bytes("pt-legacy/checkpoint.pt")[:200]),
        row("P23", "tar", "U", "PT-TAR", b"pickle".ljust(257, b"\0") + b"ustar\x0000" + b"\0" * 760),
        row("P24", "proto-5", "A", None, archive(b"\x80\x05" + GOOD + b".", {"0": FLOATS})),
        row("P24", "proto-6", "R", "PKL-PROTO", archive(b"\x80\x06" + GOOD + b".", {"0": FLOATS}), offset=ANY),
        row("P24", "proto-255", "R", "PKL-PROTO", archive(b"\x80\xff" + GOOD + b".", {"0": FLOATS}), offset=ANY),
        row("P24", "in-mid-stream", "R", "PKL-PROTO", raw(b"}\x80\x02."), offset=ANY),
        row("P24", "proto-6-metadata", "R", "PKL-PROTO", meta(b"\x80\x06" + dcp.Folder().pickled()[2:]), offset=0),
    ]
    frame = lambda n: b"\x95" + struct.pack("<Q", n)
    body = GOOD + b"."
    for name, cls, code in (("too-long", "R", frame(9999) + body), ("2e64", "R", b"\x95" + b"\xff" * 8 + body),
                            ("zero", "R", frame(0) + body), ("short", "R", frame(5) + body),
                            ("overlapping", "R", frame(len(body) + 9) + frame(len(body)) + body), ("missing", "A", body),
                            ("right", "A", frame(len(body)) + body)):
        rows.append(row("P25", name, cls, None if cls == "A" else "PKL-FRAME", raw(code, 4),
                        offset=ANY if cls == "R" else None))
    return rows


PROTOCOL0 = (b"(dp0\nVw\np1\nctorch._utils\n_rebuild_tensor_v2\np2\n((Vstorage\np3\nctorch\nFloatStorage\np4\nV0\np5\n"
             b"Vcpu\np6\nI6\ntp7\nQI0\n(I2\nI3\ntp8\n(I3\nI1\ntp9\nI00\nccollections\nOrderedDict\np10\n(tRp11\ntRp12\ns.")


def tensors():
    rows = []
    for name, words in (("offset-negative", dict(offset=-1)), ("offset-2e63", dict(offset=2**63)),
                        ("size-negative", dict(size=(-2, 3))), ("size-2e63", dict(size=(2**63, 3))),
                        ("stride-negative", dict(stride=(-3, 1))), ("stride-2e63", dict(stride=(2**63, 1))),
                        ("product", dict(size=(2**40, 2**40))), ("past-end", dict(size=(3, 3))),
                        ("offset-past-end", dict(offset=1)), ("rank", dict(size=(2, 3, 1))),
                        ("stride-past-end", dict(stride=(4, 1))), ("bool-offset", dict(offset=True))):
        rows.append(row("P26", name, "R", "TENSOR-BOUNDS", saved({"w": tensor(**words)})))
    numels = {"shorter": 8, "longer": 4}
    for name, numel in numels.items():
        rows.append(row("P27", "record-" + name, "R", "PT-STORAGE-SIZE", saved(
            {"w": tensor(size=(2, 2), stride=(2, 1), store=storage(numel=numel))})))
    rows += [
        row("P27", "numel-negative", "R", "PT-PERSID", saved({"w": tensor(store=storage(numel=-6))})),
        row("P27", "numel-wraps", "R", "PT-STORAGE-SIZE", saved({"w": tensor(store=storage(numel=2**62))})),
        row("P28", "2e40", "L", "PT-EXPAND", saved({"w": tensor(size=(2**40,), stride=(0,))})),
        row("P28", "small", "A", None, saved({"w": tensor(size=(2**10,), stride=(0,))})),
        row("P29", "views", "A", None, from_fixture("pt-views/checkpoint.pt")),
        row("P29", "two-views", "A", None, saved({"w": tensor(), "v": tensor(size=(3, 2), stride=(1, 3)),
                                                  "s": tensor(size=(2,), stride=(1,), offset=3)})),
        row("P30", "not-a-tuple", "R", "PT-PERSID", saved({"w": tensor(store=PersistentId("0"))})),
        row("P30", "tag", "R", "PT-PERSID", saved({"w": tensor(store=storage(tag="module"))})),
        row("P30", "key-up", "R", "PT-PERSID", saved({"w": tensor(store=storage(key="../0"))})),
        row("P30", "key-slash", "R", "PT-PERSID", saved({"w": tensor(store=storage(key="a/0"))})),
        row("P30", "key-missing", "R", "PT-PERSID", saved({"w": tensor(store=storage(key="7"))})),
        row("P30", "key-escape", "R", "PT-PERSID", saved({"w": tensor(store=storage(key="\x1b[31m\nINJECTED"))})),
        row("P30", "two-dtypes", "R", "PT-PERSID", saved({"w": tensor(), "v": tensor(store=storage(kind="IntStorage"))})),
        row("P31", "big", "A", None, from_fixture("pt-bigendian/checkpoint.pt"), settled="big-endian files are read"),
        row("P31", "middle", "R", "PT-BYTEORDER", saved({"w": tensor()}, byteorder=b"middle")),
        row("P31", "long", "R", "PT-BYTEORDER", saved({"w": tensor()}, byteorder=b"little" * 170_000)),
        row("P31", "empty", "R", "PT-BYTEORDER", saved({"w": tensor()}, byteorder=b"")),
        row("P31", "absent", "A", None, saved({"w": tensor()}, byteorder=None)),
    ]
    ordered = call("collections", "OrderedDict")
    kinds = (
        ("sparse", call("torch._utils", "_rebuild_sparse_tensor", call("torch.serialization", "_get_layout",
                                                                       "torch.sparse_coo"), (tensor(), tensor(), (2, 3)))),
        ("quantised", call("torch._utils", "_rebuild_qtensor", storage(kind="QInt8Storage"), 0, (2, 3), (3, 1), (), False,
                           ordered)),
        ("nested", call("torch._utils", "_rebuild_nested_tensor", tensor(size=(6,), stride=(1,)), tensor(), tensor(),
                        tensor(size=(2,), stride=(1,)))),
        ("meta", call("torch._utils", "_rebuild_meta_tensor_no_storage", Global("torch", "float32"), (2, 3), (3, 1), False)),
        ("subclass", call("torch._tensor", "_rebuild_from_type_v2", Global("torch._utils", "_rebuild_wrapper"),
                          Global("mine", "Mine"), (tensor(),), {})),
    )
    for name, v in kinds:
        rows.append(row("P32", name, "U", "PT-TENSOR-KIND", saved({"w": v})))
    rows.append(row("P32", "quantised-by-torchao", "U", "PT-TENSOR-KIND", from_fixture("wrong-quantised"), at="coverage",
                    says=("Int8Tensor",)))
    rows.append(row("P32", "wrapper-subclasses", "A", None, from_fixture("dcp-subclass"),
                    settled="the wrapper subclasses that torch's own libraries save are read"))
    return rows


def keys():
    rows = [
        row("P33", "tensors", "W", "PKL-DUPKEY", raw(b"}(" + text("w") + dump(tensor()) + text("w") + dump(tensor()) + b"u.")),
        row("P33", "objects", "W", "PKL-DUPKEY", raw(b"}(" + text("w") + dump(tensor()) + text("a") + dump(1) + text("a")
                                                     + dump(2) + b"u.")),
        row("P34", "kinds", "A", None, saved({1: tensor(), None: tensor(), (1, 2): tensor(), b"b": tensor()})),
        row("P34", "long", "A", None, saved({"k" * MEGA: tensor()})),
        row("P34", "surrogate", "A", None, saved({"\ud800": tensor()})),
    ]
    return rows


def opaque():
    extra = lambda v: dcp.with_object("extra", archive(pickle(v)))
    thing = Build(Global("mine", "Scheduler"), {"lr": 1})
    return [
        row("P35", "user-class", "A", None, saved({"w": tensor(), "x": thing})),
        row("P35", "byte-entry-class", "A", None, extra(thing)),
        row("P35", "byte-entry-unknown-call", "R", "PKL-CALL", extra(call("mine", "make", 1)), at="coverage",
            expect={"coverage": 0, "digest": 0, "latest": 0}, settled="an error only where objects are carried; verify warns"),
        row("P35", "byte-entry-payload", "R", "PKL-GLOBAL", extra(call("os", "system", *PAYLOAD)), at="coverage",
            expect={"digest": 0}, settled="what reads tensors alone leaves objects where they are"),
        row("P35", "unknown-call", "R", "PKL-CALL", with_call("mine", "make", 1), says=("mine.make",)),
        row("P35", "unknown-call-kept", "A", None, with_call("mine", "make", 1), options=("--objects", "opaque"),
            commands=("consolidate", "reshard"), strict=False),
        row("P35", "payload-not-kept", "R", "PKL-GLOBAL", with_call("os", "system", *PAYLOAD), options=("--objects", "opaque"),
            commands=("consolidate", "reshard"), strict=False),
        row("P35", "payload-attribute-not-kept", "R", "PKL-GETATTR",
            with_call("__builtin__", "getattr", Global("subprocess", "Popen"), "mro"), options=("--objects", "opaque"),
            commands=("consolidate", "reshard"), strict=False),
        row("P35", "payload-metadata-not-kept", "R", "PKL-GLOBAL", dcp.folder(fields={"planner_data": call("os", "system", *PAYLOAD)}),
            options=("--objects", "opaque"), commands=("consolidate", "reshard"), strict=False),
        row("P35", "byte-entry-payload-not-kept", "R", "PKL-GLOBAL", extra(call("os", "system", *PAYLOAD)),
            options=("--objects", "opaque"), commands=("consolidate", "reshard"), strict=False),
        row("P35", "unknown-call-metadata", "R", "PKL-CALL", dcp.folder(fields={"planner_data": call("mine", "make", 1)}),
            says=("mine.make",)),
        row("P35", "unknown-global-metadata", "A", None, dcp.folder(fields={"planner_data": {"a": Global("mine", "thing")}}),
            settled="a name that nothing is done with does nothing"),
        row("P35", "byte-entry-dropped", "A", None, extra(call("mine", "make", 1)), options=("--objects", "drop"),
            commands=("consolidate", "reshard"), strict=False),
        row("P35", "byte-entry-kept", "A", None, extra(call("mine", "make", 1)), options=("--objects", "opaque"),
            commands=("consolidate", "reshard"), strict=False),
        row("P35", "byte-entry-to-tensors", "A", None, extra(call("mine", "make", 1)), strict=False,
            options=("--format", "safetensors"), commands=("consolidate",), settled="the target carries no objects"),
        row("P35", "byte-entry-unknown-call-warned", "W", "PKL-CALL", extra(call("mine", "make", 1)), at="coverage",
            commands=("inspect", "structure", "coverage", "checksum")),
        row("P36", "not-metadata", "R", "DCP-META-TYPE", meta(pickle({"state_dict_metadata": {}}))),
        row("P36", "none", "R", "DCP-META-TYPE", meta(pickle(None))),
        row("P36", "other-class", "R", "DCP-META-TYPE", meta(pickle(Build(Global("mine", "Metadata"), {})))),
        row("P36", "no-storage", "R", "DCP-META-TYPE", dcp.folder(without=("storage_data",))),
        row("P36", "no-tensors", "R", "DCP-META-TYPE", dcp.folder(without=("state_dict_metadata",))),
        row("P36", "list", "R", "DCP-META-TYPE", dcp.folder(fields={"state_dict_metadata": []})),
        row("P36", "text", "R", "DCP-META-TYPE", dcp.folder(fields={"storage_data": "text"})),
        row("P36", "number-for-tensor", "R", "DCP-META-TYPE", dcp.folder(more={"v": 5})),
        row("P36", "size-of-text", "R", "DCP-META-TYPE", dcp.folder(shape=("four", 3))),
        row("P36", "extra-field", "A", None, dcp.folder(fields={"mine": 1}), settled="extra fields of Metadata are a note"),
    ]


ROWS = grammar() + calls() + benign() + opcodes() + tensors() + keys() + opaque()
