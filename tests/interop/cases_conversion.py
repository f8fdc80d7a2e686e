"""Conversions beyond the fixtures: every dtype, lost shards, kept sharing, names that stay."""

import json
import os
import shutil

import torch

from cases_pt import PLAIN_DTYPES, tensors_of
from checkpoint_truth import flatten, read_digests, seeded, tensor_label
from support import (BAD_INPUT, EXISTS, NO_SAFETENSORS, USAGE, case, check, check_folder_holds, check_nothing_at,
                     check_same_names, check_same_tensors, load_file, load_hf, load_pt, tensors_of_state)


def every_dtype():
    tensors = {"dtypes." + k: v for k, v in tensors_of(PLAIN_DTYPES, (2, 4)).items()}
    tensors.update({"scalar": seeded("scalar", ()), "empty": torch.empty(0, 3), "count": torch.tensor(2 ** 62 + 1),
                    "flag": torch.tensor(True), "nothing": torch.empty(0, dtype=torch.int64)})
    return tensors


def savable(tensors):
    return {k: v for k, v in tensors.items() if tensor_label(v).split("[")[0] not in NO_SAFETENSORS}


def exclusions(tensors):
    kept = savable(tensors)
    return [option for name in tensors if name not in kept for option in ("--exclude", name)]


def save_dcp(folder, state):
    import torch.distributed.checkpoint as dcp
    os.makedirs(folder)
    dcp.save(state, storage_writer=dcp.FileSystemWriter(folder))


@case(first=(2, 4))
def case_dcp_every_dtype(setting):
    tensors, source = every_dtype(), setting.path("checkpoint")
    save_dcp(source, {**tensors, "epoch": 7, "name": "é", "pair": (1, "two"), "none": None})
    _, path = setting.consolidate(source, "out.pt")
    state = load_pt(path)
    check_same_tensors(tensors_of_state(state), tensors, "out.pt")
    objects = {k: state[k] for k in ("epoch", "name", "pair", "none")}
    check(objects == {"epoch": 7, "name": "é", "pair": (1, "two"), "none": None}, "objects: %r" % objects)
    _, path = setting.consolidate(source, "out.safetensors", "--part", "all", *exclusions(tensors))
    check_same_tensors(load_file(path), savable(tensors), "out.safetensors")
    _, path = setting.consolidate(path, "back.pt")
    check_same_tensors(tensors_of_state(load_pt(path)), savable(tensors), "back.pt")


@case()
def case_pt_every_dtype(setting):
    tensors, source = every_dtype(), setting.path("in.pt")
    torch.save(tensors, source)
    _, path = setting.consolidate(source, "out.pt")
    check_same_tensors(load_pt(path), tensors, "out.pt")
    _, path = setting.consolidate(source, "out.safetensors", "--part", "all", *exclusions(tensors))
    check_same_tensors(load_file(path), savable(tensors), "out.safetensors")


@case()
def case_pt_in_a_folder_for_transformers(setting):
    tensors = {"a.weight": seeded("a.weight", (5, 3)), "a.bias": seeded("a.bias", (5,))}
    torch.save({"model": tensors, "epoch": 3}, setting.path("in.pt"))
    _, folder = setting.consolidate(setting.path("in.pt"), "folder")
    check_same_tensors(load_hf(folder)[0], tensors, "folder")


@case()
def case_pt_keeps_sharing(setting):
    base = seeded("base", (6, 5))
    torch.save({"base": base, "rows": base[2:4], "turned": base.t(), "again": base}, setting.path("in.pt"))
    _, path = setting.consolidate(setting.path("in.pt"), "out.pt")
    found = torch.load(path, weights_only=True)
    check_same_tensors(found, {"base": base, "rows": base[2:4], "turned": base.t(), "again": base}, "out.pt")
    check(found["base"].data_ptr() == found["again"].data_ptr(), "two names of one tensor became two storages")
    found["base"][2, 0] = 99
    check(found["rows"][0, 0] == 99 and found["turned"][0, 2] == 99, "the views no longer share storage")


def storages_of(state):
    """The names on each storage, for those with several."""
    found = {}
    for name, tensor in state.items():
        found.setdefault(tensor.untyped_storage().data_ptr(), []).append(name)
    return sorted(sorted(names) for names in found.values() if len(names) > 1)


@case()
def case_ties_of_a_part_of_a_storage(setting):
    """Names of one tensor share a storage if they get one dtype, also where others of the storage are omitted or cast."""
    whole = torch.randn(6, 4)
    state = {"emb": whole, "head": whole, "aux": whole, "turned": whole.T, "turned2": whole.T, "row": whole[2], "b": torch.randn(3)}
    torch.save({"model": state}, setting.path("in.pt"))
    three, turned, everything = ["aux", "emb", "head"], ["turned", "turned2"], ["aux", "emb", "head", "row", "turned", "turned2"]
    apart = [" no longer share a storage: ", "model.row overlaps model."]  # other views of the same elements
    for options, tied, shared, parted in (
            ([], 3, [everything], None),
            (["--dtype", "bf16"], 3, [three, turned], apart),
            (["--dtype", "bf16", "--tied", "link"], 3, [three, turned], apart),
            (["--exclude", "model.emb"], 2, [["aux", "head"], turned], apart),
            (["--exclude", "model.aux", "--rename", "s/model.head/model.z/"], 2, [["emb", "z"], turned], apart),
            (["--dtype", "model.emb=bf16"], 2, [["aux", "head"], turned], ["model.head", *apart]),
            (["--dtype", "model.aux=fp16"], 2, [["emb", "head"], turned], ["model.aux", *apart]),
            (["--dtype", "model.aux=fp16", "--dtype", "model.turned2=fp16"], 1, [["emb", "head"]],
             ["model.aux", "model.turned2", *apart])):
        for quiet in ([], ["-q"]):
            done = setting.run("consolidate", setting.path("in.pt"), setting.path("out.pt"), "--force", *options, *quiet)
            check(("KEY-TIED" in done.stderr) == (parted is not None), "%r: %r" % (options, done.stderr))
            check(all(name in done.stderr for name in parted or ()), "%r: %r" % (options, done.stderr))
        done = setting.run("consolidate", setting.path("in.pt"), setting.path("out.pt"), "--force", "-q", "--json", *options)
        report = json.loads(done.stdout)
        check(report["counts"]["tied"] == tied, "%r: tied %r" % (options, report["counts"]))
        check([row["finding"] for row in report["findings"]] == ["KEY-TIED"] * (parted is not None) * (1 if parted == apart else 2), "%r" % report["findings"])
        found = torch.load(setting.path("out.pt"))["model"]
        check(storages_of(found) == sorted(shared), "%r: %r" % (options, storages_of(found)))
        for name, tensor in found.items():
            wanted = state["head" if name == "z" else name]
            check(torch.equal(tensor, wanted.to(tensor.dtype)) and tensor.shape == wanted.shape, "%r: %s" % (options, name))
        setting.run("verify", setting.path("out.pt"), "--level", "checksum", "--strict")


@case()
def case_small_view_leaves_its_storage(setting):
    large = seeded("large", (1000,))
    torch.save({"view": large[10:20]}, setting.path("in.pt"))
    _, path = setting.consolidate(setting.path("in.pt"), "out.safetensors")
    check_same_tensors(load_file(path), {"view": large[10:20]}, "out.safetensors")
    check(os.path.getsize(path) < 1000, "the whole storage was written")


@case()
def case_nesting_and_metadata_stay(setting):
    from cases_pt import make_small_module
    state = make_small_module().state_dict()
    groups = [{"lr": 0.1, "betas": (0.9, 0.95), "params": [0, 1]}]
    torch.save({"model": state, "optimizer": {"state": {0: {"step": torch.tensor(4.0)}}, "param_groups": groups}},
               setting.path("in.pt"))
    _, path = setting.consolidate(setting.path("in.pt"), "out.pt")
    found = load_pt(path)
    check(type(found["model"]) is type(state), "model is a %s" % type(found["model"]))
    check(getattr(found["model"], "_metadata", None) == state._metadata, "_metadata was lost")
    check(found["optimizer"]["param_groups"] == groups, "param_groups: %r" % found["optimizer"]["param_groups"])
    check(list(found["optimizer"]["state"]) == [0], "integer keys: %r" % list(found["optimizer"]["state"]))
    check(list(found["model"]) == list(state), "order of names changed")


def check_lost_shard(setting, name, lost, named):
    """named: what the message may name, the lost part or a tensor of it."""
    source = setting.path("shards")
    fixture = setting.fixtures + "/torch-2.15.0/" + name
    shutil.copytree(fixture, source)
    os.remove(os.path.join(source, lost))
    named = [*named, *read_digests(fixture + ".digests")]
    for target in ("out.safetensors", "out.pt", "out"):
        done, path = setting.consolidate(source, target, expected=BAD_INPUT)
        check(any(name in done.stderr for name in named), "nothing lost is named: " + done.stderr)
        check_nothing_at(path)
    check_folder_holds(setting.folder, ["shards"])


@case()
def case_lost_middle_safetensors_shard(setting):
    check_lost_shard(setting, "hf-shards", "shard-00002-model-00001-of-00001.safetensors", [])


@case()
def case_lost_rank_metadata(setting):
    check_lost_shard(setting, "dcp-nocollective", "__1.metadata", ["rank 1", "__1.metadata"])


@case()
def case_lost_distcp(setting):
    source = setting.path("checkpoint")
    shutil.copytree(setting.fixtures + "/torch-2.15.0/dcp-fsdp2", source)
    os.remove(source + "/__2_0.distcp")
    done, path = setting.consolidate(source, "out.safetensors", expected=BAD_INPUT)
    check("__2_0.distcp" in done.stderr, "the file is not named: " + done.stderr)
    check_nothing_at(path)


@case()
def case_cut_distcp(setting):
    source = setting.path("checkpoint")
    shutil.copytree(setting.fixtures + "/torch-2.15.0/dcp-fsdp2", source)
    os.truncate(source + "/__0_0.distcp", os.path.getsize(source + "/__0_0.distcp") // 2)
    _, path = setting.consolidate(source, "out.pt", expected=BAD_INPUT)
    check_nothing_at(path)


@case()
def case_existing_output(setting):
    torch.save({"w": seeded("w", (2, 2))}, setting.path("in.pt"))
    for target, old in (("out.safetensors", b"old"), ("out.pt", b"old")):
        with open(setting.path(target), "wb") as out:
            out.write(old)
        setting.consolidate(setting.path("in.pt"), target, expected=EXISTS)
        with open(setting.path(target), "rb") as kept:
            check(kept.read() == old, target + " was changed")
        setting.consolidate(setting.path("in.pt"), target, "--force")
    check_same_tensors(load_file(setting.path("out.safetensors")), {"w": seeded("w", (2, 2))}, "out.safetensors")


@case()
def case_same_output_for_any_threads(setting):
    source = setting.fixtures + "/quickstart"
    for target in ("%s.safetensors", "%s.pt"):
        contents = []
        for threads in (1, 2, 5):
            _, path = setting.consolidate(source, target % ("t%d" % threads), "--threads", threads)
            with open(path, "rb") as file:
                contents.append(file.read())
        check(contents[0] == contents[1] == contents[2], target + ": the bytes depend on the number of threads")


@case()
def case_usage(setting):
    setting.run("consolidate", expected=USAGE)
    setting.run("consolidate", setting.path("absent"), expected=USAGE)
    torch.save({"w": seeded("w", (2, 2))}, setting.path("in.pt"))
    setting.consolidate(setting.path("in.pt"), "out.safetensors", "--no-such-option", expected=USAGE)
    setting.consolidate(setting.path("in.pt"), "out.safetensors", "--keys", "absent*", expected=USAGE)
    check_folder_holds(setting.folder, ["in.pt"])


@case(first=(2, 15))
def case_quickstart_equals_torch(setting):
    """torch's own conversion of the same folder gives the same nested state."""
    from torch.distributed.checkpoint.format_utils import dcp_to_torch_save
    source = setting.fixtures + "/quickstart"
    dcp_to_torch_save(source, setting.path("torch.pt"))
    expected = torch.load(setting.path("torch.pt"), weights_only=True)
    _, path = setting.consolidate(source, "out.pt")
    found = load_pt(path)
    check_same_tensors(tensors_of_state(found), tensors_of_state(expected), "out.pt")
    leaves = dict(flatten(found))
    for key, value in flatten(expected):
        if not isinstance(value, torch.Tensor):
            check(leaves[key] == value and type(leaves[key]) is type(value), "%s: %r, torch has %r" % (
                key, leaves[key], value))
    check_same_names(leaves, dict(flatten(expected)), "out.pt")
