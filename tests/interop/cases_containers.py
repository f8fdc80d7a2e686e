"""Objects and containers beside the tensors: what torch loads from the source must be in what is written."""

import json
import os
import types
from collections import OrderedDict

import torch
from safetensors.torch import save_file

from support import BAD_INPUT, UNSUPPORTED, case, check, load_pt


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
def case_diff_of_zeros_and_nans(setting):
    """Bits decide unless a tolerance is above 0, as fsdpck-diff(1) says."""
    bits = torch.tensor([0x7FC00000, 0x7FC00001], dtype=torch.int32).view(torch.float32)
    torch.save({"z": torch.tensor([0.]), "n": bits[:1].clone()}, setting.path("a.pt"))
    torch.save({"z": torch.tensor([-0.]), "n": bits[1:].clone()}, setting.path("b.pt"))
    for options, expected in (((), 1), (("--atol", "0"), 1), (("--rtol", "0"), 1), (("--atol", "1e-30"), 0), (("--rtol", "1e-30"), 0)):
        setting.run("diff", setting.path("a.pt"), setting.path("b.pt"), *options, expected=expected)


@case()
def case_two_paths_of_one_name(setting):
    """No option opens such a file, so none is advised; the state saved again under another key is read."""
    state = {"a.b": torch.ones(2), "a": {"b": torch.zeros(3)}, "w": torch.ones(1)}
    torch.save(state, setting.path("in.pt"))
    for options in ((), ("--exclude", "a.b"), ("--rename", "s/^a\\.b$/x/"), ("--strip-prefix", "a.")):
        done = setting.run("consolidate", setting.path("in.pt"), setting.path("out.pt"), *options, expected=BAD_INPUT)
        check("KEY-DUP" in done.stderr and "save it again" in done.stderr and "--" not in done.stderr, done.stderr)
    state["c"] = state.pop("a.b")
    torch.save(state, setting.path("in.pt"))
    setting.consolidate(setting.path("in.pt"), "out.pt")


@case()
def case_two_keys_of_one_text(setting):
    """torch's planner keeps str(key): dcp.save of such a state would lose one of both, or could not be loaded."""
    tensor = torch.ones(2)
    for name, inner, plain in (
            ("dicts", {0: {"x": tensor}, "0": {"y": tensor}}, True), ("list", {0: [tensor], "0": 5}, True),
            ("minus", {"-3": {"x": tensor}, -3: {"y": tensor}}, True), ("list-dict", {0: [tensor], "0": {"y": tensor}}, True),
            ("lists", {0: [1, 2], "0": [3], "w": tensor}, False), ("bool", {True: {"x": tensor}, "True": [tensor]}, False),
            ("tuple", {(1, 2): {"x": tensor}, "(1, 2)": {"y": tensor}}, False)):
        for state in (inner, {"m": inner}, {"m": [inner]}):
            torch.save(state, setting.path("in.pt"))
            done = setting.run("reshard", setting.path("in.pt"), setting.path("out"), "--format", "dcp", "--world-size", 1,
                               expected=UNSUPPORTED if plain else BAD_INPUT)
            check("KEY-DUP" in done.stderr, name + ": " + done.stderr)
            if plain:
                setting.consolidate(setting.path("in.pt"), "same.pt", "--force")
                check(repr(torch.load(setting.path("same.pt"))) == repr(state), name)
    torch.save({0: {"x": tensor}, 1: [tensor], "a": {"0": tensor}, (1, 2): 5, True: 3}, setting.path("in.pt"))
    setting.run("reshard", setting.path("in.pt"), setting.path("out"), "--format", "dcp", "--world-size", 1)


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
    check("left out: 2 tensors (40 bytes) and 1 object; a .pt includes objects" in done.stdout, done.stdout)
    done, out = setting.consolidate(setting.path("in.pt"), "out.pt")
    check("left out" not in done.stdout, done.stdout)
    state = load_pt(out, weights_only=False)
    check(state["model"].note["moved"].tolist() == model.note["moved"].tolist(), "attribute: %r" % vars(state["model"]))
    check(state["held"].a.tolist() == [1., 1., 1.], "object")
    done, out = setting.consolidate(setting.path("in.pt"), "some.pt", "--exclude", "held")
    check("left out: 2 tensors (40 bytes) and 1 object" in done.stdout and "model#0" in done.stdout, done.stdout)


@case()
def case_names_that_are_no_text(setting):
    torch.save({"a\udcff": torch.ones(2), "b": torch.zeros(2)}, setting.path("in.pt"))
    done, _ = setting.consolidate(setting.path("in.pt"), "out.safetensors", expected=UNSUPPORTED)
    check("not UTF-8" in done.stderr and "'a" not in done.stderr and "a\\x" in done.stderr and "--rename" in done.stderr and
          "--format pt, dcp" in done.stderr, done.stderr)
    setting.consolidate(setting.path("in.pt"), "renamed.safetensors", "--rename", "s/^a.*/a/")
    _, out = setting.consolidate(setting.path("in.pt"), "out.pt")
    check(sorted(load_pt(out)) == ["a\udcff", "b"], "pt")


@case()
def case_trainer_files_beside(setting):
    """A resume reads optimizer.pt; verify reports an error, whatever is wrong with it."""
    optimizer = {"state": {0: {"exp_avg": torch.ones(500)}}, "param_groups": [{"params": [0]}]}
    states = {"optimizer.pt": optimizer, "optimizer.bin": optimizer, "scheduler.pt": {"last_epoch": 3, "_step_count": 4, "losses": torch.ones(500)},
              "rng_state_0.pth": {"cpu": torch.get_rng_state()}}
    for name, state in states.items():
        torch.save(state, setting.path("whole.pt"))
        with open(setting.path("whole.pt"), "rb") as file:
            saved = file.read()
        for what, content in (("whole", saved), ("empty", b""), ("garbage", b"garbage" * 100), ("short", saved[:-300])):
            folder = setting.path("%s-%s" % (what, name))
            os.makedirs(folder)
            save_file({"weight": torch.ones(4)}, os.path.join(folder, "model.safetensors"))
            with open(os.path.join(folder, name), "wb") as file:
                file.write(content)
            code = 0 if what == "whole" else 1
            paths = [finding.get("path", "") for finding in
                     json.loads(setting.run("verify", folder, "--json", expected=code).stdout)["findings"]
                     if finding["finding"] == "SIDE-UNREAD"]
            check(paths == ([] if what == "whole" else [os.path.join(folder, name)]), "%s %s: %r" % (what, name, paths))
            setting.run("verify", folder, "--strict", expected=code)


def save_trainer_step(folder, seed):
    """As the Trainer of transformers does, with real state; the learning rate 0 keeps the weights."""
    import argparse
    import random
    os.makedirs(folder)
    torch.manual_seed(0)
    model = torch.nn.Linear(16, 16)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2)
    torch.manual_seed(seed)
    for _ in range(seed):
        model(torch.randn(3, 16)).sum().backward()
        optimizer.step()
        scheduler.step()
    save_file(dict(model.state_dict()), os.path.join(folder, "model.safetensors"), metadata={"format": "pt"})
    for name, state in (("optimizer.pt", optimizer.state_dict()), ("scheduler.pt", scheduler.state_dict()),
                        ("rng_state.pth", {"python": random.getstate(), "cpu": torch.get_rng_state()}),
                        ("training_args.bin", argparse.Namespace(learning_rate=0.))):
        torch.save(state, os.path.join(folder, name))
    with open(os.path.join(folder, "trainer_state.json"), "w") as file:
        json.dump({"global_step": seed, "log_history": [{"loss": float("nan")}]}, file)


@case()
def case_trainer_state_is_checked(setting):
    """A bit of the optimizer's data that changed after the save; two steps that differ in the optimizer alone."""
    run = setting.path("run")
    for step in (1, 2):
        save_trainer_step(os.path.join(run, "checkpoint-%d" % step), step)
    folder = os.path.join(run, "checkpoint-2")
    for level in ("quick", "structure", "coverage", "checksum", "numeric"):
        report = json.loads(setting.run("verify", folder, "--level", level, "--strict", "--json").stdout)
        check(report["counts"]["state_files"] == 5 and report["unchecked"]["state_files"] == 0, "%s: %r" % (level, report["counts"]))
    done = setting.run("diff", os.path.join(run, "checkpoint-1"), folder, "--json", expected=1)
    files = {row.get("file") for row in json.loads(done.stdout)["differences"]}
    check("optimizer.pt" in files and None not in files, "files that differ: %r" % files)
    path = os.path.join(folder, "optimizer.pt")
    data = torch.load(path, weights_only=True)["state"][0]["exp_avg"].numpy().tobytes()
    with open(path, "rb") as file:
        saved = bytearray(file.read())
    saved[saved.index(data) + len(data) // 2] ^= 1
    with open(path, "wb") as file:
        file.write(saved)
    report = json.loads(setting.run("verify", folder, "--level", "checksum", "--json", expected=1).stdout)
    errors = [(item["finding"], item["path"]) for item in report["findings"] if item["severity"] == "error"]
    check(errors == [("ZIP-CRC", path)], "%r" % errors)


def changed_objects(setting, first, second, *options, expected):
    """(name, a, b) of the objects that diff reports."""
    report = json.loads(setting.run("diff", setting.path(first), setting.path(second), "--json", *options, expected=expected).stdout)
    return [(row["object"], row["value_a"], row["value_b"]) for row in report["differences"]]


@case()
def case_diff_of_key_types(setting):
    """1 and '1' are two keys: an optimizer that torch saved does not load from the latter."""
    def save(name, key):
        state = {key(i): {"exp_avg": torch.ones(2), "step": i} for i in (0, 1, 10)}
        torch.save({"optimizer": {"state": state, "param_groups": [{"lr": 0.5, "params": [0, 1, 10]}]},
                    "cfg": {key(-1): 2, "list": [torch.ones(1)]}, "odd": {"01": 1, None: 2}}, setting.path(name))

    save("ints.pt", int)
    save("texts.pt", str)
    check(changed_objects(setting, "ints.pt", "ints.pt", expected=0) == [], "the same")
    check(changed_objects(setting, "texts.pt", "texts.pt", expected=0) == [], "the same")
    found = changed_objects(setting, "ints.pt", "texts.pt", expected=1)
    check(sorted(found) == [("cfg.-1", "int key -1", "str key '-1'"), ("optimizer.state.0", "int key 0", "str key '0'")], "%r" % found)
    found = changed_objects(setting, "texts.pt", "ints.pt", "--exclude", "cfg.*", expected=1)
    check(found == [("optimizer.state.0", "str key '0'", "int key 0")], "%r" % found)
    check("int key 0" in setting.run("diff", setting.path("ints.pt"), setting.path("texts.pt"), expected=1).stdout, "text")
    setting.run("consolidate", setting.path("ints.pt"), setting.path("ints.dcp"), "--format", "dcp")
    check(changed_objects(setting, "ints.pt", "ints.dcp", expected=0) == [], "DCP has texts alone")


@case()
def case_diff_of_other_key_types(setting):
    """Keys that are neither str nor int, against the str that prints like them: in Python two different keys."""
    keys = {"NoneType": None, "bool": True, "float": 1.5, "tuple": (1, "a.b"), "bytes": b"a", "int": 2**70}
    for number, (kind, key) in enumerate(keys.items()):
        for name, used in (("typed", key), ("text", str(key))):
            inner = {"first": torch.zeros(2), used: torch.ones(1), "z": 5, "list": [{used: {"deep": torch.ones(1)}}]}
            torch.save({"model": {"w": torch.ones(1)}, "x": inner}, setting.path("%s%d.pt" % (name, number)))
        typed, text = "typed%d.pt" % number, "text%d.pt" % number
        check(changed_objects(setting, typed, typed, expected=0) == [], "the same")
        wanted = ["%s key %s" % (kind, key), "str key '%s'" % str(key)]
        found = sorted(changed_objects(setting, typed, text, expected=1))
        check(found == sorted((at % key, *wanted) for at in ("x.%s", "x.list.0.%s")) if not isinstance(key, tuple) else len(found) == 2, "%r" % found)
        found = changed_objects(setting, text, typed, expected=1)
        check(len(found) == 2 and all(row[2].startswith(kind + " key ") for row in found), "%r" % found)
    check(changed_objects(setting, "typed0.pt", "text0.pt", "--exclude", "x.*", expected=0) == [], "excluded")


@case()
def case_diff_of_containers(setting):
    """torch.save files whose tensors have the same names, in a list and in a dict, or in dicts with other attributes."""
    def make(items, version):
        model = OrderedDict(w=torch.ones(2))
        if version is not None:
            model._metadata = OrderedDict({"": {"version": version}})
        return {"model": model, "held": {"a": items}, "step": 1}

    w = torch.arange(3.)
    states = {"list": make([w], 1), "int": make({0: w}, 1), "text": make({"0": w}, 1), "none": make([w], None), "two": make([w], 2),
              "plain": {**make([w], 1), "model": {"w": torch.ones(2)}}}
    for name, state in states.items():
        torch.save(state, setting.path(name + ".pt"))
        torch.save(state["model"], setting.path("bare-%s.pt" % name))
    for name in states:
        check(changed_objects(setting, name + ".pt", name + ".pt", expected=0) == [], "the same")
    for name in ("int", "text"):
        found = changed_objects(setting, "list.pt", name + ".pt", expected=1)
        check(found == [("held.a", "list", "dict")], "%r" % found)
        found = changed_objects(setting, name + ".pt", "list.pt", expected=1)
        check(found == [("held.a", "dict", "list")], "%r" % found)
    for name in ("none", "two", "plain"):
        for first, second in ((name, "list"), ("list", name)):
            found = changed_objects(setting, first + ".pt", second + ".pt", expected=1)
            check([row[0] for row in found] == ["model"], "%r" % found)
            check([row[1] == "no attributes" for row in found] == [first in ("none", "plain")], "%r" % found)
            check([row[2] == "no attributes" for row in found] == [second in ("none", "plain")], "%r" % found)
            found = changed_objects(setting, "bare-%s.pt" % first, "bare-%s.pt" % second, expected=1)
            check([row[0] for row in found] == ["the outermost dict"], "%r" % found)
    check(changed_objects(setting, "none.pt", "plain.pt", expected=0) == [], "an OrderedDict without attributes")
    check(changed_objects(setting, "none.pt", "list.pt", "--exclude", "model*", expected=0) == [], "excluded")
    check(changed_objects(setting, "none.pt", "list.pt", "--objects", "drop", expected=0) == [], "dropped")
    # DCP folders have neither lists nor attributes.
    setting.run("consolidate", setting.path("list.pt"), setting.path("dcp"), "--format", "dcp")
    for name in ("list", "int", "none", "two"):
        check(changed_objects(setting, name + ".pt", "dcp", expected=0) == [], "against DCP")


def classes_of(state):
    """The state with the class of each dict, and what its _metadata is, in place of tensors' elements."""
    if isinstance(state, dict):
        return (type(state).__name__, getattr(state, "_metadata", None), {key: classes_of(item) for key, item in state.items()})
    return [classes_of(item) for item in state] if isinstance(state, list) else "tensor" if torch.is_tensor(state) else state


@case()
def case_containers_of_selections(setting):
    """Classes of dicts and _metadata stay where a selection is written, from one file and from files of ranks."""
    def make(names=("weight", "bias"), key="model"):
        model = OrderedDict((name, torch.ones(2)) for name in names)
        model._metadata = OrderedDict({"": {"version": 1}})
        return {key: model, "cfg": {"empty": {}, "od": OrderedDict(a=torch.ones(1)), "list": [{}, {"w": torch.ones(1)}]}, "step": 3,
                "od": OrderedDict()}

    torch.save(make(), setting.path("one.pt"))
    os.makedirs(setting.path("ranks"))
    for rank in range(2):
        torch.save(make(), setting.path("ranks", "model_world_size_2_rank_%d.pt" % rank))
    whole = make()
    for source in ("one.pt", "ranks"):
        for options, expected in (([], whole), (["--exclude", "*bias"], make(names=("weight",))),
                                  (["--rename", "s/^model/net/"], make(key="net")), (["--part", "model"], {"model": whole["model"]}),
                                  (["--part", "model", "--strip-prefix", "model."], whole["model"])):
            name = "%s-%d.pt" % (source, len(os.listdir(setting.folder)))
            _, out = setting.consolidate(setting.path(source), name, *options)
            found = classes_of(load_pt(out, weights_only=False))
            check(found == classes_of(expected), "%s %r: %r" % (source, options, found))
    setting.run("reshard", setting.path("ranks"), setting.path("more"), "--world-size", "2")
    found = classes_of(load_pt(setting.path("more", "model_world_size_2_rank_1.pt"), weights_only=False))
    check(found == classes_of(whole), "reshard: %r" % (found,))


@case((2, 6))
def case_dict_attribute_tensors(setting):
    """Tensors inside attributes of dicts are compared, by diff and by lists of digests."""
    def state(value):
        inner = OrderedDict(w=torch.ones(4))
        if value is not None:
            inner.scale = torch.full((5,), value)
            inner._metadata = OrderedDict({"": {"version": 1, "step": torch.full((2,), value)}})
        return {"model": inner, "step": 3}

    paths = {name: setting.path(name) for name in ("a.pt", "b.pt", "none.pt")}
    for path, value in zip(paths.values(), (1., 2., None)):
        torch.save(state(value), path)
    found = json.loads(setting.run("diff", "--json", paths["a.pt"], paths["b.pt"], expected=1).stdout)
    check([(d["tensor"], d["differing"]) for d in found["differences"]] == [("model#0", 5), ("model#1", 2)],
          found["differences"])
    setting.run("diff", paths["a.pt"], paths["none.pt"], expected=1)
    setting.run("diff", "-q", paths["none.pt"], paths["a.pt"], expected=1)
    setting.run("diff", paths["a.pt"], paths["a.pt"])
    setting.run("consolidate", "-q", paths["a.pt"], setting.path("copy.pt"))
    setting.run("diff", paths["a.pt"], setting.path("copy.pt"))
    with open(setting.path("list"), "w") as out:
        out.write(setting.run("digest", paths["a.pt"]).stdout)
    setting.run("digest", "-c", setting.path("list"), paths["a.pt"])
    setting.run("digest", "-c", setting.path("list"), paths["b.pt"], expected=1)
    setting.run("digest", "-c", setting.path("list"), paths["none.pt"], expected=1)
    setting.run("digest", "-q", "--manifest", setting.path("m.json"), paths["a.pt"])
    setting.run("verify", "-q", "--level", "checksum", "--manifest", setting.path("m.json"), paths["a.pt"])
