"""FSDP1's LOCAL state written by the program: torch's own, bit for bit, and what a model of it loads."""

import os
import zipfile

import torch
import torch.distributed as dist

from release import RELEASE
from support import BAD_INPUT, USAGE, case, check, check_same_names, check_same_tensors, check_nothing_at, load_pt

FILE = "model_world_size_%d_rank_%d.pt"


def local_of(tensor):
    """Elements, offset and whole size of a rank's ShardedTensor; a rank without elements has no shard."""
    shards = tensor.local_shards()
    if not shards:
        return torch.empty(0), None, tuple(tensor.size())
    return shards[0].tensor, tuple(shards[0].metadata.shard_offsets), tuple(tensor.size())


def split(state):
    """Flat parameters, and the rest."""
    flat = {name: local_of(tensor) for name, tensor in state.items() if name.split(".")[-1] == "_flat_param"}
    return flat, {name: tensor for name, tensor in state.items() if name not in flat}


def load_rank(folder):
    path = os.path.join(folder, FILE % (dist.get_world_size(), dist.get_rank()))
    with zipfile.ZipFile(path) as archive:
        check(archive.testzip() is None, "checksum of %s" % archive.testzip())
    return torch.load(path, **({"weights_only": False} if RELEASE >= (2, 0) else {}))


def check_as_torch(found, expected, what):
    """With use_orig_params, each rank's pieces under the original names are among the plain ones."""
    found, found_plain = split(found)
    expected, expected_plain = split(expected)
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


def rank_make(folder, orig, mixed):
    """A description, and what nothing has cut."""
    from cases_fsdp1 import seeded_net, write_units
    reference = seeded_net()
    optimizer = torch.optim.SGD(reference.parameters(), lr=0.125)
    if dist.get_rank() == 0:
        torch.save({"model": reference.state_dict(), "optimizer": optimizer.state_dict()},
                   os.path.join(folder, "whole.pt"))
    write_units(os.path.join(folder, "net"), make_model(orig, mixed))


def rank_load(folder, written, orig, mixed):
    """The files are torch's own; a model of other values gets them by load_state_dict()."""
    from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, StateDictType
    model = make_model(orig, mixed)
    FSDP.set_state_dict_type(model, StateDictType.LOCAL_STATE_DICT)
    own = model.state_dict()
    own = {name: tensor.clone() if not hasattr(tensor, "local_shards") else tensor for name, tensor in own.items()}
    state = load_rank(os.path.join(folder, written))
    check_as_torch(state, own, "rank %d" % dist.get_rank())
    expected = {name: elements.detach().clone() for name, (elements, _, _) in split(own)[0].items()}
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(-1)
        for buffer in model.buffers():
            buffer.fill_(3)
    # torch refuses its own LOCAL state with use_orig_params, too: it loads the pieces, and then wonders about the rest.
    result = model.load_state_dict(state, strict=not orig)
    check(not result.missing_keys, "load_state_dict(): %s" % (result,))
    found = {name: elements.detach() for name, (elements, _, _) in split(model.state_dict())[0].items()}
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
    run.__name__ = "case_fsdp1_write_%s%s_on_%d" % ("orig" if orig else "flat", "_bf16" if mixed else "", world_size)
    return run


for size in (1, 2, 3, 4, 7):
    for orig_params in (False, True):
        case((2, 1))(check_written(3 if size != 3 else 2, size, orig_params))
case((2, 4))(check_written(3, 4, True, True))


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
                    "--model", name + ".units.json")
        run_ranks(2, rank_load, setting.folder, name + "-out", orig, False)


@case((2, 1))
def case_fsdp1_write_refused(setting):
    from process_group import run_ranks
    run_ranks(2, rank_make, setting.folder, False, False)
    common = ("whole.pt", "out", "--format", "fsdp1", "--world-size", 2)
    model = ("--model", "net.units.json")
    for expected, words in ((USAGE, ()), (USAGE, (*model, "--shard", "*=1")), (USAGE, (*model, "--part", "all")),
                            (BAD_INPUT, (*model, "--exclude", "norm.bias")),
                            (BAD_INPUT, (*model, "--rename", "s/^blk/block/"))):
        setting.run("reshard", *common, *words, expected=expected)
        check_nothing_at(setting.path("out"))
    setting.run("consolidate", "whole.pt", "out", "--format", "fsdp1", *model, expected=USAGE)
    check_nothing_at(setting.path("out"))
