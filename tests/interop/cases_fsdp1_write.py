"""FSDP1's LOCAL state written by the program: torch's own, bit for bit, and what a model of it loads."""

import os
import zipfile

import torch
import torch.distributed as dist

from release import RELEASE
from support import (BAD_INPUT, UNSUPPORTED, USAGE, case, check, check_same_names, check_same_tensors, check_nothing_at,
                     load_pt, tensors_of_state)

FILE = "model_world_size_%d_rank_%d.pt"
OPTIM_FILE = "optim_world_size_%d_rank_%d.pt"


def local_of(tensor):
    """Elements, offset and whole size of a rank's ShardedTensor; a rank without elements has no shard."""
    shards = tensor.local_shards()
    if not shards:
        return torch.empty(0), None, tuple(tensor.size())
    return shards[0].tensor, tuple(shards[0].metadata.shard_offsets), tuple(tensor.size())


def split_state(state):
    """Flat parameters, and the rest."""
    flat = {name: local_of(tensor) for name, tensor in state.items() if name.split(".")[-1] == "_flat_param"}
    return flat, {name: tensor for name, tensor in state.items() if name not in flat}


def load_rank(folder, name=FILE):
    path = os.path.join(folder, name % (dist.get_world_size(), dist.get_rank()))
    with zipfile.ZipFile(path) as archive:
        check(archive.testzip() is None, "checksum of %s" % archive.testzip())
    return torch.load(path, **({"weights_only": False} if RELEASE >= (2, 0) else {}))


def check_as_torch(found, expected, what):
    """With use_orig_params, each rank's pieces under the original names are among the plain ones."""
    found, found_plain = split_state(found)
    expected, expected_plain = split_state(expected)
    check_same_names(found, expected, what)
    for name, (elements, offset, size) in expected.items():
        check(found[name][1:] == (offset, size), "%s: '%s' is %s, expected %s" % (
            what, name, found[name][1:], (offset, size)))
        check_same_tensors({name: found[name][0].detach()}, {name: elements.detach()}, what)
    check_same_tensors(found_plain, expected_plain, what)


def make_model(orig, mixed):
    from cases_fsdp1 import allow_cpu, seeded_net, wrap
    allow_cpu()
    return wrap(seeded_net(), orig, mixed=mixed)


def by_name(model, optimizer):
    names = [name for name, _ in model.named_parameters()]
    state = optimizer.state_dict()
    groups = [dict(group, params=[names[i] for i in group["params"]]) for group in state["param_groups"]]
    return {"state": {names[i]: entry for i, entry in state["state"].items()}, "param_groups": groups}


def rank_make(folder, orig, mixed):
    """A description, and what nothing has cut."""
    from cases_fsdp1 import seeded_net, step_once, write_units
    reference = seeded_net()
    optimizer = step_once(reference.parameters())
    if dist.get_rank() == 0:
        torch.save({"model": reference.state_dict(), "optim": by_name(reference, optimizer)},
                   os.path.join(folder, "whole.pt"))
    write_units(os.path.join(folder, "net"), make_model(orig, mixed))


def check_same_state(found, expected, what):
    """Two state_dict() of an optimizer: numbers, keys, dtypes, bits."""
    check(list(found) == list(expected) and list(found["state"]) == list(expected["state"]),
          "%s: %s, expected %s" % (what, list(found["state"]), list(expected["state"])))
    for number, entries in expected["state"].items():
        check(list(found["state"][number]) == list(entries), "%s: state of %d" % (what, number))
        check_same_tensors(found["state"][number], entries, "%s: state of %d" % (what, number))
    check(found["param_groups"] == expected["param_groups"], "%s: groups %s, expected %s" % (
        what, found["param_groups"], expected["param_groups"]))


def step_on(optimizer):
    """Gradients that the state before has a say in."""
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            parameter.grad = parameter.detach() * 3 if parameter.numel() else None
    optimizer.step()


def rank_load_optim(folder, written, orig, mixed):
    """The optimizer's files are what torch itself has on so many ranks, and it goes on from them alike."""
    from cases_fsdp1 import step_once
    model, other = make_model(orig, mixed), make_model(orig, mixed)
    own = step_once(model.parameters())
    state = load_rank(os.path.join(folder, written), OPTIM_FILE)
    check_same_state(state, own.state_dict(), "rank %d" % dist.get_rank())
    loaded = torch.optim.Adam(other.parameters())
    loaded.load_state_dict(state)
    step_on(own)
    step_on(loaded)
    for expected, found in zip(model.parameters(), other.parameters()):
        check_same_tensors({"": found.detach()}, {"": expected.detach()}, "trained on")
    check_same_state(loaded.state_dict(), own.state_dict(), "trained on")


def rank_load(folder, written, orig, mixed):
    """The files are torch's own; a model of other values gets them by load_state_dict()."""
    from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, StateDictType
    model = make_model(orig, mixed)
    FSDP.set_state_dict_type(model, StateDictType.LOCAL_STATE_DICT)
    own = model.state_dict()
    own = {name: tensor.clone() if not hasattr(tensor, "local_shards") else tensor for name, tensor in own.items()}
    state = load_rank(os.path.join(folder, written))
    check_as_torch(state, own, "rank %d" % dist.get_rank())
    expected = {name: elements.detach().clone() for name, (elements, _, _) in split_state(own)[0].items()}
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(-1)
        for buffer in model.buffers():
            buffer.fill_(3)
    # torch refuses its own LOCAL state with use_orig_params, too: it loads the pieces, and then wonders about the rest.
    result = model.load_state_dict(state, strict=not orig)
    check(not result.missing_keys, "load_state_dict(): %s" % (result,))
    found = {name: elements.detach() for name, (elements, _, _) in split_state(model.state_dict())[0].items()}
    if not orig:  # what the model fills between parameters is its own
        check_same_tensors(found, expected, "loaded")
    if RELEASE < (2, 4):
        return
    with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT):
        full = model.state_dict()
    if dist.get_rank() == 0:
        truth = load_pt(os.path.join(folder, "whole.pt"))["model"]
        check_same_tensors(dict(full), dict(truth), "loaded, whole")


def check_written(made_on, world_size, orig, mixed=False):
    def run(setting):
        from process_group import run_ranks
        run_ranks(made_on, rank_make, setting.folder, orig, mixed)
        units = setting.path("net.units.json")
        setting.run("reshard", "whole.pt", "out", "--format", "fsdp1", "--model", units, "--world-size", world_size)
        run_ranks(world_size, rank_load, setting.folder, "out", orig, mixed)
        run_ranks(world_size, rank_load_optim, setting.folder, "out", orig, mixed)
    run.__name__ = "case_fsdp1_write_%s%s_on_%d" % ("orig" if orig else "flat", "_bf16" if mixed else "", world_size)
    return run


for size in (1, 2, 3, 4, 7):
    for orig_params in (False, True):
        case((2, 1))(check_written(3 if size != 3 else 2, size, orig_params))
case((2, 4))(check_written(3, 4, True, True))


def truth_by_name(setting):
    return load_pt(setting.path("whole.pt"))


@case((2, 1))
def case_fsdp1_write_from_local(setting):
    """LOCAL of 4 ranks to LOCAL of 2, which torch would have to gather for."""
    from process_group import run_ranks
    from cases_fsdp1 import CASES
    for orig in (False, True):
        name = "fsdp1-orig" if orig else "fsdp1-flat"
        CASES[name][1](setting.path(name))
        run_ranks(4, rank_make, setting.folder, orig, False)
        setting.run("reshard", name, name + "-out", "--format", "fsdp1", "--world-size", 2,
                    "--model", name + ".units.json", "--assume", "order")
        run_ranks(2, rank_load, setting.folder, name + "-out", orig, False)
        run_ranks(2, rank_load_optim, setting.folder, name + "-out", orig, False)
        # And what lies on 2 ranks now is whole again: the description is of 4.
        setting.run("consolidate", name + "-out", name + ".pt", "--model", name + ".units.json", "--assume", "order")
        check_same_tensors(tensors_of_state(load_pt(setting.path(name + ".pt"))),
                           tensors_of_state(truth_by_name(setting)), "whole again")


def save_changed(setting, name, change):
    state = truth_by_name(setting)
    change(state["optim"])
    torch.save(state, setting.path(name))


def in_two_groups(first):
    """Two groups, the first of the names that `first` says."""
    def change(optim):
        group = optim["param_groups"][0]
        names = [[name for name in group["params"] if first(name) == wanted] for wanted in (True, False)]
        optim["param_groups"] = [dict(group, params=names[0], lr=0.5), dict(group, params=names[1])]
    return change


def is_of_block(name):
    return name.startswith("blk.")


def rank_load_groups(folder, written, orig):
    """Groups in their order: numbers of the first come first."""
    from cases_fsdp1 import step_once
    model = make_model(orig, False)
    named = [(name.replace("_fsdp_wrapped_module.", ""), parameter) for name, parameter in model.named_parameters()]
    groups = [{"params": [parameter for name, parameter in named if is_of_block(name) == wanted], **more}
              for wanted, more in ((True, {"lr": 0.5}), (False, {}))]
    own = step_once(groups)
    own.param_groups[0]["lr"], own.param_groups[1]["lr"] = 0.5, 0.125
    check_same_state(load_rank(os.path.join(folder, written), OPTIM_FILE), own.state_dict(),
                     "rank %d" % dist.get_rank())


@case((2, 4))
def case_fsdp1_write_groups(setting):
    from process_group import run_ranks
    for orig in (False, True):
        run_ranks(3, rank_make, setting.folder, orig, False)
        save_changed(setting, "groups.pt", in_two_groups(is_of_block))
        setting.run("reshard", "groups.pt", "out", "--format", "fsdp1", "--model", "net.units.json", "--world-size", 3,
                    "--force")
        run_ranks(3, rank_load_groups, setting.folder, "out", orig)


def load_optimizer(setting, folder, rank):
    return load_pt(os.path.join(setting.path(folder), OPTIM_FILE % (2, rank)), weights_only=False)


@case(first=(2, 15))
def case_fsdp1_write_described_order(setting):
    """Numbers follow 'optimizers' of the description, whatever the order of the units and of the listed names."""
    from process_group import run_ranks
    from cases_optim import rank_save_same_units
    for orig in (False, True):
        folder = "same-%s" % orig
        path = setting.path(folder)
        run_ranks(2, rank_save_same_units, path, orig)
        full, bare = path + ".full.json", path + ".bare.json"
        setting.run("consolidate", folder, "listed.pt", "--force", "--model", full)
        state = load_pt(setting.path("listed.pt"), weights_only=False)
        for group in state["optim"]["param_groups"]:
            group["params"] = sorted(group["params"])
        torch.save(state, setting.path("sorted.pt"))
        for source in (folder, "listed.pt", "sorted.pt"):
            words = ("reshard", source, "out", "--format", "fsdp1", "--world-size", 2, "--force", "--model")
            setting.run(*words, full)
            for rank in (0, 1):
                check_same_state(load_optimizer(setting, "out", rank), load_optimizer(setting, folder, rank),
                                 "%s, rank %d" % (source, rank))
        done = setting.run(*words[:1], "listed.pt", "no", *words[3:], bare, expected=BAD_INPUT)
        check("[MODEL-NEEDED]" in done.stderr and "optimizers" in done.stderr, done.stderr)
        check_nothing_at(setting.path("no"))
        setting.run(*words[:1], "listed.pt", "assumed", *words[3:], bare, "--assume", "order")


@case((2, 1))
def case_fsdp1_write_optim_refused(setting):
    """What flat parameters have no place for, and state that is not whole."""
    from process_group import run_ranks

    def lower_rank(optim):
        optim["state"]["blk.a.weight"]["exp_avg_sq_row"] = torch.zeros(5)

    def lost(optim):
        del optim["state"]["norm.bias"]["exp_avg"]

    def another_dtype(optim):
        optim["state"]["norm.bias"]["exp_avg"] = optim["state"]["norm.bias"]["exp_avg"].double()

    def differ(optim):
        for name, state in optim["state"].items():
            state["rate"] = 0.5 if name == "norm.bias" else 0.25

    def other_step(optim):
        optim["state"]["norm.bias"]["step"] = optim["state"]["norm.bias"]["step"] + 94

    def no_step(optim):
        del optim["state"]["norm.bias"]["step"]

    def only_one(optim):
        optim["state"]["norm.bias"]["note"] = 7

    def no_groups(optim):
        del optim["param_groups"]

    changes = {"lower_rank": (lower_rank, UNSUPPORTED, UNSUPPORTED), "lost": (lost, BAD_INPUT, 0),
               "another_dtype": (another_dtype, UNSUPPORTED, 0), "differ": (differ, BAD_INPUT, 0),
               "other_step": (other_step, BAD_INPUT, 0), "no_step": (no_step, BAD_INPUT, 0),
               "only_one": (only_one, BAD_INPUT, 0),
               "no_groups": (no_groups, BAD_INPUT, BAD_INPUT),
               "split": (in_two_groups(lambda name: name == "norm.bias"), BAD_INPUT, 0)}
    for orig in (False, True):
        run_ranks(2, rank_make, setting.folder, orig, False)
        for name, (change, *expected) in changes.items():
            save_changed(setting, name + ".pt", change)
            out = "%s-%s" % (name, "orig" if orig else "flat")
            words = ("reshard", name + ".pt", out, "--format", "fsdp1", "--model", "net.units.json", "--world-size", 2)
            done = setting.run(*words, expected=expected[orig])
            if expected[orig]:
                check("MODEL-OPTIM" in done.stderr, "%s: %s" % (out, done.stderr))
                check_nothing_at(setting.path(out))
                setting.run(*words, "--part", "model")
                continue
            if name == "split":  # which numbers are in which group a list of units cannot say
                continue
            setting.run("consolidate", out, out + ".pt", "--model", "net.units.json", "--assume", "order")
            check_same_tensors(tensors_of_state(load_pt(setting.path(out + ".pt"))),
                               tensors_of_state(load_pt(setting.path(name + ".pt"))), out)


@case((2, 1))
def case_fsdp1_write_refused(setting):
    from process_group import run_ranks
    run_ranks(2, rank_make, setting.folder, False, False)
    common = ("whole.pt", "out", "--format", "fsdp1", "--world-size", 2)
    model = ("--model", "net.units.json")
    for expected, words in ((USAGE, ()), (USAGE, (*model, "--shard", "*=1")), (USAGE, (*model, "--part", "other")),
                            (BAD_INPUT, (*model, "--exclude", "norm.bias")),
                            (BAD_INPUT, (*model, "--rename", "s/^blk/block/"))):
        setting.run("reshard", *common, *words, expected=expected)
        check_nothing_at(setting.path("out"))
    setting.run("consolidate", "whole.pt", "out", "--format", "fsdp1", *model, expected=USAGE)
    check_nothing_at(setting.path("out"))
