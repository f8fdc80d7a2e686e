"""Objects and containers beside the tensors: what torch loads from the source must be in what is written."""

import json
import os
import types
from collections import OrderedDict

import torch

from support import case, check, load_pt


def plain(state):
    """Tensors as lists, so that states can be compared with ==."""
    if torch.is_tensor(state):
        return state.tolist()
    if isinstance(state, dict):
        return {key: plain(item) for key, item in state.items()}
    return [plain(item) for item in state] if isinstance(state, (list, tuple, set)) else state


@case((2, 4))
def case_empty_dicts_in_lists(setting):
    import torch.distributed.checkpoint as dcp

    def make():
        return {"a": [{}, {"w": torch.arange(4.)}], "b": {"z": [{}, {}, torch.ones(2)]}, "n": [None, {"w": torch.ones(1)}]}

    folder = setting.path("dcp")
    dcp.save(make(), checkpoint_id=folder, no_dist=True)
    loaded = make()
    planner = dcp.DefaultLoadPlanner(allow_partial_load=True)  # torch itself takes the hole for a key that lacks
    dcp.load(loaded, checkpoint_id=folder, no_dist=True, planner=planner)
    check(plain(loaded) == plain(make()), "torch's own")
    for options in ([], ["--exclude", "b.*"]):
        _, out = setting.consolidate(folder, "out%d.pt" % len(options), *options)
        expected = {key: item for key, item in loaded.items() if not options or key != "b"}
        check(plain(load_pt(out)) == plain(expected), "%r: %r" % (options, load_pt(out)))


@case()
def case_object_with_flat_parameter(setting):
    """The description takes the flat parameter apart; an object that holds it too keeps it."""
    flat = torch.arange(8.)
    units = {"version": 1, "world_size": 1, "units": [
        {"prefix": "", "flat_param": "_flat_param", "world_size": 1, "use_orig_params": False, "dtype": "float32",
         "params": [{"fqn": "weight", "shape": [2, 3]}, {"fqn": "bias", "shape": [2]}], "shared": [], "total_unpadded": 8}]}
    with open(setting.path("units.json"), "w") as file:
        json.dump(units, file)
    held = types.SimpleNamespace(tensor=flat, number=3)
    torch.save({"model": {"_flat_param": flat}, "held": held, "set": {flat}}, setting.path("in.pt"))
    _, out = setting.consolidate(setting.path("in.pt"), "out.pt", "--model", setting.path("units.json"))
    state = load_pt(out, weights_only=False)
    check(torch.equal(state["model"]["weight"], flat[:6].reshape(2, 3)), "weight")
    check(torch.equal(state["model"]["bias"], flat[6:]), "bias")
    check(state["held"].number == 3 and torch.equal(state["held"].tensor, flat), "object: %r" % state["held"])
    check([item.tolist() for item in state["set"]] == [flat.tolist()], "set: %r" % state["set"])


def findings_of(setting, name, *arguments, expected=0):
    """Messages of the findings of one id."""
    report = json.loads(setting.run(*arguments, "--json", expected=expected).stdout)
    return [finding["message"] for finding in report["findings"] if finding["finding"] == name]


def save_ranks(folder, shard_of):
    """FSDP1's LOCAL state, a file a rank; shard_of: which shard each rank's optimizer file has."""
    os.makedirs(folder)
    generator = torch.Generator().manual_seed(7)
    shards = [{key: torch.randn(600, generator=generator) for key in ("weight", "exp_avg", "exp_avg_sq")} for _ in range(4)]
    for rank, shard in enumerate(shard_of):
        name = "%%s_world_size_%d_rank_%d.pt" % (len(shard_of), rank)
        model = {"flat_param": shards[rank % 4 if len(shard_of) == 4 else rank % 2]["weight"], "ones": torch.ones(600)}
        state = {key: shards[shard][key] for key in ("exp_avg", "exp_avg_sq")}
        zeros = {"exp_avg": torch.zeros(600), "exp_avg_sq": torch.zeros(600)}
        torch.save(model, os.path.join(folder, name % "model"))
        torch.save({"state": {0: {**state, "step": torch.tensor(3.)}, 1: zeros}, "param_groups": [{"params": [0, 1]}]},
                   os.path.join(folder, name % "optim"))


@case()
def case_copied_rank_file(setting):
    for name, shard_of, ranks in (("whole", (0, 1, 2, 3), None), ("copied", (0, 1, 1, 3), "1, 2"), ("hybrid", (0, 1, 0, 1), None),
                                  ("hybrid-copied", (0, 1, 1, 1), "1, 2, 3")):
        folder = setting.path(name)
        save_ranks(folder, shard_of)
        found = findings_of(setting, "RANK-COPIED", "verify", folder)
        check(len(found) == (ranks is not None), "%s: %r" % (name, found))
        if ranks is not None:
            check("optim_world_size_4" in found[0] and "ranks %s have" % ranks in found[0], "%s: %r" % (name, found))
            found = findings_of(setting, "RANK-COPIED", "consolidate", folder, setting.path(name + ".safetensors"), "--part", "model",
                                "--per-rank", "keep")
            check(len(found) == 1, "consolidate: %r" % found)


@case()
def case_files_of_other_ranks(setting):
    folder = setting.path("ranks")
    save_ranks(folder, (0, 1, 2, 3))
    check(findings_of(setting, "WEIGHTS-BESIDE", "verify", folder) == [], "nothing beside")
    for name in ("ema_rank0.pt", "ema_rank1.pt", "ckpt_rank0.pt", "note_rank.txt"):
        torch.save({"weight": torch.ones(3)}, os.path.join(folder, name))
    found = findings_of(setting, "WEIGHTS-BESIDE", "verify", folder)
    check(len(found) == 1 and "'ckpt_rank0.pt' and 2 more" in found[0], "%r" % found)
    done = setting.run("consolidate", folder, setting.path("out.safetensors"), "--part", "model", "--per-rank", "keep", "-q")
    check("ckpt_rank0.pt" in done.stderr, "consolidate -q: %r" % done.stderr)


@case()
def case_tensors_that_objects_hold(setting):
    """Names and advice of tensors that no key leads to; one that hangs on a dict goes with all of the state."""
    model = OrderedDict(weight=torch.arange(4.))
    model.note = {"moved": torch.arange(7.)}
    torch.save({"model": model, "held": types.SimpleNamespace(a=torch.ones(3))}, setting.path("in.pt"))
    table = setting.run("inspect", setting.path("in.pt"), "--table").stdout
    check("\nmodel#0 " in table and "\nheld#0 " in table, table)
    done, _ = setting.consolidate(setting.path("in.pt"), "out.safetensors")
    check("--part all includes every tensor except those in objects, a .pt includes all" in done.stdout, done.stdout)
    done, _ = setting.consolidate(setting.path("in.pt"), "all.safetensors", "--part", "all")
    check("left out: 2 tensors (40 bytes) and 1 object; a .pt takes objects" in done.stdout, done.stdout)
    done, out = setting.consolidate(setting.path("in.pt"), "out.pt")
    check("left out" not in done.stdout, done.stdout)
    state = load_pt(out, weights_only=False)
    check(state["model"].note["moved"].tolist() == model.note["moved"].tolist(), "attribute: %r" % vars(state["model"]))
    check(state["held"].a.tolist() == [1., 1., 1.], "object")
    done, out = setting.consolidate(setting.path("in.pt"), "some.pt", "--exclude", "held")
    check("left out: 2 tensors (40 bytes) and 1 object" in done.stdout and "model#0" in done.stdout, done.stdout)
