"""Optimizer state by number, by name and flattened, made one from another, as real torch takes it."""

import glob
import io
import json
import os
import re

import torch
from torch import nn

from checkpoint_truth import tensor_bytes, tensor_label
from release import RELEASE
from support import (BAD_INPUT, UNSUPPORTED, USAGE, Failure, case, check, check_same_names, fixture_source, load_pt)

# What one says who gave the optimizer model.parameters() as they come; numbers do not tell it.
IN_ORDER = ("--assume", "order")

STATE = re.compile(r"^\S+\s+\S+\s+(?:optim\w*\.)?state\.", re.M)


def same(a, b, where=""):
    """The same in types of keys, tensors by their bytes, objects by ==."""
    if isinstance(a, dict) and isinstance(b, dict):
        check(set(map(repr, a)) == set(map(repr, b)), "%s: keys %s and %s" % (where, list(a)[:9], list(b)[:9]))
        for key in a:
            same(a[key], b[key], "%s.%s" % (where, key))
    elif isinstance(a, (list, tuple)) and type(a) is type(b):
        check(len(a) == len(b), where + ": lengths")
        for i, pair in enumerate(zip(a, b)):
            same(*pair, "%s.%d" % (where, i))
    elif isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor):
        check(tensor_label(a) == tensor_label(b) and tensor_bytes(a) == tensor_bytes(b), where + " differs")
    else:
        check(type(a) is type(b) and (a == b or (a != a and b != b)), "%s: %r and %r" % (where, a, b))


def part(state):
    """The optimizer of a state, and its key."""
    key = next(key for key in ("optim", "optimizer") if key in state)
    return state[key]


def rekey(setting, source, keys, name, *options):
    _, path = setting.consolidate(source, name, "--force", "--optim-keys", keys, *options)
    return path, part(load_pt(path, weights_only=False))


def form_of(optimizer):
    if "param_groups" not in optimizer:
        return "flat"
    members = [member for group in optimizer["param_groups"] for member in group["params"]]
    return "id" if all(isinstance(member, int) for member in members) else "name"


# --- without state ---

@case((2, 5))
def case_optim_without_state(setting):
    """SGD without momentum: DCP has no key for its empty state, and no optimizer loads a dict that lacks it."""
    import torch.distributed.checkpoint as dcp
    net = nn.Linear(3, 2)
    optimizers = [torch.optim.SGD(net.parameters(), lr=lr) for lr in (0.25, 0.5)]
    state = {"model": net.state_dict(), "optimizer": optimizers[0].state_dict()}
    dcp.save(state, checkpoint_id=setting.path("dcp"), no_dist=True)
    torch.save(state, setting.path("plain.pt"))
    chains = [("dcp", "id"), ("plain.pt", "id"), ("dcp", "name", "id"), ("plain.pt", "name", "id"),
              ("dcp", "name", "flat", "id"), ("plain.pt", "flat", "name", "id")]
    for source, *forms in chains:
        path = setting.path(source)
        for step, form in enumerate(forms):
            path, found = rekey(setting, path, form, "%s-%d.pt" % ("-".join([source, *forms]), step), *IN_ORDER,
                                "--objects", "error")
            check(form == "flat" or found["state"] == {}, "%s, %s: %r" % (source, forms, found))
        optimizers[1].load_state_dict(found)
        same(optimizers[1].state_dict()["state"], {})
        check(optimizers[1].param_groups[0]["lr"] == 0.25, "%s, %s" % (source, forms))
        setting.run("diff", setting.path(source), path)
    done = setting.run("reshard", setting.path("dcp"), setting.path("again"), "--world-size", "1", "--optim-keys",
                       "name", *IN_ORDER, "--objects", "error")
    check("left out" not in done.stdout + done.stderr, done.stdout)


# --- every fixture ---

# What no model part can tell: one of its modules is in no group.
TRAINING = [["0.weight", "0.bias"], ["2.0.weight", "2.0.bias"]]


def optimizer_fixtures(fixtures):
    for digests in sorted(glob.glob(os.path.join(fixtures, "torch-*", "*.digests"))):
        with open(digests, encoding="utf-8") as text:
            stem, holds_state = digests[:-len(".digests")], STATE.search(text.read())
        if holds_state and "torch-1.13.1/dcp" not in stem:
            yield stem
    yield os.path.join(fixtures, "quickstart")


def described(state, groups):
    """A description of a full state's model: what is in no group is a buffer. groups: names, as the numbers have them."""
    trained = {name for group in groups for name in group}
    modules = {"": {"name": ""}}
    for name, tensor in state["model"].items():
        path, _, leaf = name.rpartition(".")
        parts = path.split(".") if path else []
        for depth in range(len(parts)):
            modules.setdefault(".".join(parts[:depth + 1]), {"name": ".".join(parts[:depth + 1])})
        entry = {"name": leaf, "shape": list(tensor.shape), "dtype": str(tensor.dtype).replace("torch.", "")}
        modules[path].setdefault("params" if name in trained else "buffers", []).append(entry)
    rows = sorted(modules.values(), key=lambda module: module["name"].split("."))
    return {"version": 1, "optimizers": {"any": groups}, "modules": rows}


def groups_by_number(name, number):
    """Names of each group in the order of their numbers: states are equal where number and name are one parameter."""
    names = {}
    for key, state in number["state"].items():
        twin = [other for other, held in name["state"].items() if list(held) == list(state) and all(
            not isinstance(held[k], torch.Tensor) or tensor_bytes(held[k]) == tensor_bytes(state[k]) for k in state)]
        check(len(twin) == 1, "state %s is that of %s" % (key, twin))
        names[key] = twin[0]
    return [[names[key] for key in group["params"]] for group in number["param_groups"]]


def turn(setting, stem, options):
    """name -> id -> name and id -> name -> id, both from the fixture as it is; the flattened form and back."""
    options = [*options, *IN_ORDER]
    _, path = setting.consolidate(fixture_source(stem), "as-is.pt", "--force", *options)
    given = part(load_pt(path, weights_only=False))
    name_path, name = rekey(setting, fixture_source(stem), "name", "name.pt", *options)
    id_path, number = rekey(setting, fixture_source(stem), "id", "id.pt", *options)
    check(form_of(name) == "name" and form_of(number) == "id", "forms of " + stem)
    again = IN_ORDER
    # A second name of a parameter, with bytes of its own; parameters without state among equal shapes.
    if len(options) > len(IN_ORDER) or "-tied" in stem or "deepspeed" in stem:
        with open(setting.path("again.json"), "w", encoding="utf-8") as out:
            json.dump(described(load_pt(name_path, weights_only=False), groups_by_number(name, number)), out)
        again = ("--model", setting.path("again.json"), *IN_ORDER)
    if form_of(given) == "flat":
        same(rekey(setting, name_path, "flat", "flat.pt")[1], given, "flat of " + stem)
    else:
        same(name if form_of(given) == "name" else number, given, stem)
        flat_path, flat = rekey(setting, name_path, "flat", "flat.pt")
        check(form_of(flat) == "flat", "flat form of " + stem)
        same(rekey(setting, flat_path, "name", "back.pt", *again)[1], name, "flat and back of " + stem)
    same(rekey(setting, name_path, "id", "id-2.pt", *again)[1], number, "id of name of " + stem)
    same(rekey(setting, id_path, "name", "name-2.pt", *again)[1], name, "name of id of " + stem)
    same(rekey(setting, setting.path("id-2.pt"), "name", "name-3.pt", *again)[1], name, "there and back of " + stem)
    same(rekey(setting, setting.path("name-2.pt"), "id", "id-3.pt", *again)[1], number, "back and there of " + stem)
    return name, number


@case(first=(2, 15))
def case_optim_fixtures(setting):
    turned = 0
    for stem in optimizer_fixtures(setting.fixtures):
        options = []
        if os.path.exists(stem + ".units.json"):
            options = ["--model", stem + ".units.json"]
        elif os.path.exists(os.path.join(stem, "checkpoint.pt")):
            options = ["--model", setting.path("training.json")]
            state = load_pt(os.path.join(stem, "checkpoint.pt"), weights_only=False)
            with open(options[1], "w", encoding="utf-8") as out:
                json.dump(described(state, TRAINING), out)
        try:
            _, number = turn(setting, stem, options)
            if os.path.exists(os.path.join(stem, "checkpoint.pt")):
                same(number, part(state), "numbers of " + stem)
        except Failure as failure:
            raise Failure(stem + ": " + str(failure)) from None
        turned += 1
    # 1.13 writes no planner_data: the keys stay flat, and the list of the group gives the numbers.
    source = os.path.join(setting.fixtures, "torch-1.13.1", "dcp-sharded-tensor")
    names, numbers = (load_pt(setting.consolidate(source, "flat-%s.pt" % key, "--optim-keys", key)[1], weights_only=False)
                      for key in ("name", "id"))
    group = names["optim.param_groups.0.params"]
    check(len(group) == 5 and numbers["optim.param_groups.0.params"] == list(range(5)), "flat group: %s" % group)
    for number, name in enumerate(group):
        for moment in ("step", "exp_avg", "exp_avg_sq"):
            check(torch.equal(numbers["optim.state.%d.%s" % (number, moment)],
                              names["optim.state.%s.%s" % (name, moment)]), "flat %s of %s" % (moment, name))
    check(turned > 25, "only %d fixtures have optimizer state" % turned)


# --- every optimizer, in plain torch ---

class Net(nn.Module):
    """A tied weight, a frozen one, BatchNorm, a parameter of one element and one of none."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(7, 4)
        self.norm = nn.BatchNorm1d(4)
        self.one = nn.Parameter(torch.ones(1))
        self.block = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 4, bias=False))
        self.frozen = nn.Linear(4, 5)
        self.head = nn.Linear(4, 7, bias=False)
        self.head.weight = self.embedding.weight
        self.frozen.weight.requires_grad_(False)

    def forward(self, x):
        x = self.norm(self.embedding(x)) * self.one
        return self.head(self.block(x)) + self.frozen(x).sum()


FROZEN = 7  # frozen.weight, in the order of parameters()


def all_of(model):
    return [{"params": list(model.parameters())}]


def by_decay(model):
    """Two groups that shapes settle, one of them with a hyper-parameter of its own."""
    return [{"params": [p for p in model.parameters() if p.dim() > 1], "weight_decay": 0.25},
            {"params": [p for p in model.parameters() if p.dim() < 2], "note": ("kept", [1, None])}]


def with_empty(model):
    return [{"params": []}, {"params": list(model.parameters())}]


def optimizers():
    """name -> (make(model), whether torch's flattened form holds it)"""
    optim = torch.optim
    made = {
        "adam": lambda m: optim.Adam(all_of(m), lr=0.125, betas=(0.5, 0.75)),
        "adamw-amsgrad": lambda m: optim.AdamW(all_of(m), lr=0.125, amsgrad=True),
        "sgd": lambda m: optim.SGD(all_of(m), lr=0.125),
        "sgd-momentum": lambda m: optim.SGD(all_of(m), lr=0.125, momentum=0.5, nesterov=True),
        "rmsprop": lambda m: optim.RMSprop(all_of(m), lr=0.125, centered=True),
        "adagrad": lambda m: optim.Adagrad(all_of(m), lr=0.125),
        "adadelta": lambda m: optim.Adadelta(all_of(m), lr=0.125),
        "by-decay": lambda m: optim.AdamW(by_decay(m), lr=0.125),
        "with-empty": lambda m: optim.Adam(with_empty(m), lr=0.125),
    }
    if RELEASE >= (2, 4):
        made["tensor-lr"] = lambda m: optim.Adam(all_of(m), lr=torch.tensor(0.125))
    if RELEASE >= (2, 5):
        made["adafactor"] = lambda m: optim.Adafactor(all_of(m), lr=0.125)
    if RELEASE >= (2, 6):
        made["given-names"] = lambda m: optim.Adam(list(reversed(list(m.named_parameters()))), lr=0.125)
    return made


def step(model, optimizer, seed):
    tokens = (torch.arange(9) * seed + 1) % 7
    loss = nn.functional.cross_entropy(model(tokens), tokens)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


def trained(make):
    torch.manual_seed(5)
    model = Net()
    optimizer = make(model)
    for seed in (2, 3):
        step(model, optimizer, seed)
    return model, optimizer


def after_one_more(model, optimizer):
    step(model, optimizer, 4)
    return {name: p.detach().clone() for name, p in model.named_parameters()}


def fresh(make, model_state):
    torch.manual_seed(99)
    model = Net()
    model.load_state_dict(model_state)
    return model, make(model)


def clone(state):
    return torch.load(copy_of(state), weights_only=False)


def copy_of(state):
    buffer = io.BytesIO()
    torch.save(state, buffer)
    buffer.seek(0)
    return buffer


def load_by_name(model, optimizer, state):
    """As a user of torch.distributed.checkpoint does; also the flattened form."""
    from torch.distributed.checkpoint.state_dict import StateDictOptions, set_optimizer_state_dict
    set_optimizer_state_dict(model, optimizer, state, options=StateDictOptions(
        flatten_optimizer_state_dict=form_of(state) == "flat"))


def check_goes_on(make, model_state, truth, state, load, what):
    """A fresh optimizer takes the state, says the same of itself, and its next step is the original's."""
    model, optimizer = fresh(make, model_state)
    load(model, optimizer, clone(state))
    held, expected = optimizer.state_dict()["state"], truth["optimizer"]["state"]
    if load is load_by_name:  # which leaves a frozen parameter's state out (Adagrad makes one)
        expected = {key: value for key, value in expected.items() if key in held or key != FROZEN}
    same(held, expected, what)
    for group, expected in zip(optimizer.param_groups, truth["optimizer"]["param_groups"]):
        for key, value in expected.items():
            if key != "params":
                check(key in group and repr(group[key]) == repr(value), "%s: %s of a group" % (what, key))
    same(after_one_more(model, optimizer), truth["next"], what + ", next step")


def load_by_number(model, optimizer, state):
    optimizer.load_state_dict(state)


@case(first=(2, 6))
def case_optim_plain(setting):
    for name, make in optimizers().items():
        model, optimizer = trained(make)
        state = clone({"model": model.state_dict(), "optimizer": optimizer.state_dict()})
        source = setting.path(name + ".pt")
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, source)
        truth = {"optimizer": clone(optimizer.state_dict()), "next": after_one_more(model, optimizer)}
        says = () if name == "given-names" else IN_ORDER
        if name not in ("given-names", "sgd"):  # the norm's weight and bias have one shape
            done, _ = setting.consolidate(source, "no.pt", "--optim-keys", "name", expected=BAD_INPUT)
            check("MODEL-NEEDED" in done.stderr and "--assume order" in done.stderr, done.stderr)
        name_path, named = rekey(setting, source, "name", "by-name.pt", *says)
        number_path, number = rekey(setting, name_path, "id", "by-id.pt", *says)
        same(number, truth["optimizer"], name + ", there and back")
        check_goes_on(make, state["model"], truth, number, load_by_number, name + " by number")
        # set_optimizer_state_dict knows neither a group without parameters nor groups that list names in another order.
        if name not in ("with-empty", "given-names"):
            check_goes_on(make, state["model"], truth, named, load_by_name, name + " by name")
        if name == "with-empty":
            continue
        if name == "tensor-lr":
            done, _ = setting.consolidate(source, "no.pt", "--optim-keys", "flat", *says, expected=UNSUPPORTED)
            check("lr" in done.stderr, done.stderr)
            continue
        if name == "given-names":  # an order that the flattened form does not tell
            continue
        flat_path, flat = rekey(setting, source, "flat", "flat.pt", *says)
        same(rekey(setting, flat_path, "id", "of-flat.pt", *says)[1]["state"], number["state"], name + " of flat")
        # 2.6 asks for the state of both names of a tied weight.
        if name not in ("by-decay", "sgd") and RELEASE >= (2, 15):
            check_goes_on(make, state["model"], truth, flat, load_by_name, name + " flattened")


@case(first=(2, 6))
def case_optim_dcp(setting):
    """What get_optimizer_state_dict gives, saved by DCP, both forms, as a plain optimizer's own."""
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.state_dict import StateDictOptions, get_optimizer_state_dict
    for name, make in optimizers().items():
        if name in ("with-empty", "given-names", "tensor-lr"):
            continue
        for flat in (False, True):
            if flat and name in ("sgd", "by-decay"):
                continue
            model, optimizer = trained(make)
            folder = setting.path("%s-%s" % (name, flat))
            options = StateDictOptions(flatten_optimizer_state_dict=flat)
            states = {"model": model.state_dict(), "optim": get_optimizer_state_dict(model, optimizer, options=options)}
            dcp.save(states, checkpoint_id=folder)
            model_state = clone(model.state_dict())
            truth = {"optimizer": clone(optimizer.state_dict()), "next": after_one_more(model, optimizer)}
            what = "%s of DCP%s" % (name, ", flattened" if flat else "")
            _, number = rekey(setting, folder, "id", "by-id.pt", *IN_ORDER)
            if name == "sgd":  # DCP has no place for a dict without items
                number.setdefault("state", {})
            check_goes_on(make, model_state, truth, number, load_by_number, what)
            _, named = rekey(setting, folder, "name", "by-name.pt")
            if name != "sgd":
                check_goes_on(make, model_state, truth, named, load_by_name, what + " by name")


@case(first=(2, 4))
def case_optim_needs_model(setting):
    """Two parameters of one shape, one of which is trained: nobody can tell which."""
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    optimizer = torch.optim.Adam(model[1].parameters(), lr=0.125)
    model(torch.ones(2, 3)).sum().backward()
    optimizer.step()
    source = setting.path("some.pt")
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, source)
    done, _ = setting.consolidate(source, "no.pt", "--optim-keys", "name", expected=BAD_INPUT)
    check("MODEL-NEEDED" in done.stderr and "--model" in done.stderr, done.stderr)
    import describe_model
    with open(setting.path("model.json"), "w", encoding="utf-8") as out:
        json.dump(describe_model.describe(model, optimizer), out)
    _, named = rekey(setting, source, "name", "named.pt", "--model", setting.path("model.json"))
    check(list(named["state"]) == ["1.weight", "1.bias"], "names: %s" % list(named["state"]))
    number = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
    torch.save({"optimizer": number["optimizer"]}, setting.path("alone.pt"))
    done, _ = setting.consolidate(setting.path("alone.pt"), "no.pt", "--optim-keys", "name", expected=BAD_INPUT)
    check("MODEL-NEEDED" in done.stderr, done.stderr)
    torch.save({"model": model.state_dict()}, setting.path("model.pt"))
    setting.consolidate(setting.path("model.pt"), "no.pt", "--optim-keys", "name", expected=USAGE)


# --- numbers in another order than the model's ---

class Block(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.ln = nn.LayerNorm(size)
        self.fc = nn.Linear(size, size)

    def forward(self, x):
        return x + self.fc(self.ln(x))


class Blocks(nn.Module):
    """Twelve blocks, so that `h.10` sorts before `h.2`."""

    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(9, 6)
        self.h = nn.ModuleList(Block(6) for _ in range(12))
        self.head = nn.Linear(6, 9, bias=False)

    def forward(self, tokens):
        x = self.emb(tokens)
        for block in self.h:
            x = block(x)
        return self.head(x)


def sorted_groups(model, named):
    """As configure_optimizers() of minGPT makes them."""
    params = dict(model.named_parameters())
    decay = sorted(name for name, p in params.items() if p.dim() > 1 and not name.startswith("emb"))
    plain = sorted(set(params) - set(decay))
    return [{"params": [(name, params[name]) if named else params[name] for name in names], "weight_decay": value}
            for names, value in ((decay, 0.25), (plain, 0.0))]


def some_backwards(model, named):
    """A part of the parameters, last ones first, in one group."""
    params = [(name, p) for name, p in model.named_parameters() if ".fc." in name and not name.startswith("h.0.")]
    return [{"params": [pair if named else pair[1] for pair in reversed(params)]}]


def train_blocks(groups, named):
    torch.manual_seed(3)
    model = Blocks()
    optimizer = torch.optim.AdamW(groups(model, named), lr=0.125)
    tokens = torch.arange(9)
    for seed in (2, 3):
        nn.functional.cross_entropy(model(tokens), tokens * seed % 9).backward()
        optimizer.step()
        optimizer.zero_grad()
    return model, optimizer


def check_moments(model, optimizer, state, what):
    """Each parameter has its own moments, and they load by name into an optimizer made alike."""
    own = {name: optimizer.state[p] for name, p in model.named_parameters() if p in optimizer.state}
    check_same_names(state["state"], own, what)
    for name, moments in own.items():
        same(dict(state["state"][name]), dict(moments), "%s: %s" % (what, name))
    for group, expected in zip(state["param_groups"], optimizer.param_groups):
        ids = {id(p): name for name, p in model.named_parameters()}
        check(group["params"] == [ids[id(p)] for p in expected["params"]], what + ": groups")
        check(group["weight_decay"] == expected["weight_decay"], what + ": weight_decay")


@case(first=(2, 6))
def case_optim_sorted_groups(setting):
    """Numbers do not tell which parameters they are: asked for, unless names or a description tell it."""
    import describe_model
    for groups in (sorted_groups, some_backwards):
        what = groups.__name__
        for named in (False, True):
            model, optimizer = train_blocks(groups, named)
            source = setting.path("%s-%s.pt" % (what, named))
            torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, source)
            for keys, described in (("bare", describe_model.describe(model)),
                                    ("full", describe_model.describe(model, optimizer))):
                with open(setting.path(keys + ".json"), "w", encoding="utf-8") as out:
                    json.dump(described, out)
            bare, full = ("--model", setting.path("bare.json")), ("--model", setting.path("full.json"))
            if not named:
                for keys in ("name", "flat"):
                    for options in ((), bare):
                        done, _ = setting.consolidate(source, "no.pt", "--optim-keys", keys, *options,
                                                      expected=BAD_INPUT)
                        check("MODEL-NEEDED" in done.stderr and "'h." in done.stderr and
                              "describe_model" in done.stderr and "--assume order" in done.stderr, done.stderr)
                check(not os.path.exists(setting.path("no.pt")), what + ": something was written")
                done = setting.run("reshard", source, setting.path("no"), "--world-size", "2", "--format", "pt-ranks",
                                   "--replicate", "h.3.fc.*", expected=BAD_INPUT)
                check("MODEL-NEEDED" in done.stderr, done.stderr)
            for options in ((), bare, full) if named else (full,):
                name_path, state = rekey(setting, source, "name", "named.pt", *options)
                check_moments(model, optimizer, state, "%s, %s" % (what, options[-1:]))
            _, number = rekey(setting, name_path, "id", "number.pt", *full)
            same(number["state"], clone(optimizer.state_dict())["state"], what + ": back to numbers")
            torch.manual_seed(4)
            again = Blocks()
            loaded = torch.optim.AdamW(groups(again, named), lr=0.5)
            loaded.load_state_dict(number)
            same(loaded.state_dict()["state"], optimizer.state_dict()["state"], what + ": loaded")
            if not named:  # sorted names say nothing of the order, nor does the flattened form
                for keys in ("name", "flat"):
                    path, _ = rekey(setting, source, keys, "in.pt", *full)
                    done, _ = setting.consolidate(path, "no.pt", "--optim-keys", "id", expected=BAD_INPUT)
                    check("MODEL-NEEDED" in done.stderr, done.stderr)


def train_and_save_flat(folder, model, optimizer, columns):
    """Two steps; then FSDP1's raw state in files of each rank. Returns the complete state of the optimizer."""
    import torch.distributed as dist
    from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, StateDictType
    for seed in (2, 3):
        model((torch.arange(5.0 * columns).reshape(5, columns) * seed) % 7 / 7).square().sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    os.makedirs(folder, exist_ok=True)
    suffix = "_world_size_%d_rank_%d.pt" % (dist.get_world_size(), dist.get_rank())
    with FSDP.state_dict_type(model, StateDictType.LOCAL_STATE_DICT):
        torch.save(model.state_dict(), os.path.join(folder, "model" + suffix))
    torch.save(optimizer.state_dict(), os.path.join(folder, "optim" + suffix))
    with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT):
        return FSDP.optim_state_dict(model, optimizer)


def rank_save_same_units(folder, orig):
    """FSDP1's raw state by number of an optimizer that was given units of one size last first."""
    import torch.distributed as dist
    from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
    from cases_fsdp1 import allow_cpu
    from describe_model import describe
    allow_cpu()
    options = {"device_id": torch.device("cpu"), "use_orig_params": orig}
    torch.manual_seed(7)
    model = FSDP(nn.Sequential(*(FSDP(nn.Linear(6, 6), **options) for _ in range(3)), nn.Linear(6, 2)), **options)
    params = list(model.parameters())
    params = params[4:6] + params[2:4] + params[:2] + params[6:] if orig else params[:1] + params[:0:-1]
    optimizer = torch.optim.SGD(params, lr=0.125, momentum=0.5)
    truth = train_and_save_flat(folder, model, optimizer, 6)
    bare, full = describe(model), describe(model, optimizer)
    if dist.get_rank() == 0:
        torch.save(truth, folder + ".truth")
        for name, described_model in (("bare", bare), ("full", full)):
            with open("%s.%s.json" % (folder, name), "w", encoding="utf-8") as out:
                json.dump(described_model, out)


@case(first=(2, 15))
def case_optim_fsdp1_other_order(setting):
    from process_group import run_ranks
    for orig in (False, True):
        folder = setting.path("same-%s" % orig)
        run_ranks(2, rank_save_same_units, folder, orig)
        truth = torch.load(folder + ".truth", weights_only=True)
        for options in (("--optim-keys", "name"), ()):
            done, _ = setting.consolidate(folder, "no.pt", "--model", folder + ".bare.json", *options,
                                          expected=BAD_INPUT)
            check("MODEL-NEEDED" in done.stderr and "describe_model" in done.stderr, done.stderr)
        setting.consolidate(folder, "model.safetensors", "--force", "--model", folder + ".bare.json")
        _, named = rekey(setting, folder, "name", "named.pt", "--model", folder + ".full.json")
        check_same_names(named["state"], truth["state"], "units of one size")
        for name, state in truth["state"].items():
            same(dict(named["state"][name]), dict(state), "state of %s, %s" % (name, orig))


# --- sharded ---

def rank_save_sharded(folder, kind):
    """kind: fsdp2 (rank files of raw optimizer state), full, sharded (FSDP.optim_state_dict)."""
    import torch.distributed as dist
    import torch.distributed.checkpoint as dcp
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.checkpoint.state_dict import StateDictOptions, get_state_dict
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(5)
    model = nn.Sequential(nn.Linear(4, 7), nn.Sequential(nn.Linear(7, 7), nn.Linear(7, 3, bias=False)), nn.Linear(3, 4))
    if kind == "fsdp2":
        if RELEASE >= (2, 6):
            from torch.distributed.fsdp import fully_shard
        else:
            from torch.distributed._composable.fsdp import fully_shard
        mesh = init_device_mesh("cpu", (world,), mesh_dim_names=("fsdp",))
        for module in (model[1], model):
            fully_shard(module, mesh=mesh)
    else:
        from cases_fsdp1 import allow_cpu
        from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
        allow_cpu()
        options = {"device_id": torch.device("cpu"), "use_orig_params": kind != "sharded"}
        model[1] = FSDP(model[1], **options)
        model = FSDP(model, **options)
    groups = [{"params": [p for p in model.parameters()]}]
    optimizer = torch.optim.SGD(groups, lr=0.125, momentum=0.5)
    for seed in (2, 3):
        model((torch.arange(20.0).reshape(5, 4) * seed) % 7 / 7).square().sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    full = StateDictOptions(full_state_dict=True, cpu_offload=True)
    model_truth, optim_truth = get_state_dict(model, optimizer, options=full)
    if rank == 0:
        torch.save({"model": model_truth, "optim": optim_truth}, folder + ".truth")
    os.makedirs(folder, exist_ok=True)
    if kind == "fsdp2":
        torch.save(model.state_dict(), os.path.join(folder, "model_world_size_%d_rank_%d.pt" % (world, rank)))
        torch.save(optimizer.state_dict(), os.path.join(folder, "optim_world_size_%d_rank_%d.pt" % (world, rank)))
        return
    from torch.distributed.fsdp import StateDictType
    form = StateDictType.FULL_STATE_DICT if kind == "full" else StateDictType.SHARDED_STATE_DICT
    with FSDP.state_dict_type(model, form):
        state = {"model": model.state_dict(), "optim": FSDP.optim_state_dict(model, optimizer)}
    if kind == "full":
        if rank == 0:
            torch.save(state, os.path.join(folder, "checkpoint.pt"))
    else:
        dcp.save(state, checkpoint_id=folder)


def check_sharded(setting, kind):
    from process_group import run_ranks
    folder = setting.path(kind)
    run_ranks(3, rank_save_sharded, folder, kind)
    truth = torch.load(folder + ".truth", weights_only=True)
    source = os.path.join(folder, "checkpoint.pt") if kind == "full" else folder
    _, named = rekey(setting, source, "name", "named.pt", *IN_ORDER)
    _, number = rekey(setting, source, "id", "number.pt", *IN_ORDER)
    _, flat = rekey(setting, source, "flat", "flattened.pt", *IN_ORDER)
    model = nn.Sequential(nn.Linear(4, 7), nn.Sequential(nn.Linear(7, 7), nn.Linear(7, 3, bias=False)), nn.Linear(3, 4))
    model.load_state_dict(truth["model"])
    names = [name for name, _ in model.named_parameters()]
    check(number["param_groups"][0]["params"] == list(range(len(names))), kind + ": numbers")
    for i, name in enumerate(names):
        for state in (named["state"][name], number["state"][i], {"momentum_buffer": flat["state.%s.momentum_buffer" % name]}):
            same(dict(state), dict(truth["optim"]["state"][name]), "%s: state of %s" % (kind, name))
    for state, load in ((named, load_by_name), (number, load_by_number), (flat, load_by_name)):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.25)
        load(model, optimizer, clone(state))
        held = optimizer.state_dict()
        check(held["param_groups"][0]["lr"] == 0.125 and held["param_groups"][0]["momentum"] == 0.5, kind + ": groups")
        for i, name in enumerate(names):
            same(dict(held["state"][i]), dict(truth["optim"]["state"][name]), "%s: loaded %s" % (kind, name))
    return folder, named


@case(first=(2, 15))
def case_optim_fsdp2_ranks(setting):
    """Numbers of rank files, as names of a DCP folder on other ranks."""
    folder, named = check_sharded(setting, "fsdp2")
    for keys in ("name", "flat"):
        to = setting.path("dcp-" + keys)
        setting.run("reshard", folder, to, "--world-size", "2", "--format", "dcp", "--optim-keys", keys, *IN_ORDER)
        _, again = rekey(setting, to, "name", "again.pt")
        same(again, named, "resharded by " + keys)
    to = setting.path("back")
    setting.run("reshard", setting.path("dcp-name"), to, "--world-size", "3", "--format", "pt-ranks", "--optim-keys", "id",
                *IN_ORDER)
    same(rekey(setting, to, "name", "again.pt", *IN_ORDER)[1], named, "back as numbers")


@case(first=(2, 15))
def case_optim_fsdp1_full(setting):
    check_sharded(setting, "full")


@case(first=(2, 15))
def case_optim_fsdp1_sharded(setting):
    check_sharded(setting, "sharded")


# --- FSDP1's raw state of several groups; states of other shapes ---

def rank_save_groups(folder, orig):
    import torch.distributed as dist
    from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
    from cases_fsdp1 import allow_cpu
    from describe_model import describe
    allow_cpu()
    options = {"device_id": torch.device("cpu"), "use_orig_params": orig}
    torch.manual_seed(7)
    model = nn.Sequential(nn.Linear(4, 7), FSDP(nn.Sequential(nn.Linear(7, 7), nn.Linear(7, 3)), **options), nn.Linear(3, 4))
    model = FSDP(model, **options)
    params = list(model.parameters())
    optimizer = torch.optim.SGD([{"params": params[1::2], "lr": 0.25}, {"params": params[::2]}], lr=0.125, momentum=0.5)
    truth = train_and_save_flat(folder, model, optimizer, 4)
    described_model = describe(model, optimizer)
    if dist.get_rank() == 0:
        torch.save(truth, folder + ".truth")
        with open(folder + ".json", "w", encoding="utf-8") as out:
            json.dump(described_model, out)


@case(first=(2, 15))
def case_optim_fsdp1_groups(setting):
    from process_group import run_ranks
    for orig in (False, True):
        folder = setting.path("groups-%s" % orig)
        run_ranks(2, rank_save_groups, folder, orig)
        truth = torch.load(folder + ".truth", weights_only=True)
        _, named = rekey(setting, folder, "name", "named.pt", "--model", folder + ".json")
        check_same_names(named["state"], truth["state"], "groups")
        for name, state in truth["state"].items():
            same(dict(named["state"][name]), dict(state), "state of %s, %s" % (name, orig))
        for found, expected in zip(named["param_groups"], truth["param_groups"]):
            check(sorted(found["params"]) == sorted(expected["params"]) and found["lr"] == expected["lr"],
                  "groups: %s, expected %s" % (found, expected))


@case(first=(2, 15))
def case_optim_other_shapes(setting):
    """Adafactor's rows and columns are whole on every rank; state follows its parameter, also by number."""
    torch.manual_seed(5)
    model = nn.Sequential(nn.Linear(8, 6), nn.Linear(6, 8, bias=False))
    optimizer = torch.optim.Adafactor(model.parameters(), lr=0.125)
    model(torch.ones(2, 8)).sum().backward()
    optimizer.step()
    source = setting.path("adafactor.pt")
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, source)
    for keys in ("name", "id"):
        to = setting.path("ranks-" + keys)
        done = setting.run("reshard", source, to, "--world-size", "2", "--format", "pt-ranks", "--optim-keys", keys,
                           "--replicate", "1.weight")
        check("replicated on every rank" in done.stderr and "row_var" in done.stderr, done.stderr)
        _, again = rekey(setting, to, "id", "again.pt")
        same(again, optimizer.state_dict(), "Adafactor by " + keys)
    momentum = torch.optim.SGD(model.parameters(), lr=0.125, momentum=0.5)
    momentum.step()
    torch.save({"model": model.state_dict(), "optimizer": momentum.state_dict()}, source)
    to = setting.path("ranks-momentum")
    setting.run("reshard", source, to, "--world-size", "2", "--format", "pt-ranks", "--replicate", "1.weight")
    state = torch.load(glob.glob(os.path.join(to, "optim*rank_0.pt"))[0] if glob.glob(os.path.join(to, "optim*")) else
                       sorted(glob.glob(os.path.join(to, "*.pt")))[0], weights_only=False)
    state = state.get("optimizer", state)["state"]
    check(type(state[0]["momentum_buffer"]).__name__ == "DTensor", "state 0 is not cut")
    check(type(state[2]["momentum_buffer"]).__name__ == "Tensor", "state 2 is cut, its parameter is not")
