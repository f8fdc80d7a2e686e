"""Races of `fsdpck verify`, `digest`, `latest` and `diff`, which write nothing; see scripts/bench.

Every round runs every command once, in alternating order, on inputs that are in the page cache. A time counts only where
the command said what it ought to: that everything is well or equal, or, of a copy with one bit flipped, where it is not.
"""
import os
import pathlib
import re
import shutil
import statistics
import subprocess
import sys
import time

from harness import TIME, make, record, remove, spread, warm


class Look:
    """status and says: how it must exit, and what its output must hold. base: whose time its own is compared with."""

    def __init__(self, name, command, status=0, says="", base=None):
        self.name, self.command, self.status, self.says, self.base = name, command, status, says, base
        self.seconds, self.cpu, self.rss = [], [], 0

    def run(self, work):
        peak = work / "peak"
        wrap = ["/usr/bin/time", "-q", "-f", "%M %U %S", "-o", peak] if TIME else []
        begin = time.monotonic()
        done = subprocess.run([*wrap, *self.command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)
        self.seconds.append(time.monotonic() - begin)
        text = done.stdout.decode()
        if done.returncode != self.status or self.says not in text:
            sys.exit(f"{self.name}: exit {done.returncode}: {text[-800:]}{done.stderr.decode()[-800:]}")
        if TIME:
            rss, user, system = peak.read_text().split()
            self.rss = max(self.rss, int(rss) * 1024)
            self.cpu.append(float(user) + float(system))


def ratio_to_base(look, base):
    """A floor is divided by the command that it bounds, whichever is named as the base."""
    if base.name.startswith("floor"):
        return f"{base.name} / {look.name}", [y / x for x, y in zip(look.seconds, base.seconds)]
    return f"{look.name} / {base.name}", [x / y for x, y in zip(look.seconds, base.seconds)]


def contest(a, title, inputs, looks):
    load = os.getloadavg()[0]
    for number in range(a.rounds):
        for look in looks if number % 2 == 0 else looks[::-1]:
            for path in inputs:
                warm(path)
            look.run(a.work)
    record(title, looks[0].seconds,
           [ratio_to_base(look, base) for look in looks for base in looks if base.name == look.base], load)
    print(f"\n{title}")
    for look in looks:
        cpu = f"{statistics.median(look.cpu):7.2f} CPU s" if look.cpu else ""
        line = f"  {look.name:36s} {statistics.median(look.seconds):8.3f} s {cpu} {look.rss / 1e6:7.0f} MB"
        for base in looks:
            if base.name == look.base:
                line += f"   / {base.name} = {spread([x / y for x, y in zip(look.seconds, base.seconds)])}"
        print(line, flush=True)


def flip(path, part):
    """One bit of the byte that lies at this part of the file."""
    with open(path, "r+b") as f:
        at = int(os.path.getsize(path) * part)
        f.seek(at)
        byte = f.read(1)[0]
        f.seek(at)
        f.write(bytes([byte ^ 0x10]))


def expect_damage(a, folder, level, finding):
    """One flipped bit in a copy of the largest file is found; the other files are hard links."""
    copy = a.work / "damaged"
    remove(copy)
    copy.mkdir()
    files = [p for p in folder.iterdir() if p.is_file()]
    largest = max(files, key=lambda p: p.stat().st_size)
    for path in files:
        if path == largest:
            shutil.copyfile(path, copy / path.name)
        else:
            os.link(path, copy / path.name)
    flip(copy / largest.name, 0.6)
    Look(f"one flipped bit in {folder.name}", [a.program, "verify", "--level", level, copy], status=1, says=finding).run(a.work)
    remove(copy)


def folder_bytes(folder):
    return sum(p.stat().st_size for p in folder.iterdir())


def race_sums(a):
    source = make("dcp", a.work / f"dcp-{a.bytes:.0f}", "--bytes", a.bytes)
    expect_damage(a, source, "checksum", "ZIP-CRC")
    files = sorted(map(str, source.glob("*.distcp")))

    def verify(name, level, *more):
        return Look(name, [a.program, "verify", "--level", level, *more, source], says="no error")

    checksum, numeric = verify("verify checksum", "checksum"), verify("verify numeric", "numeric")
    single = verify("verify checksum, one thread", "checksum", "--threads", "1")
    digest = Look("digest", [a.program, "digest", source])
    floor = Look("floor: reads only, two threads", [a.floor, "--read", *files])
    numeric.base = single.base = "verify checksum"
    digest.base, checksum.base = floor.name, floor.name
    peers = [Look("xxhsum -H2", ["xxhsum", "-q", "-H2", *files], base="verify checksum"),
             Look("cksum", ["cksum", *files], base="verify checksum"),
             Look("sha256sum", ["sha256sum", *files], base="verify checksum")]
    contest(a, f"checksums of a DCP folder, {folder_bytes(source) / 1e9:.2f} GB, 8 ranks", [source],
            [checksum, numeric, single, digest, floor, *peers])


def race_manifest(a):
    source = make("dcp", a.work / f"dcp-{a.bytes:.0f}", "--bytes", a.bytes)
    folder = a.work / "with-manifest"
    remove(folder)
    subprocess.run([a.program, "consolidate", "-q", "--format", "hf", "--sha256", source, folder], check=True,
                   stdout=subprocess.DEVNULL)
    expect_damage(a, folder, "checksum", "MAN-HASH")
    files = sorted(map(str, folder.glob("*.safetensors")))
    command = [a.program, "verify", "--level"]
    contest(a, f"a folder with its manifest, {folder_bytes(folder) / 1e9:.2f} GB", [folder],
            [Look("verify checksum", [*command, "checksum", folder], says="no error"),
             Look("verify numeric", [*command, "numeric", folder], says="no error", base="verify checksum"),
             Look("verify checksum --sha256", [*command, "checksum", "--sha256", folder], says="no error",
                  base="verify checksum"),
             Look("xxhsum -H2", ["xxhsum", "-q", "-H2", *files], base="verify checksum"),
             Look("sha256sum", ["sha256sum", *files], base="verify checksum")])
    remove(folder)


VALIDATE = """
import sys
from torch.distributed.checkpoint import FileSystemReader
from torch.distributed.checkpoint.default_planner import _validate_global_plan
metadata = FileSystemReader(sys.argv[1]).read_metadata()
assert not _validate_global_plan([None, None], metadata)
"""


def race_metadata(a):
    small, large = (make("metadata", a.work / f"metadata-{n}", "--tensors", n, "--ranks", 1000) for n in (100, 1000))
    os.truncate(large / "__7_0.distcp", 1000)
    Look("a short file", [a.program, "verify", "--level", "structure", large], status=1, says="FILE-SHORT").run(a.work)
    os.truncate(large / "__7_0.distcp", (large / "__6_0.distcp").stat().st_size)
    structure = [a.program, "verify", "--level", "structure"]
    contest(a, f".metadata of 1,000,000 chunks in 1,000 files, {(large / '.metadata').stat().st_size / 1e6:.0f} MB", [],
            [Look("verify structure", [*structure, large], says="no error"),
             Look("the same, 100,000 chunks", [*structure, small], says="no error", base="verify structure"),
             Look("inspect", [a.program, "inspect", large], base="verify structure"),
             Look("torch reads and validates", [sys.executable, "-W", "ignore", "-c", VALIDATE, large],
                  base="verify structure")])


def race_chunks(a):
    counts = (20000, 80000)
    folders = [make("chunks", a.work / f"chunks-{n}", "--tensors", n) for n in counts]
    looks = [Look(f"verify, {n:,} chunks", [a.program, "verify", path], says="no error") for n, path in zip(counts, folders)]
    contest(a, "level coverage, one chunk a tensor", folders, looks)
    for look, n in zip(looks, counts):
        print(f"  {n:,} chunks: {spread([s / n * 1e6 for s in look.seconds])} us a chunk")
    slopes = [(y - x) / (counts[1] - counts[0]) * 1e6 for x, y in zip(looks[0].seconds, looks[1].seconds)]
    print(f"  slope: {spread(slopes)} us a chunk", flush=True)


def race_folders(a):
    one, run = make("chunks", a.work / "chunks-4", "--tensors", 4), a.work / "steps"
    remove(run)
    for step in range(1, 1001):
        shutil.copytree(one, run / f"step-{step}")
    (run / "step-1000" / "__0_0.distcp").unlink()
    few, many = (make("metadata", a.work / f"metadata-{n}-files", "--tensors", 1, "--ranks", n) for n in (2500, 10000))
    quick = [a.program, "verify", "--level", "quick"]
    contest(a, "many folders and files", [],
            [Look("latest of 1,000 steps", [a.program, "latest", "-q", run], says="step-999\n"),
             Look("verify quick, 10,000 files", [*quick, many], says="no error"),
             Look("verify quick, 2,500 files", [*quick, few], says="no error", base="verify quick, 10,000 files")])
    remove(run)


def race_verify_memory(a):
    print("\npeak memory (RSS) under an address-space limit of 512 MiB, 256 KiB stacks, one malloc arena")
    limits = "ulimit -v 524288; ulimit -s 256; exec \"$@\""
    for nbytes in (a.bytes / 4, a.bytes):
        source = make("dcp", a.work / f"dcp-{nbytes:.0f}", "--bytes", nbytes)
        for words in (["verify", "--level", "checksum"], ["verify", "--level", "numeric"], ["digest"]):
            look = Look("limited", ["env", "MALLOC_ARENA_MAX=1", "bash", "-c", limits, "bash", a.program, *words, source])
            look.run(a.work)
            print(f"  {nbytes / 1e9:.1f} GB, {' '.join(words)}: {look.rss / 1e6:.1f} MB", flush=True)


EQUAL = """
import sys, torch
a, b = (torch.load(p, mmap=True, weights_only=True) for p in sys.argv[1:3])
def same(x, y):
    if isinstance(x, dict):
        return x.keys() == y.keys() and all(same(x[k], y[k]) for k in x)
    return torch.equal(x, y) if torch.is_tensor(x) else x == y
sys.exit(0 if same(a, b) else 1)
"""

EQUAL_DCP = """
import sys, torch
import torch.distributed.checkpoint as dcp
from safetensors.torch import load_file
b = load_file(sys.argv[2])
state = {"model": {k: torch.empty_like(t) for k, t in b.items()}}
dcp.load(state, checkpoint_id=sys.argv[1], no_dist=True)
sys.exit(0 if all(torch.equal(state["model"][k], b[k]) for k in b) else 1)
"""


def race_diff(a):
    source = make("dcp", a.work / f"dcp-{a.bytes:.0f}", "--bytes", a.bytes)
    one, two, model = a.work / "one.pt", a.work / "two.pt", a.work / "model.safetensors"
    for path in (one, two, model):
        remove(path)
        if path != two:
            subprocess.run([a.program, "consolidate", "-q", "--no-manifest", source, path], check=True, stdout=subprocess.DEVNULL)
    shutil.copyfile(one, two)
    python = [sys.executable, "-W", "ignore", "-c"]
    contest(a, f"two equal .pt files of {one.stat().st_size / 1e9:.2f} GB", [one, two],
            [Look("fsdpck diff", [a.program, "diff", one, two], says="equal"),
             Look("fsdpck diff, one thread", [a.program, "diff", "--threads", "1", one, two], says="equal", base="fsdpck diff"),
             Look("diff -q", ["diff", "-q", one, two], base="fsdpck diff"),
             Look("cmp", ["cmp", one, two], base="fsdpck diff"),
             Look("torch loads both, equal", [*python, EQUAL, one, two], base="fsdpck diff")])
    contest(a, f"a DCP folder of 8 ranks and a safetensors file, {model.stat().st_size / 1e9:.2f} GB", [source, model],
            [Look("fsdpck diff", [a.program, "diff", source, model], says="equal"),
             Look("torch loads both, equal", [*python, EQUAL_DCP, source, model], base="fsdpck diff")])
    flip(two, 0.9)
    remove(model)
    looks = [Look("fsdpck diff, one bit", [a.program, "diff", one, two], status=1, says="1 of "),
             Look("fsdpck diff -q, one bit", [a.program, "diff", "-q", one, two], status=1, base="fsdpck diff, one bit"),
             Look("cmp, one bit", ["cmp", one, two], status=1, base="fsdpck diff, one bit")]
    contest(a, "the same, one bit flipped at nine tenths", [one, two], looks)
    for path in (one, two):
        remove(path)


RACES = {"sums": race_sums, "manifest": race_manifest, "metadata": race_metadata, "chunks": race_chunks,
         "folders": race_folders, "verify-memory": race_verify_memory, "diff": race_diff}
