"""A trainer's folder cut anew is the same kind of folder, and real torch loads its parts."""

import os

import torch

from cases_reshard import SAVED_BY, check_same_tensors, full_tensors, make_model, states_of, step
from support import case, check

PARTS = (("model", "pytorch_model_fsdp_0", "model"), ("optimizer", "optimizer_0", "optim"))


def rank_save_parts(folder):
    """As accelerate's save_fsdp_model and save_fsdp_optimizer for SHARDED_STATE_DICT."""
    import torch.distributed as dist
    import torch.distributed.checkpoint as dcp
    model, optimizer = make_model((SAVED_BY,), ("fsdp",))
    for _ in range(2):
        step(model, optimizer)
    states = states_of(model, optimizer)
    for key, name, own in PARTS:
        dcp.save({key: states[own]}, checkpoint_id=os.path.join(folder, name))
    truth = full_tensors(states)
    if dist.get_rank() == 0:
        torch.save(truth, folder + ".truth")


def rank_load_parts(folder, original, ranks):
    import torch.distributed.checkpoint as dcp
    truth = torch.load(original + ".truth", weights_only=True)
    model, optimizer = make_model((ranks,), ("fsdp",))
    states = states_of(model, optimizer)
    with torch.no_grad():
        for tensor in model.state_dict().values():
            (tensor.to_local() if hasattr(tensor, "to_local") else tensor).zero_()
    for key, name, own in PARTS:
        dcp.load({key: states[own]}, checkpoint_id=os.path.join(folder, name))
    check_same_tensors(full_tensors(states), truth, "parts")


@case(first=(2, 4))
def case_reshard_accelerate_folder(setting):
    from process_group import run_ranks
    source = setting.path("checkpoint")
    run_ranks(SAVED_BY, rank_save_parts, source)
    for ranks in (1, 3, 8):
        folder = setting.path("to-%d" % ranks)
        setting.run("reshard", source, folder, "--world-size", str(ranks))
        for _, name, _ in PARTS:
            files = sorted(os.listdir(os.path.join(folder, name)))
            check(files == [".metadata"] + ["__%d_0.distcp" % r for r in range(ranks)], "files of " + name)
        run_ranks(ranks, rank_load_parts, folder, source, ranks)
