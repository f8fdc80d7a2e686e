"""Shared by the interop cases: the case list, calls of the program, comparisons of tensors bit for bit."""

import json
import os
import subprocess

import torch
from safetensors import safe_open
from safetensors.torch import load_file

from checkpoint_truth import (flatten, plain_json, read_digests, tensor_bytes, tensor_digest, tensor_label)
from release import RELEASE

OK, USAGE, BAD_INPUT, UNSUPPORTED, EXISTS = 0, 2, 3, 4, 10
# dtypes that safetensors has no code for
NO_SAFETENSORS = ("complex128", "complex32", "bcomplex32", "bits8", "bits16", "bits1x8", "bits2x4", "bits4x2")
CASES = []


class Failure(Exception):
    pass


class Setting:
    """What a case gets: an empty folder of its own, the program, the committed fixtures, a real model's weights."""

    def __init__(self, folder, program, fixtures, model_file):
        self.folder, self.program, self.fixtures, self.model_file = folder, program, fixtures, model_file

    def path(self, *parts):
        return os.path.join(self.folder, *parts)

    def run(self, *arguments, expected=OK):
        """Calls the program; its exit status must be the expected one, None: any. Returns the finished process."""
        command = [self.program, *map(str, arguments)]
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", cwd=self.folder, timeout=600)
        if expected is not None and done.returncode != expected:
            raise Failure("%s: exit %d, expected %d: %s" % (
                " ".join(command[1:]), done.returncode, expected, (done.stderr or done.stdout).strip()[-600:]))
        return done

    def consolidate(self, source, target, *options, expected=OK):
        """Merges source into target below the case's folder; returns (process, path of the target)."""
        path = self.path(target)
        return self.run("consolidate", source, path, *options, expected=expected), path


def case(first=(1, 13)):
    """Registers a case; first: the earliest torch release that can make its inputs."""
    def register(function):
        if RELEASE >= first:
            CASES.append((function.__name__.replace("case_", ""), function))
        return function
    return register


def check(condition, message):
    if not condition:
        raise Failure(message)


def check_same_names(found, expected, what):
    missing, extra = sorted(set(expected) - set(found)), sorted(set(found) - set(expected))
    check(not missing and not extra, "%s: missing %s, extra %s" % (what, missing[:5], extra[:5]))


def check_same_tensors(found, expected, what):
    """Both: name -> tensor. Same names, dtypes, shapes and bytes."""
    check_same_names(found, expected, what)
    for name, tensor in expected.items():
        check(tensor_label(found[name]) == tensor_label(tensor), "%s: '%s' is %s, expected %s" % (
            what, name, tensor_label(found[name]), tensor_label(tensor)))
        check(tensor_bytes(found[name]) == tensor_bytes(tensor), "%s: '%s' differs" % (what, name))


def check_digests(found, digests, what):
    """found: name -> tensor; digests: name -> (digest, label)."""
    check_same_names(found, digests, what)
    for name, (digest, label) in digests.items():
        check(tensor_label(found[name]) == label, "%s: '%s' is %s, expected %s" % (
            what, name, tensor_label(found[name]), label))
        check(tensor_digest(found[name]) == digest, "%s: '%s' differs" % (what, name))


def check_nothing_at(path):
    check(not os.path.lexists(path), "%s was left behind" % path)


def check_folder_holds(folder, names):
    """Hidden temporaries count too."""
    check_same_names(os.listdir(folder), names, folder)


def load_pt(path, weights_only=True):
    if RELEASE < (2, 1):  # its restricted unpickler knows no floats, and it has no mmap
        return torch.load(path, map_location="cpu")
    return torch.load(path, map_location="cpu", weights_only=weights_only, mmap=True)


def tensors_of_state(state):
    return {key: value for key, value in flatten(state) if isinstance(value, torch.Tensor)}


def objects_of_state(state):
    return {key: plain_json(value) for key, value in flatten(state) if not isinstance(value, torch.Tensor)}


def load_hf(folder):
    """Loads a folder the way transformers does: by its index if there is one. Returns (tensors, index or None)."""
    index_path = os.path.join(folder, "model.safetensors.index.json")
    if not os.path.exists(index_path):
        return load_file(os.path.join(folder, "model.safetensors")), None
    with open(index_path, encoding="utf-8") as text:
        index = json.load(text)
    tensors = {}
    for file_name in sorted(set(index["weight_map"].values())):
        with safe_open(os.path.join(folder, file_name), framework="pt") as file:
            check((file.metadata() or {}).get("format") == "pt", file_name + ": no format=pt")
            for name in file.keys():
                check(index["weight_map"].get(name) == file_name, "index does not place '%s' in %s" % (name, file_name))
                check(name not in tensors, "'%s' is in two files" % name)
                tensors[name] = file.get_tensor(name)
    check_same_names(tensors, index["weight_map"], "index")
    return tensors, index


def check_to_pt(setting, source, stem, target="out.pt", options=()):
    """source -> .pt holds what stem.digests and stem.objects.json say."""
    _, path = setting.consolidate(source, target, *options)
    state = load_pt(path, weights_only=False)
    check_digests(tensors_of_state(state), read_digests(stem + ".digests"), target)
    if os.path.exists(stem + ".objects.json"):
        with open(stem + ".objects.json", encoding="utf-8") as text:
            expected = json.load(text)
        found = objects_of_state(state)
        check_same_names(found, expected, target + ", objects")
        for key, value in expected.items():
            check(found[key] == value, "%s: object '%s' is %r, expected %r" % (target, key, found[key], value))


def check_to_safetensors(setting, source, stem, target="out.safetensors", options=()):
    """source -> one safetensors file with every tensor under its flat key holds what stem.digests says."""
    digests = read_digests(stem + ".digests")
    unsavable = [n for n, (_, label) in digests.items() if label.split("[")[0] in NO_SAFETENSORS]
    options = ["--part", "all", "--keep-names", *options]
    if unsavable:
        done, path = setting.consolidate(source, target, *options, expected=UNSUPPORTED)
        check(any(name in done.stderr for name in unsavable), "the message names no tensor: " + done.stderr)
        check_nothing_at(path)
        for name in unsavable:
            options += ["--exclude", name]
            del digests[name]
        if not digests:
            return
    _, path = setting.consolidate(source, target, *options)
    check_digests(load_file(path), digests, target)


LEVELS = ("quick", "structure", "coverage", "checksum", "numeric")


def check_good(setting, source, *options, levels=LEVELS):
    """verify has nothing but notes at any level; returns their ids. A false alarm is as bad as a miss.

    RANKS-UNKNOWN is a warning, which good folders have whose files do not count the ranks."""
    notes = set()
    for level in levels:
        words = ["verify", "--level", level, "--strict", "--set", "RANKS-UNKNOWN=note", "--json", source, *options]
        done = subprocess.run([setting.program, *map(str, words)], capture_output=True, text=True, errors="replace")
        report = json.loads(done.stdout)
        alarms = [f for f in report["findings"] if f["severity"] != "note"]
        said = [line for line in done.stderr.splitlines() if ": reading the only checkpoint inside: " not in line]
        check(done.returncode == 0 and not alarms and report["verdict"] == "clean" and not said,
              "%s at level %s: exit %d: %s" % (source, level, done.returncode, alarms or report["error"] or said))
        notes |= {f["finding"] for f in report["findings"]}
    return notes


def digests_of(setting, source, *options):
    """Name -> (digest, label), as `fsdpck digest` prints them."""
    lines = setting.run("digest", source, *options).stdout.splitlines()
    rows = [line.split("  ", 2) for line in lines]
    return {name: (digest, label) for digest, label, name in rows if label != "whole"}


def fixture_source(folder):
    """The path a user would give for a fixture folder."""
    for name in ("checkpoint.pt", "model.safetensors", "snapshots/abc"):
        if os.path.exists(os.path.join(folder, name)):
            return os.path.join(folder, name)
    return folder
