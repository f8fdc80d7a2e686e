"""The arithmetic of sharding against torch's own: what it records, and which data ranks really hold."""

import itertools
import json
import os
import random
import subprocess

import torch

from support import case, check

# Placements here are the words of layout_table: R, S<dim>, SS<dim>/<split factor>.


def layout_table(setting, lines):
    """[(recorded box or finding, physical box or finding, recorded has gaps)] of the ranks, for each line."""
    program = os.path.join(os.path.dirname(setting.program), "tests", "layout_table")
    text = "".join("%s; %s; %s\n" % (join(mesh), " ".join(words), join(shape)) for mesh, words, shape in lines)
    done = subprocess.run([program], input=text, capture_output=True, text=True, timeout=600)
    check(done.returncode == 0, "layout_table: exit %d" % done.returncode)
    rows = done.stdout.splitlines()
    check(len(rows) == len(lines), "layout_table: %d lines for %d" % (len(rows), len(lines)))
    return [[parse_entry(entry) for entry in row.split()] for row in rows]


def join(numbers):
    return ",".join(map(str, numbers))


def parse_entry(entry):
    recorded, physical = entry.split("|")
    return parse_box(recorded.rstrip("*")), parse_box(physical), recorded.endswith("*")


def parse_box(text):
    if ":" not in text:
        return text
    return tuple(tuple(int(n) for n in part.split(",") if n) for part in text.split(":"))


def coordinates(mesh):
    return itertools.product(*map(range, mesh))


def to_torch(words):
    from torch.distributed.tensor import Replicate, Shard
    from torch.distributed.tensor.placement_types import _StridedShard
    placements = []
    for word in words:
        if word == "R":
            placements.append(Replicate())
        elif word.startswith("SS"):
            dim, factor = word[2:].split("/")
            placements.append(_StridedShard(int(dim), split_factor=int(factor)))
        else:
            placements.append(Shard(int(word[1:])))
    return tuple(placements)


def from_torch(placements):
    words = []
    for placement in placements:
        if type(placement).__name__ == "_StridedShard":
            words.append("SS%d/%d" % (placement.dim, placement.split_factor))
        else:
            words.append("S%d" % placement.dim if placement.is_shard() else "R")
    return words


class SizesOnly:
    """As much of a mesh as the decoding of orders asks for."""

    def __init__(self, sizes):
        self.sizes = sizes

    def size(self, dim):
        return self.sizes[dim]


def one_dim_lines():
    kinds = ["R", "S0", "SS0/2", "SS0/3", "SS0/4"]
    for mesh in [(1,), (2,), (4,), (5,)]:
        for words in itertools.product(kinds + ["SS0/1", "SS0/7"], repeat=1):
            yield from ((mesh, words, (n,)) for n in range(33))
    for mesh in [(2, 2), (3, 2), (4, 2), (2, 3), (4, 1)]:
        for words in itertools.product(kinds + ["SS0/6"], repeat=2):
            yield from ((mesh, words, (n,)) for n in range(26))
    for mesh in [(2, 2, 2), (3, 2, 2)]:
        for words in itertools.product(kinds, repeat=3):
            yield from ((mesh, words, (n,)) for n in (0, 1, 4, 5, 8, 9, 11, 12, 13, 24))


def several_dims_lines():
    draw = random.Random(4)
    for _ in range(600):
        mesh = tuple(draw.randint(1, 4) for _ in range(draw.randint(1, 4)))
        shape = tuple(draw.randint(0, 20) for _ in range(draw.randint(1, 3)))
        words = []
        for _ in mesh:
            dim = draw.randrange(len(shape))
            words.append(draw.choice(["R", "S%d" % dim, "S%d" % dim, "SS%d/%d" % (dim, draw.randint(1, 6))]))
        yield mesh, tuple(words), shape


def ordered_box(order, mesh, coordinate, shape):
    """What is left of each dim when torch.chunk cuts its indices in the given order."""
    lists = [torch.arange(n) for n in shape]
    for entry in order:
        for mesh_dim in entry.mesh_dims:
            pieces = lists[entry.tensor_dim].chunk(mesh[mesh_dim])
            index = coordinate[mesh_dim]
            lists[entry.tensor_dim] = pieces[index] if index < len(pieces) else pieces[0][:0]
    return box_of_lists(lists, shape)


def box_of_lists(lists, shape):
    for indices in lists:
        check(len(indices) == 0 or int(indices[-1] - indices[0]) == len(indices) - 1, "indices with gaps")
    offsets = tuple(int(indices[0]) if len(indices) else n for indices, n in zip(lists, shape))
    return offsets, tuple(len(indices) for indices in lists)


def check_line(line, entries):
    from torch.distributed.tensor._dtensor_spec import DTensorSpec
    from torch.distributed.tensor._utils import _compute_local_shape_and_global_offset
    mesh, words, shape = line
    placements = to_torch(words)
    order = DTensorSpec._maybe_convert_StridedShard_to_shard_order(placements, SizesOnly(mesh))
    gaps = 0
    for coordinate, (recorded, physical, has_gaps) in zip(coordinates(mesh), entries):
        sizes, offsets = _compute_local_shape_and_global_offset(shape, mesh, list(coordinate), placements)
        where = "%s at %s" % (line, coordinate)
        check(recorded == (tuple(offsets), tuple(sizes)), "%s: recorded %s, torch records %s" % (
            where, recorded, (offsets, sizes)))
        if order is None:
            check(physical == "LAYOUT-ORDER", "%s: torch decodes no order, found %s" % (where, physical))
        else:
            expected = ordered_box(order, mesh, coordinate, shape)
            check(physical == expected, "%s: physical %s, expected %s" % (where, physical, expected))
        gaps += has_gaps
    return gaps


@case(first=(2, 10))
def case_layout_arithmetic(setting):
    lines = [*one_dim_lines(), *several_dims_lines()]
    gaps = 0
    for line, entries in zip(lines, layout_table(setting, lines)):
        gaps += check_line(line, entries)
    check(gaps > 0, "no line had gaps")


# Real tensors: each element holds its own flat index.


def numbered(shape):
    return torch.arange(torch.Size(shape).numel(), dtype=torch.float32).reshape(shape)


def box_of_data(local, shape):
    """The box of the full tensor whose elements a local tensor holds, in its order; None where it is no box."""
    if local.numel() == 0:
        return "empty"
    flat = local.flatten().long()
    corner = [int(c) for c in torch.unravel_index(flat[0], shape)]
    box = tuple(slice(at, at + size) for at, size in zip(corner, local.shape))
    return [corner, list(local.shape)] if torch.equal(numbered(shape)[box], local) else None


def write_held(folder, held):
    """held: name -> DTensor. For each: mesh, coordinate, placements, shape, box."""
    import torch.distributed as dist
    rows = {}
    for name, tensor in held.items():
        rows[name] = {"mesh": list(tensor.device_mesh.shape), "coordinate": list(tensor.device_mesh.get_coordinate()),
                      "placements": from_torch(tensor.placements), "shape": list(tensor.shape),
                      "sizes": list(tensor.to_local().shape),
                      "box": box_of_data(tensor.to_local().detach(), tuple(tensor.shape))}
    with open(os.path.join(folder, "held.%d" % dist.get_rank()), "w") as out:
        json.dump(rows, out)


def check_held(setting, folder, world_size):
    """All ranks hold the data that the physical rule says. Returns the placements by name."""
    rows = []
    for rank in range(world_size):
        with open(os.path.join(folder, "held.%d" % rank)) as text:
            rows.append(json.load(text))
    found = {name: (tuple(row["mesh"]), tuple(row["placements"]), tuple(row["shape"])) for name, row in rows[0].items()}
    tables = dict(zip(found, layout_table(setting, list(found.values()))))
    differ = 0
    for rank, held in enumerate(rows):
        for name, row in held.items():
            mesh, _, shape = found[name]
            index = list(coordinates(mesh)).index(tuple(row["coordinate"]))
            recorded, physical, _ = tables[name][index]
            where = "rank %d, '%s' %s" % (rank, name, found[name])
            check(row["box"] is not None, where + ": data are no box")
            check(list(physical[1]) == row["sizes"], "%s: holds %s, expected %s" % (where, row["sizes"], physical))
            if row["box"] != "empty":
                check(row["box"] == [list(physical[0]), list(physical[1])], "%s: holds %s, expected %s" % (
                    where, row["box"], physical))
            differ += recorded != physical
    return {name: words for name, (_, words, _) in found.items()}, differ


def rank_distribute(folder, sizes):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import distribute_tensor
    mesh = init_device_mesh("cpu", sizes)
    held = {}
    for shape in [(8, 4), (7, 5), (1, 9), (3,), (10, 3)]:
        for words in itertools.product(["R"] + ["S%d" % dim for dim in range(len(shape))], repeat=len(sizes)):
            held["%s %s" % (shape, words)] = distribute_tensor(numbered(shape), mesh, to_torch(words))
    write_held(folder, held)


@case(first=(2, 5))
def case_layout_distribute_tensor(setting):
    from process_group import run_ranks
    for sizes in [(3, 2), (4,)]:
        folder = setting.path("by_%s" % join(sizes))
        os.mkdir(folder)
        world_size = torch.Size(sizes).numel()
        run_ranks(world_size, rank_distribute, folder, sizes)
        check_held(setting, folder, world_size)


def make_model(rows):
    from torch import nn
    model = nn.Module()
    model.column, model.row, model.plain = nn.Linear(3, rows), nn.Linear(rows, 5), nn.Linear(2, rows)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(numbered(parameter.shape))
    return model


def rank_train(folder, sizes, names, row_counts):
    """fully_shard over parallelize_module; the rows need not divide."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
    mesh = init_device_mesh("cpu", sizes, mesh_dim_names=names)
    held = {}
    for rows in row_counts:
        model = make_model(rows)
        if "tp" in names:
            parallelize_module(model, mesh["tp"], {"column": ColwiseParallel(), "row": RowwiseParallel()})
        fully_shard(model, mesh=mesh[tuple(name for name in names if name != "tp")])
        for name, parameter in model.named_parameters():
            held["%d.%s" % (rows, name)] = parameter
    write_held(folder, held)


def check_training(setting, sizes, names, row_counts):
    from process_group import run_ranks
    folder = setting.path("_".join(names) + "_" + join(sizes))
    os.mkdir(folder)
    world_size = torch.Size(sizes).numel()
    run_ranks(world_size, rank_train, folder, sizes, names, row_counts)
    return check_held(setting, folder, world_size)


@case(first=(2, 8))
def case_layout_fully_shard(setting):
    placements, differ = check_training(setting, (4,), ("dp",), (5, 6, 2, 9))
    check(set(placements.values()) == {("S0",)} and differ == 0, "FSDP: %s" % placements)
    placements, differ = check_training(setting, (2, 2), ("dp_replicate", "dp_shard"), (5, 8, 1))
    check(set(placements.values()) == {("R", "S0")} and differ == 0, "HSDP: %s" % placements)


@case(first=(2, 8))
def case_layout_fully_shard_tp(setting):
    """Sizes that do not divide: the data follow the physical rule, also where torch's own record does not."""
    for sizes, row_counts in [((3, 2), (7, 12, 5, 8)), ((4, 2), (9, 16, 11, 6))]:
        placements, differ = check_training(setting, sizes, ("dp", "tp"), row_counts)
        check(placements["%d.column.weight" % row_counts[0]] == ("SS0/2", "S0"), "column: %s" % placements)
        check(placements["%d.row.weight" % row_counts[0]] == ("S0", "S1"), "row: %s" % placements)
        check(placements["%d.plain.weight" % row_counts[0]] == ("S0",), "plain: %s" % placements)
        check(differ > 0, "no size was one where torch's record is wrong")
    placements, _ = check_training(setting, (2, 2, 2), ("dp_replicate", "dp_shard", "tp"), (9, 11, 3))
    check(placements["9.column.weight"] == ("R", "SS0/2", "S0"), "HSDP and TP: %s" % placements)


def rank_padding(folder, rows):
    import torch.distributed as dist
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.state_dict import get_state_dict
    from torch.distributed.fsdp import fully_shard
    widths = (3, *rows)
    model = torch.nn.Sequential(*(torch.nn.Linear(a, b, bias=False) for a, b in zip(widths, rows)))
    for layer in model:  # one buffer of gradients each
        fully_shard(layer)
    fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.ones(2, 3)).sum().backward()
    optimizer.step()
    pads = {"parameters": 0, "gradients": 0, "state": 0}
    for parameter in model.parameters():
        for key, tensors in (("parameters", [parameter]), ("gradients", [parameter.grad]),
                             ("state", [optimizer.state[parameter][slot] for slot in ("exp_avg", "exp_avg_sq")])):
            held = [tensor.to_local() for tensor in tensors]
            pads[key] += sum(tensor.untyped_storage().nbytes() - tensor.nbytes for tensor in held)
    with open(os.path.join(folder, "padding%d" % dist.get_rank()), "w") as f:
        json.dump(pads, f)
    states = get_state_dict(model, optimizer)
    dcp.save({"model": states[0], "optim": states[1]}, checkpoint_id=os.path.join(folder, "dcp"))


@case(first=(2, 8))
def case_layout_padding(setting):
    """The padding is what torch allocates for parameters beyond their shards; optimizer state has none."""
    from process_group import run_ranks
    for ranks, rows in ((4, (5, 8, 1)), (3, (7, 3))):
        folder = setting.path("padding%d" % ranks)
        os.mkdir(folder)
        run_ranks(ranks, rank_padding, folder, rows)
        pads = [json.load(open(os.path.join(folder, "padding%d" % rank))) for rank in range(ranks)]
        pad = {key: sum(one[key] for one in pads) for key in pads[0]}
        check(pad["state"] == 0 and pad["parameters"] == pad["gradients"] > 0, "torch pads %s" % pad)
        found = json.loads(setting.run("layout", "--json", "--world-size", ranks, os.path.join(folder, "dcp")).stdout)["counts"]["padding_bytes"]
        check(found == pad["parameters"], "%d bytes of padding, torch %d" % (found, pad["parameters"]))


def rank_experts(folder, shapes):
    from torch import nn
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor import distribute_tensor
    mesh = init_device_mesh("cpu", (2, 2, 2), mesh_dim_names=("dp", "ep", "tp"))
    held = {}
    for shape in shapes:
        for words in [("S0", "S0"), ("S0", "S1"), ("S0", "R"), ("S1", "S0")]:
            model = nn.Module()
            model.weight = nn.Parameter(distribute_tensor(numbered(shape), mesh["ep", "tp"], to_torch(words)))
            fully_shard(model, mesh=mesh["dp"])
            held["%s %s" % (shape, " ".join(words))] = model.weight
    write_held(folder, held)


@case(first=(2, 10))
def case_layout_experts(setting):
    from process_group import run_ranks
    run_ranks(8, rank_experts, setting.folder, [(9, 5), (13, 4), (11, 4)])
    placements, _ = check_held(setting, setting.folder, 8)
    expected = {"S0 S0": ("SS0/4", "S0", "S0"), "S0 S1": ("SS0/2", "S0", "S1"), "S0 R": ("SS0/2", "S0", "R"),
                "S1 S0": ("SS0/2", "S1", "S0")}
    for name, words in placements.items():
        check(words == expected[name.split(") ")[1]], "%s: %s" % (name, words))
