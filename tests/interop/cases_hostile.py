"""Pickles that call os.system: refused, never run."""

import os
import pickle
import shutil

import torch

from checkpoint_truth import seeded
from support import BAD_INPUT, case, check, check_folder_holds, check_nothing_at, check_same_tensors, load_file

FIXTURE = "/torch-2.15.0/dcp-transposed"


class Call:
    """Pickles as a call of function(*arguments)."""

    def __init__(self, function, *arguments):
        self.call = (function, arguments)

    def __reduce__(self):
        return self.call


def touch(setting):
    return Call(os.system, "touch '%s'" % setting.path("marker"))


def check_refused(setting, source, targets=("out.safetensors", "out.pt", "out"), options=()):
    before = set(os.listdir(setting.folder))
    for target in targets:
        done, path = setting.consolidate(source, target, *options, expected=BAD_INPUT)
        check("system" in done.stderr, "the call is not named: " + done.stderr)
        check_nothing_at(path)
    check_folder_holds(setting.folder, before)


@case()
def case_hostile_itself_works(setting):
    """The marker does appear where the pickle is loaded for real; else the cases below could not fail."""
    pickle.loads(pickle.dumps(touch(setting)))
    check(os.path.exists(setting.path("marker")), "no marker")


@case()
def case_hostile_metadata_alone(setting):
    source = setting.path("checkpoint")
    os.makedirs(source)
    for protocol in range(2, 6):
        with open(source + "/.metadata", "wb") as out:
            pickle.dump(touch(setting), out, protocol)
        check_refused(setting, source)


@case(first=(2, 15))
def case_hostile_inside_metadata(setting):
    source = setting.path("checkpoint")
    shutil.copytree(setting.fixtures + FIXTURE, source)
    with open(source + "/.metadata", "rb") as file:
        metadata = pickle.load(file)
    metadata.planner_data["plain"] = touch(setting)
    with open(source + "/.metadata", "wb") as out:
        pickle.dump(metadata, out)
    check_refused(setting, source)


@case()
def case_hostile_pt(setting):
    source = setting.path("in.pt")
    for protocol in (2, 4):
        torch.save({"weight": seeded("weight", (3, 2)), "extra": touch(setting)}, source, pickle_protocol=protocol)
        check_refused(setting, source)


@case()
def case_hostile_legacy(setting):
    source = setting.path("in.pt")
    torch.save({"weight": seeded("weight", (3, 2)), "extra": touch(setting)}, source,
               _use_new_zipfile_serialization=False)
    check_refused(setting, source)


@case()
def case_hostile_pt_other_calls(setting):
    source = setting.path("in.pt")
    for call in (Call(eval, "__import__('os').system('true')"), Call(exec, "pass"), Call(getattr, os, "system")):
        if call.call[0] is getattr:
            call = Call(getattr, Call(__import__, "os"), "system")
        torch.save({"weight": seeded("weight", (3, 2)), "extra": call}, source)
        setting.consolidate(source, "out.pt", expected=BAD_INPUT)
        setting.consolidate(source, "out.safetensors", expected=BAD_INPUT)
    check_folder_holds(setting.folder, ["in.pt"])


@case(first=(2, 4))
def case_hostile_byte_entry(setting):
    """A byte entry matters only where the target carries objects."""
    import torch.distributed.checkpoint as dcp
    source, weight = setting.path("checkpoint"), seeded("weight", (3, 2))
    os.makedirs(source)
    dcp.save({"weight": weight, "extra": touch(setting)}, storage_writer=dcp.FileSystemWriter(source))
    check_refused(setting, source, ["out.pt"])
    _, path = setting.consolidate(source, "out.safetensors")
    check_same_tensors(load_file(path), {"weight": weight}, "out.safetensors")
    check_nothing_at(setting.path("marker"))
