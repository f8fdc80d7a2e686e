"""A trainer's folder cut anew is the same kind of folder, and real torch loads its parts."""

import os

import torch

from cases_reshard import SAVED_BY, check_same_tensors, full_tensors, make_model, states_of, step
from support import case, check

# Of each trainer: folder, outer keys, state. accelerate's save_fsdp_model and save_fsdp_optimizer for
# SHARDED_STATE_DICT; save() of slime's fsdp_utils/checkpoint.py, whose states are Stateful; VeOmni's layout of 2026.
PARTS = {
    "accelerate": (("pytorch_model_fsdp_0", ("model",), "model"), ("optimizer_0", ("optimizer",), "optim")),
    "slime": (("model", ("model_state", "model"), "model"), ("optimizer", ("optim_state", "optim"), "optim"),
              ("lr_scheduler", ("lr_scheduler_state",), "schedule")),
    "veomni": (("model/ckpt", ("model",), "model"), ("model/optimizer", ("optimizer",), "optim")),
}
SCHEDULE = {"last_epoch": 7, "base_lrs": [0.125]}


def below(keys, state):
    for key in reversed(keys):
        state = {key: state}
    return state


def rank_save_parts(folder, trainer):
    import torch.distributed as dist
    import torch.distributed.checkpoint as dcp
    model, optimizer = make_model((SAVED_BY,), ("fsdp",))
    for _ in range(2):
        step(model, optimizer)
    states = states_of(model, optimizer)
    truth = full_tensors(states)
    for name, keys, own in PARTS[trainer]:
        dcp.save(below(keys, {**states, "schedule": SCHEDULE}[own]), checkpoint_id=os.path.join(folder, name))
    if dist.get_rank() == 0:
        torch.save(truth, folder + ".truth")


def rank_load_parts(folder, original, ranks, trainer, in_one):
    """Each part from its folder, or (in_one) from the folder itself."""
    import torch.distributed.checkpoint as dcp
    truth = torch.load(original + ".truth", weights_only=True)
    model, optimizer = make_model((ranks,), ("fsdp",))
    states = states_of(model, optimizer)
    schedule = {"last_epoch": 0, "base_lrs": [0.0]}
    with torch.no_grad():
        for tensor in model.state_dict().values():
            (tensor.to_local() if hasattr(tensor, "to_local") else tensor).zero_()
    for name, keys, own in PARTS[trainer]:
        state = below(keys, {**states, "schedule": schedule}[own])
        dcp.load(state, checkpoint_id=folder if in_one else os.path.join(folder, name))
        if own == "schedule":
            check(state == below(keys, SCHEDULE), "schedule is %r" % state)
    check_same_tensors(full_tensors(states), truth, "parts")


def reshard_parts(setting, trainer, in_one=False):
    from process_group import run_ranks
    source = setting.path("checkpoint")
    run_ranks(SAVED_BY, rank_save_parts, source, trainer)
    for ranks in (1, 3, 8):
        folder = setting.path("to-%d" % ranks)
        setting.run("reshard", source, folder, "--world-size", str(ranks))
        for name in [""] if in_one else [name for name, _, _ in PARTS[trainer]]:
            files = [f for f in sorted(os.listdir(os.path.join(folder, name))) if f != "fsdpck-manifest.json"]
            check(files == [".metadata"] + ["__%d_0.distcp" % r for r in range(ranks)], "files of " + name)
        run_ranks(ranks, rank_load_parts, folder, source, ranks, trainer, in_one)


@case(first=(2, 4))
def case_reshard_accelerate_folder(setting):
    reshard_parts(setting, "accelerate")


@case(first=(2, 4))
def case_reshard_slime_folder(setting):
    reshard_parts(setting, "slime")


@case(first=(2, 4))
def case_reshard_veomni_folder(setting):
    reshard_parts(setting, "veomni", in_one=True)
