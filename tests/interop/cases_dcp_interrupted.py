"""Folders of DCP that torch loads without a message although something is lost: a save over an older one that was
interrupted, and shards without elements."""

import os
import shutil

import torch

from process_group import run_ranks
from support import case, check, check_same_tensors, load_pt, tensors_of_state

ROWS = 6


def save_twice(folder):
    import torch.distributed.checkpoint as dcp
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard, distribute_tensor
    mesh = init_device_mesh("cpu", (2,))
    for name, fill in (("run/step-1", 1.), ("new", 2.)):
        made = distribute_tensor(torch.full((ROWS, 3), fill), mesh, [Shard(0)])
        dcp.save({"w": made}, checkpoint_id=os.path.join(folder, name))


def save_alone_twice(folder):
    import torch.distributed.checkpoint as dcp
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard, distribute_tensor
    mesh = init_device_mesh("cpu", (2,))
    for name, fill in (("alone/step-1", 1.), ("alone-new", 2.)):
        made = distribute_tensor(torch.full((ROWS, 3), fill), mesh, [Shard(0)])
        state = {"model": {"w": made}, "optim": {"state": {"w": {"step": torch.tensor(fill)}}}}
        dcp.save(state, storage_writer=dcp.FileSystemWriter(os.path.join(folder, name)), use_collectives=False)


def save_few_rows(folder):
    import torch.distributed.checkpoint as dcp
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard, distribute_tensor
    made = distribute_tensor(torch.ones(2, 3), init_device_mesh("cpu", (3,)), [Shard(0)])
    dcp.save({"w": made}, checkpoint_id=os.path.join(folder, "few"))


def load_dcp(folder, shape):
    import torch.distributed.checkpoint as dcp
    state = {"w": torch.zeros(shape)}
    dcp.load(state, checkpoint_id=folder)
    return state["w"]


def said_of(setting, folder, *options):
    done = setting.run("verify", "-q", *options, folder)
    return done.stdout + done.stderr


@case(first=(2, 6))
def case_dcp_interrupted_over_older(setting):
    """Rank 1 replaced its file and the save ended there: torch loads rows of both saves."""
    run_ranks(2, save_twice, setting.folder)
    step = setting.path("run/step-1")
    check("DCP-NEWER" not in said_of(setting, step), "a whole save is newer")
    for name in os.listdir(step):
        file = os.path.join(step, name)
        date = os.stat(file).st_mtime - 1800
        os.utime(file, (date, date))
    check("DCP-NEWER" not in said_of(setting, step), "a save of half an hour ago is newer")
    shutil.copyfile(setting.path("new/__1_0.distcp"), os.path.join(step, "__1_0.distcp"))
    mixture = load_dcp(step, (ROWS, 3))
    check(mixture[:ROWS // 2].eq(1).all() and mixture[ROWS // 2:].eq(2).all(), "torch loaded %s" % mixture)
    check("DCP-NEWER" in said_of(setting, step), "verify does not warn")
    done = setting.run("latest", setting.path("run"))
    check("DCP-NEWER" in done.stderr and done.stdout.strip() == step, "latest: " + done.stdout + done.stderr)


@case(first=(2, 9))
def case_dcp_interrupted_without_collectives(setting):
    """Each rank writes its own metadata: those of rank 1 are of the newer save, which torch does not tell from the other."""
    run_ranks(2, save_alone_twice, setting.folder)
    step = setting.path("alone/step-1")
    check("RANK-MIXED" not in said_of(setting, step) and "DCP-NEWER" not in said_of(setting, step), "a whole save is mixed")
    for name in ("__1_0.distcp", "__1.metadata"):
        shutil.copyfile(setting.path("alone-new/" + name), os.path.join(step, name))
    check("RANK-MIXED" in said_of(setting, step), "verify does not warn")
    done, _ = setting.consolidate(step, "alone.safetensors", "--part", "model", "--force")
    check("RANK-MIXED" in done.stderr, "consolidate does not warn: " + done.stderr)
    for name in ("__0_0.distcp", "__0.metadata"):
        file = os.path.join(step, name)
        date = os.stat(file).st_mtime - 1800
        os.utime(file, (date, date))
    check("DCP-NEWER" in said_of(setting, step), "verify does not warn of the times")


@case(first=(2, 6))
def case_dcp_empty_shards_lost(setting):
    """The file of rank 2 has only a shard without rows."""
    run_ranks(3, save_few_rows, setting.folder)
    few = setting.path("few")
    file = os.path.join(few, "__2_0.distcp")
    check(os.path.getsize(file) > 0, "rank 2 wrote nothing")
    check("DCP-EMPTY-LOST" not in said_of(setting, few), "a whole save lacks something")
    for change in (lambda: os.truncate(file, 100), lambda: os.remove(file)):
        change()
        check(load_dcp(few, (2, 3)).eq(1).all(), "torch loads other values")
        check("DCP-EMPTY-LOST" in said_of(setting, few), "verify does not warn")
        done, path = setting.consolidate(few, "few.pt", "-q", "--force")
        check("DCP-EMPTY-LOST" in done.stderr, "consolidate does not warn")
        check_same_tensors(tensors_of_state(load_pt(path)), {"w": torch.ones(2, 3)}, "few")
