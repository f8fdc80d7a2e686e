"""Rank files of one kind or several: reshard keeps the names of the files, and all outer keys of their states."""

import itertools
import json
import os

import torch

from support import case, check, check_same_names

T = torch.arange(4.)
# Names of the files of one folder, with %d for the rank of 2.
FOLDERS = {
    "verl": ("model_world_size_2_rank_%d.pt", "optim_world_size_2_rank_%d.pt", "extra_state_world_size_2_rank_%d.pt"),
    "accelerate": ("pytorch_model_fsdp_rank%d.bin", "optimizer_rank%d.bin"),
    "accelerate-1": ("pytorch_model_fsdp_1_rank%d.bin", "optimizer_1_rank%d.bin"),
    "other": ("weights_rank_%d.pt", "optim_rank_%d.pt"),
}
OUTER_KEYS = ((), ("model",), ("optim",), ("optimizer",), ("extra_state",), ("model", "optim"), ("model", "extra_state"), ("other",))


def state_of(keys, tensors, number):
    leaf = {"w": T + number, "n": number} if tensors else {"n": number, "config": {"k": [1, 2]}}
    return {key: dict(leaf) for key in keys} or leaf


def optimizer_of(tensors):
    model = torch.nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9 if tensors else 0.)
    model(torch.ones(2)).sum().backward()
    optimizer.step()
    return optimizer.state_dict()


def is_same(one, other):
    if torch.is_tensor(one):
        return torch.is_tensor(other) and one.dtype == other.dtype and torch.equal(one, other)
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return list(one) == list(other) and all(is_same(one[key], other[key]) for key in one)
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(is_same, one, other))
    return one == other


def check_kept(setting, name, states, tensors):
    """states: name of the files -> what each rank holds."""
    source, target = setting.path(name), setting.path(name + ".out")
    os.mkdir(source)
    for file, state in states.items():
        for rank in range(2):
            torch.save(state, os.path.join(source, file % rank))
    options = ["--replicate", "*"] if tensors else []
    first = next(iter(states))
    if len(states) == 1 and first.startswith("extra_state"):  # refused otherwise: a lost model
        options += ["--source-rank-pattern", first.replace("_2_", "_{W}_").replace("%d", "{r}")]
    setting.run("reshard", "-q", source, target, "--format", "pt-ranks", "--world-size", "2", *options)
    found = [file for file in os.listdir(target) if file.endswith((".pt", ".bin"))]
    check_same_names(found, [file % rank for file in states for rank in range(2)], name)
    for file, state in states.items():
        for rank in range(2):
            loaded = torch.load(os.path.join(target, file % rank), weights_only=False)
            check(is_same(state, loaded), "%s: '%s' holds %s, expected %s" % (name, file % rank, loaded, state))


@case()
def case_rank_families(setting):
    """All sets of file kinds x outer keys of their states, with and without tensors."""
    for folder, files in FOLDERS.items():
        for count in range(1, len(files) + 1):
            for number, kinds in enumerate(itertools.combinations(files, count)):
                for keys, tensors in itertools.product(OUTER_KEYS, (False, True)):
                    name = "-".join((folder, str(count), str(number), *keys, "tensors" if tensors else "objects"))
                    check_kept(setting, name, {kind: state_of(keys, tensors, i) for i, kind in enumerate(kinds)}, tensors)


@case()
def case_rank_families_optimizer(setting):
    """optimizer.state_dict() of one kind of file, with and without the outer key of its kind."""
    for tensors in (False, True):
        for keys in ((), ("optim",), ("model",)):
            state = optimizer_of(tensors)
            name = "-".join(("optimizer", *keys, "tensors" if tensors else "objects"))
            check_kept(setting, name, {FOLDERS["verl"][1]: {keys[0]: state} if keys else state}, tensors)


@case()
def case_rank_families_linked(setting):
    """The model's files alone, with two names of one tensor: the manifest has the names that torch reads."""
    source, model = setting.path("verl"), setting.path("model.json")
    os.mkdir(source)
    weight = torch.arange(8.)
    for rank in range(2):
        torch.save({"w": weight, "head": weight}, os.path.join(source, "model_world_size_2_rank_%d.pt" % rank))
        torch.save({"state": {"w": {"exp_avg": weight + 1}}, "param_groups": [{"lr": .1, "params": ["w"]}]},
                   os.path.join(source, "optim_world_size_2_rank_%d.pt" % rank))
    with open(model, "w") as f:
        json.dump({"version": 1, "world_size": 2, "modules": [{"name": "", "class": "M", "params": [
            {"name": "w", "shape": [8], "dtype": "float32"}, {"name": "head", "same_as": "w"}]}]}, f)
    out = setting.path("out")
    setting.run("reshard", source, out, "--part", "model", "--world-size", 2, "--tied", "link", "--model", model)
    with open(os.path.join(out, "fsdpck-manifest.json")) as f:
        names = {tensor["name"] for tensor in json.load(f)["tensors"]}
    check(names == {"w", "head"}, "manifest: %s" % names)
    setting.run("verify", "--level", "checksum", out)


class Empty(torch.nn.Module):
    """Parameters without elements, as of a layer of no outputs."""

    def __init__(self):
        super().__init__()
        self.full = torch.nn.Parameter(torch.arange(12.).view(4, 3))
        self.narrow = torch.nn.Parameter(torch.empty(2, 0))
        self.none = torch.nn.Parameter(torch.empty(0, 5))


def save_empty(folder):
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    model = Empty()
    fully_shard(model, mesh=init_device_mesh("cpu", (2,)))
    os.makedirs(folder, exist_ok=True)
    torch.save({"model": model.state_dict()}, os.path.join(folder, "model_world_size_2_rank_%d.pt" % dist.get_rank()))


@case(first=(2, 15))
def case_rank_families_no_elements(setting):
    """FSDP2 has [0,0] for a half of [2,0]."""
    from process_group import run_ranks
    folder = setting.path("ranks")
    run_ranks(2, save_empty, folder)
    _, out = setting.consolidate(folder, "out.pt")
    found, expected = torch.load(out)["model"], Empty().state_dict()
    check_same_names(found, expected, "no elements")
    check(all(found[name].shape == expected[name].shape and torch.equal(found[name], expected[name]) for name in expected), found)
    setting.run("verify", folder)
