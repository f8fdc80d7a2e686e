"""Folders of Megatron-Core: trained here on the CPU with its DistributedOptimizer, over tensor and pipeline stages, by three
releases. Weights and optimizer state are compared with what the ranks hold."""

import json
import os
import re
import shutil

import torch

from megatron_training import NEWER, OLDER, SLOTS, gather_training, rank_train, stack_layers, use_release
from process_group import run_ranks
from support import BAD_INPUT, UNSUPPORTED, case, check, check_same_tensors

TP2 = {"tensor_model_parallel_size": 2}
TP2_PP2 = {"tensor_model_parallel_size": 2, "pipeline_model_parallel_size": 2}
EP2 = {"expert_model_parallel_size": 2}
FOUND = 1  # verify: an error


def train(setting, ranks, *options, name="iter_0000002", steps=2, prefix="", integrity=False):
    """(folder, weights, optimizer state) as the folder names them"""
    folder = setting.path(name)
    run_ranks(ranks, rank_train, folder, *options, steps, prefix, integrity)
    weights, state = gather_training(folder)
    return folder, stack_layers(weights), {slot: stack_layers(tensors) for slot, tensors in state.items()}


def load_file(path):
    from safetensors.torch import load_file as load
    return load(path)


def check_folder(setting, folder, weights, state, first_slot="param"):
    """Every tensor, the optimizer's by the names of its parameters; verify finds nothing."""
    _, made = setting.consolidate(folder, "model.safetensors", "--force")
    check_same_tensors(load_file(made), weights, "weights")
    _, made = setting.consolidate(folder, "optimizer.safetensors", "--part", "optimizer", "--force")
    found = {re.sub(r"^chained_\d+\.", "", name): tensor for name, tensor in load_file(made).items()}
    expected = {"optimizer.state.%s.%s" % (first_slot if slot == "param" else slot, name): tensor
                for slot in SLOTS for name, tensor in state[slot].items()}
    check_same_tensors(found, expected, "optimizer")
    check_silent(setting, folder)


def check_silent(setting, folder):
    for level in ("structure", "coverage", "checksum", "numeric"):
        done = setting.run("verify", folder, "--level", level)
        check("warning" not in done.stdout and "error:" not in done.stdout, "%s: %s" % (level, done.stdout))


@case(first=(2, 15))
def case_megatron_reshardable(setting):
    """Without pipeline stages of tied models: there, the optimizer's second bucket, this release mixes up rows when it saves."""
    use_release()
    for ranks, family, parallel in ((2, "llama", None), (4, "qwen3", TP2), (4, "llama", TP2_PP2), (2, "mixtral", EP2),
                                    (4, "qwen3_moe", EP2)):
        folder, weights, state = train(setting, ranks, family, "fully_reshardable", parallel)
        check_folder(setting, folder, weights, state)
        shutil.rmtree(folder)


@case(first=(2, 15))
def case_megatron_flattened(setting):
    """Optimizer state of fully_sharded_model_space: flattened shards of each parameter, cut among the ranks."""
    use_release(OLDER)
    for ranks, family, parallel in ((2, "llama", None), (3, "llama", None), (4, "llama", TP2), (4, "qwen3", TP2_PP2),
                                    (2, "mixtral", EP2), (4, "qwen3_moe", EP2)):
        folder, weights, state = train(setting, ranks, family, "fully_sharded_model_space", parallel)
        check_folder(setting, folder, weights, state, "fp32_param")
        shutil.rmtree(folder)


@case(first=(2, 15))
def case_megatron_buckets(setting):
    """dp_reshardable: the model is read, its optimizer is refused by name, or copied as it is with a warning."""
    use_release()
    folder, weights, _ = train(setting, 2, "llama", "dp_reshardable", None)
    _, made = setting.consolidate(folder, "model.safetensors")
    check_same_tensors(load_file(made), weights, "weights")
    check_silent(setting, folder)
    done = setting.run("consolidate", folder, setting.path("no.safetensors"), "--part", "optimizer", expected=UNSUPPORTED)
    check("MEGATRON-BUCKETS" in done.stderr and "dp_reshardable" in done.stderr, "reason: " + done.stderr)
    done, _ = setting.consolidate(folder, "all.pt")
    check("MEGATRON-BUCKETS" in done.stderr, "no warning: " + done.stderr)


@case(first=(2, 15))
def case_megatron_newest(setting):
    """The release that has no common.pt: the common state as an object, and integrity.json."""
    use_release(NEWER)
    folder, weights, state = train(setting, 4, "llama", "fully_reshardable", TP2_PP2, steps=2, prefix="", integrity=True)
    check(not os.path.exists(os.path.join(folder, "common.pt")), "common.pt")
    check_folder(setting, folder, weights, state)
    report = json.loads(setting.run("inspect", folder, "--json").stdout)
    expected = {"checkpoint_version": "3.0", "optimizer": "fully_reshardable", "iteration": 2, "world_size": 4,
                "tensor_parallel": 2, "pipeline_parallel": 2, "expert_parallel": 1, "context_parallel": 1, "unread": False}
    check(report["megatron"] == expected, "record: %r" % report["megatron"])
    # A byte that no checksum of a zip covers: of the metadata.
    with open(os.path.join(folder, "metadata.json"), "a", encoding="utf-8") as text:
        text.write(" ")
    done = setting.run("verify", folder, "--level", "checksum", expected=FOUND)
    check("MEGATRON-INTEGRITY" in done.stdout and "metadata.json" in done.stdout, done.stdout)


def rename_to(folder, name):
    made = os.path.join(os.path.dirname(folder), name)
    os.makedirs(os.path.dirname(made), exist_ok=True)
    shutil.move(folder, made)
    return made


@case(first=(2, 15))
def case_megatron_newest_experts(setting):
    """The same release with experts on 2 and 4 ranks."""
    use_release(NEWER)
    for ranks, family in ((2, "mixtral"), (4, "qwen3_moe")):
        folder, weights, state = train(setting, ranks, family, "fully_reshardable", EP2, prefix="")
        check(not os.path.exists(os.path.join(folder, "common.pt")), "common.pt")
        check_folder(setting, folder, weights, state)
        shutil.rmtree(folder)


@case(first=(2, 15))
def case_megatron_faults(setting):
    """One lost, one cut, one foreign file of a save each; an interrupted save."""
    use_release()
    folder, *_ = train(setting, 2, "llama", "fully_reshardable", None)
    other, *_ = train(setting, 4, "llama", "fully_reshardable", TP2, steps=3, name="iter_0000003")
    names = sorted(os.listdir(folder))
    check(".metadata" in names and "common.pt" in names and "__0_0.distcp" in names, "files: %s" % names)
    for name in names:
        path = os.path.join(folder, name)
        with open(path, "rb") as f:
            content = f.read()
        os.remove(path)
        done = setting.run("verify", folder, expected=None)
        lost = "SAVE-INCOMPLETE" if name == ".metadata" else "MEGATRON-CONFIG" if name == "metadata.json" else \
            None if name == "common.pt" else "FILE-MISSING"
        check(lost is None or lost in done.stdout, "lost %s: %s" % (name, done.stdout))
        with open(path, "wb") as f:
            f.write(content[:len(content) * 2 // 3])
        done = setting.run("verify", folder, expected=None)
        check("error:" in done.stdout or "warning:" in done.stdout, "cut %s: %s" % (name, done.stdout))
        with open(os.path.join(other, name), "rb") as f:
            foreign = f.read()
        if name != "metadata.json":
            with open(path, "wb") as f:
                f.write(foreign)
            done = setting.run("verify", folder, "--level", "checksum", expected=None)
            check("error:" in done.stdout or "warning:" in done.stdout, "foreign %s: %s" % (name, done.stdout))
        with open(path, "wb") as f:
            f.write(content)
    check_silent(setting, folder)
    os.remove(os.path.join(folder, ".metadata"))
    setting.run("inspect", folder, expected=BAD_INPUT)
    for name in names:
        if name.endswith(".distcp"):
            os.remove(os.path.join(folder, name))
    done = setting.run("inspect", folder, expected=BAD_INPUT)
    check("SAVE-INCOMPLETE" in done.stderr, done.stderr)


@case(first=(2, 15))
def case_megatron_folders(setting):
    """The folder of a run, of NeMo (names with a prefix) and of verl; the formats before torch_dist."""
    use_release()
    run = setting.path("run")
    os.mkdir(run)
    folder, weights, state = train(setting, 1, "llama", "fully_reshardable", None, name="run/iter_0000002")
    train(setting, 1, "llama", "fully_reshardable", None, steps=4, name="run/iter_0000004")
    with open(os.path.join(run, "latest_checkpointed_iteration.txt"), "w", encoding="utf-8") as text:
        text.write("4")
    check(setting.run("latest", run).stdout.strip().endswith("iter_0000004"), "latest")
    os.remove(os.path.join(run, "iter_0000004", ".metadata"))
    check(setting.run("latest", run).stdout.strip().endswith("iter_0000002"), "latest after an interrupted save")
    nemo, weights, state = train(setting, 1, "llama", "fully_reshardable", None, steps=2, prefix="module.", name="weights")
    os.makedirs(setting.path("nemo/context"))
    nemo = rename_to(nemo, "nemo/weights")
    _, made = setting.consolidate(setting.path("nemo"), "nemo.safetensors")
    check_same_tensors(load_file(made), weights, "NeMo")
    verl = rename_to(folder, "global_step_2/actor/dist_ckpt")
    _, made = setting.consolidate(os.path.dirname(verl), "verl.safetensors")
    check_same_tensors(load_file(made), weights, "verl")
    os.remove(os.path.join(nemo, ".metadata"))
    setting.run("inspect", nemo, expected=BAD_INPUT)
    legacy = setting.path("legacy/iter_0000002")
    for rank in range(2):
        os.makedirs(os.path.join(legacy, "mp_rank_%02d" % rank))
        torch.save({"model": {"w": torch.zeros(2)}}, os.path.join(legacy, "mp_rank_%02d" % rank, "model_optim_rng.pt"))
    zarr = setting.path("zarr/iter_0000002")
    os.makedirs(os.path.join(zarr, "decoder.final_layernorm.weight"))
    torch.save({"iteration": 2}, os.path.join(zarr, "common.pt"))
    with open(os.path.join(zarr, "metadata.json"), "w", encoding="utf-8") as text:
        json.dump({"sharded_backend": "zarr", "sharded_backend_version": 1}, text)
    for path in (legacy, os.path.dirname(legacy), zarr, os.path.dirname(zarr)):
        done = setting.run("consolidate", path, setting.path("no.safetensors"), expected=UNSUPPORTED)
        check("MEGATRON-FORMAT" in done.stderr, done.stderr)
