"""DTensors inside tuples, lists and objects: one rank's part is never taken for the whole tensor. Keys that the metadata of
a DCP checkpoint lists without a value."""

import os
import pickle
import shutil
from collections import OrderedDict

import torch

from process_group import run_ranks
from support import BAD_INPUT, UNSUPPORTED, case, check, check_nothing_at, check_same_tensors, load_pt, tensors_of_state

FULL = torch.arange(14.).reshape(7, 2)


def with_attribute(tensor):
    made = OrderedDict(a=1)
    made.held = tensor
    return made


WRAPS = {"tuple": lambda t: (t, 1), "list": lambda t: [t], "nested": lambda t: {"a": [({"b": t},)]},
         "attribute": with_attribute}


def save_on_ranks(folder):
    import torch.distributed as dist
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.default_planner import DefaultSavePlanner
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard, distribute_tensor
    rank = dist.get_rank()
    cut = distribute_tensor(FULL, init_device_mesh("cpu", (2,)), [Shard(0)])
    for name, wrap in WRAPS.items():
        place = os.path.join(folder, "ranks-" + name)
        os.makedirs(place, exist_ok=True)
        torch.save({"model": {"w": cut}, "held": wrap(cut)}, os.path.join(place, "model_rank%d.pt" % rank))
    for name, planner in (("dcp", None), ("dcp-whole", DefaultSavePlanner(flatten_state_dict=False))):
        dcp.save({"w": cut, "held": {"pair": (cut, 1)}}, checkpoint_id=os.path.join(folder, name), planner=planner)


def check_refused(setting, source, name):
    """It is an error of verify too: the object holds one rank's shard, and the file has no other."""
    done, path = setting.consolidate(source, "refused.pt", expected=UNSUPPORTED)
    check("PT-TENSOR-KIND" in done.stderr and "tensor:   %s\n" % name in done.stderr, "%s: %s" % (source, done.stderr))
    check_nothing_at(path)
    done = setting.run("verify", source, expected=UNSUPPORTED)
    check("PT-TENSOR-KIND" in done.stdout + done.stderr, "verify of %s: %s" % (source, done.stdout + done.stderr))


@case(first=(2, 6))
def case_inside_objects_rank_files(setting):
    run_ranks(2, save_on_ranks, setting.folder)
    for name in WRAPS:
        alone = setting.path(name + ".pt")
        shutil.copy(setting.path("ranks-" + name, "model_rank1.pt"), alone)
        state = torch.load(alone, weights_only=False)
        del state["model"]["w"]  # the DTensor that is no part of an object is refused anyway
        torch.save(state, alone)
        check_refused(setting, alone, {"list": "held", "nested": "held.a"}.get(name, "held"))
    _, path = setting.consolidate(setting.path("ranks-list"), "list-out.pt", "-q")
    check_same_tensors(tensors_of_state(load_pt(path)), {"model.w": FULL, "held.0": FULL}, "a list of rank files")
    check_refused(setting, setting.path("ranks-tuple"), "held")
    check_refused(setting, setting.path("ranks-nested"), "held.a")


@case(first=(2, 6))
def case_inside_objects_dcp(setting):
    run_ranks(2, save_on_ranks, setting.folder)
    for name, held in (("dcp", "held.pair"), ("dcp-whole", "held")):
        check_refused(setting, setting.path(name), held)
        _, path = setting.consolidate(setting.path(name), name + ".pt", "-q", "--objects", "drop")
        check_same_tensors(tensors_of_state(load_pt(path)), {"w": FULL}, name)


def save_plain(folder):
    import torch.distributed.checkpoint as dcp
    dcp.save({"model": {"a": FULL, "b": FULL + 1}, "step": 5}, checkpoint_id=os.path.join(folder, "dcp"))


@case(first=(2, 6))
def case_dcp_key_without_value(setting):
    """A name of planner_data that state_dict_metadata lacks: torch's load of the whole checkpoint lacks it too."""
    run_ranks(2, save_plain, setting.folder)
    setting.run("verify", "-q", setting.path("dcp"))
    path = setting.path("dcp", ".metadata")
    with open(path, "rb") as file:
        whole = file.read()
    for lost in ("model.b", "step"):
        metadata = pickle.loads(whole)
        del metadata.state_dict_metadata[lost]
        metadata.storage_data = {index: info for index, info in metadata.storage_data.items() if index.fqn != lost}
        with open(path, "wb") as file:
            pickle.dump(metadata, file)
        for command, status in ((("verify", setting.path("dcp")), 1),
                                (("consolidate", setting.path("dcp"), setting.path("out.pt")), BAD_INPUT)):
            done = setting.run(*command, expected=status)
            said = done.stdout + done.stderr
            check("DCP-KEY-LOST" in said and "tensor:   %s\n" % lost in said, "without %s: %s" % (lost, said))
        check_nothing_at(setting.path("out.pt"))
        done, out = setting.consolidate(setting.path("dcp"), "without-%s.pt" % lost, "-q", "--assume", "lost-keys")
        check("DCP-KEY-LOST" in done.stderr and "'%s'" % lost in done.stderr, "omitted %s: %s" % (lost, done.stderr))
        state = load_pt(out)
        check(("step" in state) == (lost != "step"), "step in %s" % sorted(state))
        there = {"model.a": FULL, **({"model.b": FULL + 1} if lost != "model.b" else {})}
        check_same_tensors(tensors_of_state(state), there, lost)
