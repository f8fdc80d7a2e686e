"""Runs with --resume that are killed: the results, and what --resume costs.

    resume.py kills --program FSDPCK --work DIR --bytes N --kills K   K runs killed at a random time and continued
    resume.py cost  --program FSDPCK --work DIR --bytes N --rounds R  R pairs of runs with and without --resume

`kills` makes a folder of 8 ranks, and converts it in several ways. Each run is killed at a random time, some of
them more than once, and a last run continues it. Its output must equal that of an undisturbed run, and nothing else
may be left in the folder but unfinished outputs without a journal, which that run must name. The script counts the bytes that were kept, and those that were written twice: by a run
that was killed, as the system counted them, and again later. With --ranks N each run is one of N processes under Open
MPI's mpirun; in turn one rank, all ranks or mpirun is killed. DIR is filled and emptied; needs no other packages.
"""
import argparse
import json
import os
import pathlib
import random
import resource
import shutil
import signal
import statistics
import subprocess
import sys
import time

MPIRUN = ["mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "--mca",
          "btl_vader_single_copy_mechanism", "none", "-n"]
VICTIMS = ("one rank", "all ranks", "mpirun")
SHAPES = ([2048, 1024], [1024, 3000], [777, 513], [5])
# name, arguments, suffix of the output
JOBS = [
    ("consolidate to safetensors", ["consolidate", "{in}"], ".safetensors"),
    ("consolidate to .pt", ["consolidate", "{in}"], ".pt"),
    ("consolidate to a folder", ["consolidate", "{in}", "--dtype", "bf16", "--max-shard-size", "{part}"], ""),
    ("reshard to DCP", ["reshard", "{in}", "--format", "dcp", "--world-size", "3"], ""),
    ("reshard by columns", ["reshard", "{in}", "--format", "dcp", "--world-size", "4", "--shard", "layers.*=1"], ""),
    ("reshard to rank files", ["reshard", "{in}", "--format", "pt-ranks", "--world-size", "4"], ""),
]


def make_source(path, nbytes):
    """A safetensors file of finite floats, the same for one size."""
    tensors, offset, rand = {}, 0, random.Random(7)
    while offset < nbytes:
        shape = SHAPES[len(tensors) % len(SHAPES)]
        size = 4
        for dim in shape:
            size *= dim
        dims = shape if len(shape) > 1 else [shape[0], 1]
        tensors[f"layers.{len(tensors)}.w"] = {"dtype": "F32", "shape": dims, "data_offsets": [offset, offset + size]}
        offset += size
    header = json.dumps(tensors).encode()
    header += b" " * (-len(header) % 8)
    block = bytearray(rand.randbytes(1 << 22))
    block[3::4] = b"\x3f" * (len(block) // 4)
    with open(path, "wb") as f:
        f.write(len(header).to_bytes(8, "little") + header)
        for number in range(-(-offset // len(block))):
            block[0:3] = number.to_bytes(3, "little")
            f.write(block[:min(len(block), offset - number * len(block))])


def same_file(a, b):
    if a.stat().st_size != b.stat().st_size:
        return False
    with open(a, "rb", buffering=0) as f, open(b, "rb", buffering=0) as g:
        one, two = bytearray(1 << 22), bytearray(1 << 22)
        while (n := f.readinto(one)) > 0:
            at = 0
            while at < n:
                more = g.readinto(memoryview(two)[at:n])
                if more == 0:
                    return False
                at += more
            if one[:n] != two[:n]:
                return False
    return True


def same(a, b):
    if not a.is_dir():
        return same_file(a, b)
    names = sorted(p.relative_to(a) for p in a.rglob("*"))
    return names == sorted(p.relative_to(b) for p in b.rglob("*")) and all(
        (a / n).is_dir() or same_file(a / n, b / n) for n in names)


def remove(path):
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def children(pid):
    try:
        return [int(p) for p in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:  # it has ended
        return []


def written_by(pid):
    """Bytes, as the system counts them; None: it has ended."""
    try:
        counts = pathlib.Path(f"/proc/{pid}/io").read_text()
    except OSError:
        return None
    return next(int(line.split()[1]) for line in counts.splitlines() if line.startswith("wchar"))


def send(pids, number):
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            pass


def is_alive(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False


def size_of(path):
    return sum(p.stat().st_size for p in path.rglob("*")) if path.is_dir() else path.stat().st_size


class Bench:
    def __init__(self, options):
        self.program, self.work = options.program, pathlib.Path(options.work)
        self.nbytes = int(options.bytes)
        self.ranks, self.most = options.ranks, options.most
        self.always = ["--threads", str(options.threads), *(["--no-sync"] if options.no_sync else [])]
        self.work.mkdir(parents=True, exist_ok=True)
        self.source = self.work / "source"
        if not self.source.exists():
            make_source(self.work / "whole.safetensors", self.nbytes)
            self.run(["reshard", str(self.work / "whole.safetensors"), str(self.source), "--format", "dcp",
                      "--world-size", "8"])
            (self.work / "whole.safetensors").unlink()

    def command(self, job, dst, extra=()):
        fill = {"in": str(self.source), "part": str(max(self.nbytes // 5, 1 << 20))}
        launcher = [*MPIRUN, str(self.ranks)] if self.ranks else []
        return [*launcher, self.program, *(a.format(**fill) for a in job[1]), str(dst), *self.always, *extra]

    def run(self, arguments):
        subprocess.run([self.program, "-q", *arguments] if arguments[0].startswith("-") else
                       [self.program, arguments[0], "-q", *arguments[1:]], check=True)

    def timed(self, command):
        begin = time.monotonic()
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            sys.exit(f"{' '.join(command)}: exit status {done.returncode}\n{done.stderr}")
        return time.monotonic() - begin, done.stdout, done.stderr

    def clean(self, folder, said):
        """Removes what a run left that was killed before it had a journal, or after: the next run must have named it."""
        for name in os.listdir(folder):
            if name.endswith(".partial") and not any(n.startswith(name[:-len("partial")]) and n != name for n in os.listdir(folder)):
                if name not in said:
                    sys.exit(f"nothing was said of '{name}': {said}")
                remove(folder / name)

    def killed(self, command, seconds, victim, rand):
        """Bytes written until the last process ended."""
        child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(seconds)
        workers = [p for p in children(child.pid) if is_alive(p)] if self.ranks else [child.pid]
        send(workers, signal.SIGSTOP)
        written = {p: written_by(p) or 0 for p in workers}
        if victim == "one rank" and workers:
            send([rand.choice(workers)], signal.SIGKILL)
        elif victim == "mpirun":
            send([child.pid], signal.SIGKILL)
        else:
            send(workers, signal.SIGKILL)
        send(workers, signal.SIGCONT)
        begin = time.monotonic()
        while any(map(is_alive, workers)) and time.monotonic() < begin + 300:  # those that were not killed
            written = {p: max(n, written_by(p) or 0) for p, n in written.items()}
            time.sleep(0.002)
        if any(map(is_alive, workers)):
            sys.exit(f"after a kill of {victim} processes go on")
        child.wait()
        return sum(written.values())

    def one_job(self, job, kills, rand, totals):
        want = self.work / ("want" + job[2])
        dst = self.work / "out" / ("out" + job[2])
        dst.parent.mkdir(exist_ok=True)
        remove(want)
        seconds, *_ = self.timed(self.command(job, want, ["-q"]))
        print(f"{job[0]}: {seconds:.1f} s undisturbed", flush=True)
        for _ in range(kills):
            written, stopped = 0, 0
            for _ in range(rand.randint(1, self.most)):
                victim = VICTIMS[totals["tries"] % len(VICTIMS)] if self.ranks else "the process"
                totals["tries"] += 1
                n = self.killed(self.command(job, dst, ["--resume", "-q"]), rand.uniform(0, seconds), victim, rand)
                if dst.exists():  # complete, also if the process was killed after that
                    if not same(want, dst):
                        sys.exit(f"{job[0]}: the output of a run that was killed differs")
                    for rest in dst.parent.iterdir():
                        remove(rest)
                    written = stopped = 0
                else:
                    written, stopped = written + n, stopped + 1
                    totals[f"kills of {victim}"] = totals.get(f"kills of {victim}", 0) + 1
            _, text, said = self.timed(self.command(job, dst, ["--resume", "--json"]))
            report = json.loads(text)
            self.clean(dst.parent, said)
            left = sorted(os.listdir(dst.parent))
            if left != [dst.name]:
                sys.exit(f"{job[0]}: the folder contains {left}")
            if not same(want, dst):
                sys.exit(f"{job[0]}: the output differs from that of an undisturbed run")
            resume = report["resume"]
            totals["rounds"] += 1
            totals["kills"] += stopped
            totals["continued"] += resume["continued"]
            totals["kept"] += resume["kept_bytes"]
            totals["recorded, again"] += resume["rewritten_bytes"]
            totals["written when killed"] += written
            # What the last run wrote beyond the output that was missing.
            again = max(0, written + report["counts"]["bytes_written"] - size_of(dst)) if stopped else 0
            totals["written twice"] += again
            totals["most written twice in a round"] = max(totals["most written twice in a round"], again)
            totals["output"] += size_of(dst)
            remove(dst)
            print(f"{job[0]}: the same bytes after {stopped} kills, {resume['kept_bytes']} kept, {again} written twice", flush=True)
        remove(want)


def kills(options):
    bench, rand = Bench(options), random.Random(options.seed)
    totals = dict.fromkeys(("tries", "rounds", "kills", "continued", "output", "written when killed", "kept",
                            "recorded, again", "written twice", "most written twice in a round"), 0)
    jobs = [job for job in JOBS if options.job in job[0]]
    for i, job in enumerate(jobs):
        count = options.kills // len(jobs) + (i < options.kills % len(jobs))
        if count > 0:
            bench.one_job(job, count, rand, totals)
    for name, value in totals.items():
        print(f"{name}: {value}")
    shutil.rmtree(bench.work)
    if totals["kills"] < options.kills / 3 or (options.ranks and any(f"kills of {v}" not in totals for v in VICTIMS)):
        sys.exit("too few runs were killed in time")


def cost(options):
    bench = Bench(options)
    job = next(j for j in JOBS if (options.job or "reshard to DCP") in j[0])
    dst = bench.work / ("out" + job[2])
    times = {"without": [], "with": []}
    used = {"without": [], "with": []}
    for number in range(options.rounds + 1):  # the first pair warms up
        pair = [("without", []), ("with", ["--resume"])]
        for name, extra in pair if number % 2 else reversed(pair):
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            seconds, *_ = bench.timed(bench.command(job, dst, ["-q", *extra]))
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            remove(dst)
            if number > 0:
                times[name].append(seconds)
                used[name].append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    ratios = [b / a for a, b in zip(times["without"], times["with"])]
    for name, list_ in times.items():
        print(f"{name}: median {statistics.median(list_):.3f} s, {min(list_):.3f} to {max(list_):.3f}; "
              f"processor time {statistics.median(used[name]):.3f} s, {min(used[name]):.3f} to {max(used[name]):.3f}")
    low, middle, high = statistics.quantiles(ratios, n=4)
    print(f"{job[0]}: ratio with / without: median {middle:.3f}, quartiles {low:.3f} and {high:.3f}, "
          f"{min(ratios):.3f} to {max(ratios):.3f}")
    shutil.rmtree(bench.work)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("mode", choices=("kills", "cost"))
    p.add_argument("--program", required=True)
    p.add_argument("--work", required=True, help="a folder that does not exist")
    p.add_argument("--bytes", type=float, default=1e9)
    p.add_argument("--kills", type=int, default=50)
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--ranks", type=int, default=0, help="of each run, under mpirun; default: without mpirun")
    p.add_argument("--job", default="", help="only jobs whose name contains this; cost: the first of them")
    p.add_argument("--most", type=int, default=3, help="kills: kills of a round, at most")
    p.add_argument("--no-sync", action="store_true")
    p.add_argument("--seed", type=int, default=None)
    options = p.parse_args()
    {"kills": kills, "cost": cost}[options.mode](options)


if __name__ == "__main__":
    main()
