"""Tensor maps of Megatron-Core: torch_dist checkpoints that it saves itself, against its own weights taken apart by
Megatron Bridge, and against the logits of its model."""

import json
import os
import shutil

import torch

from cases_export_like import check_loads, save_base, transformers
from megatron_core import (FAMILIES, HEADS, KV_HEADS, VOCABULARY, gather, hf_config, import_megatron, make_model,
                           rank_save, set_weights, to_hf)
from process_group import run_ranks
from support import BAD_INPUT, USAGE, case, check, check_same_tensors, digests_of, load_hf

TP2_PP2 = {"tensor_model_parallel_size": 2, "pipeline_model_parallel_size": 2}
EP2 = {"expert_model_parallel_size": 2}


def map_of(family):
    return {"qwen3_moe": "megatron-qwen3-moe", "mixtral": "megatron-mixtral"}.get(family, "megatron-llama")


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
    for family in ("qwen3_moe", "mixtral"):
        for ranks, *options in ((1, None), (2, EP2), (2, EP2, {"singleton_local_shards": True}), (1, None, None, True),
                                (2, EP2, {"non_homogeneous_layers": True})):
            folder, expected, of_map = save(setting, family, torch.bfloat16, ranks, *options)
            check_export(setting, folder, expected, of_map)
            clear(setting)


@case(first=(2, 15))
def case_map_megatron_refused(setting):
    folder, expected, of_map = save(setting, "llama", torch.float32, 1)
    # Without the geometry nothing is guessed; with a wrong one the output differs, or the rows do not fit.
    setting.run("consolidate", folder, setting.path("no/"), "--map", "megatron-llama", expected=USAGE)
    setting.run("consolidate", folder, setting.path("no/"), *of_map, "--map-set", "vocabulary=17", expected=BAD_INPUT)
    setting.run("consolidate", folder, setting.path("no/"), *of_map, "--map-set", "kv_heads=4", expected=BAD_INPUT)
    _, made = setting.consolidate(folder, "wrong/", *of_map, "--map-set", "heads=%d" % (HEADS // 2), "--map-set",
                                  "kv_heads=%d" % (KV_HEADS // 2))
    name = "model.layers.0.self_attn.q_proj.weight"
    check(not torch.equal(load_hf(made)[0][name], expected[name]), "groups do not matter")


def rank_logits(path, family):
    """The weights of save(), and the logits of Megatron-Core's own model."""
    model = make_model(family, torch.float32)
    set_weights(model)
    tokens = torch.arange(VOCABULARY)[None]
    mask = torch.ones(VOCABULARY, VOCABULARY, dtype=torch.bool).triu(1)[None, None]
    with torch.no_grad():
        torch.save(model(tokens, tokens, mask)[..., :VOCABULARY].clone(), path)


@case(first=(2, 15))
def case_map_megatron_logits(setting):
    """consolidate --like, then transformers' model: it computes what Megatron-Core's does."""
    for family in FAMILIES:
        folder, expected, _ = save(setting, family, torch.float32, 1)
        run_ranks(1, rank_logits, setting.path("logits.pt"), family)
        known = {name: value for name, value in hf_config(family).items() if name != "model_type"}
        config = transformers().AutoConfig.for_model(family, **known)
        base = save_base(setting, "base", config, torch.float32)
        done, made = setting.consolidate(folder, "hf/", "--like", base)
        check(map_of(family) in done.stdout, "no map was chosen: " + done.stdout)
        check_same_tensors(load_hf(made)[0], expected, "hf")
        # transformers joins experts when it loads them.
        model = check_loads(made, {n: t for n, t in expected.items() if "attn" in n}, torch.float32)
        theirs = torch.load(setting.path("logits.pt"))
        with torch.no_grad():
            ours = model(torch.arange(VOCABULARY)[None]).logits
        check(torch.allclose(ours, theirs, rtol=1e-4, atol=1e-5) and float(theirs.std()) > 1e-3,
              "logits of %s: %g apart" % (family, float((ours - theirs).abs().max())))
        clear(setting)
