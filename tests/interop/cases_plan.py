"""`fsdpck layout` of described models against torch's own records: FSDP1's flat parameters, FSDP2's FSDPParam."""

import json
import os
import sys

import torch
from torch import nn

import cases_model_tree as tree
from release import RELEASE
from support import case, check

WORLDS = (2, 3, 4, 8)


def layout(setting, what, *arguments):
    done = setting.run("layout", setting.path(what + ".json"), "--json", "--rank", "all", *arguments)
    return json.loads(done.stdout)


def write_rank(folder, what, record):
    import torch.distributed as dist
    with open(os.path.join(folder, "%s.%d" % (what, dist.get_rank())), "w") as out:
        json.dump(record, out)


def write_description(folder, what, description):
    import torch.distributed as dist
    if dist.get_rank() == 0:
        with open(os.path.join(folder, what + ".json"), "w") as out:
            json.dump(description, out)


def read_ranks(setting, what, world):
    for rank in range(world):
        with open(setting.path("%s.%d" % (what, rank))) as text:
            yield json.load(text)


def describe(model):
    sys.path.insert(0, tree.SCRIPTS)
    from describe_model import describe
    return describe(model)


def check_equal(found, expected, what):
    check(found == expected, "%s: %s, torch has %s" % (what, found, expected))


# FSDP1

FLAT = [tree.by_hand, tree.transformer, tree.mixed, tree.with_ignored_parameters, tree.tied_twice, tree.channels_last,
        tree.offloaded, tree.no_shard]


def flat_record(handle):
    flat = handle.flat_param
    offset, params = 0, []
    padding = 0
    for numel, is_padding in zip(flat._numels_with_padding, flat._is_padding_mask):
        if is_padding:
            padding += numel
        else:
            params.append([offset, numel, padding])
            padding = 0
        offset += numel
    # The last padding is that up to a multiple of the world size.
    shard = flat._sharded_size.numel()
    whole = handle.world_size * shard if handle.uses_sharded_strategy else shard
    return {
        "params": params, "padding_world": padding, "total": flat._unpadded_unsharded_size.numel(),
        "shapes": [list(shape) for shape in flat._shapes], "shard": shard, "padding": flat._shard_numel_padded,
        "gather": [whole, dtype_name(handle._fwd_bwd_param_dtype)], "reduce": dtype_name(handle._reduce_dtype),
        "sharded": handle.uses_sharded_strategy, "alignment": handle._aligned_numel if handle._use_orig_params else 0,
        "infos": [[info.offset_in_shard, info.intra_param_start_idx, info.intra_param_end_idx + 1]
                  if info.in_shard else None for info in flat._shard_param_infos],
        "metadata": metadata_record(handle), "strategy": handle._sharding_strategy.name,
    }


def dtype_name(dtype):
    return str(dtype).replace("torch.", "")


def metadata_record(handle):
    if not handle.uses_sharded_strategy:
        return None
    m = handle.shard_metadata()
    return [[list(shape) for shape in m.param_shapes], list(m.param_numels), [list(pair) for pair in m.param_offsets]]


def rank_flat(folder):
    from torch.distributed.fsdp._traversal_utils import _get_fsdp_handles
    for builder in FLAT:
        for use_orig_params in (False, True):
            model = builder(use_orig_params=use_orig_params)
            what = "%s.%d" % (builder.__name__, use_orig_params)
            write_description(folder, what, describe(model))
            write_rank(folder, what, [flat_record(handle) for handle in _get_fsdp_handles(model)])


def check_flat_unit(unit, truth, what):
    check_equal([[p["offset"], p["elements"], p["padding_before"]] for p in unit["params"]], truth["params"], what)
    check_equal([p["shape"] for p in unit["params"]], truth["shapes"], what + ": shapes")
    for key, word in (("padding_world", "padding_world"), ("total", "total"), ("shard_elements", "shard"),
                      ("alignment", "alignment"), ("reduce_dtype", "reduce"), ("strategy", "strategy")):
        check_equal(unit[key], truth[word], "%s: %s" % (what, key))
    if truth["sharded"]:
        elements, dtype = truth["gather"]
        check_equal([unit["gather_dtype"], unit["gather_bytes"]],
                    [dtype, elements * getattr(torch, dtype).itemsize], what + ": gathered")


def check_flat_piece(piece, unit, truth, what):
    check_equal(piece["padding"] if truth["sharded"] else 0, truth["padding"], what + ": padding")
    infos = [[p["shard_offset"], p["begin"], p["end"]] if p["in_shard"] else None for p in piece["pieces"]]
    check_equal(infos, truth["infos"], what + ": _shard_param_infos")
    if truth["metadata"] is not None:
        inside = [(u, p) for u, p in zip(unit["params"], piece["pieces"]) if p["in_shard"]]
        check_equal([[u["shape"] for u, _ in inside], [u["elements"] for u, _ in inside],
                     [[p["begin"], p["end"] - 1] for _, p in inside]], truth["metadata"], what + ": shard_metadata")


@case(first=(2, 4))
def case_plan_flat(setting):
    from process_group import run_ranks
    for world in WORLDS:
        folder = setting.path(str(world))
        os.mkdir(folder)
        run_ranks(world, rank_flat, folder)
        for builder in FLAT:
            for use_orig_params in (False, True):
                what = os.path.join(str(world), "%s.%d" % (builder.__name__, use_orig_params))
                found = layout(setting, what)
                for rank, units in enumerate(read_ranks(setting, what, world)):
                    check_equal(len(found["units"]), len(units), what + ": units")
                    for i, truth in enumerate(units):
                        where = "%s, rank %d, '%s'" % (what, rank, found["units"][i]["module"])
                        check_flat_unit(found["units"][i], truth, where)
                        check_flat_piece(found["ranks"][rank]["units"][i], found["units"][i], truth, where)


# FSDP2


class Uneven(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(11, 6)
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(6, 5), nn.Linear(5, 6)) for _ in range(2))
        self.even = nn.Linear(24, 7, bias=False)
        self.norm = nn.LayerNorm(6)
        self.head = nn.Linear(6, 11, bias=False)
        self.head.weight = self.emb.weight
        if RELEASE >= (2, 13):  # older ones make it require gradients, which fails
            self.long = nn.Parameter(torch.zeros(9, dtype=torch.int64), requires_grad=False)


def by_second_dim(param):
    from torch.distributed.tensor import Shard
    return Shard(1) if param.dim() == 2 and param.shape[1] == 24 else None


def groups_of(world):
    """name -> options of fully_shard for inner and outer modules."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy
    half = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    both = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.bfloat16)
    full = MixedPrecisionPolicy(param_dtype=torch.float32)
    yield "plain", {}
    yield "half", {"mp_policy": half}
    yield "both", {"mp_policy": both, "reshard_after_forward": False}
    yield "full", {"mp_policy": full, "offload_policy": CPUOffloadPolicy(pin_memory=False)}
    yield "dims", {"shard_placement_fn": by_second_dim, "reshard_after_forward": True}
    yield "one", {"reshard_after_forward": 1}
    if world % 2 == 0 and world > 2:
        yield "after2", {"reshard_after_forward": 2, "mp_policy": half}
        mesh = init_device_mesh("cpu", (2, world // 2), mesh_dim_names=("dp_replicate", "dp_shard"))
        yield "hsdp", {"mesh": mesh}
    if world == 8:
        yield "hsdp_after2", {"mesh": mesh, "reshard_after_forward": 2}


def extend(param):
    """Makes the all-gather take quantised data and a scale for each row."""
    def pre(mesh):
        rows = param.padded_sharded_param_size
        return (torch.zeros(rows, dtype=torch.uint8), torch.zeros(rows[0], 1)), None
    param.sharded_param._local_tensor.fsdp_pre_all_gather = pre
    param.sharded_param._local_tensor.fsdp_post_all_gather = lambda *arguments, **more: None
    param._init_extensions()


def param_record(param):
    param.init_dtype_attrs(param.mp_policy)
    after = param.post_forward_mesh_info
    record = {
        "sharded_size": list(param.sharded_size), "padded": list(param.padded_sharded_param_size),
        "strides": list(param.contiguous_sharded_stride), "orig_dtype": dtype_name(param.orig_dtype),
        "param_dtype": dtype_name(param.param_dtype or ""), "reduce_dtype": dtype_name(param.reduce_dtype or ""),
        "inputs": [[dtype_name(t.dtype), t.numel()] for t in param.all_gather_inputs],
        "dim": param.fsdp_placement.dim, "cpu": param.offload_to_cpu, "after": None,
    }
    if after is not None:
        mesh = after.mesh.mesh
        record["after"] = [list(param.sharded_post_forward_size), list(param.contiguous_sharded_post_forward_stride),
                           [mesh.numel() // after.shard_mesh_size, after.shard_mesh_size]]
    return record


def policies_of(group, params):
    """Before 2.13 the policy is the group's."""
    for param in params:
        if not hasattr(param, "mp_policy"):
            param.mp_policy = group.mp_policy


def rank_sharded(folder, world):
    from torch.distributed.fsdp import fully_shard
    for name, options in groups_of(world):
        model = Uneven()
        outer = {key: value for key, value in options.items() if key != "reshard_after_forward"}
        for block in model.blocks:
            fully_shard(block, **options)
        if name == "plain":
            fully_shard([model.emb, model.norm], **outer)
        fully_shard(model, **outer)
        sys.path.insert(0, tree.SCRIPTS)
        from describe_model import shard_groups, shard_state
        groups, seen = [], set()
        for module in model.modules():
            state = shard_state(module)
            if state is not None and id(state) not in seen:
                seen.add(id(state))
                groups += shard_groups(state)
        description = describe(model)
        records = []
        for group in groups:
            policies_of(group, group.fsdp_params)
            if name == "half" and group is groups[-1]:
                extend(group.fsdp_params[0])
                add_inputs(description, list(group.fsdp_params[0]._orig_size))
            records.append([param_record(param) for param in group.fsdp_params])
        for record in records[0]:  # the root's, which keeps its parameters: torch settles it at the first forward
            record["after"] = None
        write_description(folder, name, description)
        write_rank(folder, name, records)


def add_inputs(description, shape):
    """To the last block's first parameter, which is that of the last group."""
    for module in description["modules"]:
        if module["name"] == "blocks.1.0":
            check(module["params"][0]["shape"] == shape, "another parameter than thought")
            module["params"][0]["all_gather"] = [{"dtype": "uint8", "shape": shape},
                                                 {"dtype": "float32", "shape": [shape[0], 1]}]


def check_param(param, piece, truth, what):
    check_equal(param["dtype"], truth["orig_dtype"], what + ": dtype")
    check_equal(piece["shape"], truth["sharded_size"], what + ": sharded_size")
    check_equal(piece["strides"], truth["strides"], what + ": contiguous_sharded_stride")
    check_equal(param["padded_shape"], truth["padded"], what + ": padded_sharded_param_size")
    check_equal(param["shard_dim"], truth["dim"], what + ": fsdp_placement")
    check_equal([param.get("param_dtype", ""), param.get("reduce_dtype", "")],
                [truth["param_dtype"], truth["reduce_dtype"]], what + ": dtypes")
    check_equal([[i["dtype"], i["elements"]] for i in param["all_gather"]], truth["inputs"], what + ": inputs")
    if truth["after"] is not None:
        check_equal([piece["post_forward_shape"], piece["post_forward_strides"], piece["post_forward_mesh"]],
                    truth["after"], what + ": post forward")


def check_sharded(setting, what, world):
    found = layout(setting, what)
    for rank, groups in enumerate(read_ranks(setting, what, world)):
        check_equal(len(found["units"]), len(groups), what + ": units")
        for unit, piece, group in zip(found["units"], found["ranks"][rank]["units"], groups):
            where = "%s, rank %d, '%s'" % (what, rank, unit["module"])
            check_equal(len(unit["params"]), len(group), where + ": parameters")
            for param, part, truth in zip(unit["params"], piece["pieces"], group):
                check_param(param, part, truth, "%s, '%s'" % (where, param["name"]))
                check_equal(unit["cpu_offload"], truth["cpu"], where + ": CPU")
            check_equal(unit["post_forward_size"], group[0]["after"][2][1] if group[0]["after"] else 1,
                        where + ": ranks after forward")


@case(first=(2, 6))
def case_plan_fully_shard(setting):
    from process_group import run_ranks
    for world in WORLDS:
        folder = setting.path(str(world))
        os.mkdir(folder)
        run_ranks(world, rank_sharded, folder, world)
        names = [name[:-len(".json")] for name in os.listdir(folder) if name.endswith(".json")]
        check(len(names) >= 6, "only %s" % names)
        for name in names:
            check_sharded(setting, os.path.join(str(world), name), world)
