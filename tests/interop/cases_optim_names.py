"""Whose the numbers and names of optimizer state are: several models, wrappers, renames."""

import json
import os
from collections import OrderedDict
from typing import NamedTuple

import torch

from support import BAD_INPUT, USAGE, case, check, load_pt


def adam(*shapes, start=0.0):
    """State by number of these shapes, each of its own value."""
    return {i: {"step": torch.tensor(1.0), "exp_avg": torch.full(shape, start + i + 1.0)}
            for i, shape in enumerate(shapes)}


def optimizer(state, **group):
    return {"state": state, "param_groups": [{"lr": 0.5, "params": list(state), **group}]}


def saved(setting, name, state):
    path = setting.path(name)
    torch.save(state, path)
    return path


def written(setting, source, *options):
    _, path = setting.consolidate(source, "out.pt", "--force", *options)
    return load_pt(path, weights_only=False)


def refused(setting, source, finding, *options):
    done, _ = setting.consolidate(source, "no.pt", "--optim-keys", "name", *options, expected=BAD_INPUT)
    check("[%s]" % finding in done.stderr, done.stderr)


def two_models():
    return {"model": {"pi.w": torch.ones(4, 4), "pi.b": torch.ones(4)},
            "critic": {"q.w": torch.ones(4, 4), "q.b": torch.ones(4)},
            "optimizer": optimizer(adam((4, 4), (4,))),
            "critic_optimizer": optimizer(adam((4, 4), (4,), start=10))}


@case(first=(2, 6))
def case_optim_beside_model(setting):
    """A second optimizer does not get the first model's names or placement."""
    source = saved(setting, "two.pt", two_models())
    refused(setting, source, "MODEL-NEEDED")
    refused(setting, source, "MODEL-NEEDED", "--assume", "order")
    done = setting.run("reshard", source, setting.path("no"), "--format", "pt-ranks", "--world-size", "2",
                       "--device-type", "cpu", "--shard", "pi.w=1", expected=BAD_INPUT)
    check("[MODEL-NEEDED]" in done.stderr, done.stderr)
    state = two_models()
    state["optimizer"]["param_groups"][0]["param_names"] = ["pi.w", "pi.b"]
    state["critic_optimizer"]["param_groups"][0]["param_names"] = ["q.w", "q.b"]
    found = written(setting, saved(setting, "named.pt", state), "--optim-keys", "name")
    check(list(found["critic_optimizer"]["state"]) == ["q.w", "q.b"], list(found["critic_optimizer"]["state"]))
    state = {"model": {"w": torch.ones(4, 4), "x": torch.ones(5)}, "criterion": {"log_vars": torch.ones(5)},
             "optimizer": optimizer(adam((4, 4), (5,)))}
    refused(setting, saved(setting, "loss.pt", state), "MODEL-NEEDED")
    del state["model"]["x"]
    found = written(setting, saved(setting, "loss.pt", state), "--optim-keys", "name")
    check(list(found["optimizer"]["state"]) == ["w", "criterion.log_vars"], list(found["optimizer"]["state"]))
    state = {"model": {"g": torch.ones(4, 4)}, "netD": {"d": torch.ones(4, 4)}, "optD": optimizer(adam((4, 4)))}
    refused(setting, saved(setting, "gan.pt", state), "MODEL-NEEDED")
    # Averaged weights are no other parameters.
    state = {"model": {"g": torch.ones(4, 4)}, "ema": {"g": torch.ones(4, 4)}, "optimizer": optimizer(adam((4, 4)))}
    found = written(setting, saved(setting, "ema.pt", state), "--optim-keys", "name")
    check(list(found["optimizer"]["state"]) == ["g"], list(found["optimizer"]["state"]))


@case(first=(2, 6))
def case_optim_open_order(setting):
    """--assume order places no state that several groups leave open."""
    state = {"model": {"l3": torch.ones(6, 4), "l4": torch.ones(6, 4)},
             "optimizer": {"state": adam((6, 4), (6, 4)), "param_groups": [{"params": [0]}, {"params": [1]}]}}
    reshard = ("reshard", saved(setting, "open.pt", state), setting.path("out"), "--format", "pt-ranks",
               "--world-size", "2", "--device-type", "cpu", "--assume", "order")
    done = setting.run(*reshard, "--shard", "l3=1", expected=BAD_INPUT)
    check("[MODEL-NEEDED]" in done.stderr, done.stderr)
    setting.run(*reshard, "--shard", "l*=1")
    check(len(os.listdir(setting.path("out"))) == 3, os.listdir(setting.path("out")))


SWAP = ("--rename", r"s/blocks\.0/TMP/", "--rename", r"s/blocks\.1/blocks.0/", "--rename", "s/TMP/blocks.1/")


@case(first=(2, 6))
def case_optim_rename_names(setting):
    """param_names are renamed with the parameters: a second run gives the moments to the right ones."""
    names = ["blocks.0.w", "blocks.1.w"]
    model = {name: torch.full((4, 4), float(i)) for i, name in enumerate(names)}
    for given in (names, ["module._orig_mod." + name for name in names]):
        source = saved(setting, "in.pt", {"model": model, "optimizer": optimizer(adam((4, 4), (4, 4)),
                                                                              param_names=given)})
        found = written(setting, source, *SWAP)
        check(found["model"]["blocks.1.w"][0, 0] == 0, "the model is renamed")
        check(found["optimizer"]["param_groups"][0]["param_names"] == names[::-1], found["optimizer"]["param_groups"])
        twice = written(setting, saved(setting, "one.pt", found), "--optim-keys", "name")
        once = written(setting, source, *SWAP, "--optim-keys", "name")
        for state in (once, twice):
            moments = {key: float(slots["exp_avg"][0, 0]) for key, slots in state["optimizer"]["state"].items()}
            check(moments == {"blocks.1.w": 1.0, "blocks.0.w": 2.0}, moments)
            group = state["optimizer"]["param_groups"][0]
            check(group["params"] == group["param_names"] == names[::-1], group)


@case(first=(2, 6))
def case_optim_given_names(setting):
    """param_names of a wrapper are the model's; those that it does not have are refused."""
    model = {"a.w": torch.ones(4, 4), "b.w": torch.ones(2, 4)}
    state = {"model": model, "optimizer": optimizer(adam((2, 4), (4, 4)), param_names=["module.b.w", "module.a.w"])}
    found = written(setting, saved(setting, "ddp.pt", state), "--optim-keys", "name")
    check(list(found["optimizer"]["state"]) == ["b.w", "a.w"], list(found["optimizer"]["state"]))
    state["optimizer"]["param_groups"][0]["param_names"] = ["old.b", "old.a"]
    refused(setting, saved(setting, "stale.pt", state), "MODEL-OPTIM")


@case(first=(2, 6))
def case_optim_flat_names(setting):
    """The flattened form has param_names of each parameter, as torch's own, which needs them to load."""
    from torch.distributed.checkpoint import state_dict as sd
    options = sd.StateDictOptions(flatten_optimizer_state_dict=True)

    def make():
        torch.manual_seed(0)
        model = torch.nn.Linear(3, 2)
        return model, torch.optim.Adam(model.named_parameters(), lr=0.125)
    model, made = make()
    model(torch.ones(2, 3)).sum().backward()
    made.step()
    truth = sd.get_optimizer_state_dict(model, made, options=options)
    source = saved(setting, "in.pt", {"model": model.state_dict(), "optimizer": made.state_dict()})
    for path in (written(setting, source, "--optim-keys", "flat"), through_dcp(setting, source)):
        found = path["optimizer"]
        check(set(found) == set(truth), "%s and %s" % (sorted(found), sorted(truth)))
        check(found["param_groups.weight.param_names"] == truth["param_groups.weight.param_names"], "names")
        fresh, other = make()
        sd.set_optimizer_state_dict(fresh, other, found, options=options)
        for name, param in fresh.named_parameters():
            check(torch.equal(other.state[param]["exp_avg"], truth["state.%s.exp_avg" % name]), name)
    flat = saved(setting, "flat.pt", path)
    back = written(setting, flat, "--optim-keys", "id")["optimizer"]
    check(back["param_groups"] == made.state_dict()["param_groups"], back["param_groups"])
    renamed = written(setting, flat, "--rename", "s/weight/w/")["optimizer"]
    check(renamed["param_groups.bias.param_names"] == ["w", "bias"], renamed["param_groups.bias.param_names"])


@case(first=(2, 6))
def case_optim_prefixed_names(setting):
    """Parameters in optimizer state have the prefixes that they have in the model, whatever the form."""
    from torch.distributed.checkpoint import state_dict as sd
    options = sd.StateDictOptions(flatten_optimizer_state_dict=True)

    def make():
        torch.manual_seed(0)
        model = torch.nn.Module()
        model.module = torch.nn.Linear(3, 2)  # an attribute with the name of DDP's
        return model, torch.optim.Adam(model.parameters(), lr=0.125)
    model, made = make()
    model.module(torch.ones(2, 3)).sum().backward()
    made.step()
    by_name = {"model": model.state_dict(), "optimizer": sd.get_optimizer_state_dict(model, made)}
    by_number = {"model": model.state_dict(), "optimizer": made.state_dict()}
    flat = {"model": model.state_dict(), "optimizer": sd.get_optimizer_state_dict(model, made, options=options)}
    for k, source in enumerate((by_name, by_number, flat)):
        source = saved(setting, "in%d.pt" % k, source)
        for keys in ("name", "flat"):
            found = written(setting, source, "--optim-keys", keys)
            fresh, other = make()
            sd.set_model_state_dict(fresh, found["model"])
            sd.set_optimizer_state_dict(fresh, other, found["optimizer"],
                                        options=options if keys == "flat" else None)
            for old, new in zip(model.parameters(), fresh.parameters()):
                check(torch.equal(made.state[old]["exp_avg"], other.state[new]["exp_avg"]), "%d %s" % (k, keys))
            for more, names in ((["--clean-names"], ["weight", "bias"]),
                                (["--rename", "s/weight$/kernel/"], ["module.kernel", "module.bias"])):
                found = written(setting, source, "--optim-keys", keys, *more)
                check(list(found["model"]) == names, list(found["model"]))
                check(params_of(found["optimizer"]) == names, "%d %s %s: %s" % (k, keys, more, list(found["optimizer"])))
    wrapped = {"model": {"_orig_mod." + name: value for name, value in model.state_dict().items()},
               "optimizer": by_number["optimizer"]}
    source = saved(setting, "compiled.pt", wrapped)
    for more, names in (([], list(wrapped["model"])), (["--clean-names"], ["weight", "bias"])):
        found = written(setting, source, "--optim-keys", "name", *more)
        check(list(found["model"]) == params_of(found["optimizer"]) == names, str(more))


def params_of(state):
    """The parameters of optimizer state by name, nested or flat, in order."""
    if "state" in state:
        check(list(state["state"]) == state["param_groups"][0]["params"], list(state["state"]))
        return list(state["state"])
    return [key[len("state."):-len(".exp_avg")] for key in state if key.endswith(".exp_avg")]


@case(first=(2, 6))
def case_optim_projected_shards(setting):
    """State of other shapes than its parameter stays whole, by name and by number; it is not sharded as another
    parameter that has its shape by chance."""
    model = {"w": torch.ones(8, 8), "v": torch.ones(4, 8)}
    names = {"w": {"exp_avg": torch.ones(4, 8), "projector": torch.ones(8, 4)}, "v": {"exp_avg": torch.ones(8, 8)}}
    by_name = {"model": model, "optimizer": {"state": names, "param_groups": [{"rank": 4, "params": ["w", "v"]}]}}
    by_number = {"model": model, "optimizer": {"state": {0: names["w"], 1: names["v"]},
                                               "param_groups": [{"rank": 4, "params": [0, 1]}]}}

    def placements(state, *options, **expected):
        source = saved(setting, "in.pt", state)
        done = setting.run("reshard", source, setting.path("out"), "--format", "pt-ranks", "--world-size", "2",
                           "--device-type", "cpu", "--force", *options, **expected)
        if expected:
            return done.stderr
        check(setting.run("diff", source, setting.path("out")).returncode == 0, "the values are those of the source")
        rows = json.loads(setting.run("inspect", "--json", "--table", setting.path("out")).stdout)["tensors"]
        return {row["name"]: row["layout"] for row in rows if ".state." in row["name"]}

    for state, options in ((by_name, ()), (by_name, ("--shard", "w=1")), (by_number, ("--assume", "order")),
                           (by_number, ("--assume", "order", "--shard", "w=1"))):
        found = placements(state, *options)
        check(len(found) == 3 and not any("Shard" in text for text in found.values()), found)
    for rule in ("w=1", "v=1"):
        check("[MODEL-NEEDED]" in placements(by_number, "--shard", rule, expected=BAD_INPUT), rule)
    found = placements(by_number)
    check("Shard" not in found["optimizer.state.0.projector"], found)  # no parameter has its shape


def through_dcp(setting, source):
    setting.run("reshard", source, setting.path("dcp"), "--format", "dcp", "--world-size", "1", "--optim-keys", "flat")
    return written(setting, setting.path("dcp"))


@case(first=(2, 6))
def case_optim_described_biases(setting):
    """A description without units names state that has one dim alone: it is no piece of anything."""
    sizes = {"a.weight": (4, 4), "a.bias": (4,), "b.weight": (2, 4), "b.bias": (2,)}
    parts = {name: {"name": name, "params": []} for name in ("a", "b")}
    for name, shape in sizes.items():
        module, leaf = name.split(".")
        parts[module]["params"].append({"name": leaf, "shape": list(shape), "dtype": "float32"})
    description = {"version": 1, "modules": [{"name": ""}, *parts.values()]}
    source = saved(setting, "in.pt", {"model": {name: torch.ones(shape) for name, shape in sizes.items()},
                                      "optimizer": optimizer(adam((2,), (4,)))})
    for extra in ({}, {"optimizers": {"optimizer": [["b.bias", "a.bias"]]}}):
        with open(setting.path("model.json"), "w", encoding="utf-8") as out:
            json.dump({**description, **extra}, out)
        model = ("--model", setting.path("model.json"))
        found = written(setting, source, "--optim-keys", "name", *model)
        check(list(found["optimizer"]["state"]) == ["b.bias", "a.bias"], list(found["optimizer"]["state"]))
        setting.run("reshard", source, setting.path("ranks"), "--format", "pt-ranks", "--world-size", "1", "--force",
                    "--device-type", "cpu", "--optim-keys", "name", *model)
        shown = setting.run("inspect", "--table", setting.path("ranks")).stdout
        check("optimizer.state.b.bias.exp_avg" in shown, shown)


@case(first=(2, 6))
def case_optim_dcp_numbers(setting):
    """State by number comes out of a DCP folder with the ints that load_state_dict() looks for."""
    import torch.distributed.checkpoint as dcp
    torch.manual_seed(0)
    model = torch.nn.Linear(3, 2)
    made = torch.optim.Adam(model.parameters(), lr=0.125)
    model(torch.ones(2, 3)).sum().backward()
    made.step()
    truth = {"model": model.state_dict(), "optimizer": made.state_dict()}
    dcp.save(truth, checkpoint_id=setting.path("dcp"), no_dist=True)
    found = written(setting, setting.path("dcp"))["optimizer"]
    check(list(found["state"]) == [0, 1], list(found["state"]))
    fresh = torch.nn.Linear(3, 2)
    other = torch.optim.Adam(fresh.parameters(), lr=0.125)
    other.load_state_dict(found)
    for a, b in zip(model.parameters(), fresh.parameters()):
        check(torch.equal(made.state[a]["exp_avg"], other.state[b]["exp_avg"]), "moments")


@case(first=(2, 6))
def case_optim_tensors_inside_objects(setting):
    """Tensors inside modules, tuples and attributes may be the parameters of numbers; nothing is inferred past them."""
    class Pair(NamedTuple):
        w: torch.Tensor
        b: torch.Tensor

    w, b = torch.ones(3, 4), torch.ones(3)
    linear = torch.nn.Linear(4, 3)
    attribute = OrderedDict(x=torch.ones(9))
    attribute.pair = [w, b]
    for i, inside in enumerate((linear, (w, b), torch.nn.ModuleDict({"lin": linear}), attribute, {"deep": (w, b)},
                                [OrderedDict(t=(w, b))])):
        state = {"model": {"0.weight": torch.zeros(3, 4), "0.bias": torch.zeros(3)}, "disc": inside,
                 "optim_d": optimizer(adam((3, 4), (3,)))}
        refused(setting, saved(setting, "inside%d.pt" % i, state), "MODEL-NEEDED")
    # Without the model's own candidates, a tensor inside a module has no name to give.
    state = {"model": {"0.weight": torch.zeros(3, 5)}, "disc": linear, "optim_d": optimizer(adam((3, 4), (3,)))}
    refused(setting, saved(setting, "alone.pt", state), "MODEL-NEEDED")
    # The optimizer's own tensors inside objects are no candidates.
    state = {"model": {"w": torch.zeros(3, 4), "b": torch.zeros(3)}, "optim": optimizer(adam((3, 4), (3,)))}
    state["optim"]["state"][0]["pair"] = (torch.zeros(3, 4), torch.zeros(3))
    found = written(setting, saved(setting, "own.pt", state), "--optim-keys", "name")
    check(list(found["optim"]["state"]) == ["w", "b"], list(found["optim"]["state"]))


@case(first=(2, 6))
def case_optim_named_as_norm_buffer(setting):
    """Only both buffers of a batch norm, of one shape, are not parameters."""
    for i, model in enumerate(({"q.running_mean": torch.ones(6)},
                               {"q.running_mean": torch.ones(6), "q.running_var": torch.ones(7)},
                               {"q.running_mean": torch.ones(6), "r.running_var": torch.ones(6)},
                               {"running_var": torch.ones(6)}, {"q.num_batches_tracked": torch.ones(6)})):
        state = {"model": {**model, "w.bias": torch.ones(6), "w.weight": torch.ones(6, 6)},
                 "optimizer": optimizer(adam((6,), (6, 6)))}
        refused(setting, saved(setting, "named%d.pt" % i, state), "MODEL-NEEDED")
    norm = torch.nn.Sequential(torch.nn.Linear(5, 6, bias=False), torch.nn.BatchNorm1d(6, affine=False))
    state = {"model": {**norm.state_dict(), "bias": torch.ones(6)}, "optimizer": optimizer(adam((6, 5), (6,)))}
    found = written(setting, saved(setting, "norm.pt", state), "--optim-keys", "name")
    check(list(found["optimizer"]["state"]) == ["0.weight", "bias"], list(found["optimizer"]["state"]))


@case(first=(2, 6))
def case_optim_empty_group_flat(setting):
    """The flattened form has no place for a group without parameters: refused, as the manual says."""
    w = torch.ones(3, 2)
    state = {"model": {"w": w}, "optimizer": {"state": {"w": {"exp_avg": w * 2}}, "param_groups": [
        {"lr": .5, "weight_decay": .25, "params": []}, {"lr": .1, "weight_decay": 0., "params": ["w"]}]}}
    done, _ = setting.consolidate(saved(setting, "empty.pt", state), "no.pt", "--optim-keys", "flat", expected=4)
    check("[MODEL-OPTIM]" in done.stderr and "next:" in done.stderr, done.stderr)


def trained(parameter):
    made = torch.optim.AdamW([parameter])
    parameter.grad = torch.ones_like(parameter)
    made.step()
    return made.state_dict()


@case(first=(2, 6))
def case_optim_shapes_mislead(setting):
    """Shapes that leave one candidate only if a trainable parameter is overlooked, or the state is a projection."""
    mean, square = torch.nn.Parameter(torch.ones(5)), torch.ones(3, 3)
    view = torch.nn.Parameter(square.t())
    low = {0: {"step": torch.tensor(1.0), "exp_avg": torch.ones(2, 8), "exp_avg_sq": torch.ones(2, 8)}}
    weights = {"W": torch.ones(8, 8), "P": torch.ones(2, 8)}
    whole = optimizer(low, rank=2, params=[0, 1])
    for name, model, state, candidate in (
            ("mean.pt", {"n.running_mean": mean, "n.running_var": torch.ones(5), "b": torch.ones(5)}, trained(mean),
             "n.running_mean"),
            ("view.pt", {"enc": torch.nn.Parameter(square), "dec": view}, trained(view), "dec"),
            ("low.pt", weights, optimizer(low, rank=2), "W"),
            ("other.pt", weights, optimizer(low, unknown=2), "W"),
            ("whole.pt", weights, whole, "W"),
            ("bare.pt", weights, optimizer(low, params=[0, 1]), "W")):
        refused(setting, saved(setting, name, {"model": model, "optimizer": state}), "MODEL-NEEDED")
        done, _ = setting.consolidate(setting.path(name), "no.pt", "--optim-keys", "name", expected=BAD_INPUT)
        check("'%s'" % candidate in done.stderr, done.stderr)
    refused(setting, setting.path("low.pt"), "MODEL-NEEDED", "--assume", "order")
    found = written(setting, setting.path("whole.pt"), "--optim-keys", "name", "--assume", "order")["optimizer"]
    check(list(found["state"]) == ["W"] and found["param_groups"][0]["params"] == ["W", "P"], found)
    given = saved(setting, "given.pt", {"model": weights, "optimizer": optimizer(low, rank=2, param_names=["W"])})
    check(list(written(setting, given, "--optim-keys", "name")["optimizer"]["state"]) == ["W"], "param_names")


@case(first=(2, 6))
def case_optim_flat_loses_groups(setting):
    """Groups that the flattened form loses are a finding in both directions, also with -q."""
    names = ["b", "a", "c"]
    state = {"model": {name: torch.ones(3) for name in names},
             "optim": {"state": {name: {"exp_avg": torch.ones(3)} for name in names}, "param_groups": [
                 {"lr": rate, "params": [name]} for name, rate in zip(names, (1.0, 1.0, 2.0))]}}
    source = saved(setting, "groups.pt", state)
    for given, keys in ((source, "flat"), (setting.path("flat.pt"), "name")):
        out = setting.path(keys + ".pt")
        done = setting.run("consolidate", given, out, "-q", "--optim-keys", keys)
        check("[OPTIM-GROUPS]" in done.stderr, "%s: %s" % (keys, done.stderr))
        done = setting.run("consolidate", given, out, "--force", "--json", "--optim-keys", keys)
        found = [finding["finding"] for finding in json.loads(done.stdout)["findings"]]
        check(found == ["OPTIM-GROUPS"], "%s: %s" % (keys, found))
    one = saved(setting, "one.pt", {"model": state["model"], "optim": {
        "state": state["optim"]["state"], "param_groups": [{"lr": 1.0, "params": names}]}})
    done = setting.run("consolidate", one, setting.path("flat1.pt"), "--optim-keys", "flat")
    check("OPTIM-GROUPS" not in done.stderr, done.stderr)


def trained_groups(params):
    """An optimizer of two groups after a step: the first parameter, and the others."""
    made = torch.optim.AdamW([{"params": params[:1]}, {"params": params[1:]}])
    for param in params:
        param.grad = torch.randn(3)
    made.step()
    return made


def named_optimizer(names):
    state = {name: {"step": torch.tensor(1.0), "exp_avg": torch.full((3,), i + 1.0)} for i, name in enumerate(names)}
    return {"state": state, "param_groups": [{"lr": 0.5, "weight_decay": 0.25, "params": list(names)}]}


def check_named(optim, names):
    check(list(optim["state"]) == names, list(optim["state"]))
    for i, name in enumerate(names):
        slots = optim["state"][name]
        check(set(slots) == {"step", "exp_avg"} and slots["exp_avg"][0] == i + 1, "%s: %s" % (name, slots))
    check(optim["param_groups"] == [{"lr": 0.5, "weight_decay": 0.25, "params": names}], optim["param_groups"])


@case(first=(2, 6))
def case_optim_rename_numbers(setting):
    """A rename leaves alone the numbers of state, list indexes and the optimizer's own keys."""
    params = [torch.nn.Parameter(torch.randn(3)) for _ in range(3)]
    made = trained_groups(params)
    truth = made.state_dict()
    source = saved(setting, "in.pt", {"model": {"l.%d.weight" % i: p.detach() for i, p in enumerate(params)},
                                      "optimizer": truth})
    for rule, names in ((r"s/\.0\./.7./", ["l.7.weight", "l.1.weight", "l.2.weight"]),
                        (r"s/(l|state|groups)\.0\./\1.7./", ["l.7.weight", "l.1.weight", "l.2.weight"]),
                        ("s/weight/w/", ["l.0.w", "l.1.w", "l.2.w"])):
        found = written(setting, source, "--rename", rule)
        check(list(found["model"]) == names, list(found["model"]))
        check(found["optimizer"]["param_groups"] == truth["param_groups"], found["optimizer"]["param_groups"])
        check(list(found["optimizer"]["state"]) == [0, 1, 2], list(found["optimizer"]["state"]))
        setting.run("diff", source, setting.path("out.pt"), "--part", "all", "--rename", rule)
        fresh = torch.optim.AdamW([{"params": params[:1]}, {"params": params[1:]}])
        fresh.load_state_dict(found["optimizer"])
        for param in params:
            check(torch.equal(fresh.state[param]["exp_avg"], made.state[param]["exp_avg"]), rule)
    for option, rule in (("--rename", r"s/state\.0\./state.7./"), ("--rename", "s/param_groups/groups/"),
                         ("--strip-prefix", "optimizer.state.")):
        done, _ = setting.consolidate(source, "no.pt", option, rule, expected=USAGE)
        check("[KEY-LIST]" in done.stderr and rule in done.stderr, done.stderr)
    # Names only: a number does not become another.
    setting.consolidate(source, "out.safetensors", "--part", "all", "--rename", r"s/\.0\./.7./")
    shown = setting.run("inspect", "--table", setting.path("out.safetensors")).stdout
    check("model.l.7.weight" in shown and "optimizer.state.0.exp_avg" in shown, shown)


@case(first=(2, 6))
def case_optim_rename_state(setting):
    """State by name and param_groups get the names that the rules give to the model, in .pt and DCP."""
    old = ["a.weight", "b.weight"]
    source = saved(setting, "in.pt", {"model": {name: torch.ones(3) for name in old}, "optim": named_optimizer(old)})
    for rule, new in (("s/weight/w/", ["a.w", "b.w"]), (r"s/\.weight/.weight.orig/", ["a.weight.orig", "b.weight.orig"]),
                      (r"s/^model\.(.)\.weight$/model.weight_of.\1/", ["weight_of.a", "weight_of.b"]),
                      (r"s/\.(.)\.weight/.\1.exp_avg/", ["a.exp_avg", "b.exp_avg"])):
        setting.run("reshard", source, setting.path("dcp"), "--format", "dcp", "--world-size", "2", "--force",
                    "--rename", rule)
        for found in (written(setting, source, "--rename", rule), written(setting, setting.path("dcp"))):
            check(list(found["model"]) == new, list(found["model"]))
            check_named(found["optim"], new)
        setting.run("diff", source, setting.path("out.pt"), "--part", "all", "--rename", rule)


@case(first=(2, 6))
def case_optim_rename_outer(setting):
    """Lists stay lists where only a key above them changes or goes."""
    params = [torch.nn.Parameter(torch.randn(3)) for _ in range(2)]
    made = trained_groups(params)
    truth = made.state_dict()
    source = saved(setting, "in.pt", {"model": {"a": params[0].detach(), "b": params[1].detach()}, "optimizer": truth,
                                      "lst": [torch.ones(2), torch.ones(3)]})
    for options, key in ((("--part", "optimizer", "--strip-prefix", "optimizer."), None),
                         (("--rename", r"s/^optimizer\.//"), None), (("--rename", "s/^optimizer/opt2/"), "opt2"),
                         (("--rename", "s/^lst/ls/"), "optimizer")):
        found = written(setting, source, *options)
        optim = found if key is None else found[key]
        check(optim["param_groups"] == truth["param_groups"] and list(optim["state"]) == [0, 1], list(optim))
    check(isinstance(found["ls"], list) and [len(t) for t in found["ls"]] == [2, 3], list(found))
    done, _ = setting.consolidate(source, "no.pt", "--rename", "s/^lst/ls/", "--exclude", "lst.0", expected=USAGE)
    check("[KEY-LIST]" in done.stderr, done.stderr)


@case(first=(2, 6))
def case_optim_clean_names(setting):
    """--clean-names takes DDP's prefix off the model, the state and param_groups alike."""
    for prefix in ("_orig_mod.", "module.", "module._orig_mod."):
        old = [prefix + name for name in ("a", "b.state.module.c")]
        source = saved(setting, "in.pt", {"model": {name: torch.ones(3) for name in old},
                                          "optim": named_optimizer(old)})
        flat = {"model": {name: torch.ones(3) for name in old},
                "optim": {**{"state.%s.exp_avg" % name: torch.ones(3) for name in old},
                          **{"param_groups.%s.lr" % name: 0.5 for name in old}}}
        new = ["a", "b.state.module.c"]
        for rules in ((), ("--rename", "s/c$/d/")):
            now = new if not rules else ["a", "b.state.module.d"]
            found = written(setting, source, "--clean-names", *rules)
            check(list(found["model"]) == now, list(found["model"]))
            check_named(found["optim"], now)
            found = written(setting, saved(setting, "flat.pt", flat), "--clean-names", *rules)
            check(list(found["model"]) == now, list(found["model"]))
            check(set(found["optim"]) == {"state.%s.exp_avg" % name for name in now} |
                  {"param_groups.%s.lr" % name for name in now}, list(found["optim"]))


@case(first=(2, 6))
def case_optim_parameter_of_loss(setting):
    """The loss has a parameter that is not saved; a frozen parameter of the model has its shape."""
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Linear(4, 5))
    trained = list(model.parameters())
    for params, warns in (([*trained[:2], trained[3], torch.nn.Parameter(torch.randn(5, 4))], True), (trained, False),
                          ([param for _, param in sorted(model.named_parameters())], False)):
        made = torch.optim.Adam(params)
        for param in params:
            param.grad = torch.ones_like(param)
        made.step()
        source = saved(setting, "in.pt", {"model": model.state_dict(), "optimizer": made.state_dict()})
        done, _ = setting.consolidate(source, "out.pt", "--force", "--optim-keys", "name")
        check(("[OPTIM-ORDER]" in done.stderr) == warns and ("number 3 is '1.weight'" in done.stderr) == warns, done.stderr)
