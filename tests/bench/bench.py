"""Races of `fsdpck consolidate` and `reshard` against plain copiers and torch's own tools; see scripts/bench. Those of commands that write nothing are in checks.py.

Every round runs every runner once, in alternating order, on an input that is in the page cache, into a new file. A time
counts only when the output was found right: the first output of each runner is compared tensor by tensor with the other
tool's, later ones byte by byte with the first. What is reported is the median of paired ratios (same round) and their spread.
"""
import argparse
import filecmp
import os
import pathlib
import statistics
import subprocess
import sys

import averages
import checks
import hdf5
import maps
import zero
from harness import Runner, make, prepare, record, remove, spread, timed, warm


def race(title, source, runners, rounds, check):
    kept = {}
    load = os.getloadavg()[0]
    for number in range(rounds):
        order = runners if number % 2 == 0 else runners[::-1]
        for runner in order:
            prepare(runner, source)
            runner.seconds.append(timed(runner))
            if runner.verify is not None and number == 0:
                runner.verify(runner.output)
            elif runner.compare and runner.name not in kept:
                kept[runner.name] = pathlib.Path(str(runner.output) + f".kept-{len(kept)}")
                remove(kept[runner.name])
                runner.output.rename(kept[runner.name])
            elif runner.compare and kept[runner.name].is_file() and not filecmp.cmp(
                    runner.output, kept[runner.name], shallow=False):
                sys.exit(f"{runner.name}: round {number + 1} wrote other bytes than round 1")
            remove(runner.output)
        if number == 0 and check is not None:
            check({name: path for name, path in kept.items()})
    first = runners[0]
    found = [(r.name, [b / a for a, b in zip(first.seconds, r.seconds)]) for r in runners[1:]]
    record(title, first.seconds, found, load)
    print(f"\n{title}")
    for r in runners:
        line = f"  {r.name:34s} {statistics.median(r.seconds):8.2f} s   {r.rss / 1e6:8.0f} MB"
        if r is not first:
            line += f"   / fsdpck = {spread(dict(found)[r.name])}"
        print(line, flush=True)
    for path in kept.values():
        remove(path)


def same_tensors(load_a, load_b, a, b):
    import torch

    x, y = load_a(a), load_b(b)
    if x.keys() != y.keys():
        sys.exit(f"{a} and {b} hold other tensors")
    for name in x:
        left, right = x[name], y[name]
        if torch.is_tensor(left) and not (left.dtype == right.dtype and torch.equal(left, right)):
            sys.exit(f"{name} differs between {a} and {b}")


def flatten(value, prefix=""):
    if isinstance(value, dict):
        return {k: v for key, item in value.items() for k, v in flatten(item, f"{prefix}{key}.").items()}
    return {prefix: value}


def load_pt(path):
    import torch

    return flatten(torch.load(path, mmap=True, weights_only=True))


def load_st(path):
    from safetensors.torch import load_file

    if path.is_dir():
        return {k: v for part in sorted(path.glob("*.safetensors")) for k, v in load_file(part).items()}
    return load_file(path)


def durable(name, command, output):
    """A peer that does not sync, made as durable as fsdpck is."""
    script = 'out=$1; shift; "$@" && find "$out" -type f -exec sync -d {} +'
    return Runner(f"{name}, sync -d", ["bash", "-c", script, "bash", output, *command], output, compare=False)


def floors(floor, work, source, pattern):
    files = sorted(str(p) for p in pathlib.Path(source).glob(pattern))
    out = f"{work}/floor.out"
    return [Runner("floor O_DIRECT, fsync", [floor, *files, out], out, compare=False),
            Runner("floor buffered, fsync", [floor, "--buffered", *files, out], out, compare=False),
            Runner("floor buffered, no fsync", [floor, "--buffered", "--no-sync", *files, out], out, compare=False)]


def race_dcp(a, nbytes):
    source = make("dcp", a.work / f"dcp-{nbytes:.0f}", "--bytes", nbytes)
    out = f"{a.work}/fsdpck.pt"
    peer = [sys.executable, "-m", "torch.distributed.checkpoint.format_utils", "dcp_to_torch", source,
            f"{a.work}/torch.pt"]
    runners = [Runner("fsdpck", [a.program, "consolidate", source, out], out),
               Runner("fsdpck --no-sync", [a.program, "consolidate", source, out, "--no-sync"], out),
               *floors(a.floor, a.work, source, "*.distcp"),
               Runner("torch dcp_to_torch", peer, f"{a.work}/torch.pt"),
               durable("torch dcp_to_torch", peer, f"{a.work}/torch.pt")]
    race(f"DCP -> .pt, {nbytes / 1e9:.1f} GB, 8 ranks", source, runners, a.rounds,
         lambda kept: same_tensors(load_pt, load_pt, kept["fsdpck"], kept["torch dcp_to_torch"]))


CONSOLIDATOR = """
import glob, json, os, sys
from safetensors import safe_open
from torch.distributed.checkpoint._consolidate_hf_safetensors import consolidate_safetensors_files
first = sorted(glob.glob(sys.argv[1] + "/*.safetensors"))[0]
with safe_open(first, "pt") as f:
    names = list(f.keys())
os.makedirs(sys.argv[2], exist_ok=True)
consolidate_safetensors_files(sys.argv[1], sys.argv[2], fqn_to_index_mapping={n: 1 for n in names}, num_threads=1)
"""


def race_shards(a, title, kind, *more):
    source = make(kind, a.work / "-".join([kind, *[str(m).strip("-") for m in more]]), *more)
    out, peer = f"{a.work}/fsdpck.safetensors", f"{a.work}/torch-out"
    command = [sys.executable, "-c", CONSOLIDATOR, source, peer]
    runners = [Runner("fsdpck", [a.program, "consolidate", source, out], out),
               Runner("fsdpck --no-sync --direct off",
                      [a.program, "consolidate", source, out, "--no-sync", "--direct", "off"], out),
               *floors(a.floor, a.work, source, "*.safetensors"),
               Runner("torch consolidator", command, peer),
               durable("torch consolidator", command, peer)]
    race(title, source, runners, a.rounds,
         lambda kept: same_tensors(load_st, load_st, kept["fsdpck"], kept["torch consolidator"]))


def two_steps(source, out):
    """What torch offers: everything into one file, and from there into one rank's folder."""
    tool = f"{sys.executable} -m torch.distributed.checkpoint.format_utils"
    script = f'rm -f "$1.pt" && {tool} dcp_to_torch "$0" "$1.pt" && {tool} torch_to_dcp "$1.pt" "$1" && rm -f "$1.pt"'
    return ["bash", "-c", script, source, out]


def same_as_source(a, source, output):
    """torch reads the source and the output into one file each: equal tensors."""
    whole = [a.work / "whole-source.pt", a.work / "whole-output.pt"]
    for folder, path in zip((source, output), whole):
        remove(path)
        subprocess.run([sys.executable, "-W", "ignore", "-m", "torch.distributed.checkpoint.format_utils", "dcp_to_torch",
                        folder, path], check=True, stdout=subprocess.DEVNULL)
    same_tensors(load_pt, load_pt, *whole)
    for path in whole:
        remove(path)


def race_reshard(a, nbytes):
    source = make("dcp", a.work / f"dcp-{nbytes:.0f}", "--bytes", nbytes)
    out, peer = f"{a.work}/fsdpck-out", f"{a.work}/torch-out"

    def fsdpck(name, *more):
        return Runner(f"fsdpck {name}", [a.program, "reshard", source, out, *more], out, compare=False,
                      verify=lambda output: same_as_source(a, source, output))

    runners = [fsdpck("8 -> 6", "--world-size", "6"),
               fsdpck("8 -> 64", "--world-size", "64"),
               fsdpck("rows -> columns of 8", "--world-size", "8", "--shard", "*=1"),
               fsdpck("rows -> columns of 64", "--world-size", "64", "--shard", "*=1"),
               *floors(a.floor, a.work, source, "*.distcp"),
               Runner("torch, two steps, 1 rank", two_steps(source, peer), peer, compare=False)]
    race(f"DCP, {nbytes / 1e9:.1f} GB, resharded", source, runners, a.rounds, None)


def same_as_made(nbytes, width):
    """Shards put together by what they say of themselves hold the values that make_input.py gave them."""
    def check(output):
        import json
        import torch
        from make_input import layer_names, values
        from safetensors import safe_open

        whole = {}
        for path in sorted(output.glob("*.safetensors")):
            with safe_open(path, "pt") as f:
                info = json.loads(f.metadata()["DCP_SHARDING_INFO"])
                for name in f.keys():
                    row, column = info[name]["saved_offsets"]
                    part = f.get_tensor(name)
                    full = whole.setdefault(name, torch.full((4096 * 2048 // width, width), float("nan"), dtype=part.dtype))
                    full[row:row + part.shape[0], column:column + part.shape[1]] = part
        if set(whole) != set(layer_names(nbytes, 2, 4096 * 2048 // width, width)):
            sys.exit(f"{output} holds other tensors than were made")
        for name, full in whole.items():
            if not torch.equal(full, values(name, full.shape[0], width, 0, full.dtype)):
                sys.exit(f"{name} differs from what it was made of in {output}")
    return check


def race_cuts(a, title, nbytes, width):
    """Column shards to row shards and back; torch has no such tool, so what it does to make one file of them."""
    columns = make("columns", a.work / f"cut-columns-{width}", "--bytes", nbytes, "--width", width)
    rows = make("rows", a.work / f"cut-rows-{width}", "--bytes", nbytes, "--width", width)
    out, peer = f"{a.work}/fsdpck-out", f"{a.work}/torch-out"
    check = same_as_made(nbytes, width)
    reshard = [a.program, "reshard", "--world-size", "8"]
    runners = [Runner("fsdpck columns -> rows", [*reshard, columns, out, "--shard", "*=0"], out, compare=False,
                      verify=check),
               Runner("fsdpck rows -> columns", [*reshard, rows, out, "--shard", "*=1"], out, compare=False,
                      verify=check, source=rows),
               Runner("fsdpck columns -> one", [a.program, "consolidate", columns, f"{out}.safetensors"],
                      f"{out}.safetensors", compare=False),
               *floors(a.floor, a.work, columns, "*.safetensors"),
               Runner("torch consolidator, columns -> one", [sys.executable, "-c", CONSOLIDATOR, columns, peer], peer,
                      compare=False)]
    race(f"{title}, {nbytes / 1e9:.2f} GB", columns, runners, a.rounds, None)


def race_growth(a):
    print("\ngrowth in the number of tensors (8 shards)")
    runners = {}
    for count in (32000, 64000):
        source = make("many", a.work / f"many-{count}", "--tensors", count)
        out = f"{a.work}/many.safetensors"
        runners[count] = Runner(source, [a.program, "consolidate", source, out], out, compare=False)
    for _ in range(a.rounds):
        for runner in runners.values():
            warm(runner.name)
            runner.seconds.append(timed(runner))
            remove(runner.output)
    for count, runner in runners.items():
        print(f"  {count} tensors: {spread(runner.seconds)} s, {runner.rss / 1e6:.0f} MB", flush=True)
    pairs = zip(runners[32000].seconds, runners[64000].seconds)
    print(f"  64000 / 32000 = {spread([b / x for x, b in pairs])}")


def race_memory(a, command, *more):
    print(f"\npeak memory (RSS) of {command} under an address-space limit of 512 MiB, 256 KiB stacks, one malloc arena")
    for nbytes in (1e9, 4e9):
        source = make("dcp", a.work / f"dcp-{nbytes:.0f}", "--bytes", nbytes)
        out = pathlib.Path(f"{a.work}/memory.pt" if command == "consolidate" else f"{a.work}/memory")
        remove(out)

        limits = "ulimit -v 524288; ulimit -s 256; exec /usr/bin/time -f %M \"$@\""
        done = subprocess.run(["bash", "-c", limits, "bash", a.program, command, "-q", source, out, *more],
                              env={**os.environ, "MALLOC_ARENA_MAX": "1"}, stderr=subprocess.PIPE, check=False)
        if done.returncode != 0:
            sys.exit(f"fsdpck failed under the limit: {done.stderr.decode()[-800:]}")
        print(f"  {nbytes / 1e9:.0f} GB: {int(done.stderr.split()[-1]) / 1e3:.1f} MB", flush=True)
        remove(out)
        if nbytes != a.bytes:
            remove(source)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--program", required=True)
    p.add_argument("--floor", required=True)
    p.add_argument("--work", required=True, type=pathlib.Path)
    p.add_argument("--bytes", type=float, default=3e9)
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("races", nargs="*",
                   default=["dcp", "rows", "columns", "narrow", "thin", "many", "growth", "memory", "reshard",
                            "cut-narrow", "cut-thin", "reshard-memory"])
    a = p.parse_args()
    a.work.mkdir(parents=True, exist_ok=True)

    def same(x, y):
        same_tensors(load_st, load_st, x, y)

    gb = f"{a.bytes / 1e9:.1f} GB"
    races = {
        "dcp": lambda: race_dcp(a, a.bytes),
        "rows": lambda: race_shards(a, f"8 row shards -> 1 safetensors, {gb}", "rows", "--bytes", a.bytes),
        "columns": lambda: race_shards(a, f"8 column shards -> 1 safetensors, {gb}", "columns", "--bytes", a.bytes),
        "narrow": lambda: race_shards(a, "8 column shards, runs of 1 KB -> 1 safetensors", "columns", "--bytes",
                                      a.bytes / 2, "--width", 4096),
        "thin": lambda: race_shards(a, "8 column shards, runs of 16 bytes -> 1 safetensors", "columns", "--bytes",
                                    a.bytes / 6, "--width", 64),
        "reshard": lambda: race_reshard(a, a.bytes),
        "many": lambda: race_shards(a, "4,000 small tensors in 8 shards -> 1 safetensors", "many", "--tensors", 4000),
        "growth": lambda: race_growth(a),
        "memory": lambda: race_memory(a, "consolidate"),
        "cut-narrow": lambda: race_cuts(a, "8 column shards of 1 KB runs <-> 8 row shards", a.bytes / 2, 4096),
        "cut-thin": lambda: race_cuts(a, "8 column shards of 16-byte runs <-> 8 row shards", a.bytes / 12, 64),
        "hdf5-out": lambda: hdf5.race_out(a, race, floors, durable),
        "hdf5-in": lambda: hdf5.race_in(a, race, floors, durable, same, False),
        "hdf5-gzip-in": lambda: hdf5.race_in(a, race, floors, durable, same, True),
        "hdf5-gzip-out": lambda: hdf5.race_gzip_out(a, race, durable),
        "hdf5-memory": lambda: hdf5.race_memory(a),
        "reshard-memory": lambda: race_memory(a, "reshard", "--world-size", "6"),
        **{name: lambda race=race: race(a) for name, race in checks.RACES.items()},
        **maps.races(a, race),
        **averages.races(a, race),
        **zero.races(a, race, same),
    }
    for name in a.races:
        races[name]()


if __name__ == "__main__":
    main()
