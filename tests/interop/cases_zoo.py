"""Models of zoo.py trained by real torch in every way it shards, saved in every form: the program gathers what torch does."""

import json
import os
import sys

import torch
import torch.distributed as dist
from torch import nn

import zoo
from release import RELEASE
from support import case, check, check_same_tensors, load_pt, tensors_of_state

CPU = torch.device("cpu")
BUFFERS = ("running_mean", "running_var", "shift")


def save_ranks(folder, **states):
    os.makedirs(folder, exist_ok=True)
    for name, state in states.items():
        torch.save(state, os.path.join(folder, "%s_world_size_%d_rank_%d.pt" % (
            name, dist.get_world_size(), dist.get_rank())))


def save_dcp(folder, state):
    import torch.distributed.checkpoint as dcp
    dcp.save(state, storage_writer=dcp.FileSystemWriter(folder))


def save_once(path, state):
    if dist.get_rank() == 0:
        torch.save(state, path)


def save_description(folder, model):
    sys.path.append(os.path.join(os.path.dirname(__file__), "../../scripts"))
    from describe_model import describe
    description = describe(model)
    if dist.get_rank() == 0:
        with open(os.path.join(folder, "model.json"), "w", encoding="utf-8") as out:
            json.dump(description, out)


def gathered(state):
    """What differs between ranks, which have it of their own, is there once a rank. All ranks call it together."""
    mine = {name: zoo.whole(tensor).detach().clone() for name, tensor in sorted(tensors_of_state(state).items())}
    everyone = [None] * dist.get_world_size()
    dist.all_gather_object(everyone, mine)
    result = {}
    for name, tensor in mine.items():
        if all(torch.equal(other[name], tensor) for other in everyone):
            result[name] = tensor
        else:
            result.update(("%s.rank%d" % (name, rank), other[name]) for rank, other in enumerate(everyone))
    return result


def is_own(name):
    return name.split(".")[-1].startswith("rank")


# FSDP1


def half():
    from torch.distributed.fsdp import MixedPrecision
    return {"mixed_precision": MixedPrecision(param_dtype=torch.bfloat16, buffer_dtype=torch.bfloat16)}


def offload():
    from torch.distributed.fsdp import CPUOffload
    torch.Tensor.pin_memory = lambda tensor, *where, **device: tensor  # would want a GPU
    torch.cpu.Stream.synchronize = lambda stream: None
    return {"cpu_offload": CPUOffload(True)}


def strategy(name):
    from torch.distributed.fsdp import ShardingStrategy
    return {"sharding_strategy": ShardingStrategy[name]}


def by_class():
    from torch.distributed.fsdp.wrap import ModuleWrapPolicy
    return {"auto_wrap_policy": ModuleWrapPolicy({nn.TransformerEncoderLayer, nn.TransformerDecoderLayer, nn.BatchNorm1d})}


def by_size():
    import functools
    from torch.distributed.fsdp.wrap import size_based_auto_wrap_policy
    return {"auto_wrap_policy": functools.partial(size_based_auto_wrap_policy, min_num_params=50)}


def on_mesh(*sizes):
    from torch.distributed.device_mesh import init_device_mesh
    mesh = init_device_mesh("cpu", sizes or (dist.get_world_size(),),
                            mesh_dim_names=("ddp", "fsdp") if sizes else None)
    return {"device_mesh": mesh, **strategy("HYBRID_SHARD" if sizes else "FULL_SHARD")}


def checkpointed():
    from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
    return {"around": checkpoint_wrapper}


def compiled():
    return {"around": lambda module: torch.compile(module, backend="eager")}


OPTIONS = {"": dict, "bf16": half, "offload": offload, "grad_op": lambda: strategy("SHARD_GRAD_OP"),
           "no_shard": lambda: strategy("NO_SHARD"), "class": by_class, "size": by_size, "mesh": on_mesh,
           "hybrid": lambda: on_mesh(2, dist.get_world_size() // 2),
           "inner": lambda: {"inner": strategy("NO_SHARD")},
           "hybrid_inner": lambda: {**on_mesh(2, dist.get_world_size() // 2), "inner": strategy("NO_SHARD")},
           "checkpoint": checkpointed, "compile": compiled}
WITHOUT_LOCAL = ("mesh", "hybrid", "hybrid_inner")  # torch refuses it


def state_of(model, optimizer, kind):
    from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, StateDictType
    with FSDP.state_dict_type(model, StateDictType[kind + "_STATE_DICT"]):
        return model.state_dict(), optimizer and FSDP.optim_state_dict(model, optimizer)


def save_flat(folder, model, optimizer, option):
    """Every form of it. Returns torch's own full state."""
    if option not in WITHOUT_LOCAL:
        local, _ = state_of(model, None, "LOCAL")
        save_ranks(os.path.join(folder, "local"), model=local, optim=optimizer.state_dict())
        save_dcp(os.path.join(folder, "local-dcp"), {"model": local})
    sharded, sharded_optim = state_of(model, optimizer, "SHARDED")
    save_ranks(os.path.join(folder, "sharded"), model=sharded, optim=sharded_optim)
    save_dcp(os.path.join(folder, "sharded-dcp"), {"model": sharded, "optim": sharded_optim})
    save_once(os.path.join(folder, "groups.pt"), sharded_optim["param_groups"])
    full, full_optim = state_of(model, optimizer, "FULL")
    save_once(os.path.join(folder, "full.pt"), {"model": full, "optim": full_optim})
    # FULL has exp_avg_sq in exp_avg with use_orig_params on the CPU, as one buffer of it is used twice; SHARDED is right.
    return gathered({"model": full, "optim": sharded_optim})


def rank_flat(folder, name, option, orig, same=True, maker="adam"):
    model = zoo.wrap_flat(name, use_orig_params=orig, **OPTIONS[option]())
    optimizer = zoo.train(name, model, 2, same, maker)
    save_once(os.path.join(folder, "truth.pt"), save_flat(folder, model, optimizer, option))
    save_description(folder, model)


def plain_groups(groups):
    """In order of names: raw state has the parameters in that of the model, torch's own in another."""
    return [{**group, "params": sorted(name.replace("_orig_mod.", "").replace("module.", "")
                                       for name in group["params"])} for group in groups]


def check_groups(setting, folder, state, what):
    """Hyper-parameters and names of the optimizer's groups are torch's."""
    path = setting.path(folder, "groups.pt")
    if "optim" not in state or not os.path.exists(path) or what.endswith("raw"):
        return
    found, expected = plain_groups(state["optim"]["param_groups"]), plain_groups(load_pt(path, weights_only=False))
    check(found == expected, "%s: param_groups %s, expected %s" % (what, found, expected))


def check_form(setting, folder, form, truth, *options):
    """All tensors of it, put into one .pt, are these."""
    own = any(map(is_own, truth))
    source = os.path.join(folder, form)
    if own and not form.endswith("dcp"):
        options = (*options, "--per-rank", "keep")
    _, path = setting.consolidate(source, source + ".out.pt", *options)
    state = load_pt(path)
    check_groups(setting, folder, state, source)
    found = tensors_of_state(state)
    if own and form.endswith("dcp"):  # saved by one of the ranks: what the others had of their own is lost
        lost = {name.rpartition(".")[0] for name in truth if is_own(name)}
        found, truth = ({name: tensor for name, tensor in tensors.items() if not is_own(name) and name not in lost}
                        for tensors in (found, truth))
    check_same_tensors(found, truth, source)


def check_full(setting, folder):
    check_form(setting, folder, "full.pt", tensors_of_state(load_pt(setting.path(folder, "full.pt"))))


def local_buffers(truth, option):
    """LOCAL leaves them in buffer_dtype."""
    return {name: tensor.bfloat16() if option == "bf16" and name.endswith(BUFFERS) else tensor
            for name, tensor in truth.items()}


def own_by_rank(truth):
    """What the description says to be each rank's own is kept so even where it is equal, as step is."""
    ranks = {name.split(".")[-1] for name in truth if is_own(name)}
    result = {}
    for name, tensor in truth.items():
        equal = not is_own(name) and any("." + path + "." in name for path in zoo.OF_ONE_RANK)
        result.update({name + "." + rank: tensor for rank in ranks} if equal else {name: tensor})
    return result


def check_flat(setting, folder, option):
    truth = load_pt(setting.path(folder, "truth.pt"))
    for form in ("sharded", "sharded-dcp"):
        check_form(setting, folder, form, truth)
    check_full(setting, folder)
    if option in WITHOUT_LOCAL:
        return
    if folder.startswith("rank_in_ddp"):
        truth = {name.replace("module.", ""): tensor for name, tensor in truth.items()}
    if option == "compile":  # the description's names are clean
        truth = {name.replace("_orig_mod.", ""): tensor for name, tensor in truth.items()}
    truth = local_buffers(truth, option)
    described = ("--assume", "order", "--model", setting.path(folder, "model.json"), *(["--clean-names"] * folder.startswith("rank_in_ddp")))
    truth = own_by_rank(truth)
    check_form(setting, folder, "local", truth, *described)
    model = {name: tensor for name, tensor in truth.items() if name.startswith("model.")}
    check_form(setting, folder, "local-dcp", model, *described)


def rank_by_hand(folder, name, option, orig):
    """LOCAL alone, without a backward pass, which releases before 2.4 have only for GPUs."""
    from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, StateDictType
    from cases_fsdp1 import allow_cpu, truth_of
    allow_cpu()
    model = zoo.wrap_flat(name, use_orig_params=orig, **OPTIONS[option]())
    optimizer = zoo.train_by_hand(model)
    with FSDP.state_dict_type(model, StateDictType.LOCAL_STATE_DICT):
        local = model.state_dict()
    save_ranks(os.path.join(folder, "local"), model=local, optim=optimizer.state_dict())
    reference = zoo.build(name)
    save_once(os.path.join(folder, "truth.pt"), truth_of(reference, zoo.train_by_hand(reference)))
    save_description(folder, model)


def check_by_hand(setting, folder, option):
    described = ("--assume", "order", "--model", setting.path(folder, "model.json"))
    truth = local_buffers(load_pt(setting.path(folder, "truth.pt")), option)
    check_form(setting, folder, "local", truth, *described)


# FSDP2 and DDP


def sharded_options(option):
    from torch.distributed.device_mesh import init_device_mesh
    world = dist.get_world_size()
    hybrid = {"mesh_dim_names": ("dp_replicate", "dp_shard")} if option == "hybrid" else {}
    options = {"mesh": init_device_mesh("cpu", (2, world // 2) if hybrid else (world,), **hybrid)}
    if option == "bf16":
        from torch.distributed.fsdp import MixedPrecisionPolicy
        options["mp_policy"] = MixedPrecisionPolicy(param_dtype=torch.bfloat16)
    if option == "offload":
        from torch.distributed.fsdp import CPUOffloadPolicy
        options["offload_policy"] = CPUOffloadPolicy(pin_memory=False)
    if option == "keep":
        options["reshard_after_forward"] = False
    return options


def rank_in_ddp(folder, name, option, orig, same=True, maker="adam"):
    """FSDP1 units inside a model that is DDP's: all names begin with `module.`."""
    model = zoo.wrap_flat(name, use_orig_params=orig, **OPTIONS[option]())
    model._ddp_params_and_buffers_to_ignore = [n for n, _ in model.named_parameters() if "_fsdp_wrapped_module" in n]
    model = nn.parallel.DistributedDataParallel(model)
    optimizer = zoo.train(name, model, 2, same, maker)
    save_once(os.path.join(folder, "truth.pt"), save_flat(folder, model, optimizer, option))
    save_description(folder, model)


def rank_sharded(folder, name, option, same=True, maker="adam"):
    """FSDP2, or DDP where that is the option."""
    from torch.distributed.checkpoint.state_dict import StateDictOptions, get_state_dict
    if option == "ddp":
        model = nn.parallel.DistributedDataParallel(zoo.build(name))
    else:
        model = zoo.wrap_sharded(name, **sharded_options(option))
    optimizer = zoo.train(name, model, 2, same, maker)
    model_state, optimizer_state = get_state_dict(model, optimizer)
    state = {"model": model_state, "optim": optimizer_state}
    save_ranks(os.path.join(folder, "sharded"), **state)
    save_dcp(os.path.join(folder, "sharded-dcp"), state)
    save_once(os.path.join(folder, "groups.pt"), optimizer_state["param_groups"])
    raw = {"model": model.state_dict(), "optim": optimizer.state_dict()}
    save_ranks(os.path.join(folder, "raw"), **raw)
    save_once(os.path.join(folder, "raw-truth.pt"), gathered(raw))
    model_state, optimizer_state = get_state_dict(model, optimizer, options=StateDictOptions(full_state_dict=True))
    state = {"model": model_state, "optim": optimizer_state}
    save_once(os.path.join(folder, "full.pt"), state)
    save_once(os.path.join(folder, "truth.pt"), gathered(state))
    save_description(folder, model)


def check_sharded(setting, folder, option):
    truth = load_pt(setting.path(folder, "truth.pt"))
    for form in ("sharded", "sharded-dcp"):
        check_form(setting, folder, form, truth)
    check_full(setting, folder)
    check_form(setting, folder, "raw", load_pt(setting.path(folder, "raw-truth.pt")))


# From one form to another


def loaded_sharded(folder, name):
    """FSDP2 on these ranks loads what was resharded, and trains on."""
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
    model = zoo.wrap_sharded(name, **sharded_options(""))
    optimizer = zoo.train(name, model, 1)
    model_state, optimizer_state = get_state_dict(model, optimizer)
    state = {"model": model_state, "optim": optimizer_state}
    dcp.load(state, checkpoint_id=folder)
    set_state_dict(model, optimizer, model_state_dict=model_state, optim_state_dict=optimizer_state)
    save_once(folder + ".loaded.pt", gathered(state))
    zoo.train(name, model, 1)


def loaded_flat(folder, name, orig):
    """FSDP1 on these ranks loads LOCAL state that the program wrote."""
    from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, StateDictType
    from cases_fsdp1_write import load_rank
    model = zoo.wrap_flat(name, use_orig_params=orig)
    zoo.train(name, model, 1)
    with FSDP.state_dict_type(model, StateDictType.LOCAL_STATE_DICT):
        result = model.load_state_dict(load_rank(folder), strict=not orig)
    check(not result.missing_keys, "load_state_dict(): %s" % (result,))
    with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT):
        save_once(folder + ".loaded.pt", gathered({"model": model.state_dict()}))
    zoo.train(name, model, 1)


def check_converted(setting, made_on, ranks, name, orig):
    """LOCAL of some ranks to FSDP2 on others, to LOCAL on others, and back to full."""
    from process_group import run_ranks
    folder = name_of(rank_flat, name, "", orig)
    run_ranks(made_on, rank_rows, setting.folder, [(rank_flat, name, "", orig)])
    truth = load_pt(setting.path(folder, "truth.pt"))
    model = {name: tensor for name, tensor in truth.items() if name.startswith("model.")}
    described = ("--assume", "order", "--model", setting.path(folder, "model.json"))
    source, sharded, flat = os.path.join(folder, "local"), folder + "-dcp", folder + "-flat"
    setting.run("reshard", source, sharded, *described, "--format", "dcp", "--world-size", ranks)
    run_ranks(ranks, loaded_sharded, setting.path(sharded), name)
    check_same_tensors(load_pt(setting.path(sharded + ".loaded.pt")), truth, "loaded by FSDP2")
    setting.run("reshard", source, flat, *described, "--format", "fsdp1", "--world-size", ranks, "--part", "model")
    run_ranks(ranks, loaded_flat, setting.path(flat), name, orig)
    check_same_tensors(load_pt(setting.path(flat + ".loaded.pt")), model, "loaded by FSDP1")


def check_differences(setting, left, right, limit):
    """What torch's own full states differ by, those that the program gathered do: and it is but rounding."""
    torchs, found = ([load_pt(setting.path(folder, path)) for folder in (left, right)]
                     for path in ("truth.pt", "sharded.out.pt"))
    found = [tensors_of_state(state) for state in found]
    for name in torchs[0]:
        of = lambda pair: (pair[0][name].double() - pair[1][name].double()).abs().max().item()
        check(of(found) == of(torchs), "%s: '%s' is off by %g, torch's by %g" % (left, name, of(found), of(torchs)))
        check(of(torchs) <= limit, "%s: '%s' is off by %g" % (left, name, of(torchs)))


# Cases


def rank_rows(folder, rows):
    """Rows: function, and its arguments: model, option, ..."""
    for function, *row in rows:
        at = os.path.join(folder, name_of(function, *row))
        if dist.get_rank() == 0:
            os.makedirs(at)
        dist.barrier()
        function(at, *row)


def name_of(function, *row):
    return "-".join([function.__name__, *map(str, row)])


def add(title, world_size, rows, more=None):
    def run(setting):
        from process_group import run_ranks
        run_ranks(world_size, rank_rows, setting.folder, rows)
        for function, *row in rows:
            CHECKS[function](setting, name_of(function, *row), row[1])
        if more is not None:
            more(setting, [name_of(*row) for row in rows])
    run.__name__ = "case_zoo_%s_on_%d" % (title, world_size)
    if rows[0][0] is rank_by_hand:
        first = (2, 1)
    else:  # before, no FSDP2 trains on the CPU
        first = (2, 8) if any(row[0] is rank_sharded or "compile" in row for row in rows) else (2, 4)
    case(first)(run)


CHECKS = {rank_flat: check_flat, rank_by_hand: check_by_hand, rank_in_ddp: check_flat, rank_sharded: check_sharded}


MODES = (False, True)
T = "transformer"
for size in (2, 3, 4):
    add("flat", size, [(rank_flat, T, option, orig) for option in ("", "bf16") for orig in MODES])
for size in (2, 4):
    add("by_hand", size, [(rank_by_hand, name, option, orig) for name in zoo.ZOO if name != "experts"
                          for option in (("", "bf16") if name == T else ("",)) for orig in MODES])
add("flat_8", 8, [(rank_flat, T, "bf16", True), (rank_flat, "nested.part", "", False, False)])
for title, options in (("strategies", ("grad_op", "no_shard", "inner")), ("wrappers", ("class", "checkpoint")),
                       ("compiled", ("compile",)), ("meshes", ("mesh", "hybrid", "hybrid_inner")),
                       ("offload", ("offload",))):
    add("flat_" + title, 4, [(rank_flat, T, option, orig) for option in options for orig in MODES])
for name in ("transformer.whole", "transformer.deep"):
    add("flat_" + name, 3, [(rank_flat, name, "", orig) for orig in MODES])
add("flat_nested", 3, [(rank_flat, "nested." + parts, "size" if parts == "whole" else "", orig, False)
                       for parts in ("all", "part", "inner", "leaves", "whole") for orig in MODES])
add("flat_others", 3, [(rank_flat, name, "", orig, False) for name in ("experts", "outer") for orig in MODES])
add("flat_own_statistics", 2, [(rank_flat, T, "", orig, False) for orig in MODES])
add("flat_in_ddp", 2, [(rank_in_ddp, "nested.leaves", "", orig, False) for orig in MODES])
for option in ("", "bf16", "offload", "keep", "hybrid", "ddp"):
    rows = [(rank_sharded, "outer" if option in ("bf16", "ddp") else "nested.part", option, False)]
    add("sharded_" + (option or "plain"), 4, rows + [(rank_sharded, T, option)] * (option != "bf16"))
add("sharded_others", 3, [(rank_sharded, T, "", False), (rank_sharded, "experts", "", False)])


def compare_with_ddp(setting, folders):
    limit = 1e-6 if RELEASE >= (2, 15) else float("inf")  # FSDP2 on the CPU was off by more in 2.8 itself
    for folder in folders[:-1]:
        check_differences(setting, folder, folders[-1], limit)


for name in (T, "nested.part"):
    rows = [(rank_flat, name, "", orig, name == T, "sgd") for orig in MODES]
    rows += [(rank_sharded, name, option, name == T, "sgd") for option in ("", "hybrid", "ddp")]
    add("as_ddp_" + name, 4, rows, compare_with_ddp)


def compare_delayed(setting, folders):
    """Waiting changes nothing, whoever gathers it."""
    for late, plain in zip(folders[::2], folders[1::2]):
        for form in ("local", "sharded", "sharded-dcp"):
            of = lambda folder: tensors_of_state(load_pt(setting.path(folder, form + ".out.pt")))
            check_same_tensors(of(late), of(plain), late)


add("delays", 4, [(rank_flat, name, "", orig, False) for orig in MODES for name in ("delayed", "nested.part")],
    compare_delayed)


def add_conversion(name, made_on, ranks):
    def run(setting):
        for orig in MODES:
            check_converted(setting, made_on, ranks, name, orig)
    run.__name__ = "case_zoo_convert_%s_%d_to_%d" % (name, made_on, ranks)
    case((2, 8))(run)


add_conversion(T, 4, 3)
add_conversion(T, 2, 4)
add_conversion("nested.all", 4, 3)
add_conversion("nested.part", 3, 8)
