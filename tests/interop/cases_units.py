"""FSDP1's flat parameters against torch's own records of them: order, padding, shards, pieces, and the data."""

import json
import os
import subprocess

import torch
from torch import nn

import zoo
from release import RELEASE
from support import case, check


# Models: name -> (model, paths of the modules that are wrapped, the root's "" among them).

class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(3, 7)
        self.norm = nn.LayerNorm(3)
        self.head = nn.Linear(7, 3, bias=False)
        self.head.weight = self.emb.weight
        self.register_buffer("scale", torch.ones(3))
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))


class Layer(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.gain = nn.Parameter(torch.zeros(width))  # a module's own parameters come before its children's
        self.inner = nn.Sequential(nn.Linear(width, 5), nn.ReLU(), nn.Linear(5, width, bias=False))
        self.norm = nn.LayerNorm(width)


class Transformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(11, 6)
        self.layers = nn.ModuleList([Layer(6), Layer(6), Layer(6)])
        self.norm = nn.BatchNorm1d(6)
        self.out = nn.Linear(6, 11)
        self.out.weight = self.emb.weight
        self.register_buffer("freqs", torch.ones(4))


class Shared(nn.Module):
    """One module under two names, inside one unit."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(3, 4)
        self.again = self.first
        self.last = nn.Linear(4, 2)


def conv_net():
    model = nn.Sequential(nn.Conv2d(3, 4, 2), nn.BatchNorm2d(4), nn.Sequential(nn.Conv2d(4, 5, 1), nn.Conv2d(5, 3, 3)))
    return model.to(memory_format=torch.channels_last)


def scalars():
    model = nn.Sequential(nn.LayerNorm(1), nn.Linear(1, 1), nn.LayerNorm(2))
    model.odd = nn.Parameter(torch.zeros(1, 1, 1))
    model.none = nn.Parameter(torch.zeros(0, 4))
    return model


def nested():
    return nn.Sequential(nn.Linear(3, 5), nn.Sequential(nn.Linear(5, 7), nn.Sequential(nn.Linear(7, 2))), nn.Linear(2, 3))


MODELS = {
    "tied": (Tied, [""]),
    "pair": (lambda: nn.Sequential(nn.Linear(3, 5), nn.Linear(5, 3, bias=False)), [""]),
    "transformer": (Transformer, ["", "layers.0", "layers.2", "layers.2.inner"]),
    "all": (nested, ["", "0", "1", "1.0", "1.1", "1.1.0", "2"]),
    "part": (nested, ["", "1"]),
    "shared": (Shared, ["", "last"]),
    "conv": (conv_net, ["", "2"]),
    "scalars": (scalars, ["", "2"]),
    **{name: row for name, row in zoo.ZOO.items() if name != "experts"},  # whose groups are not of all ranks
}


def make_model(name, dtype):
    """Every element has its own number, as far as the dtype can tell them apart."""
    model = MODELS[name][0]()
    for i, parameter in enumerate(model.parameters()):
        numbers = torch.arange(parameter.numel()) + 1000 * i
        if dtype != torch.float32:
            numbers = numbers % 251
        parameter.data = torch.empty_like(parameter, dtype=dtype)  # as strided as before
        parameter.data.copy_(numbers.reshape(parameter.shape))
    return model


def is_below(path, prefix):
    return prefix == "" or path == prefix or path.startswith(prefix + ".")


def describe(model, wrapped, setup):
    """The units as someone would list them who knows the model and what was wrapped, but not torch's records."""
    modules = list(model.named_modules(remove_duplicate=False))
    for prefix in [path for path, _ in modules if path in wrapped]:
        nested_units = [w for w in wrapped if w != prefix and is_below(w, prefix)]
        params, shared, first = [], [], {}
        for path, module in modules:
            if not is_below(path, prefix) or any(is_below(path, w) for w in nested_units):
                continue
            for name, parameter in module._parameters.items():
                if parameter is None:
                    continue
                fqn = dotted(path, name)
                if parameter in first:
                    shared.append({"fqn": fqn, "same_as": first[parameter]})
                    continue
                first[parameter] = fqn
                params.append({"fqn": fqn, "shape": list(parameter.shape)})
                if not parameter.is_contiguous() or parameter.stride(-1) != 1:
                    params[-1]["strides"] = list(parameter.stride())
        if not params:
            continue
        unit = {"prefix": prefix, "world_size": setup["ranks"], "use_orig_params": setup["orig"],
                "sharding_strategy": setup["strategy"], "dtype": setup["dtype"], "params": params, "shared": shared}
        if setup["param_dtype"]:
            unit["param_dtype"] = setup["param_dtype"]
        if RELEASE < (2, 6):
            unit["row_major"] = True
        yield unit


def wrap(model, wrapped, setup):
    import torch.distributed as dist
    from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
    from torch.distributed.fsdp import MixedPrecision, ShardingStrategy
    options = {"device_id": torch.device("cpu"), "use_orig_params": setup["orig"],
               "sharding_strategy": ShardingStrategy[setup["strategy"]]}
    if setup["param_dtype"]:
        options["mixed_precision"] = MixedPrecision(param_dtype=getattr(torch, setup["param_dtype"]))
    if "HYBRID" in setup["strategy"]:
        world, ranks = dist.get_world_size(), setup["ranks"]
        inside = [dist.new_group(list(range(i, i + ranks))) for i in range(0, world, ranks)]
        across = [dist.new_group(list(range(i, world, ranks))) for i in range(ranks)]
        options["process_group"] = (inside[dist.get_rank() // ranks], across[dist.get_rank() % ranks])
    for path in sorted(wrapped, key=lambda p: -len(p.split(".")) if p else 1):
        if path == "":
            return FSDP(model, **options)
        parent, _, name = path.rpartition(".")
        setattr(model.get_submodule(parent), name, FSDP(model.get_submodule(path), **options))
    return model


def dotted(*parts):
    return ".".join(part for part in parts if part)


def record(handle):
    """torch's record of a flat parameter on this rank."""
    flat = handle.flat_param
    return {
        "fqns": list(flat._fqns),
        "shared": [[dotted(info.module_name, info.param_name), dotted(info.prim_module_name, info.prim_param_name)]
                   for info in flat._shared_param_infos],
        "shapes": [list(shape) for shape in flat._shapes],
        "numels": list(flat._numels_with_padding), "is_padding": list(flat._is_padding_mask),
        "total": flat._unpadded_unsharded_size.numel(), "padding": flat._shard_numel_padded,
        "infos": [[info.offset_in_shard, info.numel_in_shard, info.intra_param_start_idx, info.intra_param_end_idx]
                  if info.in_shard else None for info in flat._shard_param_infos],
        "data": flat.data.to(torch.float64).tolist(),
    }


def rank_records(folder, setups):
    import torch.distributed as dist
    from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
    records = []
    for setup in setups:
        model = wrap(make_model(setup["model"], getattr(torch, setup["dtype"])), MODELS[setup["model"]][1], setup)
        units = [unit for unit in FSDP.fsdp_modules(model) if unit._handle is not None]
        records.append([record(unit._handle) for unit in units])
    with open(os.path.join(folder, "%d.json" % dist.get_rank()), "w") as out:
        json.dump(records, out)


def unit_table(setting, units, *arguments):
    program = os.path.join(os.path.dirname(setting.program), "tests", "unit_table")
    done = subprocess.run([program, *map(str, arguments)], input=json.dumps(units), capture_output=True, text=True,
                          timeout=600)
    check(done.returncode == 0, "unit_table: exit %d: %s" % (done.returncode, done.stderr))
    return json.loads(done.stdout)


def check_boxes(boxes, info, parameter, what):
    """The boxes hold, in turn, the elements of the piece in memory order."""
    strides = parameter.stride() if RELEASE >= (2, 6) else parameter.contiguous().stride()
    at = info[2] if info else 0
    check(len(boxes) <= max(1, 2 * parameter.dim() - 1), "%s: %d boxes" % (what, len(boxes)))
    for offsets, sizes, flat in boxes:
        check(flat == at, "%s: box at %d, expected %d" % (what, flat, at))
        places = torch.zeros(())
        for dim, (offset, size) in enumerate(zip(offsets, sizes)):
            step = strides[dim] if parameter.shape[dim] > 1 else 0
            places = places.unsqueeze(-1) + torch.arange(offset, offset + size) * step
        places = places.flatten().sort().values.tolist()
        check(places == list(range(at, at + len(places))), "%s: box %s is %s" % (what, (offsets, sizes), places))
        at += len(places)
    check(at == (info[3] + 1 if info else 0), "%s: boxes end at %d" % (what, at))


def check_data(unit, shard, given, data, what):
    """torch's bytes are what the pieces say; between them lies 42, behind them zeros."""
    expected = [42.0] * (shard["end"] - shard["begin"]) + [0.0] * shard["padding"]
    for info, parameter in zip(shard["infos"], given):
        if info is None:
            continue
        stored = parameter.detach()
        if RELEASE >= (2, 6) and not (stored.is_contiguous() and stored.stride(-1) == 1):
            stored = stored.as_strided((stored.numel(),), (1,))
        stored = stored.flatten().to(torch.float64).tolist()
        expected[info[0]:info[0] + info[1]] = stored[info[2]:info[3] + 1]
    check(data == expected, "%s: data are %s, expected %s" % (what, data, expected))


def check_setup(setting, setup, units, ranks, world):
    """ranks: per rank of the world, torch's records of the units."""
    found = unit_table(setting, units, 0)
    model = make_model(setup["model"], getattr(torch, setup["dtype"]))
    check(all(len(records) == len(found) for records in ranks),
          "%s: %d units, torch has %d" % (setup, len(found), len(ranks[0])))
    for i, unit in enumerate(found):
        prefix = unit["prefix"] + "." if unit["prefix"] else ""
        given = [model.get_parameter(fqn) for fqn in unit["fqns"]]
        for rank in range(world):
            torchs = ranks[rank][i]
            shard = unit["ranks"][rank % setup["ranks"]]
            what = "%s, unit '%s', rank %d" % (setup, unit["prefix"], rank)
            mine = {**unit, **shard, "fqns": [fqn[len(prefix):] for fqn in unit["fqns"]],
                    "shared": [[name[len(prefix):] for name in names] for names in unit["shared"]]}
            for key in ("fqns", "shared", "shapes", "numels", "is_padding", "total", "padding", "infos"):
                check(mine[key] == torchs[key], "%s: %s is %s, torch's %s" % (what, key, mine[key], torchs[key]))
            check(len(torchs["data"]) == unit["shard_size"], "%s: shard of %d" % (what, len(torchs["data"])))
            check_data(unit, shard, given, torchs["data"], what)
            for boxes, info, parameter, fqn in zip(shard["boxes"], shard["infos"], given, unit["fqns"]):
                check_boxes(boxes, info, parameter, "%s, %s" % (what, fqn))


def make_setups(world):
    setups = []
    for model in MODELS:
        for orig in (False, True):
            for dtype, param_dtype in (("float32", None), ("float32", "bfloat16"), ("bfloat16", None),
                                       ("float64", None)):
                setups.append({"model": model, "orig": orig, "dtype": dtype, "param_dtype": param_dtype,
                               "strategy": "FULL_SHARD", "ranks": world})
    for model in ("tied", "transformer", "conv"):
        for orig in (False, True):
            for strategy in ("SHARD_GRAD_OP", "NO_SHARD"):
                setups.append({"model": model, "orig": orig, "dtype": "float32", "param_dtype": None,
                               "strategy": strategy, "ranks": world})
            for strategy in ("HYBRID_SHARD", "_HYBRID_SHARD_ZERO2"):
                if world % 2 == 0 and world > 2:
                    setups.append({"model": model, "orig": orig, "dtype": "float32", "param_dtype": "bfloat16",
                                   "strategy": strategy, "ranks": world // 2})
    return setups


def check_world(setting, world):
    from process_group import run_ranks
    setups = make_setups(world)
    folder = setting.path("records")
    os.mkdir(folder)
    run_ranks(world, rank_records, folder, setups)
    ranks = []
    for rank in range(world):
        with open(os.path.join(folder, "%d.json" % rank)) as text:
            ranks.append(json.load(text))
    for i, setup in enumerate(setups):
        model = make_model(setup["model"], getattr(torch, setup["dtype"]))
        units = list(describe(model, MODELS[setup["model"]][1], setup))
        check_setup(setting, setup, units, [records[i] for records in ranks], world)
        if setup["strategy"] == "FULL_SHARD":  # described for another run, laid out for this one
            scaled = unit_table(setting, [{**unit, "world_size": world + 3} for unit in units], 0, world)
            check(scaled == unit_table(setting, units, 0), "%s: scaled units differ" % setup)


@case(first=(2, 4))
def case_units_2_ranks(setting):
    check_world(setting, 2)


@case(first=(2, 4))
def case_units_3_ranks(setting):
    check_world(setting, 3)


@case(first=(2, 4))
def case_units_4_ranks(setting):
    check_world(setting, 4)


@case(first=(2, 4))
def case_units_8_ranks(setting):
    check_world(setting, 8)
