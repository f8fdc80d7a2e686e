"""What the races of scripts/bench have in common: commands, timed in turn on inputs in the page cache or on the disk."""
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
TIME = os.path.exists("/usr/bin/time")


class Runner:
    def __init__(self, name, command, output, compare=True, verify=None, source=None, cold=(), warm=()):
        self.name, self.command, self.output, self.compare = name, command, pathlib.Path(output), compare
        self.verify = verify  # called with the first output, which is not kept
        self.source = source  # where it is not the race's
        self.cold = cold  # folders to read from the disk
        self.warm = warm  # those to read from the page cache, if not the source alone
        self.seconds, self.rss = [], 0


def remove(path):
    if path.is_dir():
        shutil.rmtree(path)
    elif path.exists():
        path.unlink()


def timed(runner):
    """Seconds of one run. Peak memory comes from time(1): a child of a large process inherits its peak."""
    remove(runner.output)
    peak = runner.output.with_name("peak")
    wrap = ["/usr/bin/time", "-f", "%M", "-o", peak] if TIME else []
    begin = time.monotonic()
    done = subprocess.run([*wrap, *runner.command], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, check=False)
    seconds = time.monotonic() - begin
    if done.returncode != 0:
        sys.exit(f"{runner.name}: exit {done.returncode}: {done.stderr.decode()[-800:]}")
    if TIME:
        runner.rss = max(runner.rss, int(peak.read_text()) * 1024)
    return seconds


def warm(path):
    """Reads a file, or those of a folder."""
    path = pathlib.Path(path)
    for path in sorted(path.iterdir()) if path.is_dir() else [path]:
        with open(path, "rb", buffering=0) as f:
            while f.read(1 << 24):
                pass


def evict(path):
    """Takes the files of a folder out of the page cache."""
    for path in sorted(pathlib.Path(path).iterdir()):
        with open(path, "rb") as f:
            os.fsync(f.fileno())
            os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def prepare(runner, source):
    for path in runner.cold:
        evict(path)
    for path in () if runner.cold else runner.warm or [runner.source or source]:
        warm(path)


def record(title, seconds, ratios, load):
    """One job for page.py, if scripts/bench wants a page. ratios: (what it is the ratio of, values of the rounds)."""
    path = os.environ.get("FSDPCK_BENCH_RECORDS")
    if path is None:
        return
    with open(path, "a", encoding="utf-8") as f:
        f.write(json.dumps({"job": title, "seconds": seconds, "load": [load, os.getloadavg()[0]],
                            "ratios": [{"of": of, "values": values} for of, values in ratios]}) + "\n")


def spread(values):
    return f"{statistics.median(values):.3f} ({min(values):.3f} to {max(values):.3f})"


def make(kind, path, *more):
    if not path.exists():
        subprocess.run([sys.executable, "-W", "ignore", HERE / "make_input.py", kind, path, *map(str, more)], check=True)
    return path
