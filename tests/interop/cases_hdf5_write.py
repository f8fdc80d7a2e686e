"""HDF5 files that fsdpck writes, read by h5py: every dtype, training state, groups, names, objects."""

import json
import math
import subprocess

import torch

from checkpoint_truth import flatten, plain_json, seeded, tensor_bytes, tensor_from_bytes
from cases_conversion import every_dtype, save_dcp
from support import (UNSUPPORTED, case, check, check_nothing_at, check_same_names, check_same_tensors, digests_of,
                     load_pt)

# What no type of HDF5 says right is there as bytes.
AS_BYTES = ("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu", "float4_e2m1fn_x2",
            "bits8", "bits16", "bits1x8", "bits2x4", "bits4x2")
# torch computes with neither.
PARTS = {"complex32": torch.float16, "bcomplex32": torch.bfloat16}


def raw_bytes(dataset):
    """As they lie in the file."""
    import h5py
    import numpy
    found = numpy.zeros(dataset.shape, numpy.dtype((numpy.void, dataset.id.get_type().get_size())))
    if dataset.size:
        dataset.id.read(h5py.h5s.ALL, h5py.h5s.ALL, found, mtype=dataset.id.get_type())
    return found.tobytes()


def check_numbers(name, dataset, tensor):
    """What h5py shows is what torch has, for all that h5py can show."""
    import numpy
    label = str(tensor.dtype).replace("torch.", "")
    found = dataset[()]
    if label in AS_BYTES:
        check(numpy.asarray(found).dtype in (numpy.uint8, numpy.uint16), "%s: %s is no bytes" % (name, found.dtype))
        return
    if label in PARTS:
        parts = tensor_from_bytes(tensor_bytes(tensor), PARTS[label], (*tensor.shape, 2)).to(torch.float64)
        tensor = torch.view_as_complex(parts)
    if getattr(found, "dtype", None) is not None and found.dtype.names:
        found = found["r"].astype("c16") + 1j * found["i"].astype("c16")
    wide = torch.complex128 if tensor.is_complex() else torch.float64 if tensor.is_floating_point() else None
    expected = (tensor.to(wide) if wide else tensor).numpy()
    shown = numpy.asarray(found).astype(expected.dtype)
    check(numpy.array_equal(shown, expected, equal_nan=bool(wide)), "%s: h5py shows other numbers" % name)


def datasets_of(path):
    """FQN -> (dataset, tensor), as a script would read them."""
    import h5py
    found = {}

    def visit(name, item):
        if not isinstance(item, h5py.Dataset):
            return
        fqn = item.attrs.get("fqn", name.replace("/", "."))
        dtype = getattr(torch, item.attrs["torch_dtype"])
        found[fqn] = (item, tensor_from_bytes(raw_bytes(item), dtype, item.shape))
    file = h5py.File(path, "r")
    file.visititems(visit)
    return file, found


def check_place(name, dataset):
    check(dataset.chunks is None and (dataset.size == 0 or dataset.id.get_offset() is not None), name + " is chunked")
    if dataset.nbytes >= 4096:
        check(dataset.id.get_offset() % 4096 == 0, name + " does not begin at a page")


def check_chunks(name, dataset):
    """With --compress."""
    filtered = dataset.nbytes >= 16384
    check((dataset.compression == "gzip") == filtered, "%s: %s" % (name, dataset.compression))
    check(dataset.shuffle == (filtered and dataset.id.get_type().get_size() > 1), name + ": shuffle")
    if filtered:
        nbytes = math.prod(dataset.chunks) * dataset.id.get_type().get_size()
        check(nbytes <= 1 << 20, "%s: a chunk has %d bytes" % (name, nbytes))


def check_file(path, tensors, what, check_layout=check_place):
    """All the tensors and no others, by bytes and by the numbers that h5py shows. Returns the open file."""
    file, found = datasets_of(path)
    check_same_tensors({name: tensor for name, (_, tensor) in found.items()}, tensors, what)
    for name, (dataset, _) in found.items():
        check_numbers(what + ": " + name, dataset, tensors[name])
        check_layout(name, dataset)
    return file


def check_dump(path, names):
    """h5dump tells every dataset, and has no complaint."""
    done = subprocess.run(["h5dump", "-H", path], capture_output=True, text=True)
    check(done.returncode == 0 and done.stderr == "", "h5dump: " + done.stderr)
    missing = [name for name in names if 'DATASET "%s"' % name not in done.stdout]
    check(not missing, "h5dump does not tell %s" % missing[:3])


@case(first=(2, 4))
def case_hdf5_every_dtype(setting):
    tensors, source = every_dtype(), setting.path("in.pt")
    torch.save(tensors, source)
    _, path = setting.consolidate(source, "out.h5")
    check_file(path, tensors, "out.h5").close()
    check_dump(path, tensors)
    _, again = setting.consolidate(source, "again.hdf5", "--threads", "1", "--direct", "off")
    with open(path, "rb") as a, open(again, "rb") as b:
        check(a.read() == b.read(), "two runs wrote different bytes")


@case(first=(2, 4))
def case_hdf5_every_value(setting):
    """Of the small floats every code: what h5py shows as numbers is torch's number for all of them."""
    tensors = {"e5m2": torch.arange(256, dtype=torch.uint8).view(torch.float8_e5m2),
               "bf16": torch.arange(-32768, 32768, dtype=torch.int32).to(torch.int16).view(torch.bfloat16),
               "fp16": torch.arange(-32768, 32768, dtype=torch.int32).to(torch.int16).view(torch.float16),
               "e4m3": torch.arange(256, dtype=torch.uint8).view(torch.float8_e4m3fn)}
    torch.save(tensors, setting.path("in.pt"))
    _, path = setting.consolidate(setting.path("in.pt"), "out.h5")
    check_file(path, tensors, "out.h5").close()


@case(first=(2, 4))
def case_hdf5_of_training(setting):
    from cases_reshard import prepare
    source = prepare(setting)
    truth = torch.load(source + ".truth", weights_only=True)
    _, path = setting.consolidate(source, "out.h5")
    file = check_file(path, truth, "out.h5")
    check_dump(path, truth)
    _, nested = setting.consolidate(source, "out.pt")
    state = load_pt(nested, weights_only=False)
    expected = {k: plain_json(v) for k, v in flatten(state) if not isinstance(v, torch.Tensor)}
    found = json.loads(file.attrs["objects"])
    check_same_names(found, expected, "objects")
    for key, value in expected.items():
        value = list(value) if isinstance(value, tuple) else value
        check(found[key] == json.loads(json.dumps(value)), "object '%s' is %r, not %r" % (key, found[key], value))
    check((file.attrs["format"], file.attrs["format_version"], file.attrs["source_format"]) == ("fsdpck", 1, "dcp"),
          "the file says: %r" % dict(file.attrs))
    file.close()


@case(first=(2, 4))
def case_hdf5_compressed(setting):
    """Every dtype in chunks: of a few rows, that reach over the edge, that are smaller than a row, and of noise."""
    tensors = every_dtype()
    for name, tensor in list(tensors.items()):
        data = tensor_bytes(tensor)
        for shape in ((3, 5, 7001), (1100001,)):
            count = math.prod(shape) * tensor.element_size()
            if data and tensor.dim() > 0 and (len(shape) > 1 or tensor.element_size() < 4):
                repeated = (data * (count // len(data) + 1))[:count]
                tensors["%s%d" % (name, len(shape))] = tensor_from_bytes(repeated, tensor.dtype, shape)
    torch.manual_seed(7)
    tensors["noise"] = torch.randint(0, 256, (3, 700001), dtype=torch.uint8)
    tensors["trained"] = torch.randn(700, 2001)
    source = setting.path("in.pt")
    torch.save(tensors, source)
    _, path = setting.consolidate(source, "out.h5", "--compress", "gzip")
    check_file(path, tensors, "out.h5", check_chunks).close()
    check_dump(path, tensors)
    check(digests_of(setting, path) == digests_of(setting, source), "digests differ")
    for words in (("--threads", "1"), ("--threads", "8", "--memory", "16M")):
        _, again = setting.consolidate(source, "again.h5", "--compress", "gzip:4", "--force", *words)
        with open(path, "rb") as a, open(again, "rb") as b:
            check(a.read() == b.read(), "%s: other bytes" % " ".join(words))
    _, back = setting.consolidate(path, "back.pt")
    check_same_tensors(load_pt(back), tensors, "back.pt")


@case(first=(2, 4))
def case_hdf5_groups(setting):
    tensors = {"layers.0.weight": seeded("w", (40, 50)), "layers.1.weight": seeded("v", (40, 50)),
               "norm": seeded("norm", (7,)), "a/b.c": seeded("abc", (3,))}
    save_dcp(setting.path("saved"), {**tensors, "epoch": 3, "schedule": [1, (2, "a")],
                                      "far": float("inf"), "raw": b"bytes", "parts": {"seen": {1, 2}}})
    done, path = setting.consolidate(setting.path("saved"), "out.h5", "--hdf5-groups")
    file = check_file(path, tensors, "out.h5")
    check(set(file["layers"]) == {"0", "1"} and file["a/b/c"].shape == (3,), "groups: %s" % list(file))
    check(json.loads(file.attrs["objects"]) == {"epoch": 3, "schedule": [1, [2, "a"]]}, "objects: " + file.attrs["objects"])
    check("left out: 3 objects" in done.stdout, done.stdout)
    file.close()
    _, path = setting.consolidate(setting.path("saved"), "flat.h5")
    file = check_file(path, tensors, "flat.h5")
    check(all(file[name].shape == tensor.shape for name, tensor in tensors.items()), "h5py finds no name as it is")
    file.close()


@case(first=(2, 4))
def case_hdf5_names_in_the_way(setting):
    torch.save({"a": seeded("a", (3,)), "a.b": seeded("b", (3,))}, setting.path("in.pt"))
    done, path = setting.consolidate(setting.path("in.pt"), "out.h5", "--hdf5-groups", expected=UNSUPPORTED)
    check("--hdf5-groups" in done.stderr, done.stderr)
    check_nothing_at(path)
    _, path = setting.consolidate(setting.path("in.pt"), "out.h5")
    check_same_names(datasets_of(path)[1], ["a", "a.b"], "out.h5")


@case(first=(2, 4))
def case_hdf5_back_into_training(setting):
    """Saved by 4 ranks, kept as one HDF5 file, cut for 3 ranks, which go on training: the same numbers all the way."""
    from cases_reshard import TARGETS, prepare, rank_load_dcp
    from process_group import run_ranks
    source = prepare(setting)
    for more in ([], ["--hdf5-groups"]):
        _, path = setting.consolidate(source, "out.h5", "--force", *more)
        check(digests_of(setting, path) == digests_of(setting, source), "digests of out.h5 differ")
        options, sizes, names = TARGETS["3"]
        folder = setting.path("three" + "".join(more))
        setting.run("reshard", path, folder, *options)
        check(digests_of(setting, folder) == digests_of(setting, source), "digests of three ranks differ")
        run_ranks(3, rank_load_dcp, folder, source, sizes, names)
        # Tuples are arrays in JSON, and so come back as lists, which diff takes for equal there.
        done = setting.run("diff", source, path)
        check(done.stdout.rstrip().endswith(": equal"), done.stdout)
