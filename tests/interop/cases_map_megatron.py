"""Tensor maps of Megatron-Core: torch_dist checkpoints that it saves itself, against its own weights taken apart by
Megatron Bridge, and against the logits of its model."""

import json
import os
import shutil
from unittest import mock

import torch

import megatron_core
from cases_export_like import check_loads, save_base, transformers
from cases_map_logits import TOLERANCE, check_power, difference, libraries, load_model, logits_of
from megatron_core import (FAMILIES, HEADS, KV_HEADS, VOCABULARY, arguments_of, gather, hf_config, import_megatron,
                           make_model, rank_save, set_weights, to_hf)
from cases_near import save_folder, verify
from process_group import run_ranks
from support import BAD_INPUT, UNSUPPORTED, USAGE, case, check, check_same_tensors, digests_of, load_hf

TP2_PP2 = {"tensor_model_parallel_size": 2, "pipeline_model_parallel_size": 2}
EP2 = {"expert_model_parallel_size": 2}
SCALE = 1 / 2  # of the weights: a smaller one hides tensors from the logits


def map_of(family):
    if family.startswith("deepseek"):
        return "megatron-deepseek-v3"
    return {"qwen2_moe": "megatron-qwen3-moe", "qwen3_moe": "megatron-qwen3-moe",
            "mixtral": "megatron-mixtral"}.get(family.partition(".")[0], "megatron-llama")


def save(setting, family, dtype, ranks, *options):
    """(folder, the same weights under the names of Hugging Face, options of the map)"""
    folder = setting.path("iter_0000005")
    import_megatron()
    run_ranks(ranks, rank_save, folder, family, dtype, *options)
    with open(setting.path("config.json"), "w", encoding="utf-8") as text:
        json.dump(hf_config(family), text)
    return folder, to_hf(family, gather(folder)), ("--map", map_of(family), "--config", setting.path("config.json"))


def check_export(setting, folder, expected, options):
    done, made = setting.consolidate(folder, "hf/", *options)
    check_same_tensors(load_hf(made)[0], expected, "hf")
    check("embedding.word_embeddings.weight[%d:" % VOCABULARY in done.stdout, "padding is not listed: " + done.stdout)
    setting.run("reshard", folder, setting.path("for3"), "--world-size", "3", *options)
    check(digests_of(setting, setting.path("for3")) == digests_of(setting, made), "resharded otherwise")


def clear(setting):
    for name in os.listdir(setting.folder):
        path = setting.path(name)
        shutil.rmtree(path) if os.path.isdir(path) else os.remove(path)


@case(first=(2, 15))
def case_map_megatron_dense(setting):
    """Layers stacked and one by one, sharded over tensor and pipeline stages."""
    for family in ("llama", "qwen2", "qwen3"):
        for ranks, *options in ((1, None), (4, TP2_PP2), (4, TP2_PP2, {"singleton_local_shards": True}),
                                (1, None, {"non_homogeneous_layers": True})):
            folder, expected, of_map = save(setting, family, torch.bfloat16, ranks, *options)
            check(("lm_head.weight" in expected) == (not FAMILIES[family][1]), "output layer")
            check_export(setting, folder, expected, of_map)
            clear(setting)


@case(first=(2, 15))
def case_map_megatron_experts(setting):
    for family in ("qwen2_moe", "qwen3_moe", "mixtral"):
        for ranks, *options in ((1, None), (2, EP2), (2, EP2, {"singleton_local_shards": True}), (1, None, None, True),
                                (2, EP2, {"non_homogeneous_layers": True})):
            folder, expected, of_map = save(setting, family, torch.bfloat16, ranks, *options)
            check_export(setting, folder, expected, of_map)
            clear(setting)


@case(first=(2, 15))
def case_map_megatron_lost_bias(setting):
    """A bias of the router that the other model lacks."""
    for metadata in (None, {"non_homogeneous_layers": True}):
        folder, expected, of_map = save(setting, "qwen3_moe.bias", torch.bfloat16, 1, None, metadata)
        check_export(setting, folder, expected, of_map)
        done = setting.run("consolidate", folder, setting.path("again/"), *of_map)
        check("MAP-LOST" in done.stderr and "mlp.router.expert_bias" in done.stderr, "no warning: " + done.stderr)
        clear(setting)


@case(first=(2, 15))
def case_map_megatron_deepseek(setting):
    """Latent attention, shared experts, dense layers before the others, layers that predict further tokens."""
    for family, ranks, *options in (
            ("deepseek_v2", 1, None), ("deepseek_v2", 2, EP2, {"singleton_local_shards": True}),
            ("deepseek_v3", 4, TP2_PP2), ("deepseek_v3", 2, EP2, {"singleton_local_shards": True}, True),
            ("deepseek_v3.mtp", 1, None), ("deepseek_v3.mtp", 2, EP2),
            ("deepseek_v3.mtp", 2, EP2, {"singleton_local_shards": True})):
        folder, expected, of_map = save(setting, family, torch.bfloat16, ranks, *options)
        check_export(setting, folder, expected, of_map)
        clear(setting)


@case(first=(2, 15))
def case_map_megatron_zero_centered(setting):
    """layernorm_zero_centered_gamma stores norms minus 1: norm_offset=1 adds it to all of them, and to nothing else."""
    for family in FAMILIES:
        folder, stored, of_map = save(setting, family, torch.bfloat16, 1)
        norms = [name for name in stored if "norm" in name]
        check(len(norms) > 2 and all(stored[name].dim() == 1 for name in norms), "norms of %s: %s" % (family, norms))
        expected = {name: tensor + 1 if name in norms else tensor for name, tensor in stored.items()}
        check_export(setting, folder, expected, (*of_map, "--map-set", "norm_offset=1"))
        clear(setting)


@case(first=(2, 15))
def case_map_megatron_refused(setting):
    folder, expected, of_map = save(setting, "llama", torch.float32, 1)
    # Without the geometry nothing is guessed; with a wrong one the output differs, or the rows do not fit.
    setting.run("consolidate", folder, setting.path("no/"), "--map", "megatron-llama", expected=USAGE)
    setting.run("consolidate", folder, setting.path("no/"), *of_map, "--map-set", "vocabulary=17", expected=BAD_INPUT)
    setting.run("consolidate", folder, setting.path("no/"), *of_map, "--map-set", "kv_heads=4", expected=BAD_INPUT)
    # Wrong by one factor: head_dim of config.json shows it; without config.json nothing does.
    wrong = ("--map-set", "heads=%d" % (HEADS // 2), "--map-set", "kv_heads=%d" % (KV_HEADS // 2))
    setting.run("consolidate", folder, setting.path("no/"), *of_map, *wrong, expected=BAD_INPUT)
    _, made = setting.consolidate(folder, "wrong/", *of_map[:2], "--map-set", "vocabulary=%d" % VOCABULARY, *wrong)
    name = "model.layers.0.self_attn.q_proj.weight"
    check(not torch.equal(load_hf(made)[0][name], expected[name]), "groups do not matter")


@case(first=(2, 15))
def case_map_megatron_arguments(setting):
    """The numbers of the model from common.pt, or from the object that has replaced it."""
    for family, as_object in (("llama", False), ("llama", True), ("qwen3", False), ("mixtral", True), ("qwen3_moe", False),
                              ("deepseek_v2", False), ("deepseek_v3.mtp", True)):
        folder, expected, of_map = save(setting, family, torch.bfloat16, 1, None, None, False, True, 1 / 64,
                                        arguments_of(family), as_object)
        check(os.path.exists(os.path.join(folder, "common.pt")) != as_object, "common.pt")
        check_export(setting, folder, expected, of_map[:2])
        clear(setting)


@case(first=(2, 15))
def case_map_megatron_wrong_groups(setting):
    """Groups of the fused projection that are divided wrongly have the right shapes, but the values of others."""
    with mock.patch.multiple(megatron_core, HIDDEN=32, HEADS=16, KV_HEADS=4, HEAD_DIM=8):
        folder, expected, of_map = save(setting, "llama", torch.float32, 1)
    base = save_folder(setting, "base", {name: tensor.contiguous() for name, tensor in expected.items()})
    shutil.copy(setting.path("config.json"), base)
    setting.run("consolidate", folder, setting.path("right/"), *of_map)
    check(not verify(setting, setting.path("right"), base, 0)[1], "right groups")
    # Half of the groups leave every other query head in place, a single one a quarter; no key head is.
    for heads, kv_heads, expected_roles in ((8, 2, ("k_proj",)), (4, 1, ("k_proj", "q_proj", "v_proj"))):
        wrong = "wrong%d" % kv_heads
        setting.run("consolidate", folder, setting.path(wrong + "/"), *of_map[:2], "--map-set", "vocabulary=%d" % VOCABULARY,
                    "--map-set", "heads=%d" % heads, "--map-set", "kv_heads=%d" % kv_heads)
        shutil.copy(setting.path("config.json"), setting.path(wrong))
        report, found = verify(setting, setting.path(wrong), base, 1)
        roles = {finding["tensor"].split(".")[-2] for finding in found}
        check(roles.issuperset(expected_roles) and roles <= {"q_proj", "k_proj", "v_proj"}, "findings: %r" % found)
        cosines = [row["cosine"] for row in report["near_tensors"] if "k_proj" in row["name"]]
        check(len(cosines) == 2 and all(abs(value) < 0.3 for value in cosines), "cosines of keys: %r" % cosines)


def rank_logits(path, family):
    """The logits of Megatron-Core's own model, with the weights that save() gives it."""
    model = make_model(family, torch.float32)
    set_weights(model, SCALE)
    tokens = torch.arange(VOCABULARY)[None]
    mask = torch.ones(VOCABULARY, VOCABULARY, dtype=torch.bool).triu(1)[None, None]
    with torch.no_grad():
        torch.save(model(tokens, tokens, mask)[..., :VOCABULARY].clone(), path)


@case(first=(2, 15))
def case_map_megatron_logits(setting):
    """consolidate --like, then transformers' model: it computes what Megatron-Core's does."""
    libraries()
    tokens = torch.arange(VOCABULARY)[None]
    for family in FAMILIES:
        if "." in family:
            continue  # transformers' model lacks what these have besides
        folder, expected, _ = save(setting, family, torch.float32, 1, None, None, False, True, SCALE)
        run_ranks(1, rank_logits, setting.path("logits.pt"), family)
        known = {name: value for name, value in hf_config(family).items() if name != "model_type"}
        config = transformers().AutoConfig.for_model(family, **known)
        base = save_base(setting, "base", config, torch.float32)
        done, made = setting.consolidate(folder, "hf/", "--like", base)
        check("map: " + map_of(family) in done.stdout, "another map was chosen: " + done.stdout)
        check_same_tensors(load_hf(made)[0], expected, "hf")
        model, theirs = load_model(made), torch.load(setting.path("logits.pt"))
        apart = difference(logits_of(model, tokens), theirs)
        check(apart <= TOLERANCE, "%s: logits differ by %.1e of the largest" % (family, apart))
        check_power(family, model, tokens, theirs, list(model.state_dict()), ())
        clear(setting)


def rank_load(folder, path, with_objects):
    """Megatron-Core loads the weights of a folder, or says what it lacks."""
    model = make_model("llama", torch.bfloat16)
    from megatron.core import dist_checkpointing
    shards = model.sharded_state_dict(metadata={"non_homogeneous_layers": True})
    if not with_objects:
        shards = {name: shard for name, shard in shards.items() if not name.endswith("._extra_state")}
    try:
        model.load_state_dict(dist_checkpointing.load({"model": shards}, folder)["model"], strict=False)
        made = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    except BaseException as error:  # CheckpointException is no Exception
        made = str(error)
    torch.save(made, path)


@case(first=(2, 15))
def case_map_megatron_needs(setting):
    """What the `needs` lines of the maps name: without these Megatron-Core does not load the tensors alone."""
    folder, expected, of_map = save(setting, "llama", torch.bfloat16, 1, None, {"non_homogeneous_layers": True})
    _, made = setting.consolidate(folder, "hf/", *of_map)
    refused = setting.run("reshard", made, setting.path("back"), "--world-size", "1", "--import", *of_map,
                          expected=UNSUPPORTED)
    with open(setting.path("keep.map"), "w", encoding="utf-8") as text:
        text.write("drop *._extra_state\nkeep *\n")
    alone = setting.path("alone")
    setting.run("reshard", folder, alone, "--world-size", "1", "--map", setting.path("keep.map"))

    def load(with_objects=True):
        run_ranks(1, rank_load, alone, setting.path("loaded.pt"), with_objects)
        return torch.load(setting.path("loaded.pt"))

    check("is not a distributed checkpoint" in load(), "metadata.json is not needed")
    shutil.copy(os.path.join(folder, "metadata.json"), alone)
    check(isinstance(load(False), str), "common.pt is not needed")
    torch.save({}, os.path.join(alone, "common.pt"))
    check("._extra_state" in load(), "the objects are not needed")
    check_same_tensors(to_hf("llama", load(False)), expected, "loaded")
    for name in ("common.pt", "metadata.json", "*._extra_state"):
        check(name in refused.stderr, "%s is not named: %s" % (name, refused.stderr))
