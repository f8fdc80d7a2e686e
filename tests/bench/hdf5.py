"""Race of HDF5 out and in, against plain copiers and a loop in h5py; see scripts/bench."""
import os
import pathlib
import subprocess
import sys

from harness import Runner, make, remove

# A careful user's loop: one tensor in memory at a time.
OUT_LOOP = """
import sys, h5py
from safetensors import safe_open
with safe_open(sys.argv[1], "np") as source, h5py.File(sys.argv[2], "w") as file:
    for name in source.keys():
        file.create_dataset(name, data=source.get_tensor(name))
"""
IN_LOOP = """
import sys, h5py
from safetensors.numpy import save_file
with h5py.File(sys.argv[1], "r") as file:
    save_file({name: file[name][...] for name in file}, sys.argv[2])
"""
# Chunks of 1 MiB, as a site that compresses would choose them.
GZIP = """
import sys, h5py
from safetensors import safe_open
with safe_open(sys.argv[2], "np") as source, h5py.File(sys.argv[3], "w") as file:
    for name in source.keys():
        data = source.get_tensor(name)
        chunks = (max(1, 262144 // data.shape[1]), data.shape[1]) if data.ndim == 2 else None
        more = dict(chunks=chunks, compression="gzip", compression_opts=int(sys.argv[1]), shuffle=True) if chunks else {}
        file.create_dataset(name, data=data, **more)
"""


def python(code, *arguments):
    return [sys.executable, "-W", "ignore", "-c", code, *map(str, arguments)]


def same_h5(a, b):
    import h5py
    import numpy

    with h5py.File(a, "r") as x, h5py.File(b, "r") as y:
        if set(x) != set(y):
            sys.exit(f"{a} and {b} hold other datasets")
        for name in x:
            if x[name].dtype != y[name].dtype or not numpy.array_equal(x[name][()], y[name][()]):
                sys.exit(f"{name} differs between {a} and {b}")


def inputs(a, nbytes):
    """fp32 model and Adam state, as one safetensors file: h5py has it without a conversion."""
    source = a.work / f"hdf5-{nbytes:.0f}.safetensors"
    if not source.exists():
        folder = make("dcp", a.work / f"dcp-{nbytes:.0f}", "--bytes", nbytes)
        subprocess.run([a.program, "consolidate", "-q", "--part", "all", folder, source], check=True)
        remove(folder)
    return source


def written(a, source, name, command):
    path = a.work / name
    if not path.exists():
        subprocess.run(command + [path] if isinstance(command, list) else command, check=True)
    return path


def race_out(a, race, floors, durable):
    source = inputs(a, a.bytes)
    out, peer = f"{a.work}/fsdpck.h5", f"{a.work}/h5py.h5"
    loop = python(OUT_LOOP, source, peer)
    runners = [Runner("fsdpck", [a.program, "consolidate", source, out], out),
               Runner("fsdpck --no-sync", [a.program, "consolidate", source, out, "--no-sync"], out, compare=False),
               *floors(a.floor, a.work, a.work, source.name),
               Runner("h5py loop", loop, peer),
               durable("h5py loop", loop, peer)]
    # h5py keeps the time of each dataset, so that its bytes differ from run to run.
    runners[-2].compare = False
    runners[-2].verify = lambda path: (written(a, source, "check.h5", [a.program, "consolidate", "-q", source]),
                                       same_h5(a.work / "check.h5", path), remove(a.work / "check.h5"))
    race(f"safetensors -> HDF5, {a.bytes / 1e9:.1f} GB", source, runners, a.rounds, None)


def race_gzip_out(a, race, durable):
    """Processor time is all of it: there is no copier to compare with."""
    source = inputs(a, a.bytes)
    out, peer = f"{a.work}/fsdpck.h5", f"{a.work}/h5py.h5"
    loop = python(GZIP, 4, source, peer)
    command = [a.program, "consolidate", source, out, "--compress", "gzip:4"]
    runners = [Runner("fsdpck", command, out),
               Runner("fsdpck --threads 1", [*command, "--threads", "1"], out, compare=False),
               durable("h5py loop", loop, peer)]
    runners[-1].compare = False
    runners[-1].verify = lambda path: (written(a, source, "check.h5",
                                               [a.program, "consolidate", "-q", "--compress", "gzip:4", source]),
                                       same_h5(a.work / "check.h5", path),
                                       print(f"  bytes: {(a.work / 'check.h5').stat().st_size / 1e6:.1f} MB, "
                                             f"h5py {path.stat().st_size / 1e6:.1f} MB", flush=True),
                                       remove(a.work / "check.h5"))
    race(f"safetensors -> HDF5 gzip -4 with shuffle, {a.bytes / 1e9:.1f} GB", source, runners, a.rounds, None)


def race_in(a, race, floors, durable, same, gzip):
    base = inputs(a, a.bytes)
    source = (written(a, base, "in-gzip.h5", python(GZIP, 1, base)) if gzip
              else written(a, base, "in.h5", [a.program, "consolidate", "-q", base]))
    out, peer = f"{a.work}/fsdpck.safetensors", f"{a.work}/h5py.safetensors"
    loop = python(IN_LOOP, source, peer)
    command = [a.program, "consolidate", "--part", "all", source, out]
    runners = [Runner("fsdpck", command, out),
               Runner("fsdpck --no-sync", [*command, "--no-sync"], out, compare=False),
               *floors(a.floor, a.work, a.work, base.name),
               Runner("h5py loop + save_file", loop, peer),
               durable("h5py loop + save_file", loop, peer)]
    race(f"HDF5 {'gzip -1 with shuffle' if gzip else 'contiguous'} -> safetensors, {a.bytes / 1e9:.1f} GB", source,
         runners, a.rounds, lambda kept: same(kept["fsdpck"], kept["h5py loop + save_file"]))
    remove(source)


def race_memory(a):
    print("\npeak memory (RSS) of HDF5 out and in")
    for nbytes in (1e9, 4e9):
        source, middle, out = inputs(a, nbytes), a.work / "memory.h5", a.work / "memory.safetensors"
        figures = []
        for command in ([source, middle], ["--part", "all", middle, out]):
            done = subprocess.run(["/usr/bin/time", "-f", "%M", a.program, "consolidate", "-q", *command],
                                  stderr=subprocess.PIPE, check=True)
            figures.append(int(done.stderr.split()[-1]) / 1e3)
        print(f"  {nbytes / 1e9:.0f} GB: out {figures[0]:.1f} MB, in {figures[1]:.1f} MB", flush=True)
        for path in (source, middle, out):
            remove(pathlib.Path(path))
    os.sync()
