"""Objects and containers beside the tensors: what torch loads from the source must be in what is written."""

import json
import types

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
