"""Folders of Megatron-Core: trained here on the CPU with its DistributedOptimizer, over tensor and pipeline stages, by three
releases. Weights and optimizer state are compared with what the ranks hold."""

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


def train(setting, ranks, *options, name="iter_0000002", **more):
    """(folder, weights, optimizer state) as the folder names them"""
    folder = setting.path(name)
    run_ranks(ranks, rank_train, folder, *options, *more.values())
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
