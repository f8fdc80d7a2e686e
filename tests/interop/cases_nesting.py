"""Random nested states, saved by torch, converted by fsdpck with random options and loaded by torch again.

What comes out is exactly the tree that the options leave, or the run is refused: nothing that existed becomes None.
FSDPCK_NESTING_ROUNDS: how many states, 40 without it; FSDPCK_NESTING_SEED: of the first.
"""

import fnmatch
import json
import os
import pickle
import random
import shutil
import subprocess
from collections import Counter, OrderedDict, defaultdict

import torch

from cases_hdf5_write import datasets_of
from checkpoint_truth import tensor_bytes
from support import OK, UNSUPPORTED, USAGE, case, check

KEYS = ("aa", "bb", "cc", "dd", "ee")
DTYPES = (torch.float32, torch.float32, torch.bfloat16, torch.float64, torch.int64, torch.bool)
FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


class Keeper:
    """What fsdpck knows as an object alone."""

    def __init__(self, **content):
        self.__dict__.update(content)


class Maker:
    """Makes states; `named` are tensors that have a place of their own."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.count, self.named = 0, []

    def tensor(self):
        shape = [self.random.choice((1, 2, 3, 4)) for _ in range(self.random.choice((0, 1, 1, 2)))]
        self.count += 1
        size = int(torch.Size(shape).numel())
        return (torch.arange(size).reshape(shape) + self.count).to(self.random.choice(DTYPES))

    def keeper(self):
        known = self.random.sample(self.named, min(len(self.named), self.random.choice((0, 1, 2))))
        own = [self.tensor() for _ in range(self.random.choice((0, 1)))]
        return Keeper(known=known, own=tuple(own), again={"one": known[:1], "number": 7})

    def leaf(self, may_keep):
        kind = self.random.choice(("tensor", "tensor", "tensor", "view", "scalar", "list", "empty", "keeper", "tuple"))
        if kind == "keeper" and may_keep:
            return self.keeper()
        if kind == "view" and self.named:
            return self.random.choice(self.named).detach()
        if kind == "scalar":
            return self.random.choice((None, 5, 0.25, "text", True))
        if kind == "list":
            return self.random.choice(([], [1, 2], [None, "x"]))
        if kind == "empty":
            return self.random.choice(({}, [{}], [[]], [{}, {}]))
        if kind == "tuple":
            return self.random.choice(((), (1, 2)))
        made = self.tensor()
        self.named.append(made)
        return made

    def tree(self, depth):
        kind = self.random.choice(("dict", "dict", "list", "ints", "leaf", "leaf")) if depth > 0 else "leaf"
        if kind == "leaf":
            return self.leaf(True)
        count = self.random.choice((1, 2, 3, 4))
        if kind == "list":
            return [self.tree(depth - 1) for _ in range(count)]
        keys = range(count) if kind == "ints" else self.random.sample(KEYS, count)
        return {key: self.tree(depth - 1) for key in keys}

    def state(self):
        if self.random.random() < 0.06:
            items = [self.tree(2) for _ in range(3)]
            items.insert(self.random.randrange(4), self.tensor())
            return items
        state = {"model": {"ww": self.tensor(), **{key: self.tree(3) for key in self.random.sample(KEYS, 2)}}}
        self.named.append(state["model"]["ww"])
        for key in self.random.sample(("optimizer", "extra", "keeper"), self.random.choice((1, 2, 3))):
            state[key] = self.keeper() if key == "keeper" else {"aa": self.tree(3), "bb": self.tree(2)}
        return state


def is_container(value):
    """As flatten_state_dict opens them; lists without a tensor or a dict that has keys are one object."""
    if isinstance(value, dict):
        return len(value) > 0
    return isinstance(value, list) and any(
        isinstance(item, torch.Tensor) or is_container(item) for item in value)


def is_void(value):
    """What flatten_state_dict gives no key: dicts without items, and lists of such alone."""
    if isinstance(value, list):
        return len(value) > 0 and all(map(is_void, value))
    return isinstance(value, dict) and not value


def list_items_of(state, path):
    """[(path of the list, index)] of the lists that a path leads through."""
    found = []
    for i, key in enumerate(path):
        if isinstance(state, list):
            found.append((path[:i], key))
        state = state[key]
    return found


def keyed_leaves(state):
    """Without what has no key in DCP; torch could not load a list of which an item before another has none."""
    leaves, last = leaves_of(state), {}
    for path, value in leaves:
        for place, index in [] if is_void(value) else list_items_of(state, path):
            last[place] = max(index, last.get(place, index))
    return [(path, value) for path, value in leaves if not is_void(value) or any(
        last.get(place, index) > index for place, index in list_items_of(state, path))]


def items_of(value):
    return value.items() if isinstance(value, dict) else enumerate(value)


def leaves_of(state):
    """[(path, value)] in order."""
    todo, found = [((), state)], []
    while todo:
        path, value = todo.pop()
        if is_container(value):
            todo.extend(reversed([(path + (key,), item) for key, item in items_of(value)]))
        else:
            found.append((path, value))
    return found


def name_of(path):
    return ".".join(map(str, path))


def part_of(path):
    """A list as the state has none of the outer keys that tell parts: it is a model."""
    if isinstance(path[0], int):
        return "model"
    return path[0] if path[0] in ("model", "optimizer") else "other"


class Wanted:
    """What options leave of a state. of_leaves: in DCP, where flatten_state_dict gives no key to a dict without items."""

    def __init__(self, state, options, of_leaves=False):
        self.state = state
        chosen = {kind: [value for option, value in options if option == kind] for kind, _ in options}
        self.cast = bool(chosen.get("--dtype"))
        leaves = keyed_leaves(state) if of_leaves else leaves_of(state)
        self.left = {path for path, _ in leaves if (
            chosen.get("--part", [part_of(path)])[0] == part_of(path) and
            any(fnmatch.fnmatchcase(name_of(path), glob) for glob in chosen.get("--keys", ["*"])) and
            not any(fnmatch.fnmatchcase(name_of(path), glob) for glob in chosen.get("--exclude", [])))}
        self.values = dict(leaves)
        self.first_place = {}
        for path, value in leaves:
            if isinstance(value, torch.Tensor):
                self.first_place.setdefault(id(value), path)

    def tensor_at(self, path):
        value = self.values[path]
        return value.to(torch.bfloat16) if (
            self.cast and part_of(path) == "model" and value.dtype in FLOATS) else value

    def inside(self, value, part):
        """A part of an object: tensors of the object's own part, that are written, are cast with them."""
        if isinstance(value, torch.Tensor):
            path = self.first_place.get(id(value))
            same = path in self.left and part_of(path) == part
            return self.tensor_at(path) if same else value
        if isinstance(value, Keeper):
            return Keeper(**{key: self.inside(item, part) for key, item in vars(value).items()})
        if isinstance(value, dict):
            return {key: self.inside(item, part) for key, item in value.items()}
        if isinstance(value, (list, tuple)):
            return type(value)(self.inside(item, part) for item in value)
        return value

    def leaf(self, path):
        value = self.values[path]
        return self.tensor_at(path) if isinstance(value, torch.Tensor) else self.inside(value, part_of(path))

    def has(self, path):
        return any(other[:len(path)] == path for other in self.left)

    def existed(self, path):
        return any(other[:len(path)] == path for other in self.values)

    def lists(self):
        """[(path, list)] of the lists that are opened."""
        found, todo = [], [((), self.state)]
        while todo:
            path, value = todo.pop()
            if isinstance(value, list):
                found.append((path, value))
            todo.extend((path + (key,), item) for key, item in items_of(value) if is_container(item))
        return found

    def has_hole(self):
        for path, value in self.lists():
            kept = [self.has(path + (i,)) for i in range(len(value)) if self.existed(path + (i,))]
            if False in kept and True in kept[kept.index(False):]:
                return True
        return False

    def stays_open(self, path, value):
        """Whether torch opens what is left of a list."""
        for i, item in enumerate(value):
            below = path + (i,)
            if not self.has(below):
                continue
            if isinstance(item, torch.Tensor) or (isinstance(item, dict) and item):
                return True
            if is_container(item) and self.stays_open(below, item):
                return True
        return False

    def is_closed(self):
        """Whether torch opens one no longer, though something is left of it."""
        return any(self.has(path) and not self.stays_open(path, value) and
                   any(other[:len(path)] == path and other not in self.left for other in self.values)
                   for path, value in self.lists())

    def tree(self, text_keys):
        """The nested state; text_keys: as DCP has them."""
        root = [] if isinstance(self.state, list) else {}
        for path in self.values:  # in order, so that lists grow at their end
            if path not in self.left:
                continue
            at, source = root, self.state
            for i, key in enumerate(path):
                last = i + 1 == len(path)
                source = source[key]
                fresh = self.leaf(path) if last else [] if isinstance(source, list) else {}
                if isinstance(at, list):
                    if len(at) == key:
                        at.append(fresh)
                    at = at[key]
                else:
                    at = at.setdefault(str(key) if text_keys else key, fresh)
        return root


def difference(found, expected, where="state"):
    """None, or what differs: types, keys, items, dtypes, bytes."""
    if isinstance(expected, torch.Tensor):
        if not isinstance(found, torch.Tensor):
            return "%s is %s, not a tensor" % (where, type(found).__name__)
        same = (found.dtype == expected.dtype and found.shape == expected.shape and
                tensor_bytes(found) == tensor_bytes(expected))
        return None if same else "%s is %s, expected %s" % (where, found, expected)
    if type(found) is not type(expected):
        return "%s is %s, expected %s" % (where, type(found).__name__, type(expected).__name__)
    if isinstance(expected, Keeper):
        found, expected = vars(found), vars(expected)
    if isinstance(expected, dict):
        if set(found) != set(expected):
            return "%s has %s, expected %s" % (where, sorted(map(str, found)), sorted(map(str, expected)))
        pairs = [(found[key], expected[key], key) for key in expected]
    elif isinstance(expected, (list, tuple)):
        if len(found) != len(expected):
            return "%s has %d items, expected %d" % (where, len(found), len(expected))
        pairs = [(found[i], expected[i], i) for i in range(len(expected))]
    else:
        return None if found == expected else "%s is %r, expected %r" % (where, found, expected)
    for one, other, key in pairs:
        differs = difference(one, other, "%s.%s" % (where, key))
        if differs:
            return differs
    return None


def check_same(found, expected, what):
    differs = difference(found, expected)
    check(differs is None, "%s: %s" % (what, differs))


def load_dcp(folder):
    from torch.distributed.checkpoint import FileSystemReader
    from torch.distributed.checkpoint.default_planner import _EmptyStateDictLoadPlanner
    from torch.distributed.checkpoint.state_dict_loader import _load_state_dict
    state = {}
    _load_state_dict(state, storage_reader=FileSystemReader(folder), planner=_EmptyStateDictLoadPlanner(),
                     no_dist=True)
    return state


def full_tensors(states):
    """The states of all ranks as one: DTensors are put together along dim 0."""
    first = states[0]
    if hasattr(first, "_local_tensor"):
        placement = first.placements[0]
        if placement.is_replicate():
            return first._local_tensor
        return torch.cat([state._local_tensor for state in states], placement.dim)
    if isinstance(first, dict):
        return {key: full_tensors([state[key] for state in states]) for key in first}
    if isinstance(first, (list, tuple)):
        return type(first)(full_tensors([state[i] for state in states]) for i in range(len(first)))
    return first


def random_options(chance, wanted_paths, has_parts):
    options = []
    nodes = sorted({name_of(path[:i + 1]) for path in wanted_paths for i in range(len(path))})
    if has_parts and chance.random() < 0.3:
        options.append(("--part", chance.choice(("model", "optimizer", "other"))))
    for option, likely in (("--exclude", 0.5), ("--keys", 0.15)):
        while chance.random() < likely:
            options.append((option, chance.choice(nodes) + "*" if chance.random() < 0.7
                            else "*%s*" % chance.choice(KEYS)))
    if chance.random() < 0.3:
        options.append(("--dtype", "bf16"))
    return options


def run(setting, target, form, options):
    """(exit status, stderr, path of the output)."""
    path = setting.path(target)
    if os.path.isdir(path):
        shutil.rmtree(path)
    elif os.path.exists(path):
        os.remove(path)
    command = ["reshard", "--world-size", "2"] if form == "pt-ranks" else ["consolidate"]
    words = [word for option in options for word in option]
    done = subprocess.run([setting.program, *command, setting.path("in.pt"), path, "--format", form, *words],
                          capture_output=True, text=True, timeout=60)
    return done.returncode, done.stderr, path


def check_refusal(status, stderr, wanted, form, what):
    """Refused only for what is predicted, by its name."""
    floats = any(isinstance(wanted.values[path], torch.Tensor) and wanted.values[path].dtype in FLOATS and
                 part_of(path) == "model" for path in wanted.left)
    tensors = any(isinstance(wanted.values[path], torch.Tensor) for path in wanted.left)
    if "nothing is selected" in stderr:
        check(status == USAGE and not tensors, what + ": " + stderr)
        return
    if "matches no" in stderr:
        check(status == USAGE and ("--dtype" not in stderr or not floats), what + ": " + stderr)
        return
    expected = form != "hdf5" and wanted.has_hole()
    if form == "dcp":
        expected = expected or isinstance(wanted.state, list) or wanted.is_closed()
    check(expected and status in (USAGE, UNSUPPORTED) and "KEY-LIST" in stderr, "%s: refused, exit %d: %s" % (what, status, stderr))


def check_output(setting, form, path, wanted, what):
    tree = None if form == "hdf5" else wanted.tree(form == "dcp")
    if form == "pt":
        check_same(torch.load(path, weights_only=False), tree, what)
    elif form == "dcp":
        check_same(load_dcp(path), tree, what)
        _, back = setting.consolidate(path, "back.pt", "--force")
        check_same(torch.load(back, weights_only=False), tree, what + ", back")
        if any(isinstance(wanted.values[place], torch.Tensor) for place in wanted.left):
            setting.run("diff", path, back)
    elif form == "pt-ranks":
        names = sorted(name for name in os.listdir(path) if name.endswith(".pt"))
        states = [torch.load(os.path.join(path, name), weights_only=False) for name in names]
        check_same(full_tensors(states), tree, what)
    else:
        tensors = {name_of(path): wanted.leaf(path) for path in wanted.left
                   if isinstance(wanted.values[path], torch.Tensor)}
        file, found = datasets_of(path)
        check_same({name: tensor for name, (_, tensor) in found.items()}, tensors, what)
        file.close()


def check_round(setting, seed):
    chance = random.Random(seed)
    state = Maker(seed).state()
    torch.save(state, setting.path("in.pt"))
    paths = [path for path, _ in leaves_of(state)]
    options = random_options(chance, paths, isinstance(state, dict)) if chance.random() < 0.85 else []
    for form, target in (("pt", "out.pt"), ("dcp", "dcp"), ("pt-ranks", "ranks"), ("hdf5", "out.h5")):
        wanted = Wanted(state, options, form == "dcp")
        what = "seed %d, %s %s" % (seed, form, " ".join(word for option in options for word in option))
        status, stderr, path = run(setting, target, form, options)
        if status != OK:
            check_refusal(status, stderr, wanted, form, what)
            check(not os.path.exists(path), what + ": refused, and an output is there")
            continue
        check(form == "hdf5" or not wanted.has_hole(), what + ": a list has a hole")
        check_output(setting, form, path, wanted, what)


@case(first=(2, 15))
def case_random_nesting(setting):
    first = int(os.environ.get("FSDPCK_NESTING_SEED", "1"))
    for seed in range(first, first + int(os.environ.get("FSDPCK_NESTING_ROUNDS", "40"))):
        check_round(setting, seed)


@case(first=(2, 15))
def case_dcp_has_the_keys_of_torch(setting):
    """Dicts without items: fsdpck writes the keys and the paths that torch writes, and names what has none."""
    import torch.distributed.checkpoint as dcp
    module = torch.nn.Linear(2, 2)
    optimizer = torch.optim.Adam(module.parameters())
    module(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    state = {"model": module.state_dict(), "optimizer": optimizer.state_dict(), "config": {}, "callbacks": {"a": {}, "n": 1},
             "list": [{}], "empty": [], "lists": [[], 1], "deep": [[{}]], "tuple": ({},),
             "ordered": OrderedDict(), "tensors": [torch.ones(2), {}]}
    torch.save(state, setting.path("in.pt"))
    setting.run("reshard", setting.path("in.pt"), setting.path("ranks"), "--world-size", "2", "--format", "pt-ranks")
    dcp.save(state, checkpoint_id=setting.path("torch"), no_dist=True)
    expected = dcp.FileSystemReader(setting.path("torch")).read_metadata()
    for source in ("in.pt", "ranks"):
        done, path = setting.consolidate(setting.path(source), "dcp-" + source, "--format", "dcp", "--json")
        found = dcp.FileSystemReader(path).read_metadata()
        check(found.planner_data == expected.planner_data, "paths: %s" % sorted(
            set(found.planner_data.items()) ^ set(expected.planner_data.items()), key=str))
        check(set(found.state_dict_metadata) == set(expected.state_dict_metadata), "keys")
        left_out = json.loads(done.stdout)["left_out"]
        check(left_out == ["config", "callbacks.a", "list", "deep", "ordered", "tensors.1"],
              "left out: %s" % left_out)
        template = pickle.loads(pickle.dumps(state))
        dcp.load(template, checkpoint_id=path, no_dist=True)
        check_same(template, state, source)
    # What torch could not load from its own DCP is kept whole.
    before = {"model": {"ww": torch.ones(2)}, "one": [{}, 1], "two": [{}, torch.ones(2)]}
    torch.save(before, setting.path("before.pt"))
    _, path = setting.consolidate(setting.path("before.pt"), "before", "--format", "dcp")
    check_same(load_dcp(path), before, "items before others")


@case(first=(2, 15))
def case_objects_have_their_tensors(setting):
    """Left out under their own names, tensors are counted and named as parts of an object."""
    model = {"ww": torch.arange(4.0), "bb": torch.ones(2)}
    state = {"model": model, "ema": Keeper(shadow=model["ww"], own=torch.arange(3.0)), "list": [5, torch.ones(3)]}
    torch.save(state, setting.path("in.pt"))
    for form in ("pt", "dcp"):
        done, path = setting.consolidate(setting.path("in.pt"), "out-" + form, "--format", form, "--exclude",
                                         "model.ww", "--json")
        report = json.loads(done.stdout)
        check(report["counts"].get("carried") == 1 and report["counts"].get("carried_bytes") == 16, "counts")
        check(report.get("carried") == ["model.ww in 'ema'"], "names: %s" % report.get("carried"))
        found = torch.load(path, weights_only=False) if form == "pt" else load_dcp(path)
        check_same(found["ema"], state["ema"], form)
        check("ww" not in found["model"], "excluded, and there")
        done, _ = setting.consolidate(setting.path("in.pt"), "text-" + form, "--format", form, "--part", "other")
        check("model.ww in 'ema'" in done.stdout, "text: " + done.stdout)
        done, _ = setting.consolidate(setting.path("in.pt"), "whole-" + form, "--format", form, "--json")
        check("carried" not in json.loads(done.stdout)["counts"], "nothing is left out")
    kept = torch.load(setting.path("whole-pt"), weights_only=False)
    check(kept["ema"].shadow is kept["model"]["ww"], "one tensor became two")
    done, path = setting.consolidate(setting.path("in.pt"), "closed", "--format", "dcp", "--exclude", "list.1",
                                     expected=USAGE)
    check("KEY-LIST" in done.stderr and "list.1" in done.stderr, done.stderr)
    check(not os.path.exists(path), "refused, and an output is there")


@case(first=(2, 15))
def case_other_objects_are_not_cast(setting):
    """A tensor that the model has in a tuple is cast there, and stays as it is in an object of another part."""
    for first in ("model", "ema"):
        shared = torch.arange(3.0)
        state = {"model": {"ww": torch.ones(2), "tt": (shared,)}, "ema": Keeper(shadow=shared)}
        torch.save({key: state[key] for key in sorted(state, key=lambda key: key != first)}, setting.path("in.pt"))
        for form in ("pt", "dcp"):
            done, path = setting.consolidate(setting.path("in.pt"), "%s-%s" % (first, form), "--format", form, "--dtype", "bf16",
                                             "--json")
            found = torch.load(path, weights_only=False) if form == "pt" else load_dcp(path)
            check_same(found["ema"], state["ema"], form)
            check_same(found["model"], {"ww": state["model"]["ww"].bfloat16(), "tt": (shared.bfloat16(),)}, form)
            check(json.loads(done.stdout)["counts"]["cast"] == 2, "counts of casts")


@case(first=(2, 15))
def case_selection_keeps_other_objects(setting):
    """A pattern takes away the objects that it matches, and none that shares a tensor with them."""
    for inner in ((True, {"kk": torch.arange(3.0)}), (torch.arange(3.0),)):
        shared = inner[1]["kk"] if len(inner) > 1 else inner[0]
        for order in (("model", "xx", "yy"), ("yy", "xx", "model")):
            state = {"model": {"ww": torch.ones(2), "tt": inner}, "xx": inner, "yy": Keeper(shadow=shared, number=5)}
            torch.save({key: state[key] for key in order}, setting.path("in.pt"))
            for form in ("pt", "dcp"):
                for option, kept in ((("--exclude", "xx*"), ("model", "yy")), (("--exclude", "yy*"), ("model", "xx")),
                                     (("--keys", "yy*", "--keys", "model*"), ("model", "yy"))):
                    done, path = setting.consolidate(setting.path("in.pt"), "out", "--format", form, *option, "--force")
                    found = torch.load(path, weights_only=False) if form == "pt" else load_dcp(path)
                    check_same(found, {key: state[key] for key in kept}, "%s %s" % (form, " ".join(option)))
                    shutil.rmtree(path) if form == "dcp" else os.remove(path)


@case(first=(2, 15))
def case_diff_of_dicts_without_items(setting):
    """Reported between formats that hold them; no difference to DCP, which does not."""
    for one, other in (([{}], [{}, {}]), ([{"aa": 1}, {}], [{"aa": 1}]), ({"aa": {}}, {"bb": {}}), ({}, None), ([[{}]], 5)):
        for name, value in (("one", one), ("other", other)):
            state = {"model": {"ww": torch.ones(2)}}
            state.update({} if value is None else {"extra": value})
            torch.save(state, setting.path(name + ".pt"))
            for form in ("dcp", "hdf5", "pt"):
                _, path = setting.consolidate(setting.path(name + ".pt"), "%s-%s" % (name, form), "--format", form, "--force")
                setting.run("diff", setting.path(name + ".pt"), path)
                shutil.rmtree(path) if os.path.isdir(path) else os.remove(path)
        setting.run("diff", setting.path("one.pt"), setting.path("other.pt"), expected=1)
        setting.run("diff", setting.path("other.pt"), setting.path("one.pt"), expected=1)


@case(first=(2, 15))
def case_places_that_disagree(setting):
    """What torch could not put together again is refused alike by the formats that keep the nesting."""
    weight = torch.ones(2)
    for inner in ({"aa": 1}, {"aa": weight}):
        torch.save({"model": {"ww": weight}, "xx": inner}, setting.path("in.pt"))
        for form in ("pt", "dcp"):
            done, path = setting.consolidate(setting.path("in.pt"), "out", "--format", form, "--rename", "s/^model.ww$/xx/",
                                             expected=3)
            check("KEY-NEST" in done.stderr and not os.path.exists(path), done.stderr)
    for root in ((weight, weight + 1), [weight, weight + 1]):
        torch.save(root, setting.path("in.pt"))
        done, path = setting.consolidate(setting.path("in.pt"), "out", "--format", "dcp", expected=UNSUPPORTED)
        check("KEY-LIST" in done.stderr and not os.path.exists(path), done.stderr)


@case(first=(2, 15))
def case_lists_that_end_without_keys(setting):
    """A list without a tensor whose last dict holds only empty ones: torch cannot load what is left of it from DCP."""
    from torch.distributed.checkpoint.format_utils import dcp_to_torch_save
    weight = torch.ones(3)
    for name, value, refused in (("text", ["cosine", {"kwargs": {}}], True), ("deep", [[1, 2], {"aa": {"bb": {}}}], True),
                                 ("whole", ["cosine", {}], False), ("key", ["cosine", {"kwargs": {}, "aa": 1}], False),
                                 ("tensor", [weight, {"kwargs": {}}], False)):
        source, folder = setting.path(name + ".pt"), setting.path(name)
        torch.save({"model": {"w": weight}, "schedule": value}, source)
        done = setting.run("reshard", source, folder, "--world-size", "2", "--replicate", "*", expected=UNSUPPORTED if refused else OK)
        check(refused == ("KEY-LIST" in done.stderr) and refused != os.path.exists(folder), "%s: %s" % (name, done.stderr))
        if refused:
            setting.run("reshard", source, folder, "--world-size", "2", "--replicate", "*", "--exclude", "schedule*")
        dcp_to_torch_save(folder, folder + ".back.pt")
        check(("schedule" in torch.load(folder + ".back.pt", weights_only=False)) != refused, name)


def shape_of(value):
    """Classes of the containers, kinds of the keys, and what hangs on the dicts."""
    if isinstance(value, dict):
        return (type(value).__name__, getattr(value, "_metadata", None), getattr(value, "default_factory", None),
                [(type(key).__name__, key, shape_of(item)) for key, item in value.items()])
    if isinstance(value, list):
        return [shape_of(item) for item in value]
    return type(value).__name__


@case(first=(2, 15))
def case_selection_keeps_containers(setting):
    """Classes of dicts, _metadata and kinds of keys stay where something is left out."""
    module = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.BatchNorm1d(2))
    lists = defaultdict(list)
    lists["aa"] = 1
    kinds = {1.5: 1, None: 2, True: 3, b"xx": 4, (1, 2): 5, 7: 6, "text": 7}
    state = {"model": module.state_dict(), "extra": {"deep": [OrderedDict(
        one=torch.ones(1), two=OrderedDict(three=torch.ones(2)))], "count": Counter("aab"), "lists": lists, "kinds": kinds}, "gone": {"tensor": torch.ones(3)}}
    torch.save(state, setting.path("in.pt"))
    expected = {key: state[key] for key in ("model", "extra")}
    for number, options in enumerate((("--exclude", "gone*"), ("--keys", "model*", "--keys", "extra*"),
                                      ("--exclude", "gone*", "--rename", "s/^extra.deep.0.one$/extra.deep.0.four/"))):
        _, path = setting.consolidate(setting.path("in.pt"), "out%d.pt" % number, "--format", "pt", *options)
        found = torch.load(path, weights_only=False)
        if number == 2:
            deep = found["extra"]["deep"][0]
            check(isinstance(deep, OrderedDict) and sorted(deep) == ["four", "two"], "renamed: %s" % deep)
            deep["one"] = deep.pop("four")
            deep.move_to_end("two")
        check(shape_of(found) == shape_of(expected), "%s: %s, expected %s" % (options, shape_of(found), shape_of(expected)))
        module.load_state_dict(found["model"])


@case(first=(2, 15))
def case_diff_of_shared_tensors(setting):
    """An object that shares a tensor with the model equals its copy in another format, and no other tensor."""
    shared = torch.arange(3.0)
    state = {"model": {"ww": shared, "tt": (torch.ones(2), torch.zeros(2))}, "keeper": Keeper(shadow=shared, own=torch.ones(4))}
    state["ema"] = Keeper(first=state["model"]["tt"][0])
    torch.save(state, setting.path("in.pt"))
    _, path = setting.consolidate(setting.path("in.pt"), "dcp", "--format", "dcp")
    setting.run("diff", setting.path("in.pt"), path)
    setting.run("reshard", setting.path("in.pt"), setting.path("ranks"), "--world-size", "2", "--format", "pt-ranks")
    setting.run("diff", setting.path("in.pt"), setting.path("ranks"))
    for name in ("shadow", "own"):
        other = dict(state, keeper=Keeper(**dict(vars(state["keeper"]), **{name: torch.arange(3.0) + 1})))
        torch.save(other, setting.path("other.pt"))
        setting.run("diff", setting.path("other.pt"), path, expected=1)
    tuples = {"model": {"ww": shared, "tt": (torch.ones(2), [torch.zeros(2)])}}
    torch.save(tuples, setting.path("tuples.pt"))
    _, path = setting.consolidate(setting.path("tuples.pt"), "tuples.h5", "--format", "hdf5")
    setting.run("diff", setting.path("tuples.pt"), path)
    setting.run("diff", path, setting.path("tuples.pt"))
    torch.save({"model": {"ww": shared, "tt": ("text", torch.ones(2))}}, setting.path("mixed.pt"))
    _, path = setting.consolidate(setting.path("mixed.pt"), "mixed.h5", "--format", "hdf5")
    setting.run("diff", setting.path("mixed.pt"), path, expected=1)


EMPTY_KEYS = (
    {"model": {"w": 1}, "cfg": [2, {"": 3, "k": 4}], "n": [{"": {"": 5}}]},
    {"": {"": 1, "a": 2}, "b": {"": [3, {"": 4}]}},
    {"model": {"": 1}, "x": [[{"": [{"": 2}]}]]},
)


def with_tensors(tree):
    if isinstance(tree, dict):
        return {key: with_tensors(value) for key, value in tree.items()}
    return list(map(with_tensors, tree)) if isinstance(tree, list) else torch.full((2,), float(tree))


@case(first=(2, 6))
def case_nesting_empty_keys(setting):
    """A key may be empty: in a dict inside a list too, from .pt to DCP, and from torch's own DCP."""
    from torch.distributed.checkpoint.format_utils import dcp_to_torch_save, torch_save_to_dcp
    for k, tree in enumerate(EMPTY_KEYS):
        state = with_tensors(tree)
        source, folder, out = (setting.path("%s%d" % (name, k)) for name in ("in", "dcp", "out"))
        torch.save(state, source + ".pt")
        torch_save_to_dcp(source + ".pt", source)
        setting.run("consolidate", source + ".pt", folder, "--format", "dcp")
        dcp_to_torch_save(folder, folder + ".pt")
        setting.run("consolidate", source, out + ".pt")
        for path in (folder, out):
            found = torch.load(path + ".pt", weights_only=False)
            check(repr(found) == repr(state), "%r and %r" % (found, state))
