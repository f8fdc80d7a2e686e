"""Folders as verl leaves them, saved by the ranks of this torch's own fully_shard, merged into what transformers loads."""

import json
import os
import shutil
from collections import OrderedDict

import torch
from torch import nn

from support import (BAD_INPUT, UNSUPPORTED, case, check, check_folder_holds, check_good, check_nothing_at, check_same_names,
                     check_same_tensors, load_hf, load_pt)

# mesh sizes, names; verl's own names of its dims
MESHES = {"fsdp": ((4,), ("fsdp",)), "hsdp": ((2, 2), ("ddp", "fsdp"))}


class Layer(nn.Module):
    """Rows that do not divide by the ranks, in bfloat16, with norms in float32."""

    def __init__(self):
        super().__init__()
        self.wide = nn.Linear(6, 11, dtype=torch.bfloat16)
        self.narrow = nn.Linear(11, 6, bias=False, dtype=torch.bfloat16)
        self.norm = nn.LayerNorm(6)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(13, 6, dtype=torch.bfloat16)
        self.layers = nn.ModuleList([Layer(), Layer()])
        self.head = nn.Linear(6, 3, bias=False)
        self.one = nn.Parameter(torch.ones(1))
        self.register_buffer("inverse", torch.linspace(0, 1, 7))
        self.register_buffer("table", torch.linspace(-1, 1, 6).to(torch.bfloat16))
        self.register_buffer("seen", torch.tensor(7))


def make_full():
    """The model of one process; the same on every rank."""
    torch.manual_seed(11)
    model = Net()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape))
    return model


def make_sharded(sizes, names):
    from torch.distributed.device_mesh import init_device_mesh
    from cases_fsdp import fully_shard
    model = make_full()
    mesh = init_device_mesh("cpu", sizes, mesh_dim_names=names)
    # One dtype a unit, as FSDP2 wants it.
    for layer in model.layers:
        fully_shard(layer.norm, mesh=mesh)
        fully_shard(layer, mesh=mesh)
    fully_shard(model.embedding, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model


def step_in_place(model):
    """AdamW with state, and weights as they were."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.0, weight_decay=0.0)
    for parameter in model.parameters():
        parameter.grad = parameter.detach() * 0.5 + 0.25
    optimizer.step()
    return optimizer


def rank_save(folder, sizes, names):
    """As verl's FSDPCheckpointManager.save_checkpoint."""
    import torch.distributed as dist
    model = make_sharded(sizes, names)
    optimizer = step_in_place(model)
    rank, world_size = dist.get_rank(), dist.get_world_size()
    extra = {"lr_scheduler": {"last_epoch": 3}, "rng": {"cpu": torch.full((16,), rank, dtype=torch.uint8)}}
    for part, state in (("model", model.state_dict()), ("optim", optimizer.state_dict()), ("extra_state", extra)):
        torch.save(state, os.path.join(folder, "%s_world_size_%d_rank_%d.pt" % (part, world_size, rank)))
    if rank == 0:
        with open(os.path.join(folder, "fsdp_config.json"), "w", encoding="utf-8") as config:
            json.dump({"FSDP_version": 2, "world_size": world_size}, config, indent=4)
        os.mkdir(os.path.join(folder, "huggingface"))
        with open(os.path.join(folder, "huggingface", "config.json"), "w", encoding="utf-8") as config:
            json.dump({"architectures": ["Net"], "torch_dtype": "bfloat16"}, config, indent=2)
    dist.barrier()


def save(setting, name):
    from process_group import run_ranks
    sizes, names = MESHES[name]
    folder = setting.path("global_step_3", "actor")
    os.makedirs(folder)
    run_ranks(4, rank_save, folder, sizes, names)
    return folder


def check_verl(setting, name):
    source = save(setting, name)
    truth = make_full().state_dict()
    check(len({tensor.dtype for tensor in truth.values()}) == 3, "dtypes of the model")

    _, folder = setting.consolidate(source, "hf")
    found, index = load_hf(folder)
    check(index is None, "a small model has no index")
    check_same_tensors(found, truth, "HF folder")
    _, folder = setting.consolidate(source, "parts", "--format", "hf", "--max-shard-size", "400")
    found, index = load_hf(folder)
    check(len(set(index["weight_map"].values())) > 1, "one shard")
    check_same_tensors(found, truth, "HF folder of shards")

    for missing in ("model_world_size_4_rank_2.pt", "model_world_size_4_rank_3.pt"):
        incomplete = setting.path("without-" + missing)
        shutil.copytree(source, incomplete, ignore=shutil.ignore_patterns(missing))
        done, folder = setting.consolidate(incomplete, "never", expected=BAD_INPUT)
        check(missing in done.stderr, "names no file: " + done.stderr)
        check_nothing_at(folder)
    check_folder_holds(setting.path("global_step_3"), ["actor"])


@case(first=(2, 4))
def case_verl_fsdp(setting):
    check_verl(setting, "fsdp")


@case(first=(2, 5))  # 2.4 refuses the state dict of a mesh of two dims
def case_verl_hsdp(setting):
    check_verl(setting, "hsdp")


def save_ranks(setting, name, states):
    folder = setting.path(name)
    os.mkdir(folder)
    for rank, state in enumerate(states):
        torch.save(state, os.path.join(folder, "model_world_size_%d_rank_%d.pt" % (len(states), rank)))
    return folder


def check_warned(setting, source, expected):
    """verify, consolidate and reshard all name the values."""
    outputs = [setting.run("verify", "--level", "quick", "--strict", "-q", source, expected=1).stdout,
               setting.run("consolidate", "-q", source, source + ".pt").stderr,
               setting.run("reshard", "-q", source, source + "-3", "--world-size", "3").stderr]
    for text in outputs:
        found = [line for line in text.splitlines() if "RANK-DIFFER" in line]
        check(len(found) == len(expected), "warnings: " + text)
        for line, words in zip(found, expected):
            check(words in line, "expected '%s', found '%s'" % (words, line))


def own_values():
    """States of ranks that have values of their own beside the model."""
    return [{"model": {"w": torch.ones(4)}, "loader": {
        "queue": [torch.arange(2) + i for i in range(rank + 1)], "pending": {"file%d" % rank: 17},
        "done": {"a": 1} if rank else {"a": 1, "b": 2}}} for rank in range(2)]


@case(first=(2, 5))
def case_rank_files_partial(setting):
    """Values of a dict or list that only some ranks hold are reported; stages of a pipeline are not."""
    one = torch.ones(4)
    check_warned(setting, save_ranks(setting, "list", [
        {"model": {"w": one}, "loader": {"queue": [torch.arange(2) + i for i in range(rank + 1)]}} for rank in range(2)
    ]), ["lists have different lengths on different ranks: 1 value, first 'loader.queue.1' of rank 1"])
    check_warned(setting, save_ranks(setting, "dict", [
        {"model": {"w": one}, "loader": {"pending": {"file%d" % rank: 17}, "done": done}}
        for rank, done in enumerate(({"a": 1, "b": 2}, {"a": 1}))
    ]), ["only some ranks hold values of a dict: 3 values, first 'loader.pending.file0' of rank 0"])
    check_warned(setting, save_ranks(setting, "outer", [
        {"model": {"w": one}, **({"epoch": 3} if rank == 0 else {})} for rank in range(3)
    ]), ["1 value, first 'epoch' of rank 0"])
    check_warned(setting, save_ranks(setting, "groups", [
        {"model": {"w": one}, "optimizer": {"param_groups": [{"lr": 1.0}] * (1 + rank)}} for rank in range(2)
    ]), ["lists have different lengths on different ranks: 1 value, first 'optimizer.param_groups.1.lr' of rank 1"])

    folder = save_ranks(setting, "own", own_values())
    for kind in ("keep", "drop"):
        done = setting.run("reshard", "-q", folder, setting.path(kind), "--world-size", "2", "--per-rank", kind)
        check("RANK-DIFFER" not in done.stderr, done.stderr)
        for rank, state in enumerate(own_values()):
            found = torch.load(setting.path(kind, "model_world_size_2_rank_%d.pt" % rank), weights_only=False)["loader"]
            expected = state["loader"] if kind == "keep" else {"queue": [torch.arange(2)], "done": {"a": 1}}
            check(sorted(found) == sorted(expected) and all(repr(found[key]) == repr(expected[key]) for key in found),
                  "%s: rank %d has %s instead of %s" % (kind, rank, found, expected))
    done, path = setting.consolidate(folder, "never.pt", "--per-rank", "error", expected=BAD_INPUT)
    check("RANK-DIFFER" in done.stderr and "'loader" not in done.stderr and "loader.queue.1" in done.stderr, done.stderr)
    check_nothing_at(path)
    stages = [{"model": {"layers.%d.w" % rank: one}, "epoch": 3,
               "optimizer": {"state": {"layers.%d.w" % rank: {"step": torch.tensor(1.0), "calls": 4}},
                             "param_groups": [{"lr": 1.0}]}} for rank in range(2)]
    check_good(setting, save_ranks(setting, "stages", stages))
    check_good(setting, save_ranks(setting, "bare", [{"layers.%d.w" % rank: one} for rank in range(2)]))


def rank_save_stages(folders):
    """Two stages of two ranks; every stage numbers its optimizer state from 0."""
    import torch.distributed as dist
    from torch.distributed.tensor import Shard, distribute_tensor, init_device_mesh
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("pp", "dp"))
    stage = dist.get_rank() // 2
    for name, folder in folders.items():
        rows = 6 if stage and name == "shapes" else 7
        weight = torch.arange(rows * 2.0).reshape(rows, 2)
        moment = torch.zeros(rows, 2) if name == "zeros" else weight + stage
        stages = stage if name != "one" else 0
        state = {"model": {"layers.%d.w" % stages: distribute_tensor(weight, mesh["dp"], [Shard(0)])},
                 "optimizer": {"state": {0: {"exp_avg": distribute_tensor(moment, mesh["dp"], [Shard(0)]),
                                             "step": torch.tensor(3.0)}},
                               "param_groups": [{"lr": 1.0, "params": [0]}]}}
        if name == "one":
            state["optimizer"]["state"][0]["exp_avg"] = distribute_tensor(weight, mesh["dp"], [Shard(0)])
        torch.save(state, os.path.join(folder, "model_world_size_4_rank_%d.pt" % dist.get_rank()))
    dist.barrier()


@case(first=(2, 5))
def case_rank_files_stages(setting):
    """Numbered optimizer state of several stages is refused; replicas on slices of a mesh are not stages."""
    from process_group import run_ranks
    folders = {name: setting.path(name) for name in ("shapes", "values", "zeros", "one")}
    for folder in folders.values():
        os.mkdir(folder)
    run_ranks(4, rank_save_stages, folders)
    for name in ("values", "zeros"):
        report = setting.run("verify", "--level", "checksum", "-q", folders[name], expected=1).stdout
        check("one number for different parameters" in report and "optimizer.state.0.exp_avg" in report, report)
        check("--replicas first" not in report, "advises to lose state: " + report)
        for words in ((), ("--replicas", "first"), ("--per-rank", "first")):
            done, path = setting.consolidate(folders[name], "never.pt", *words, expected=BAD_INPUT)
            check("RANK-DISAGREE" in done.stderr, done.stderr)
            check_nothing_at(path)
        _, path = setting.consolidate(folders[name], name + ".pt", "--part", "model")
        check_same_names(torch.load(path)["model"], ["layers.0.w", "layers.1.w"], "model of " + name)
    done, _ = setting.consolidate(folders["shapes"], "never.pt", expected=BAD_INPUT)
    check("pipeline stages" in done.stderr and "optimizer.state.0.exp_avg" in done.stderr, done.stderr)
    _, path = setting.consolidate(folders["shapes"], "shapes.pt", "--part", "model")
    check_same_names(torch.load(path)["model"], ["layers.0.w", "layers.1.w"], "model of shapes")
    check_good(setting, folders["one"])


def plain_stage(rank, moment, *shared):
    """One rank's state without FSDP: a parameter of its own, and numbered optimizer state."""
    model = {"layers.%d.w" % name: torch.ones(2, 3) + name for name in (*shared, *(() if shared else (rank,)))}
    return {"model": model, "optimizer": {"state": {0: {"exp_avg": moment, "step": torch.tensor(3.0)}},
                                          "param_groups": [{"lr": 1.0, "params": [0]}]}}


@case()
def case_rank_files_plain_stages(setting):
    """Stages of plain tensors: the state of one number is refused, or kept for each rank; ranks of one model are not stages."""
    moments = {"values": [torch.ones(2, 3) + rank for rank in range(2)], "zeros": [torch.zeros(2, 3)] * 2,
               "shapes": [torch.ones(2 + rank, 3) for rank in range(2)], "vectors": [torch.ones(3) + rank for rank in range(2)]}
    for name, each in moments.items():
        folder = save_ranks(setting, name, [plain_stage(rank, each[rank]) for rank in range(2)])
        for words in ((), ("--per-rank", "first")):
            done, path = setting.consolidate(folder, "never.pt", *words, expected=BAD_INPUT)
            check("RANK-DISAGREE" in done.stderr and "pipeline stages" in done.stderr, done.stderr)
            check_nothing_at(path)
        _, path = setting.consolidate(folder, name + ".pt", "--part", "model")
        check_same_names(torch.load(path)["model"], ["layers.0.w", "layers.1.w"], "model of " + name)
        _, path = setting.consolidate(folder, name + ".keep.pt", "--per-rank", "keep")
        state = torch.load(path)["optimizer"]["state"][0]
        for rank in range(2):
            check(torch.equal(state["exp_avg.rank%d" % rank], each[rank]), "%s: %s" % (name, state))
    check_good(setting, save_ranks(setting, "ddp", [plain_stage(rank, torch.ones(2, 3), 0) for rank in range(2)]))
    more = [plain_stage(rank, torch.ones(2, 3), *range(2 - rank)) for rank in range(2)]
    check_warned(setting, save_ranks(setting, "more", more),
                 ["only some ranks hold tensors of the model: 1 value, first 'model.layers.1.w' of rank 0"])


@case()
def case_rank_files_stages_without_state(setting):
    """SGD without momentum has no state: the param_groups of stages are not merged into one that lists too few parameters."""
    def stage(rank, rate, count):
        model = torch.nn.ModuleDict({"layer%d" % rank: torch.nn.Linear(2, 3, bias=count > 1)})
        optimizer = torch.optim.SGD(model.parameters(), rate)
        return {"model": model.state_dict(), "optimizer": optimizer.state_dict()}

    for name, rates, counts in (("equal", (0.1, 0.1), (1, 1)), ("rates", (0.1, 0.2), (2, 2)), ("counts", (0.1, 0.1), (1, 2))):
        states = [stage(rank, rates[rank], counts[rank]) for rank in range(2)]
        folder = save_ranks(setting, name, states)
        done, path = setting.consolidate(folder, name + ".pt")
        check("RANK-DISAGREE" in done.stderr and "pipeline stages" in done.stderr, done.stderr)
        check("param_groups" not in torch.load(path)["optimizer"], name)
        setting.run("reshard", folder, setting.path(name + "-2"), "--world-size", "2")
        for rank in range(2):
            found = torch.load(setting.path(name + "-2", "model_world_size_2_rank_%d.pt" % rank), weights_only=False)
            check(found["optimizer"] == states[rank]["optimizer"], "%s: %s" % (name, found["optimizer"]))
        setting.consolidate(folder, name + "-id.pt", "--optim-keys", "name", expected=4)
        setting.consolidate(folder, name + "-model.pt", "--part", "model")
    # Ranks of one model, of which one has a buffer more, are not stages.
    one = stage(0, 0.1, 1)
    states = [{**one, "model": {**one["model"], "extra": torch.ones(2)}}, one]
    done, path = setting.consolidate(save_ranks(setting, "same", states), "same.pt")
    check("pipeline stages" not in done.stderr, done.stderr)
    check(torch.load(path)["optimizer"] == states[0]["optimizer"], "one model")


@case()
def case_rank_files_nesting(setting):
    """A number or a text on one rank where another holds a dict: the advice of the error leads to an output."""
    for name, states in {
            "number": [{"metrics": {"loss": 1.0}}, {"metrics": 5}],
            "text": [{"config": {"decay": 0.5}}, {"config": "off"}],
            "list": [{"loader": [None, 5]}, {"loader": [{"pos": 1}, 5]}],
            "shorter": [{"loader": [3, 5, 6]}, {"loader": [{"pos": 1}]}],
            "later": [{"loader": [{"pos": 1}, 5]}, {"loader": [3, 5]}],
            "optimizer": [{"optimizer": {"state": {0: {"step": torch.tensor(1)}}, "param_groups": [{"lr": 1.0}]}},
                          {"optimizer": {"state": 0, "param_groups": [{"lr": 1.0}]}}]}.items():
        source = save_ranks(setting, name, [
            {"model": {"layers.%d.w" % rank: torch.ones(4)}, **state} for rank, state in enumerate(states)])
        done = setting.run("reshard", source, name + "-never", "--world-size", "2", expected=BAD_INPUT)
        check("KEY-NEST" in done.stderr and "--objects drop" in done.stderr, done.stderr)
        done = setting.run("reshard", source, name + "-2", "--world-size", "2", "-q", "--objects", "drop")
        check("left out" in done.stderr, done.stderr)
        state = torch.load(setting.path(name + "-2", "model_world_size_2_rank_1.pt"), weights_only=False)
        check_same_names(state["model"], ["layers.0.w", "layers.1.w"], name)
        done, _ = setting.consolidate(source, name + ".safetensors", "-q")
        check("left out" in done.stderr, done.stderr)


@case()
def case_rank_files_keys(setting):
    """One flat key of different keys or containers is refused; --per-rank first takes those of rank 0."""
    t = torch.ones(2)
    for name, values in {"int": ({1: 5}, {"1": 5}), "list": ([t], {0: t}), "dotted": ({"a.b": t}, {"a": {"b": t}}),
                         "none": ({None: 5}, {"None": 5}), "text": ({"None": t}, {None: t}), "bool": ({True: 5}, {1: 6})}.items():
        source = save_ranks(setting, name, [{"model": {"w": t}, "c": value} for value in values])
        for done in (setting.run("consolidate", source, setting.path(name + ".pt"), expected=BAD_INPUT),
                     setting.run("reshard", source, name + "-2", "--world-size", "2", "--replicate", "*", expected=BAD_INPUT)):
            check("KEY-NEST" in done.stderr, "%s: %s" % (name, done.stderr))
        check_nothing_at(setting.path(name + ".pt"))
        check("KEY-NEST" in setting.run("verify", source, expected=1).stdout, name)
        if name != "bool":
            _, path = setting.consolidate(source, name + "-first.pt", "--per-rank", "first")
            check(repr(torch.load(path)["c"]) == repr(values[0]), "%s: %s" % (name, torch.load(path)))
    same = {None: 1, True: 2, 2.5: 3, (1, 2): 4, b"k": 5, 7: 6, "x.y": {"": 7}}
    source = save_ranks(setting, "same", [{"model": {"w": t}, "c": same}] * 2)
    _, path = setting.consolidate(source, "same.pt")
    check(repr(torch.load(path)["c"]) == repr(same), str(torch.load(path)))


@case(first=(2, 5))
def case_rank_files_keep(setting):
    """--per-rank keep: each rank gets its own tensor back at its place, or all ranks' tensors are written under their names."""
    rng = [torch.arange(5, dtype=torch.uint8) + rank for rank in range(2)]
    loaders = {"list": lambda t: {"buf": [t], 5: t.clone()}, "mixed": lambda t: {"buf": [t, "x"], "more": [{"t": t.clone()}, 7]}}
    for name, make in loaders.items():
        states = [{"model": {"w": torch.ones(4)}, "rng": rng[rank], "rng_state": {"torch": rng[rank] + 1, "n": rank},
                   "loader": make(torch.ones(rank + 1))} for rank in range(2)]
        folder = save_ranks(setting, name, states)
        setting.run("reshard", "-q", folder, setting.path(name + ".out"), "--world-size", "2", "--per-rank", "keep")
        for rank, state in enumerate(states):
            path = setting.path(name + ".out", "model_world_size_2_rank_%d.pt" % rank)
            found = torch.load(path, weights_only=False)
            check(repr(found["loader"]) == repr(state["loader"]), "%s: %s instead of %s" % (name, found["loader"], state["loader"]))
            check(torch.equal(found["rng"], rng[rank]) and found["rng_state"]["n"] == rank, name + ": %s" % found)
        if name == "mixed":
            done, path = setting.consolidate(folder, name + ".pt", "--per-rank", "keep", expected=UNSUPPORTED)
            check("KEY-LIST" in done.stderr and "loader.buf.0.rank0" in done.stderr, done.stderr)
            check_nothing_at(path)
            continue
        done, path = setting.consolidate(folder, name + ".pt", "--per-rank", "keep")
        whole = torch.load(path)
        for rank in range(2):
            check(torch.equal(whole["rng.rank%d" % rank], rng[rank]), "rng: %s" % whole)
            check(torch.equal(whole["rng_state"]["torch.rank%d" % rank], rng[rank] + 1), "rng_state: %s" % whole)
        check("rng_state.n (ranks 0, 1)" in done.stdout + done.stderr, "what has no place is not named: " + done.stderr)


@case()
def case_rank_files_empty(setting):
    """{} and None of one rank yield to the values of others below them, and None is named as left out; keep returns both."""
    full = {"more": [torch.ones(2)], "loss": 1.0}
    for name, empty in {"dict": {}, "none": None, "list": []}.items():
        value = full if name != "list" else [torch.ones(2), "x"]
        states = [{"model": {"l%d.w" % rank: torch.ones(4)}, "metrics": empty if rank else value} for rank in range(2)]
        folder = save_ranks(setting, name, states)
        done, path = setting.consolidate(folder, name + ".pt")
        check(repr(torch.load(path)["metrics"]) == repr(value), "%s: %s" % (name, torch.load(path)))
        check("RANK-DIFFER" in done.stderr and ("metrics.rank1" in done.stdout + done.stderr) == (empty is None), done.stderr)
        setting.run("reshard", "-q", folder, setting.path(name + ".out"), "--world-size", "2", "--per-rank", "keep")
        for rank, state in enumerate(states):
            found = torch.load(setting.path(name + ".out", "model_world_size_2_rank_%d.pt" % rank), weights_only=False)
            check(repr(found["metrics"]) == repr(state["metrics"]), "%s: rank %d has %s" % (name, rank, found))
    stages = [{"model": {"l%d.w" % rank: torch.ones(4)}, "optimizer": {
        "state": {} if rank else {0: {"step": torch.tensor(1)}}, "param_groups": [{"lr": 1.0}]}} for rank in range(2)]
    folder = save_ranks(setting, "stages", stages)
    check_good(setting, folder)
    _, path = setting.consolidate(folder, "stages.pt")
    check(torch.load(path)["optimizer"]["state"] == {0: {"step": torch.tensor(1)}}, str(torch.load(path)))


@case()
def case_rank_files_empty_tensor(setting):
    """A plain tensor that is empty on a rank differs from the others' elements, whichever rank it is; so do empty ones of two types."""
    one, none = torch.ones(3), torch.zeros(0)
    pairs = {"first": [none, one], "last": [one, none], "dtypes": [none, torch.zeros(0, dtype=torch.int64)],
             "shapes": [none, torch.zeros(0, 4)]}
    places = {"model": (lambda t: {"w": one, "buf": t}, lambda v: v["buf"]),
              "optimizer": (lambda t: {"state": {"w": {"exp_avg": t}}}, lambda v: v["state"]["w"]["exp_avg"]),
              "other": (lambda t: {"list": [t, one]}, lambda v: v["list"][0])}
    for place, (make, get) in places.items():
        for name, each in pairs.items():
            folder = save_ranks(setting, place + name, [{"model": {"w": one}, "step": 3, place: make(t)} for t in each])
            for words in (["consolidate", folder, folder + ".pt"], ["digest", folder],
                          ["reshard", folder, folder + "-2", "--world-size", "2"]):
                done = setting.run(*words, expected=BAD_INPUT)
                check("RANK-DIFFER" in done.stderr, "%s %s: %s" % (place, name, done.stderr))
            done = setting.run("verify", "--strict", folder, expected=1)
            check("RANK-DIFFER" in done.stdout + done.stderr, done.stdout + done.stderr)
            _, path = setting.consolidate(folder, place + name + ".first.pt", "--per-rank", "first")
            found = get(torch.load(path)[place])
            check(found.shape == each[0].shape and found.dtype == each[0].dtype, "%s %s: %s" % (place, name, found))


@case()
def case_rank_files_drop_in_list(setting):
    """--per-rank drop of one item of a list that keeps others is refused; a list whose items all differ goes whole."""
    one = torch.ones(2)
    lists = {"object": lambda r: [r, one], "dict": lambda r: [{"rng": r}, {"x": one}], "tensor": lambda r: [one + r, "x"]}
    for name, make in lists.items():
        folder = save_ranks(setting, name, [{"model": {"w": one}, "extra": make(rank)} for rank in range(2)])
        for words in (["consolidate", folder, folder + ".pt"], ["reshard", folder, folder + "-2", "--world-size", "2"],
                      ["reshard", folder, folder + "-dcp", "--world-size", "3", "--format", "dcp"]):
            done = setting.run(*words, "--per-rank", "drop", expected=UNSUPPORTED)
            check("KEY-LIST" in done.stderr and "extra.0" in done.stderr, "%s: %s" % (name, done.stderr))
            check(not os.path.exists(words[2]), "an output of " + name)
    folder = save_ranks(setting, "whole", [{"model": {"w": one}, "extra": [one + rank, rank]} for rank in range(2)])
    _, path = setting.consolidate(folder, "whole.pt", "--per-rank", "drop")
    check_same_names(torch.load(path), ["model"], "a list without items")


@case()
def case_rank_files_one_left(setting):
    """A single file of a later rank or shard shows that others are missing; other numbers in names do not."""
    for name in ("ckpt_rank2.pt", "model_rank1.pt", "weights-shard3.pt"):
        folder = setting.path("lost-" + name)
        os.mkdir(folder)
        torch.save({"w": torch.ones(3)}, os.path.join(folder, name))
        for words in (["verify", folder], ["consolidate", "-q", folder, folder + ".out.pt"]):
            done = setting.run(*words, expected=1 if words[0] == "verify" else BAD_INPUT)
            check("FILE-MISSING" in done.stdout + done.stderr, "%s: %s" % (name, done.stdout + done.stderr))
        setting.run("consolidate", "-q", os.path.join(folder, name), folder + ".alone.pt")
    for name in ("checkpoint-100.pt", "epoch3.pt", "frank_7b.pt", "frank7.pt", "model-00002.pt", "ckpt_rank0.pt"):
        folder = setting.path("whole-" + name)
        os.mkdir(folder)
        torch.save({"w": torch.ones(3)}, os.path.join(folder, name))
        setting.run("verify", folder)
        setting.run("consolidate", "-q", folder, folder + ".out.pt")


@case()
def case_rank_files_partial_beside(setting):
    """A tensor beside the model that only some ranks hold is reported, kept and dropped as an object is."""
    one = torch.ones(2)
    states = [{"model": {"w": one}, **({} if rank else {"history": one + 5})} for rank in range(2)]
    folder = save_ranks(setting, "beside", states)
    check_warned(setting, folder, ["1 value, first 'history' of rank 0"])
    for kind in ("keep", "drop"):
        done = setting.run("reshard", "-q", folder, setting.path(kind), "--world-size", "2", "--per-rank", kind)
        check("RANK-DIFFER" not in done.stderr, done.stderr)
        for rank in range(2):
            found = torch.load(setting.path(kind, "model_world_size_2_rank_%d.pt" % rank), weights_only=False)
            expected = ["model", "history"] if kind == "keep" and rank == 0 else ["model"]
            check_same_names(found, expected, "%s of rank %d" % (kind, rank))
    done, path = setting.consolidate(folder, "never.pt", "--per-rank", "error", expected=BAD_INPUT)
    check("RANK-DIFFER" in done.stderr and "history" in done.stderr, done.stderr)
    check_nothing_at(path)


@case()
def case_rank_files_objects_differ(setting):
    """Objects that differ between ranks are a warning; state that each rank has by its nature is a note, except in the model."""
    one = torch.ones(4)
    differing = {"tuple": (lambda rank: {"model": {"w": one, "x": (torch.full((2,), float(rank)), one)}}, "model.x"),
                 "step": (lambda rank: {"model": {"w": one}, "step": 3 + rank}, "step"),
                 "groups": (lambda rank: {"model": {"w": one}, "optimizer": {"param_groups": [{"lr": 1.0 / (1 + rank)}]}},
                            "optimizer.param_groups.0.lr"),
                 "extra": (lambda rank: {"model": {"w": one, "data._extra_state": rank}}, "model.data._extra_state")}
    for name, (make, key) in differing.items():
        folder = save_ranks(setting, name, [make(rank) for rank in (0, 1, 1)])
        check_warned(setting, folder, ["objects differ from those of the lowest rank: 1 object, first '%s' of rank 1, 2" % key])
        report = json.loads(setting.run("consolidate", "--json", "--force", folder, folder + ".pt").stdout)
        check("RANK-DIFFER" in [finding["finding"] for finding in report["findings"]], str(report))
        for kind in ("keep", "first", "drop"):
            done, _ = setting.consolidate(folder, name + kind + ".pt", "-q", "--per-rank", kind)
            check("RANK-DIFFER" not in done.stderr and "left out" in done.stderr, done.stderr)
        done, path = setting.consolidate(folder, name + "-never.pt", "--per-rank", "error", expected=BAD_INPUT)
        check("RANK-DIFFER" in done.stderr and key in done.stderr, done.stderr)
        check_nothing_at(path)
    own = [{"model": {"w": one}, "rng_state": {"python": (rank, None)}, "numpy_rng": rank, "train_dataloader": {"at": rank},
            "rank": rank, "local_rank": rank, "timers": {"forward": 0.5 + rank}, "step": 3} for rank in range(2)]
    check("RANK-DIFFER" in check_good(setting, save_ranks(setting, "own", own)), "no note")
    check("RANK-DIFFER" not in check_good(setting, save_ranks(setting, "same", own[:1] * 2)), "a note on equal objects")


@case()
def case_rank_files_lacking(setting):
    """A plain tensor of the model that a rank lacks is a warning, and follows --per-rank; stages and local experts lack none."""
    one = torch.ones(4)

    def save(name, *names):
        return save_ranks(setting, name, [{"model": {key: one for key in each}, "step": 3} for each in names])

    for name, names, key, ranks in (("last", ("wb", "w", "wb"), "b", "0, 2"), ("none", ("wb", ""), "w", "0"),
                                    ("stage", ("ab", "cd", "ab", "c"), "d", "1")):
        count = 2 if name == "none" else 1
        check_warned(setting, save(name, *names), ["only some ranks hold tensors of the model: %d value%s, first 'model.%s' of rank %s"
                                                   % (count, "" if count == 1 else "s", key, ranks)])
    folder = setting.path("last")
    for kind in ("keep", "drop"):
        done = setting.run("reshard", "-q", folder, setting.path(kind), "--world-size", "3", "--per-rank", kind)
        check("RANK-DIFFER" not in done.stderr, done.stderr)
        for rank in range(3):
            found = torch.load(setting.path(kind, "model_world_size_3_rank_%d.pt" % rank), weights_only=False)["model"]
            check_same_names(found, "wb" if kind == "keep" and rank != 1 else "w", "%s of rank %d" % (kind, rank))
    done, path = setting.consolidate(folder, "never.pt", "--per-rank", "error", expected=BAD_INPUT)
    check("RANK-DIFFER" in done.stderr and "model.b" in done.stderr, done.stderr)
    check_nothing_at(path)
    for name, names in (("stages", ("ab", "cd", "ab", "cd")), ("tied", ("eab", "cde")), ("experts", ("wx", "wy", "wz"))):
        check_good(setting, save(name, *names))


@case()
def case_rank_files_equal_optim(setting):
    """State of one dim that is equal on all ranks may be shards of flat parameters: no copy, unless the model has such parameters."""

    def optimizer(state):
        return {"state": {number: {"exp_avg": value, "step": torch.tensor(1.0)} for number, value in enumerate(state)},
                "param_groups": [{"lr": 1.0, "params": list(range(len(state)))}]}

    zeros, norm = torch.zeros(6), torch.zeros(4)
    vectors = {"zeros": optimizer([zeros, norm]), "copied": optimizer([torch.arange(6.0), norm]),
               "beside": {"model": {"w": torch.ones(4, 3), "norm": norm + 1}, "optimizer": optimizer([zeros, norm])}}
    for name, state in vectors.items():
        folder = save_ranks(setting, name, [state] * 2)
        done, path = setting.consolidate(folder, "never.pt", expected=UNSUPPORTED)
        check("RANK-FLAT" in done.stderr and "--per-rank first" in done.stderr, done.stderr)
        check_nothing_at(path)
        done = setting.run("verify", "--strict", folder, expected=1)
        check("RANK-FLAT" in done.stdout, done.stdout)
        for kind in ("first", "keep"):
            done, path = setting.consolidate(folder, name + kind + ".pt", "--per-rank", kind)
            check("RANK-FLAT" not in done.stderr, done.stderr)
            found = torch.load(path)
            found = found.get("optimizer", found)["state"][0]
            check_same_names(found, ["exp_avg", "step"] if kind == "first" else ["exp_avg.rank0", "exp_avg.rank1", "step"], name + kind)
    whole = {"matrix": optimizer([torch.zeros(3, 2), norm]),
             "model": {"model": {"norm": norm + 1, "b": zeros + 1}, "optimizer": optimizer([zeros, norm])}}
    for name, state in whole.items():
        folder = save_ranks(setting, name, [state] * 2)
        check_good(setting, folder)
        _, path = setting.consolidate(folder, name + ".pt")
        found = torch.load(path)
        check(torch.equal(found.get("optimizer", found)["state"][1]["exp_avg"], norm), name)


@case()
def case_rank_files_read_twice(setting):
    """Files that describe their flat parameters are read twice; each warning is reported once."""
    source = os.path.join(setting.fixtures, "torch-2.1.2", "fairscale")
    folder = setting.path("differ")
    os.mkdir(folder)
    for rank, name in enumerate(sorted(os.listdir(source))):
        state = torch.load(os.path.join(source, name), weights_only=False)
        state["note"] = {"num_updates": min(rank, 1)}
        torch.save(state, os.path.join(folder, name))
    outputs = [setting.run("verify", "-q", "--level", "quick", folder).stdout,
               setting.consolidate(folder, "out.pt", "-q", "--assume", "order")[0].stderr]
    for text in outputs:
        check(text.count("RANK-DIFFER") == 1 and "note.num_updates" in text, text)


@case()
def case_rank_files_many_sets(setting):
    """More than 4,096 different sets of names are compared, too."""
    count = 4200
    names = {0: ("e0", "lost"), count - 1: ("e0",)}
    folder = save_ranks(setting, "many", [{"model": {key: torch.ones(1) for key in names.get(rank, ("e%d" % rank,))}}
                                          for rank in range(count)])
    done = setting.run("verify", "-q", "--level", "quick", folder)
    check("only some ranks hold tensors of the model: 1 value, first 'model.lost' of rank 0" in done.stdout, done.stdout)


# ---- sharded safetensors: a rank without a file ----


def rank_save_replicated(folder):
    """torch gives each tensor to one rank, so the loss of a rank leaves no hole in a tensor."""
    import torch.distributed.checkpoint as dcp
    state = {"w%d" % i: torch.full((4, 3), float(i)) for i in range(8)}
    dcp.save(state, storage_writer=dcp.HuggingFaceStorageWriter(folder, save_distributed=True))


@case(first=(2, 10))
def case_rank_files_gap_of_ranks(setting):
    from process_group import run_ranks
    folder = setting.path("shards")
    run_ranks(4, rank_save_replicated, folder)
    whole = setting.run("inspect", folder)
    check("4 ranks found" in whole.stderr, "no warning of a last rank: " + whole.stderr)
    lost = [name for name in os.listdir(folder) if name.startswith("shard-00002-")]
    check(len(lost) == 1, "torch wrote %s" % sorted(os.listdir(folder)))
    os.remove(os.path.join(folder, lost[0]))
    for command in (["verify", "--strict", folder], ["consolidate", folder, setting.path("one.safetensors")]):
        done = setting.run(*command, expected=1 if command[0] == "verify" else 0)
        check("no file name begins with shard-00002:" in done.stdout + done.stderr, done.stdout + done.stderr)
    setting.run("verify", folder, "--source-ranks", "4", expected=1)
    setting.run("consolidate", folder, setting.path("no.safetensors"), "--source-ranks", "4", expected=BAD_INPUT)


def rank_save_mesh(folder, whole):
    """FSDP2 and tensor parallelism: biases of RowwiseParallel have fewer shards than those of ColwiseParallel."""
    import torch.distributed as dist
    import torch.distributed.checkpoint as dcp
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    torch.manual_seed(1)
    layers = [nn.Sequential(OrderedDict(w1=nn.Linear(12, 24), w2=nn.Linear(24, 12))) for _ in range(2)]
    model = nn.Sequential(OrderedDict(layers=nn.Sequential(*layers)))
    if dist.get_rank() == 0:
        torch.save(model.state_dict(), whole)
    for layer in layers:
        parallelize_module(layer, mesh["tp"], {"w1": ColwiseParallel(), "w2": RowwiseParallel()})
        fully_shard(layer, mesh=mesh["dp"])
    fully_shard(model, mesh=mesh["dp"])
    dcp.save(model.state_dict(), storage_writer=dcp.HuggingFaceStorageWriter(folder, save_distributed=True))


@case(first=(2, 10))
def case_rank_files_mesh_biases(setting):
    from process_group import run_ranks
    from safetensors.torch import load_file
    folder, whole = setting.path("mesh"), setting.path("whole.pt")
    run_ranks(4, rank_save_mesh, folder, whole)
    setting.run("consolidate", folder, setting.path("mesh.safetensors"))
    expected, found = load_pt(whole), load_file(setting.path("mesh.safetensors"))
    check(sorted(expected) == sorted(found) and all(torch.equal(expected[name], found[name]) for name in expected), sorted(found))
    for rank in (1, 4):
        lost = shutil.copytree(folder, setting.path("lost-%d" % rank))
        os.remove(os.path.join(lost, "shard-%05d-model-00001-of-00001.safetensors" % rank))
        check("FILE-MISSING" in setting.run("verify", lost, expected=1).stdout, "lost rank %d" % rank)
