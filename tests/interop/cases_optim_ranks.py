"""Numbers for state by name, where each rank has parameters of its own: the order of all of them is not recorded."""

import json
import os
import sys

import torch
from torch import nn

from support import BAD_INPUT, UNSUPPORTED, case, check, check_same_names, load_pt


class Layers(nn.Module):
    """The layers of one rank, or all of them: layer 1 is given to all ranks of kind experts."""

    def __init__(self, kind="stages", rank=None):
        super().__init__()
        mine = {"stages": lambda i: i // 2, "interleaved": lambda i: i % 2, "experts": lambda i: rank if i == 1 else i % 2,
                "unequal": lambda i: rank if i == 1 else i % 2, "part": lambda i: rank if i == 1 else 0,
                "replicas": lambda _: rank, "fsdp2": lambda _: rank}[kind]
        self.layers = nn.ModuleDict({str(i): nn.Linear(4, 4) for i in range(4) if rank is None or mine(i) == rank})


def filled(model, number_of):
    """Adam's state after one step; each parameter has a gradient of its own."""
    optimizer = torch.optim.Adam(model.parameters())
    for name, param in model.named_parameters():
        nn.init.constant_(param, number_of(name))
        param.grad = torch.full_like(param, number_of(name))
    optimizer.step()
    return optimizer


def number_of(name):
    return 2.0 + 2 * int(name.split(".")[1]) + name.endswith("bias")


def rank_save(folder, kind):
    import torch.distributed as dist
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict, get_optimizer_state_dict
    rank = dist.get_rank()
    model = Layers(kind, rank)
    if kind == "fsdp2":
        from torch.distributed.fsdp import fully_shard
        fully_shard(model)
    optimizer = filled(model, lambda name: number_of(name) + rank * (kind == "unequal"))
    for form in ("flat", "name"):
        options = StateDictOptions(flatten_optimizer_state_dict=form == "flat")
        state = {"model": get_model_state_dict(model), "optimizer": get_optimizer_state_dict(model, optimizer, options=options)}
        dcp.save(state, checkpoint_id="%s-%s" % (folder, form))
        os.makedirs("%s-%s-ranks" % (folder, form), exist_ok=True)
        torch.save(state, "%s-%s-ranks/model_world_size_%d_rank_%d.pt" % (folder, form, dist.get_world_size(), rank))


def check_state(state):
    """The state of each number is that of the parameter with this number."""
    names = [name for name, _ in Layers().named_parameters()]
    check(state["param_groups"][0]["params"] == list(range(len(names))), "numbers %s" % state["param_groups"])
    check_same_names(state["state"], dict.fromkeys(range(len(names))), "state")
    for i, name in enumerate(names):
        moment = state["state"][i]["exp_avg"]
        check(torch.allclose(moment, torch.full_like(moment, 0.1 * number_of(name))), "%d is not the state of %s" % (i, name))


def describe_all(setting):
    sys.path.append(os.path.join(os.path.dirname(__file__), "../../scripts"))
    from describe_model import describe
    model = Layers()
    with open(setting.path("all.model.json"), "w", encoding="utf-8") as out:
        json.dump(describe(model, torch.optim.Adam(model.parameters())), out)
    return setting.path("all.model.json")


def numbered(setting, source, *options):
    _, path = setting.consolidate(source, "numbers.pt", "--force", "--optim-keys", "id", *options)
    check_state(load_pt(path, weights_only=False)["optimizer"])


def refuse(setting, source, status, finding, *options):
    done, _ = setting.consolidate(source, "no.pt", "--force", "--optim-keys", "id", *options, expected=status)
    check("[%s]" % finding in done.stderr, done.stderr)


def check_names(setting, source):
    """The lists of the stages are one, and torch loads the state."""
    from torch.distributed.checkpoint.state_dict import get_optimizer_state_dict, set_optimizer_state_dict
    done, path = setting.consolidate(source, "names.pt", "--force")
    check("[RANK-DIFFER]" not in done.stderr, done.stderr)
    state = load_pt(path, weights_only=False)["optimizer"]
    names = sorted(name for name, _ in Layers().named_parameters())
    check(sorted(state["param_groups"][0]["params"]) == names, "params %s" % state["param_groups"])
    model = Layers()
    optimizer = torch.optim.Adam(model.parameters())
    set_optimizer_state_dict(model, optimizer, state)
    loaded = get_optimizer_state_dict(model, optimizer)["state"]
    for name in names:
        moment = loaded[name]["exp_avg"]
        check(torch.allclose(moment, torch.full_like(moment, 0.1 * number_of(name))), "moments of %s" % name)


@case(first=(2, 15))
def case_optim_of_several_ranks(setting):
    from process_group import run_ranks
    described = describe_all(setting)
    for kind in ("stages", "interleaved", "experts"):  # layer 1 is in both ranks of the last
        folder = setting.path(kind)
        run_ranks(2, rank_save, folder, kind)
        for source in (folder + "-flat", folder + "-flat-ranks"):
            for options in ((), ("--assume", "order")):
                refuse(setting, source, BAD_INPUT, "MODEL-NEEDED", *options)
            numbered(setting, source, "--model", described)
        refuse(setting, folder + "-name", UNSUPPORTED, "MODEL-OPTIM")
        check_names(setting, folder + "-name-ranks")
        for options in ((), ("--assume", "order")):
            refuse(setting, folder + "-name-ranks", BAD_INPUT, "MODEL-NEEDED", *options)
        numbered(setting, folder + "-name-ranks", "--model", described)


@case(first=(2, 15))
def case_optim_of_other_ranks(setting):
    """Lists of names that overlap, of ranks that may be of two saves: other values under one name, or no name of their own."""
    from process_group import run_ranks
    for kind, what, status in (("unequal", "model.layers.1.weight", BAD_INPUT), ("part", "'optimizer.param_groups.0.params' of rank 1", 0)):
        folder = setting.path(kind)
        run_ranks(2, rank_save, folder, kind)
        done, _ = setting.consolidate(folder + "-name-ranks", kind + ".pt", expected=status)
        check("[RANK-DIFFER]" in done.stderr and what in done.stderr, done.stderr)


@case(first=(2, 15))
def case_optim_of_equal_ranks(setting):
    """Each rank has all names; torch distributes replicas over the files of the ranks."""
    from process_group import run_ranks
    for kind, world in (("replicas", 3), ("fsdp2", 2), ("fsdp2", 3), ("fsdp2", 5)):
        folder = setting.path("%s-%d" % (kind, world))
        run_ranks(world, rank_save, folder, kind)
        for form in ("flat", "name"):
            numbered(setting, "%s-%s" % (folder, form))
            numbered(setting, "%s-%s-ranks" % (folder, form))


# --- FSDP1's raw state by number ---

def rank_save_raw(folder, orig):
    """In DCP, which takes the ranks' shards under one number for replicas; and without state, in rank files."""
    import torch.distributed as dist
    import torch.distributed.checkpoint as dcp
    from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, StateDictType
    from cases_fsdp1 import allow_cpu
    sys.path.append(os.path.join(os.path.dirname(__file__), "../../scripts"))
    from describe_model import describe
    allow_cpu()
    torch.manual_seed(3)
    model = FSDP(nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 6)), device_id=torch.device("cpu"), use_orig_params=orig)
    adam, sgd = torch.optim.Adam(model.parameters()), torch.optim.SGD(model.parameters(), lr=0.125)
    model(torch.ones(2, 4)).sum().backward()
    unstarted = torch.optim.Adam(model.parameters()).state_dict()
    adam.step()
    sgd.step()
    described = describe(model, adam)
    with FSDP.state_dict_type(model, StateDictType.LOCAL_STATE_DICT):
        local = model.state_dict()
    dcp.save({"model": local, "optim": adam.state_dict()}, checkpoint_id=folder + "-dcp")
    dcp.save({"model": local, "optim": sgd.state_dict()}, checkpoint_id=folder + "-dcp-sgd")
    for name, state in (("sgd", sgd.state_dict()), ("unstarted", unstarted)):
        os.makedirs("%s-%s" % (folder, name), exist_ok=True)
        torch.save({"model": local, "optim": state}, "%s-%s/ckpt_rank%d.pt" % (folder, name, dist.get_rank()))
    with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT):
        truth = FSDP.optim_state_dict(model, adam)
    if dist.get_rank() == 0:
        torch.save(truth, folder + ".truth")
        with open(folder + ".model.json", "w", encoding="utf-8") as out:
            json.dump(described, out)


@case(first=(2, 15))
def case_optim_raw_in_dcp(setting):
    from process_group import run_ranks
    for world in (1, 2):
        folder = setting.path("raw-%d" % world)
        run_ranks(world, rank_save_raw, folder, False)
        truth = torch.load(folder + ".truth", weights_only=True)
        options = ("--force", "--model", folder + ".model.json")
        for name in ("sgd", "unstarted", "dcp-sgd"):
            _, path = setting.consolidate("%s-%s" % (folder, name), "out.pt", *options)
            optim = load_pt(path, weights_only=False)["optim"]
            check(optim["param_groups"][0]["params"] == truth["param_groups"][0]["params"], "%s of %d" % (name, world))
            check(not optim.get("state"), "state of " + name)
        if world == 1:
            _, path = setting.consolidate(folder + "-dcp", "out.pt", *options)
            optim = load_pt(path, weights_only=False)["optim"]
            check_same_names(optim["state"], truth["state"], "state on one rank")
            for name, state in truth["state"].items():
                for key, value in state.items():
                    check(torch.equal(optim["state"][name][key], value), "%s of %s" % (key, name))
            continue
        done, _ = setting.consolidate(folder + "-dcp", "no.pt", *options, expected=BAD_INPUT)
        found = setting.run("verify", folder + "-dcp", "--model", folder + ".model.json", expected=1).stdout
        for text in (done.stderr, found):
            check("[MODEL-OPTIM]" in text and "'0.weight': [50]" in text and "25 elements" in text, text)
        setting.consolidate(folder + "-dcp", "model.pt", "--part", "model", *options)
