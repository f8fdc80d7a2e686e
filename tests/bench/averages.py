"""Races of `average` against a copier and mergekit, and of `consolidate --merge-adapter` against plain consolidate and PEFT;
see scripts/bench.

The inputs are Hugging Face folders of a llama in bf16, and an adapter of r = 16 on all its linear layers. The outputs are
compared with what the peer writes: merged weights bit for bit, averages within one unit in the last place or 2^-22 of the
largest element, because mergekit sums with fused multiply-adds and slerps in float32.
"""
import os
import pathlib
import subprocess
import sys

from harness import Runner, make, remove

RANK = 16
PEAKS = (5e8, 2e9)


def model(a, nbytes, seed):
    return make("model", a.work / f"model-{nbytes:.0f}-{seed}", "--bytes", nbytes, "--seed", seed)


def adapter(a, nbytes):
    return make("adapter", a.work / f"adapter-{nbytes:.0f}", "--bytes", nbytes, "--rank", RANK)


def weights(folder):
    return str(next(pathlib.Path(folder).glob("*.safetensors")))


def peer_path(*names):
    """For PYTHONPATH; None if a package is not installed."""
    folders = [os.environ.get(f"FSDPCK_{name}", "") for name in names]
    return os.pathsep.join(folders) if all(os.path.isdir(folder) for folder in folders) else None


def with_path(path, *command):
    return ["env", f"PYTHONPATH={path}", "HF_HUB_OFFLINE=1", "TQDM_DISABLE=1", sys.executable, "-W", "ignore", *map(str, command)]


COMPARE = """
import glob, sys
import torch
from safetensors import safe_open
one, other, most = sys.argv[1], sys.argv[2], int(sys.argv[3])
def opened(folder):
    files = [safe_open(path, "pt") for path in sorted(glob.glob(folder + "/*.safetensors"))]
    return {name: file for file in files for name in file.keys()}
def ordered(tensor):
    bits = tensor.view(torch.int16).int()
    return torch.where(bits < 0, -32768 - bits, bits)
found, expected = opened(one), opened(other)
if found.keys() != expected.keys():
    sys.exit(f"other tensors: {sorted(found.keys() ^ expected.keys())[:9]}")
elements = different = 0
for name in found:
    x, y = found[name].get_tensor(name), expected[name].get_tensor(name)
    distance = (ordered(x) - ordered(y)).abs()
    far = (distance > most) & ((x.float() - y.float()).abs() > most * 2.0 ** -22 * y.float().abs().max())
    if x.dtype != y.dtype or far.any():
        sys.exit(f"{name} differs from the peer's by {int(distance[far].max())} units in the last place")
    elements, different = elements + x.numel(), different + int((distance > 0).sum())
print(f"  {different} of {elements} elements differ from the peer's")
"""


def same_as_peer(kept, most):
    """Compares the output of the second runner with that of the first, which is moved away for it."""
    def keep(output):
        remove(kept)
        pathlib.Path(output).rename(kept)

    def check(output):
        subprocess.run([sys.executable, "-c", COMPARE, kept, output, str(most)], check=True)
        remove(kept)
    return keep, check


def race_average_floor(a, race):
    inputs = [weights(model(a, a.bytes / 3, seed)) for seed in range(4)]
    out, floor = f"{a.work}/average.safetensors", f"{a.work}/floor.out"
    script = 'floor=$1 out=$2; shift 2; "$floor" --read "${@:2}" && "$floor" "$1" "$out"'
    runners = [Runner("fsdpck average", [a.program, "average", *inputs, out], out),
               Runner("floor: reads four, writes one", ["bash", "-c", script, "bash", a.floor, floor, *inputs], floor,
                      compare=False)]
    race(f"average of four models of {a.bytes / 3e9:.1f} GB", a.work / f"model-{a.bytes / 3:.0f}-0", runners, a.rounds, None)


def race_mergekit(a, race, method):
    path = peer_path("MERGEKIT", "PEFT", "TRANSFORMERS")
    if path is None:
        print(f"\naverage-{method}: skipped, because mergekit is not installed")
        return
    inputs = [model(a, a.bytes / 3, seed) for seed in range(2)]
    out, peer, config = f"{a.work}/average", f"{a.work}/mergekit", a.work / f"{method}.yml"
    entries = "".join(f"  - model: {folder}\n    parameters:\n      weight: 0.5\n" for folder in inputs)
    if method == "slerp":
        entries = "".join(f"  - model: {folder}\n" for folder in inputs) + f"base_model: {inputs[0]}\nparameters:\n  t: 0.3\n"
    config.write_text(f"models:\n{entries}merge_method: {method}\ndtype: bfloat16\n")
    options = ["--slerp", "0.3"] if method == "slerp" else []
    keep, check = same_as_peer(a.work / "average-kept", 1)
    runners = [Runner("fsdpck average", [a.program, "average", *inputs, f"{out}/", "--format", "hf", *options], out,
                      compare=False, verify=keep),
               Runner("mergekit-yaml", with_path(path, "-m", "mergekit.scripts.run_yaml", config, peer, "--no-copy-tokenizer",
                                                 "--quiet"), peer, compare=False, verify=check, source=inputs[1])]
    race(f"{method} of two models of {a.bytes / 3e9:.1f} GB", inputs[0], runners, a.rounds, None)


MERGE_BY_PEFT = """
import sys
import peft, torch, transformers
base = transformers.AutoModelForCausalLM.from_pretrained(sys.argv[1], dtype=torch.bfloat16)
peft.PeftModel.from_pretrained(base, sys.argv[2]).merge_and_unload().save_pretrained(sys.argv[3])
"""


def merging(a, nbytes, out):
    base, added = model(a, nbytes, 0), adapter(a, nbytes)
    return base, added, [a.program, "consolidate", base, f"{out}/", "--format", "hf"]


def race_merge_plain(a, race):
    out = f"{a.work}/merged"
    base, added, words = merging(a, a.bytes, out)
    runners = [Runner("fsdpck --merge-adapter", [*words, "--merge-adapter", added], out, compare=False),
               Runner("fsdpck consolidate", words, out, compare=False)]
    race(f"adapter of r = {RANK} into {a.bytes / 1e9:.1f} GB", base, runners, a.rounds, None)


def race_merge_peft(a, race):
    path = peer_path("PEFT", "TRANSFORMERS")
    if path is None:
        print("\nmerge-peft: skipped, because PEFT is not installed")
        return
    out, peer = f"{a.work}/merged", f"{a.work}/peft"
    base, added, words = merging(a, a.bytes / 3, out)
    keep, check = same_as_peer(a.work / "merged-kept", 0)
    runners = [Runner("fsdpck --merge-adapter", [*words, "--merge-adapter", added], out, compare=False, verify=keep),
               Runner("PEFT merge_and_unload", with_path(path, "-c", MERGE_BY_PEFT, base, added, peer), peer, compare=False,
                      verify=check)]
    race(f"adapter of r = {RANK} into {a.bytes / 3e9:.1f} GB", base, runners, a.rounds, None)


def peak_of(a, command, *output):
    remove(pathlib.Path(output[0]))
    done = subprocess.run(["/usr/bin/time", "-f", "%M", a.program, *command, "-q"], stderr=subprocess.PIPE, check=True)
    remove(pathlib.Path(output[0]))
    return int(done.stderr.split()[-1]) / 1e3


def race_average_memory(a):
    print("\npeak memory (RSS) of average and of --merge-adapter")
    out = a.work / "peak.safetensors"
    for nbytes, count in [(nbytes, 2) for nbytes in PEAKS] + [(PEAKS[0], count) for count in (4, 8)]:
        inputs = [weights(model(a, nbytes, seed)) for seed in range(count)]
        print(f"  average of {count} x {nbytes / 1e9:.1f} GB: {peak_of(a, ['average', *inputs, out], out):.1f} MB", flush=True)
    for nbytes in PEAKS:
        words = ["consolidate", weights(model(a, nbytes, 0)), out, "--merge-adapter", adapter(a, nbytes)]
        print(f"  adapter into {nbytes / 1e9:.1f} GB: {peak_of(a, words, out):.1f} MB", flush=True)
    for seed in range(8):
        for nbytes in PEAKS:
            remove(a.work / f"model-{nbytes:.0f}-{seed}")


def races(a, race):
    return {
        "average-floor": lambda: race_average_floor(a, race),
        "average-linear": lambda: race_mergekit(a, race, "linear"),
        "average-slerp": lambda: race_mergekit(a, race, "slerp"),
        "average-memory": lambda: race_average_memory(a),
        "merge-plain": lambda: race_merge_plain(a, race),
        "merge-peft": lambda: race_merge_peft(a, race),
    }
