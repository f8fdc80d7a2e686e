"""HDF5 files that h5py writes, read by fsdpck: every way of storing numbers, Keras's layout, links."""

import os
import subprocess
import sys

import torch

from checkpoint_truth import tensor_digest, tensor_label
from support import BAD_INPUT, UNSUPPORTED, case, check, check_same_names, digests_of, load_file, load_pt


def numbers(kind, shape, seed):
    import numpy
    random = numpy.random.default_rng(seed)
    if numpy.dtype(kind).kind == "c":
        found = random.standard_normal(shape) + 1j * random.standard_normal(shape)
    elif numpy.dtype(kind).kind == "f":
        found = random.standard_normal(shape)
    else:
        found = random.integers(0, 2 if numpy.dtype(kind).kind == "b" else 100, shape)
    return numpy.asarray(found).astype(kind)


def truth_of(array):
    tensor = torch.from_numpy(array.astype(array.dtype.newbyteorder("=")).copy())
    return tensor_digest(tensor), tensor_label(tensor)


def check_digests(setting, path, arrays, *options):
    found = digests_of(setting, path, *options)
    check_same_names(found, arrays, path)
    wrong = [name for name, array in arrays.items() if found[name] != truth_of(array)]
    check(not wrong, "%s: digests of %s" % (path, wrong))


KINDS = ("?", "i1", "u1", "i2", "i4", "i8", "f2", "f4", "f8", "c8", "c16", ">i2", ">i8", ">f4", ">f8")
WAYS = ({}, {"chunks": True}, {"chunks": (7, 3)}, {"chunks": (7, 3), "compression": "gzip"},
        {"chunks": (7, 3), "compression": 9, "shuffle": True}, {"chunks": (7, 3), "fletcher32": True},
        {"chunks": (7, 3), "compression": 1, "shuffle": True, "fletcher32": True}, {"chunks": (100, 1), "shuffle": True})


@case(first=(2, 15))
def case_hdf5_read_everything(setting):
    import h5py
    import numpy
    for version in ("earliest", "v108", "v110"):
        path, arrays = setting.path(version + ".h5"), {}
        with h5py.File(path, "w", libver=(version, "v110"), track_order=version == "v108") as f:
            for k, kind in enumerate(KINDS):
                for w, way in enumerate(WAYS):
                    for shape in ((30, 20), (64, 65), (100, 1)):
                        name = "g%d/%s/%dx%d" % (w, kind.replace(">", "big-"), *shape)
                        if "chunks" in way and way["chunks"] is not True and way["chunks"][1] > shape[1]:
                            continue
                        if "chunks" in way and way["chunks"] is not True and way["chunks"][0] > shape[0]:
                            continue
                        arrays[name.replace("/", ".")] = numbers(kind, shape, k * 100 + w)
                        f.create_dataset(name, data=arrays[name.replace("/", ".")], **way)
                for name, shape in (("scalar", ()), ("empty", (0, 3)), ("one", (1,)), ("deep", (2, 1, 3, 2))):
                    arrays["%s.%s" % (name, kind)] = numbers(kind, shape, k)
                    f.create_dataset("%s/%s" % (name, kind), data=arrays["%s.%s" % (name, kind)])
            arrays["grown"] = numbers("f4", (50, 9), 5)
            f.create_dataset("grown", data=arrays["grown"][:20], maxshape=(None, None), chunks=(8, 4)).resize((50, 9))
            f["grown"][20:] = arrays["grown"][20:]
        check_digests(setting, path, arrays)
        setting.run("verify", "--level", "checksum", path)
        loaded = load_pt(setting.consolidate(path, version + ".pt", "-q")[1])
        check_same_names(loaded, arrays, path)
        for name, array in arrays.items():
            check(numpy.array_equal(loaded[name].resolve_conj().numpy(), array), "%s: torch loads other numbers" % name)
        plain = {name: a for name, a in arrays.items() if "c16" not in name}
        loaded = load_file(setting.consolidate(path, version + ".safetensors", "--exclude", "*c16*", "-q")[1])
        check(all(numpy.array_equal(loaded[name].numpy(), a) for name, a in plain.items()), "safetensors differs")


@case(first=(2, 15))
def case_hdf5_read_reshard(setting):
    """Chunks of any grid cut anew over ranks."""
    import h5py
    arrays = {"a.w": numbers("f4", (97, 33), 1), "a.b": numbers("f4", (97,), 2), "b.w": numbers("f8", (16, 5, 7), 3)}
    path = setting.path("in.h5")
    with h5py.File(path, "w") as f:
        f.create_dataset("a/w", data=arrays["a.w"], chunks=(10, 10), compression="gzip", shuffle=True)
        f.create_dataset("a/b", data=arrays["a.b"], chunks=(10,), fletcher32=True)
        f.create_dataset("b/w", data=arrays["b.w"], chunks=(3, 2, 4))
    for ranks in (2, 3, 7):
        setting.run("reshard", path, setting.path("dcp%d" % ranks), "--world-size", ranks, "--format", "dcp", "-q")
        check_digests(setting, setting.path("dcp%d" % ranks), arrays)
    setting.run("diff", path, setting.path("dcp3"))
    setting.run("consolidate", setting.path("dcp7"), setting.path("back.h5"), "-q")
    setting.run("diff", setting.path("back.h5"), path)


@case(first=(2, 15))
def case_hdf5_read_keras(setting):
    """As Keras 3 writes .weights.h5, and Keras 2 its HDF5 weights."""
    import h5py
    import numpy
    arrays = {}
    with h5py.File(setting.path("m.weights.h5"), "w") as f:
        for layer in ("dense", "dense_1", "conv2d"):
            for i, shape in enumerate(((4, 3), (3,))):
                name = "layers/%s/vars/%d" % (layer, i)
                arrays[name.replace("/", ".")] = f[name] = numbers("f4", shape, i)
        f.create_group("vars")
        f["optimizer/vars/0"] = arrays["optimizer.vars.0"] = numpy.array(12, "i8")
        f["layers/dense"].attrs["name"] = "dense"
    check_digests(setting, setting.path("m.weights.h5"), arrays)
    arrays = {}
    with h5py.File(setting.path("old.h5"), "w") as f:
        f.attrs["layer_names"] = [b"dense_1"]
        f.attrs["backend"] = b"tensorflow"
        group = f.create_group("dense_1")
        group.attrs["weight_names"] = [b"dense_1/kernel:0", b"dense_1/bias:0"]
        for name in ("dense_1/kernel:0", "dense_1/bias:0"):
            arrays["dense_1/" + name] = group[name] = numbers("f4", (3, 2), 9)
    check_digests(setting, setting.path("old.h5"), arrays, "--hdf5-sep", "/")


@case(first=(2, 15))
def case_hdf5_read_refused(setting):
    """What h5py follows by itself is not even looked for."""
    import h5py
    with h5py.File(setting.path("secret.h5"), "w") as f:
        f["w"] = numbers("f4", (4, 3), 1)
    for name, finding in (("external", "H5-LINK"), ("virtual", "H5-VIRTUAL"), ("storage", "H5-EXTERNAL")):
        path = setting.path(name + ".h5")
        with h5py.File(path, "w") as f:
            f["good"] = numbers("f4", (4, 3), 1)
            if name == "external":
                f["link"] = h5py.ExternalLink("secret.h5", "/w")
            elif name == "virtual":
                layout = h5py.VirtualLayout((4, 3), "f4")
                layout[...] = h5py.VirtualSource(setting.path("secret.h5"), "w", (4, 3))
                f.create_virtual_dataset("v", layout)
            else:
                f.create_dataset("s", (4, 3), "f4", external=[(setting.path("secret.h5"), 0, 48)])
        done = setting.run("consolidate", path, setting.path("out.pt"), expected=BAD_INPUT)
        check(finding in done.stderr and not os.path.exists(setting.path("out.pt")), done.stderr)
    with h5py.File(setting.path("lzf.h5"), "w") as f:
        f.create_dataset("w", data=numbers("f4", (40, 30), 1), compression="lzf")
    done = setting.run("consolidate", setting.path("lzf.h5"), setting.path("out.pt"), expected=UNSUPPORTED)
    check("lzf" in done.stderr and "H5-FILTER" in done.stderr, done.stderr)


@case()
def case_hdf5_attributes_are_named(setting):
    """Those of Keras's HDF5 files: no tensors, but Keras cannot load the model without them."""
    import h5py
    with h5py.File(setting.path("in.h5"), "w") as f:
        f.attrs["layer_names"] = ["dense", "dropout"]
        f.attrs["model_config"] = "{}"
        f.create_group("dropout").attrs["weight_names"] = h5py.Empty("S1")
        f.create_group("dense").attrs["weight_names"] = ["dense/kernel"]
        f["dense/kernel"] = numbers("f4", (2, 2), 1)
        f["dense/kernel"].attrs["note"] = 7
    done = setting.run("consolidate", setting.path("in.h5"), setting.path("out.h5"))
    check("5 attributes are not read" in done.stderr and "'layer_names'" in done.stderr and "1 group is empty" in done.stderr, done.stderr)
    for path in ("out.h5", "in.h5"):
        done = setting.run("diff", setting.path("in.h5"), setting.path(path))
        check("H5-ATTRIBUTES" in done.stderr, done.stderr)
    check("H5-ATTRIBUTES" not in setting.run("inspect", setting.path("out.h5")).stderr, "fsdpck's own")


def digest_or_refusal(setting, path):
    """What digest says of a file, some of whose elements may never have been written."""
    done = subprocess.run([setting.program, "digest", "--hdf5-fill", path], capture_output=True, text=True)
    return done.returncode, done.stdout, done.stderr.replace(path, "FILE") if done.returncode else ""


@case(first=(2, 15))
def case_hdf5_read_fixtures(setting):
    """The committed fixtures are what their script makes."""
    folder = setting.path("made")
    os.mkdir(folder)
    subprocess.run([sys.executable, os.path.join(setting.fixtures, "hdf5", "make.py"), folder], check=True)
    for name in sorted(os.listdir(folder)):
        if not name.endswith(".digests"):
            committed = os.path.join(setting.fixtures, "hdf5", name)
            check(digest_or_refusal(setting, os.path.join(folder, name)) == digest_or_refusal(setting, committed), name)
