"""Checkpoints in training, cut anew and loaded by real torch on other numbers of ranks and other meshes."""

import json
import os

import torch
from torch import nn

from release import RELEASE
from support import OK, UNSUPPORTED, case, check, check_same_tensors

SAVED_BY = 4
TP_PLAN = {"up": "colwise", "down": "rowwise"}
# world size -> what is asked for, mesh as torch builds it
TARGETS = {
    "1": (["--world-size", "1"], (1,), ("fsdp",)),
    "2": (["--world-size", "2"], (2,), ("fsdp",)),
    "3": (["--world-size", "3"], (3,), ("fsdp",)),
    "4": (["--mesh", "fsdp=4"], (4,), ("fsdp",)),
    "8": (["--world-size", "8"], (8,), ("fsdp",)),
    "16": (["--world-size", "16"], (16,), ("fsdp",)),
    "hsdp": (["--mesh", "dp_replicate=2,dp_shard=4"], (2, 4), ("dp_replicate", "dp_shard")),
    "tp": (["--mesh", "dp_shard=2,tp=2", "--tp-plan", "plan.json"], (2, 2), ("dp_shard", "tp")),
    "hsdp_tp": (["--mesh", "dp_replicate=2,dp_shard=2,tp=2", "--tp-plan", "plan.json"], (2, 2, 2),
                ("dp_replicate", "dp_shard", "tp")),
}


class Net(nn.Module):
    """Rows that divide by nothing, fewer elements than ranks, and what TP cuts both ways."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(11, 6)
        self.up = nn.Linear(6, 16)
        self.down = nn.Linear(16, 6)
        self.norm = nn.LayerNorm(6)
        self.head = nn.Linear(6, 5)
        self.one = nn.Parameter(torch.zeros(1))
        self.register_buffer("seen", torch.tensor(7))
        self.register_buffer("scale", torch.linspace(0, 1, 5))


def new_optimizer(model):
    return torch.optim.AdamW(model.parameters(), lr=0.03125, betas=(0.5, 0.75))


def make_model(sizes, names):
    """The model on a mesh; every rank starts from the same weights."""
    from torch.distributed.device_mesh import init_device_mesh
    if RELEASE >= (2, 6):
        from torch.distributed.fsdp import fully_shard
    else:
        from torch.distributed._composable.fsdp import fully_shard
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
    torch.manual_seed(5)
    model = Net()
    mesh = init_device_mesh("cpu", sizes, mesh_dim_names=names)
    if "tp" in names:
        parallelize_module(model, mesh["tp"], {"up": ColwiseParallel(), "down": RowwiseParallel()})
        mesh = mesh[names[:-1]] if len(names) > 2 else mesh[names[0]]
    for module in (model.embedding, model.up, model.down):
        fully_shard(module, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model, new_optimizer(model)


def step(model, optimizer):
    """A training step whose gradient depends on the weights alone, so that it is the same on every mesh."""
    for parameter in model.parameters():
        parameter.grad = parameter.detach() * 0.5 + 0.25
    optimizer.step()


def full_tensors(states):
    from checkpoint_truth import flatten
    found = {}
    for key, value in flatten(states):
        if isinstance(value, torch.Tensor):
            value = value.full_tensor() if hasattr(value, "full_tensor") else value
            found[key] = value.detach().clone()
    return found


def states_of(model, optimizer):
    from torch.distributed.checkpoint.state_dict import get_state_dict
    model_state, optimizer_state = get_state_dict(model, optimizer)
    return {"model": model_state, "optim": optimizer_state}


def rank_save(folder):
    import torch.distributed as dist
    import torch.distributed.checkpoint as dcp
    model, optimizer = make_model((SAVED_BY,), ("fsdp",))
    for _ in range(2):
        step(model, optimizer)
    model.seen.fill_(9)
    states = states_of(model, optimizer)
    dcp.save(states, checkpoint_id=folder)
    truth = full_tensors(states)
    if dist.get_rank() == 0:
        torch.save(truth, folder + ".truth")


def load_dcp(folder, sizes, names):
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.state_dict import set_state_dict
    model, optimizer = make_model(sizes, names)
    states = states_of(model, optimizer)
    for _, tensor in model.state_dict().items():
        (tensor.to_local() if hasattr(tensor, "to_local") else tensor).zero_()
    dcp.load(states, checkpoint_id=folder)
    set_state_dict(model, optimizer, model_state_dict=states["model"], optim_state_dict=states["optim"])
    return model, optimizer


def check_step(ours, theirs, what):
    """Pairs of model and optimizer are the same after one more step."""
    step(*ours)
    step(*theirs)
    check_same_tensors(full_tensors(states_of(*ours)), full_tensors(states_of(*theirs)), what + " after a step")


def rank_load_dcp(folder, original, sizes, names):
    """Loads the folder and the original, compares both with the truth, then with each other after a step."""
    truth = torch.load(original + ".truth", weights_only=True)
    ours, ours_optimizer = load_dcp(folder, sizes, names)
    check_same_tensors(full_tensors(states_of(ours, ours_optimizer)), truth, "cut anew")
    theirs, theirs_optimizer = load_dcp(original, sizes, names)
    check_step((ours, ours_optimizer), (theirs, theirs_optimizer), "cut anew")


def prepare(setting):
    from process_group import run_ranks
    source = setting.path("saved")
    run_ranks(SAVED_BY, rank_save, source)
    with open(setting.path("plan.json"), "w", encoding="utf-8") as plan:
        json.dump(TP_PLAN, plan)
    return source


def product(sizes):
    ranks = 1
    for size in sizes:
        ranks *= size
    return ranks


def check_dcp(setting, targets):
    from process_group import run_ranks
    source = prepare(setting)
    for name in targets:
        options, sizes, names = TARGETS[name]
        folder = setting.path("to-" + name)
        setting.run("reshard", source, folder, *options)
        ranks = product(sizes)
        check(sum(f.endswith(".distcp") for f in os.listdir(folder)) == ranks, "files of " + name)
        run_ranks(ranks, rank_load_dcp, folder, source, sizes, names)


@case(first=(2, 4))
def case_reshard_few_ranks(setting):
    check_dcp(setting, ["1", "2", "3", "4"])


@case(first=(2, 4))
def case_reshard_more_ranks(setting):
    check_dcp(setting, ["8", "16"])


@case(first=(2, 6))
def case_reshard_meshes(setting):
    check_dcp(setting, ["hsdp", "tp", "hsdp_tp"])


def rank_load_files(pattern, original, sizes, names):
    """Rank files: working DTensors, equal to the truth, that a sharded model takes by copy_, and trains with."""
    import torch.distributed as dist
    from torch.distributed.checkpoint.state_dict import set_state_dict
    from torch.distributed.tensor import DTensor
    truth = torch.load(original + ".truth", weights_only=True)
    model, optimizer = make_model(sizes, names)
    state = torch.load(pattern % dist.get_rank(), map_location="cpu", weights_only=False)
    check_same_tensors(full_tensors(state), truth, "rank files")
    check(all(isinstance(state["model"][key], DTensor) for key, _ in model.named_parameters()), "parameters are DTensors")
    # Every parameter has the mesh of the model's own: copy_ refuses any other.
    taken = model.state_dict()
    with torch.no_grad():
        for key, tensor in taken.items():
            if isinstance(tensor, DTensor):
                found = state["model"][key]
                check((found.device_mesh, found.placements) == (tensor.device_mesh, tensor.placements),
                      "'%s' lies on %r, expected %r" % (key, found._spec, tensor._spec))
            tensor.copy_(state["model"][key])
    found = {"model." + key: value for key, value in full_tensors(taken).items()}
    check_same_tensors(found, {k: v for k, v in truth.items() if k.startswith("model.")}, "copied into a model")
    set_state_dict(model, optimizer, model_state_dict=state["model"], optim_state_dict=state["optim"])
    check_step((model, optimizer), load_dcp(original, sizes, names), "rank files")


@case(first=(2, 6))
def case_reshard_rank_files(setting):
    from process_group import run_ranks
    source = prepare(setting)
    for name in ("1", "2", "3", "4", "8", "hsdp", "tp", "hsdp_tp"):
        options, sizes, names = TARGETS[name]
        folder = setting.path("files-" + name)
        setting.run("reshard", source, folder, "--format", "pt-ranks", "--device-type", "cpu",
                    "--torch", "%d.%d" % RELEASE[:2], *options)
        ranks = product(sizes)
        pattern = os.path.join(folder, "model_world_size_%d_rank_%%d.pt" % ranks)
        run_ranks(ranks, rank_load_files, pattern, source, sizes, names)
        back = setting.path("back-%s.pt" % name)
        setting.run("consolidate", folder, back)
        straight = setting.path("straight.pt")
        setting.run("consolidate", source, straight, "--force")
        from support import load_pt, tensors_of_state
        check_same_tensors(tensors_of_state(load_pt(back, weights_only=False)),
                           tensors_of_state(load_pt(straight, weights_only=False)), "back from rank files")
    # Rank files say themselves which parameters TP holds: no plan is needed. Nor --torch.
    again = setting.path("again")
    setting.run("reshard", setting.path("files-tp"), again, "--world-size", "8", "--device-type", "cpu")
    pattern = os.path.join(again, "model_world_size_8_rank_%d.pt")
    run_ranks(8, rank_load_files, pattern, source, (4, 2), ("dp_shard", "tp"))
    like = setting.path("like")
    setting.run("reshard", source, like, "--like", setting.path("files-tp"), "--format", "pt-ranks",
                "--device-type", "cpu", "--torch", "%d.%d" % RELEASE[:2])
    pattern = os.path.join(like, "model_world_size_4_rank_%d.pt")
    run_ranks(4, rank_load_files, pattern, source, (2, 2), ("dp_shard", "tp"))


def rank_load_hf(folder, original, sizes, names):
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader
    truth = torch.load(original + ".truth", weights_only=True)
    model, optimizer = make_model(sizes, names)
    state = model.state_dict()
    for tensor in state.values():
        (tensor.to_local() if hasattr(tensor, "to_local") else tensor).zero_()
    dcp.load(state, storage_reader=HuggingFaceStorageReader(path=folder))
    found = {"model." + key: value for key, value in full_tensors(state).items()}
    check_same_tensors(found, {k: v for k, v in truth.items() if k.startswith("model.")}, "DCP safetensors")
    theirs, _ = load_dcp(original, sizes, names)  # the folder has no optimizer: both start with a new one
    check_step((model, optimizer), (theirs, new_optimizer(theirs)), "DCP safetensors")


@case(first=(2, 9))
def case_reshard_dcp_safetensors(setting):
    from process_group import run_ranks
    source = prepare(setting)
    for name in ("1", "2", "3", "4", "8", "hsdp", "tp", "hsdp_tp"):
        options, sizes, names = TARGETS[name]
        folder = setting.path("hf-" + name)
        setting.run("reshard", source, folder, "--format", "dcp-safetensors", *options)
        run_ranks(product(sizes), rank_load_hf, folder, source, sizes, names)


@case(first=(2, 6))
def case_reshard_keys(setting):
    """Keys that are no texts get the names that torch gives them."""
    import torch.distributed.checkpoint as dcp
    keys = (7, -3, 2**63 - 1, -2**63, 2**63, 10**20, -10**40, 2**2047 - 1, 1.5, 1e300, True, None)
    state = {"m": {key: torch.full((2,), float(i)) for i, key in enumerate(keys)}}
    torch.save(state, setting.path("source.pt"))
    dcp.save(state, checkpoint_id=setting.path("torch"), no_dist=True)
    setting.run("reshard", setting.path("source.pt"), setting.path("ours"), "--world-size", "2")
    setting.run("diff", setting.path("source.pt"), setting.path("torch"))
    found = {"m": {key: torch.zeros(2) for key in keys}}
    dcp.load(found, checkpoint_id=setting.path("ours"), no_dist=True)
    check(all(torch.equal(found["m"][key], state["m"][key]) for key in keys), "%r" % found)


def torch_dtypes():
    """All but those of quantization, whose bytes mean nothing without a scale."""
    found = {d for d in vars(torch).values() if isinstance(d, torch.dtype)}
    return sorted((d for d in found if not str(d).startswith(("torch.q", "torch.bits"))), key=str)


@case(first=(2, 9))
def case_reshard_dcp_safetensors_dtypes(setting):
    """torch loads the folder, whatever dtypes it holds; a dtype that torch cannot read is refused."""
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader
    from safetensors.torch import _TYPES
    refused = []
    for dtype in torch_dtypes():
        name = str(dtype)[len("torch."):]
        try:
            odd = torch.ones(16, dtype=torch.uint8).view(dtype)
            torch.save({"odd": odd, "even": torch.arange(8.)}, setting.path("source.pt"))
        except (RuntimeError, KeyError):
            continue  # torch cannot save it
        known = dtype in _TYPES.values()
        done = setting.run("reshard", setting.path("source.pt"), setting.path(name), "--world-size", "2",
                           "--format", "dcp-safetensors", expected=OK if known else UNSUPPORTED)
        if not known:
            check("odd" in done.stderr and not os.path.exists(setting.path(name)), "%s: %s" % (name, done.stderr))
            refused.append(name)
            continue
        state = {"odd": torch.zeros_like(odd.view(torch.uint8)).view(dtype), "even": torch.zeros(8)}
        dcp.load(state, storage_reader=HuggingFaceStorageReader(path=setting.path(name)), no_dist=True)
        check(torch.equal(state["even"], torch.arange(8.)), "%s: even" % name)
        check(torch.equal(state["odd"].view(torch.uint8), odd.view(torch.uint8)), "%s: odd" % name)
    check("complex128" in refused, "refused: %r" % refused)


@case(first=(2, 6))
def case_reshard_and_back(setting):
    """Any way round: cut, cut again, merged: the bytes of merging at once."""
    source = prepare(setting)
    setting.run("consolidate", source, setting.path("straight.safetensors"), "--part", "all")
    with open(setting.path("straight.safetensors"), "rb") as file:
        straight = file.read()
    previous = source
    for name in ("tp", "3", "hsdp_tp", "16", "hsdp"):
        folder = setting.path("way-" + name)
        options, sizes, names = TARGETS[name]
        if len(sizes) == 1:  # a plain --world-size would keep the TP that the source has
            options = ["--mesh", "fsdp=%d" % sizes]
        setting.run("reshard", previous, folder, *options)
        setting.run("consolidate", folder, setting.path("merged.safetensors"), "--part", "all", "--force")
        with open(setting.path("merged.safetensors"), "rb") as file:
            check(file.read() == straight, "merged after %s differs" % name)
        previous = folder
