"""Dicts, lists and keys that only some rank files hold: what torch loads from the output has the types that the ranks have.

FSDPCK_CONTAINER_ROUNDS: how many random sets of rank files, 40 without it; FSDPCK_CONTAINER_SEED: of the first.
"""

import os
import random
from collections import OrderedDict, defaultdict

import torch

from support import BAD_INPUT, case, check, check_nothing_at

T = torch.arange(2.)
KEYS = ("a", "b", None, True, False, 1, 0, 2.5, 1.0, -0.0, (1, 2), (1,), (True,), b"x", 10**30, "1", "True", "None", "b'x'", "(1, 2)")


def save_ranks(setting, name, states):
    folder = setting.path(name)
    os.mkdir(folder)
    for rank, state in enumerate(states):
        torch.save(state, os.path.join(folder, "model_rank%d.pt" % rank))
    return folder


def typed(value):
    """Types and values of keys, containers and leaves; the order of keys apart."""
    if hasattr(value, "_local_tensor"):
        value = value._local_tensor
    if torch.is_tensor(value):
        return ("tensor", value.tolist())
    if isinstance(value, dict):
        items = sorted((type(key).__name__, repr(key), typed(item)) for key, item in value.items())
        return (type(value).__name__, getattr(value, "default_factory", None), getattr(value, "_metadata", None), items)
    if isinstance(value, (list, tuple)):
        return (type(value).__name__, [typed(item) for item in value])
    return (type(value).__name__, repr(value))


def check_typed(path, expected, what):
    found = torch.load(path, weights_only=False)
    check(typed(found) == typed(expected), "%s: %s, expected %s" % (what, found, expected))


def check_merged(setting, name, states, expected):
    folder = save_ranks(setting, name, states)
    _, path = setting.consolidate(folder, name + ".pt", "-q")
    check_typed(path, expected, name)
    setting.run("reshard", "-q", folder, path + ".ranks", "--world-size", "2", "--replicate", "*")
    for rank in range(2):
        check_typed(os.path.join(path + ".ranks", "model_rank%d.pt" % rank), expected, name + ", resharded")


def of_class(cls, **items):
    made = cls(**items)
    made._metadata = OrderedDict({"": {"version": 1}})
    return made


@case()
def case_rank_containers_later(setting):
    """Keys and classes of a dict that rank 0 lacks, or has empty."""
    odd = {None: T, True: 5, 2.5: {(1, 2): T}, b"x": T, "x": [T, {False: 1}], 7: {10**30: 2}}
    kinds = {"odd": odd, "ordered": OrderedDict(b=T, a={"c": 1}), "list": [T, OrderedDict(a=1)], "tuple": (T, 5),
             "attribute": of_class(OrderedDict, a=T), "default": defaultdict(list, {True: T})}
    for name, value in kinds.items():
        for form, states, expected in (
                ("lacks", ({}, {"state": value}), {"state": value}),
                ("none", ({"state": None}, {"state": value}), {"state": value}),
                ("deep", ({"state": {"a": 1}}, {"state": {"b": {3: value}}}), {"state": {"a": 1, "b": {3: value}}}),
                ("last", ({"state": {}}, {}, {"state": {None: value}}), {"state": {None: value}}),
                ("item", ({"state": [T]}, {"state": [T, value]}), {"state": [T, value]})):
            if (form, name) == ("none", "tuple"):
                continue  # two objects that differ
            states = [{"model": {"w": T}, **state} for state in states]
            check_merged(setting, name + "-" + form, states, {"model": {"w": T}, **expected})
    empty = OrderedDict({"model": {"w": T}, "state": OrderedDict()})
    check_merged(setting, "class", [empty, {"model": {"w": T}, "state": {True: T}}],
                 OrderedDict(empty, state=OrderedDict({True: T})))
    folder = setting.path("families")
    os.mkdir(folder)
    states = {"model": ({"w": T}, {"w": T}), "optim": ({"state": {}}, {"state": odd}), "extra_state": ({1: 2}, {1: 2, (1,): {True: 5}})}
    for family, values in states.items():
        for rank, value in enumerate(values):
            torch.save(value, os.path.join(folder, "%s_world_size_2_rank_%d.pt" % (family, rank)))
    _, path = setting.consolidate(folder, "families.pt", "-q")
    check_typed(path, {family: values[1] for family, values in states.items()}, "families")
    check_merged(setting, "roots", [[{"a": T}], [{"a": T, 2.5: T}]], [{"a": T, 2.5: T}])


@case()
def case_rank_containers_stages(setting):
    """The versions of all stages' modules, which state_dict() leaves in _metadata."""
    def stage(*names):
        return torch.nn.ModuleDict({name: torch.nn.BatchNorm1d(2) for name in names}).state_dict()

    check_merged(setting, "stages", [{"model": stage("one")}, {"model": stage("two", "three")}, {"model": stage("four")}],
                 {"model": stage("one", "two", "three", "four")})
    check_merged(setting, "empty", [{"model": {"w": T}, "ema": torch.nn.ModuleDict().state_dict()},
                                    {"model": {"w": T}, "ema": stage("one")}], {"model": {"w": T}, "ema": stage("one")})


CONTRADICTIONS = {
    "bool-int": ({True: {"a": T}}, {1: {"b": T}}, "the key True (bool) of rank 0", "the key 1 (int) of rank 1"),
    "int-float": ({1: T}, {1.0: 5}, "the key 1 (int) of rank 0", "the key 1.0 (float) of rank 1"),
    "bool-float": ({"z": {0.0: T}}, {"z": {False: T}}, "the key 0.0 (float) of rank 0", "the key False (bool) of rank 1"),
    "zeros": ({0.0: 1}, {-0.0: 2}, "the key 0.0 (float) of rank 0", "the key -0.0 (float) of rank 1"),
    "large": ({2.0**70: T}, {2**70: T}, "(float) of rank 0", "(int) of rank 1"),
    "tuples": ({(1, (True,)): T}, {(1.0, (1,)): T}, "the key (1, (True,)) (tuple) of rank 0", "the key (1.0, (1,)) (tuple) of rank 1"),
    "text": ({"None": {"a": T}}, {None: {"b": T}}, "the key 'None' (text) of rank 0", "the key None (NoneType) of rank 1"),
    "one-file": ({}, {"True": {"a": T}, True: {"b": T}}, "the key 'True' (text) of rank 1", "the key True (bool) of rank 1"),
    "tuple-dict": ((), {"a": T}, "an empty tuple as on rank 0", "a dict on rank 1"),
    "list-dict": ({"a": T}, [], "a dict as on rank 0", "an empty list on rank 1"),
    "dict-list": ({}, [T], "an empty dict as on rank 0", "a list on rank 1"),
    "tuple-list": ((), [T], "an empty tuple as on rank 0", "a list on rank 1"),
}


@case()
def case_rank_containers_contradict(setting):
    """Keys that are one for Python, or have one text, and containers of two kinds: no rank's is guessed."""
    for name, (first, second, *words) in CONTRADICTIONS.items():
        folder = save_ranks(setting, name, [{"model": {"w": T}, "state": first}, {"model": {"w": T}, "state": second}])
        path = setting.path(name + ".pt")
        for command in (("consolidate", folder, path), ("reshard", folder, path, "--world-size", "2", "--replicate", "*")):
            done = setting.run(*command, expected=BAD_INPUT)
            check("KEY-NEST" in done.stderr and all(word in done.stderr for word in words), "%s: %s" % (name, done.stderr))
        check_nothing_at(path)
        found = setting.run("verify", folder, expected=1).stdout
        check("KEY-NEST" in found and all(word in found for word in words), "%s: %s" % (name, found))
    for name in ("bool-int", "tuple-dict"):  # with --per-rank keep, each rank has its own
        setting.run("reshard", "-q", setting.path(name), setting.path(name + ".keep"), "--world-size", "2", "--replicate", "*",
                    "--per-rank", "keep")
        for rank in range(2):
            check_typed(setting.path(name + ".keep", "model_rank%d.pt" % rank),
                        torch.load(setting.path(name, "model_rank%d.pt" % rank), weights_only=False), name)


# --- random states ---

class Contradiction(Exception):
    pass


def leaf_of(path):
    """The same on all ranks."""
    chance = random.Random(repr(path))
    number = chance.randrange(1000)
    return chance.choice((torch.full((2,), float(number)), number, "t%d" % number, (1, torch.full((1,), float(number))), [1, 2]))


def tree(chance, depth, path):
    kind = random.Random(repr(("kind", path))).random()
    if depth == 0 or kind < 0.25:
        return leaf_of(path)
    if kind < 0.4:
        return [tree(chance, depth - 1, path + (i,)) for i in range(chance.choice((1, 2, 3)))]
    keys = chance.sample(KEYS, chance.choice((0, 1, 1, 2))) + chance.sample(("c", "d", 7, 8), chance.choice((0, 1, 2)))
    cls = OrderedDict if kind > 0.9 else chance.choice((dict, dict, dict, OrderedDict, lambda: defaultdict(list)))
    made = cls()
    for key in keys:
        made[key] = tree(chance, depth - 1, path + (key,))
    return made


def is_opened(value):
    if isinstance(value, dict):
        return len(value) > 0
    return isinstance(value, list) and any(torch.is_tensor(item) or is_opened(item) for item in value)


def is_empty(value):
    return value is None or isinstance(value, (dict, list, tuple)) and len(value) == 0


def is_same_key(one, other):
    return type(one) is type(other) and repr(one) == repr(other)


def has_one_text(one, other):
    """Ints are told from texts."""
    return not is_same_key(one, other) and str(one) == str(other) and {type(one), type(other)} != {int, str}


def empty_like(value):
    return defaultdict(value.default_factory) if isinstance(value, defaultdict) else type(value)()


def merged_dict(one, other):
    made = empty_like(one)
    made.update(one)
    for key, item in other.items():
        for known in made:
            if (known == key or has_one_text(known, key)) and not is_same_key(known, key):
                raise Contradiction
        made[key] = merged(made[key], item) if key in made else item
    return made


def merged(one, other):
    """As Python merges dicts: keys of the first, its class, then what the second has more."""
    if is_opened(one) and is_opened(other):
        if isinstance(one, list) != isinstance(other, list):
            raise Contradiction
        if isinstance(one, dict):
            return merged_dict(one, other)
        both = [merged(a, b) for a, b in zip(one, other)]
        return both + max(one, other, key=len)[len(both):]
    if is_empty(one) and is_opened(other):
        return merged_dict(one, other) if isinstance(one, dict) and isinstance(other, dict) else other
    if is_opened(one) != is_opened(other):
        if not is_empty(other):
            raise Contradiction
    elif typed(one) != typed(other):
        raise Contradiction
    return one


def flat_keys(value, name=""):
    if not is_opened(value):
        return [name]
    items = value.items() if isinstance(value, dict) else enumerate(value)
    return [key for part, item in items for key in flat_keys(item, "%s.%s" % (name, part))]


def is_ambiguous(states):
    """Two keys of one text in a file, or two values of one flat key: no path tells them."""
    todo = list(states)
    if any(len(set(flat_keys(state))) < len(flat_keys(state)) for state in states):
        return True
    while todo:
        value = todo.pop()
        keys = list(value) if isinstance(value, dict) else []
        if any(has_one_text(a, b) for i, a in enumerate(keys) for b in keys[:i]):
            return True
        todo.extend(value.values() if isinstance(value, dict) else value if isinstance(value, list) else ())
    return False


def check_round(setting, seed):
    chance = random.Random(seed)
    states = [{"model": {"w": T}, **{key: tree(chance, 3, (key,)) for key in "xyz" if chance.random() < 0.7}}
              for _ in range(2 + seed % 2)]
    name, what = "in%d" % seed, "seed %d" % seed
    folder, out = save_ranks(setting, name, states), setting.path("out%d.pt" % seed)
    done = setting.run("consolidate", "-q", folder, out, expected=None)
    verified = setting.run("verify", folder, expected=None)
    try:
        expected = states[0]
        for state in states[1:]:
            expected = merged(expected, state)
    except Contradiction:
        expected = None
    if done.returncode == 0 and "objects differ" not in done.stderr:
        check(expected is not None, what + ": merged contradicting ranks")
        check_typed(out, expected, what)
    elif done.returncode != 0:
        check(expected is None or is_ambiguous(states + [expected]), "%s: %s" % (what, done.stderr))
        names = [name for name in ("KEY-DUP", "KEY-NEST", "RANK-DISAGREE") if name in done.stderr]
        check(len(names) == 1 and verified.returncode == 1 and names[0] in verified.stdout, "%s: verify" % what)
        check_nothing_at(out)


@case()
def case_rank_containers_random(setting):
    first = int(os.environ.get("FSDPCK_CONTAINER_SEED", "0"))
    for seed in range(first, first + int(os.environ.get("FSDPCK_CONTAINER_ROUNDS", "40"))):
        check_round(setting, seed)
