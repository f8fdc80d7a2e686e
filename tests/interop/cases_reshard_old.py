"""Folders that fsdpck cut anew, loaded by every torch since 2.1 without a model: plain tensors and ShardedTensors."""

import os

import torch

from release import RELEASE
from support import case, check, check_same_tensors

SOURCE = os.path.join("torch-2.1.2", "dcp-sharded-tensor")


def load(folder, state, alone=False):
    """In the ranks of a process group, or alone without one."""
    import torch.distributed.checkpoint as dcp
    if RELEASE >= (2, 3):
        dcp.load(state, storage_reader=dcp.FileSystemReader(folder))
    else:
        dcp.load_state_dict(state, dcp.FileSystemReader(folder), no_dist=alone)


def truth_state():
    """What was saved, under its flat names, made anew from the names."""
    from cases_sharded_tensor import SHARDED, seeded_moment
    from checkpoint_truth import seeded
    truth = {"model.count": seeded("count", (), torch.int64), "model.mask": seeded("mask", (2, 3), torch.bool),
             "model.empty": seeded("empty", (0, 3))}
    for name, shape in SHARDED.items():
        truth["model." + name] = seeded(name, shape)
        truth["optim.state.%s.step" % name] = torch.tensor(1.0)
        for moment in ("exp_avg", "exp_avg_sq"):
            key = "optim.state.%s.%s" % (name, moment)
            truth[key] = seeded_moment(key, shape)
    return truth


def empty_state():
    return {name: torch.zeros_like(tensor) for name, tensor in truth_state().items()}


def rank_load(folder):
    """Rows over as many ranks as there are, by torch.chunk, whatever the folder was cut for."""
    from torch.distributed._shard.sharded_tensor import ShardedTensor
    from cases_sharded_tensor import shard_rows
    truth = truth_state()
    state = {name: shard_rows(tensor) if tensor.dim() > 0 and tensor.numel() > 0 and tensor.is_floating_point()
             else tensor for name, tensor in empty_state().items()}
    load(folder, state)
    nsharded = 0
    for name, tensor in state.items():
        if not isinstance(tensor, ShardedTensor):
            check_same_tensors({name: tensor}, {name: truth[name]}, "replicated")
            continue
        for shard in tensor.local_shards():
            offsets, sizes = shard.metadata.shard_offsets, shard.metadata.shard_sizes
            piece = truth[name][tuple(slice(o, o + n) for o, n in zip(offsets, sizes))]
            check_same_tensors({name: shard.tensor}, {name: piece}, "ShardedTensor")
            nsharded += 1
    check(nsharded > 0, "no shard was compared")


@case(first=(2, 1))
def case_reshard_sharded_tensors(setting):
    from process_group import run_ranks
    source = os.path.join(setting.fixtures, SOURCE)
    cuts = {"fsdp=1": (2,), "fsdp=3": (1, 4), "dp_shard=2,tp=2": (3,), "fsdp=8": (2,)}
    for cut, loaders in cuts.items():
        setting.run("reshard", source, setting.path(cut), "--mesh", cut)
        for ranks in loaders:
            run_ranks(ranks, rank_load, setting.path(cut))
    for cut in cuts:  # last: loading starts threads, and a process with threads is not safely forked
        state = empty_state()
        load(setting.path(cut), state, alone=True)
        check_same_tensors(state, truth_state(), "plain tensors of " + cut)
