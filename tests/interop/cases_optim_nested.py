"""State of a parameter in dicts and lists, and the flattened form."""

import torch

from cases_optim_names import saved, written
from support import BAD_INPUT, UNSUPPORTED, case, check, load_pt


@case(first=(2, 15))
def case_optim_flat_nested(setting):
    """torch flattens dicts below a parameter's state, and no lists, such as those of LBFGS."""
    from torch.distributed.checkpoint import state_dict as sd
    options = sd.StateDictOptions(flatten_optimizer_state_dict=True)
    deep = {"a": torch.ones(1), "b": {"c": torch.ones(2), "d": torch.full((3,), 2.)}}
    model = torch.nn.Linear(3, 2)
    made = torch.optim.SGD(model.parameters(), lr=0.125, momentum=0.5)
    model(torch.ones(2, 3)).sum().backward()
    made.step()
    for param in model.parameters():
        made.state[param]["deep"] = deep
    by_name = {"model": model.state_dict(), "optimizer": sd.get_optimizer_state_dict(model, made)}
    truth = sd.get_optimizer_state_dict(model, made, options=options)
    flat = written(setting, saved(setting, "dicts.pt", by_name), "--optim-keys", "flat")
    check(set(flat["optimizer"]) == set(truth), sorted(flat["optimizer"]))
    for source in (flat, {"model": model.state_dict(), "optimizer": truth}):
        source = saved(setting, "flat.pt", source)
        setting.run("reshard", "-q", source, "dcp", "--force", "--format", "dcp", "--world-size", "2", "--replicate", "*")
        for path in (source, setting.path("dcp")):
            back = written(setting, path, "--optim-keys", "name")["optimizer"]["state"]["weight"]
            check(set(back) == {"momentum_buffer", "deep"} and set(back["deep"]) == {"a", "b"}, back)
            check(torch.equal(back["deep"]["a"], deep["a"]), back)
            check(all(torch.equal(back["deep"]["b"][key], deep["b"][key]) for key in "cd"), back)
    model = torch.nn.ParameterDict({"w": torch.nn.Parameter(torch.arange(4.))})
    lbfgs = torch.optim.LBFGS(model.parameters(), max_iter=3)

    def loss():
        lbfgs.zero_grad()
        value = model["w"].pow(4).sum()
        value.backward()
        return value
    lbfgs.step(loss)
    try:
        sd.get_optimizer_state_dict(model, lbfgs, options=options)
    except NotImplementedError:
        pass
    else:
        check(False, "torch flattens lists")
    source = saved(setting, "lbfgs.pt", {"model": model.state_dict(), "optimizer": lbfgs.state_dict()})
    setting.run("reshard", "-q", source, "lists", "--format", "dcp", "--world-size", "2", "--replicate", "*")
    for path in (source, setting.path("lists")):
        done, _ = setting.consolidate(path, "no.pt", "--optim-keys", "flat", "--assume", "order", expected=UNSUPPORTED)
        check("[MODEL-OPTIM]" in done.stderr and "is in a list" in done.stderr, done.stderr)


@case()
def case_optim_flat_contradicts(setting):
    """A key that is a value and also begins others; empty keys; ints and texts among the values."""
    one = torch.ones(2)
    for name, state in (("before", {"x": one, "x.y": one}), ("after", {"x.y.z": one, "x.y": 5})):
        optim = {"param_groups.w.lr": 1., **{"state.w." + key: value for key, value in state.items()}}
        source = saved(setting, name + ".pt", {"model": {"w": one}, "optim": optim})
        done, _ = setting.consolidate(source, "no.pt", "--optim-keys", "name", expected=BAD_INPUT)
        check("[KEY-NEST]" in done.stderr, done.stderr)
    optim = {"state.w.x.": one, "state.w..y": one, "state.w.q.r": 4, "param_groups.w.lr": 1.}
    source = saved(setting, "empty.pt", {"model": {"w": one}, "optim": optim})
    setting.run("reshard", "-q", source, "dcp", "--format", "dcp", "--world-size", "1")
    for path in (source, setting.path("dcp")):
        state = written(setting, path, "--optim-keys", "name")["optim"]["state"]["w"]
        check(set(state) == {"x", "", "q"} and state["q"] == {"r": 4}, state)
        check(torch.equal(state["x"][""], one) and torch.equal(state[""]["y"], one), state)


@case(first=(2, 6))
def case_optim_flat_dict_in_group(setting):
    """A hyperparameter that is a dict, or a list with a tensor, is not lost when flattened state gets groups."""
    from torch.distributed.checkpoint.state_dict import StateDictOptions, get_optimizer_state_dict
    options = StateDictOptions(flatten_optimizer_state_dict=True)
    for value in ({"warmup": 100, "kind": "cosine"}, {"a": {"b": 1}}, [{"a": 1}], [torch.ones(2)], [1, torch.ones(2)]):
        model = torch.nn.Linear(2, 3)
        optimizer = torch.optim.Adam([{"params": model.parameters(), "schedule": value}])
        model(torch.ones(1, 2)).sum().backward()
        optimizer.step()
        path = setting.path("in.pt")
        torch.save({"model": model.state_dict(), "optim": get_optimizer_state_dict(model, optimizer, options=options)}, path)
        for keys in ("name", "id"):
            done, _ = setting.consolidate(path, "no.pt", "--force", "--optim-keys", keys, expected=UNSUPPORTED)
            check("[MODEL-OPTIM]" in done.stderr and "param_groups.weight.schedule" in done.stderr, done.stderr)
        _, same = setting.consolidate(path, "flat.pt", "--force", "--optim-keys", "flat")
        kept = load_pt(same, weights_only=False)["optim"]["param_groups.weight.schedule"]
        check(type(kept) is type(value) and repr(kept) == repr(value), "kept %r of %r" % (kept, value))
