"""Tensor maps against the converters of trainers: torchtitan's, torchtune's and LitGPT's own, on states of DTensors on
3 and 4 ranks."""

import json
import os
import shutil

import torch
from safetensors.torch import load_file, save_file

from checkpoint_truth import seeded
from process_group import run_ranks
from support import BAD_INPUT, USAGE, case, check, check_same_tensors, digests_of, load_hf
from torchtitan_adapter import (LAYERS, Sizes, gpt_oss_to_hf, make_adapter, make_gpt_oss_adapter, make_state, to_hf)
from torchtitan_llama4 import llama4, llama4_adapter
from trainer_converters import LITGPT, litgpt, torchtune, torchtune_reward
from veomni_converters import CONVERTERS, to_veomni

RANKS = 3


def rank_save(folder, state, part):
    """As torchtitan's checkpointer: FSDP2's DTensors at the top level, the optimizer beside them."""
    import torch.distributed.checkpoint as dcp
    from torch.distributed import get_world_size
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard, distribute_tensor
    mesh = init_device_mesh("cpu", (get_world_size(),), mesh_dim_names=("dp_shard",))
    sharded = {name: distribute_tensor(tensor, mesh, [Shard(0)]) for name, tensor in state.items()}
    if part == "all":
        sharded["optimizer"] = {"state.%s.exp_avg" % name: tensor * 2 for name, tensor in list(sharded.items())}
        sharded["train_state"] = {"step": torch.tensor(7)}
    dcp.save(sharded, checkpoint_id=folder)


def write_config(setting, name, heads, kv_heads):
    with open(setting.path(name), "w", encoding="utf-8") as text:
        json.dump({"model_type": "llama", "num_attention_heads": heads, "num_key_value_heads": kv_heads,
                   "rope_scaling": {"factor": 8.0, "num_attention_heads": 99}, "eos_token_id": [1, 2]}, text)
    return setting.path(name)


def check_export(setting, state, expected, name, *options, part="all"):
    """Into an HF folder, a DCP for another number of ranks and digests: the tensors that the adapter makes."""
    source = setting.path("dcp")
    run_ranks(RANKS, rank_save, source, state, part)
    _, folder = setting.consolidate(source, "hf/", "--map", name, *options)
    check_same_tensors(load_hf(folder)[0], expected, "hf")
    setting.run("reshard", source, setting.path("for2"), "--world-size", "2", "--map", name, *options)
    check(digests_of(setting, setting.path("for2")) == digests_of(setting, folder), "resharded otherwise")
    check(digests_of(setting, source, "--map", name, *options) == digests_of(setting, folder), "digest otherwise")
    run_ranks(4, rank_save, setting.path("of4"), state, part)
    check(digests_of(setting, setting.path("of4"), "--map", name, *options) == digests_of(setting, folder),
          "4 ranks otherwise")
    shutil.rmtree(setting.path("of4"))
    return source


@case(first=(2, 15))
def case_map_torchtitan_llama3(setting):
    sizes = Sizes(6, 2, 8)
    adapter = make_adapter("llama3", "Llama3StateDictAdapter", sizes)
    for dtype in (torch.bfloat16, torch.float32):
        state = make_state(adapter, sizes, dtype)
        expected = to_hf(adapter, state)
        check(len(expected) == len(state) == 3 + 9 * LAYERS, "the adapter lost tensors")
        source = check_export(setting, state, expected, "torchtitan-llama3", "--config",
                              write_config(setting, "config.json", 6, 2))
        # Without the geometry nothing is guessed; with a wrong one the output is not the adapter's.
        setting.run("consolidate", source, setting.path("no/"), "--map", "torchtitan-llama3", expected=USAGE)
        setting.run("consolidate", source, setting.path("no/"), "--map", "torchtitan-llama3", "--map-set", "heads=3",
                    "--map-set", "kv_heads=2", expected=BAD_INPUT)
        _, folder = setting.consolidate(source, "wrong/", "--map", "torchtitan-llama3", "--map-set", "heads=3",
                                        "--map-set", "kv_heads=1")
        found = load_hf(folder)[0]
        check(not torch.equal(found["model.layers.0.self_attn.q_proj.weight"],
                              expected["model.layers.0.self_attn.q_proj.weight"]), "heads do not matter")
        for name in ("dcp", "hf", "for2", "wrong"):
            shutil.rmtree(setting.path(name))


@case(first=(2, 15))
def case_map_torchtitan_old_names(setting):
    """Before 2026-04: no qkv_linear, 'output' for 'lm_head', and freqs_cis was saved."""
    sizes = Sizes(4, 4, 6)
    adapter = make_adapter("llama3", "Llama3StateDictAdapter", sizes)
    state = make_state(adapter, sizes, torch.bfloat16)
    expected = to_hf(adapter, state)
    old = {name.replace("qkv_linear.", "").replace("lm_head", "output"): t for name, t in state.items()}
    old["freqs_cis"] = torch.ones(4, 3)
    check_export(setting, old, expected, "torchtitan-llama3", "--map-set", "heads=4", "--map-set", "kv_heads=4",
                 part="model")


@case(first=(2, 15))
def case_map_torchtitan_qwen3(setting):
    sizes = Sizes(6, 2, 8, experts=5)
    adapter = make_adapter("qwen3", "Qwen3StateDictAdapter", sizes)
    state = make_state(adapter, sizes, torch.bfloat16)
    expected = to_hf(adapter, state)
    state["layers.1.moe.expert_bias_E"] = torch.zeros(5)
    source = check_export(setting, state, expected, "torchtitan-qwen3")
    # A tensor that no rule takes is no silent loss.
    state["layers.1.moe.shared_experts.w1.weight"] = torch.zeros(3, 3)
    os.rename(source, source + "-first")
    run_ranks(RANKS, rank_save, source, state, "model")
    done = setting.run("consolidate", source, setting.path("no/"), "--map", "torchtitan-qwen3", expected=BAD_INPUT)
    check("layers.1.moe.shared_experts.w1.weight" in done.stderr, "the message names no tensor: " + done.stderr)


@case(first=(2, 15))
def case_map_torchtitan_deepseek_v3(setting):
    for q_rank, mtp_layers in ((0, 0), (4, 2)):
        sizes = Sizes(6, 2, 8, experts=5, q_rank=q_rank, mtp_layers=mtp_layers)
        adapter = make_adapter("deepseek_v3", "DeepSeekV3StateDictAdapter", sizes)
        state = make_state(adapter, sizes, torch.bfloat16)
        expected = to_hf(adapter, state)
        check(("model.layers.3.eh_proj.weight" in expected) == (mtp_layers > 0), "no further layers")
        state["layers.1.moe.tokens_per_expert_E"] = torch.zeros(5)
        options = ("--map-set", "layers=%d" % LAYERS) if mtp_layers else ()
        source = check_export(setting, state, expected, "torchtitan-deepseek-v3", *options)
        if mtp_layers:
            setting.run("consolidate", source, setting.path("no/"), "--map", "torchtitan-deepseek-v3", expected=USAGE)
        for name in ("dcp", "hf", "for2"):
            shutil.rmtree(setting.path(name))


@case(first=(2, 15))
def case_map_torchtitan_gpt_oss(setting):
    sizes = Sizes(6, 2, 8, experts=5)
    adapter = make_gpt_oss_adapter(sizes)
    state = make_state(adapter, sizes, torch.bfloat16)
    expected = gpt_oss_to_hf(adapter, state)
    check(len(expected) == len(state), "the adapter lost tensors")
    check_export(setting, state, expected, "torchtitan-gpt-oss")


@case(first=(2, 15))
def case_map_torchtitan_llama4(setting):
    state, expected = llama4(Sizes(6, 2, 8, experts=5), torch.bfloat16)
    check(len(expected) == len(state) - LAYERS, "the adapter lost tensors")
    hf = {**expected, "vision_model.class_embedding": torch.zeros(3), "multi_modal_projector.linear_1.weight": torch.zeros(3)}
    back = {name: tensor.contiguous() for name, tensor in llama4_adapter().from_hf(hf).items()}
    check_import(setting, hf, back, "torchtitan-llama4", {"model_type": "llama4"})
    state["layers.0.moe.expert_bias"] = torch.zeros(5)
    state["layers.1.moe.tokens_per_expert"] = torch.zeros(5)
    source = check_export(setting, state, expected, "torchtitan-llama4")
    # Layers without experts are no silent loss, as they are with the adapter.
    state["layers.1.feed_forward.w1.weight"] = torch.zeros(3, 3)
    os.rename(source, source + "-first")
    run_ranks(RANKS, rank_save, source, state, "model")
    done = setting.run("consolidate", source, setting.path("no/"), "--map", "torchtitan-llama4", expected=BAD_INPUT)
    check("layers.1.feed_forward.w1.weight" in done.stderr, "the message names no tensor: " + done.stderr)


@case(first=(2, 15))
def case_map_veomni(setting):
    """VeOmni's models of transformers 5 have fused experts; its converters make them of a Hugging Face folder."""
    experts, inner, hidden = 5, 7, 6
    for family in CONVERTERS:
        hf = {"model.embed_tokens.weight": seeded("e", (9, hidden), torch.bfloat16)}
        for layer in range(LAYERS):
            for expert in range(experts):
                for part, shape in (("gate_proj", (inner, hidden)), ("up_proj", (inner, hidden)),
                                    ("down_proj", (hidden, inner))):
                    key = "model.layers.%d.mlp.experts.%d.%s.weight" % (layer, expert, part)
                    hf[key] = seeded(key, shape, torch.bfloat16)
        expected = to_veomni(family, experts, hf)
        check(len(expected) == 1 + 2 * LAYERS, "the converter lost tensors")
        _, back = check_import(setting, hf, expected, "transformers-5-experts", {"model_type": family}, family)
        check_same_tensors(back, hf, family + " and back")


@case(first=(2, 15))
def case_map_torchtune(setting):
    for family in ("llama", "qwen2", "phi3"):
        state, expected = torchtune(family, Sizes(6, 2, 8), torch.bfloat16)
        options = ("--map-set", "heads=6", "--map-set", "kv_heads=2") if family == "llama" else ()
        check_export(setting, state, expected, "torchtune-" + family, *options, part="model")
        for name in ("dcp", "hf", "for2"):
            shutil.rmtree(setting.path(name))


@case(first=(2, 15))
def case_map_torchtune_classifier(setting):
    """Its output layer has the name of a language model's: refused, with a map that makes what torchtune makes."""
    state, expected = torchtune_reward(Sizes(6, 2, 8, hidden=48), torch.bfloat16)
    check("score.weight" in expected and "lm_head.weight" not in expected, "no classifier")
    source = setting.path("reward.pt")
    torch.save(state, source)
    options = ("--map-set", "heads=6", "--map-set", "kv_heads=2")
    done = setting.run("consolidate", source, setting.path("no/"), "--map", "torchtune-llama", *options, expected=BAD_INPUT)
    check("MAP-SHAPE" in done.stderr and "'score.weight' for 'lm_head.weight'" in done.stderr, done.stderr)
    own = setting.path("own.map")
    with open(own, "w", encoding="utf-8") as text:
        text.write(setting.run("maps", "torchtune-llama").stdout.replace("lm_head.weight", "score.weight"))
    _, folder = setting.consolidate(source, "hf/", "--map", own, *options)
    check_same_tensors(load_hf(folder)[0], expected, "hf")
    setting.run("consolidate", folder, setting.path("back.pt"), "--map", own, "--import", *options)
    check_same_tensors(torch.load(setting.path("back.pt")), state, "back")


@case(first=(2, 15))
def case_map_litgpt(setting):
    for family in LITGPT:
        state, expected = litgpt(family, Sizes(6, 2, 8, experts=5), torch.bfloat16)
        name = "litgpt-qwen" if family.startswith("qwen") else "litgpt-llama"
        check_export(setting, state, expected, name, "--config", write_config(setting, "config.json", 6, 2),
                     part="model")
        for name in ("dcp", "hf", "for2"):
            shutil.rmtree(setting.path(name))


def write_hf(setting, name, tensors, config):
    os.mkdir(setting.path(name))
    save_file(tensors, setting.path(name, "model.safetensors"))
    with open(setting.path(name, "config.json"), "w", encoding="utf-8") as text:
        json.dump(config, text)
    return setting.path(name)


def check_import(setting, hf, expected, name, config, stem="import"):
    """From an HF folder to a DCP folder that torch loads: the tensors that the trainer's own converter makes. The map is
    proved without a file, and export gives the folder back."""
    import torch.distributed.checkpoint as dcp
    folder = write_hf(setting, stem + "-hf", hf, config)
    made = setting.path(stem + "-dcp")
    done = setting.run("reshard", folder, made, "--world-size", "3", "--format", "dcp", "--map", name, "--import")
    state = {key: torch.zeros_like(tensor) for key, tensor in expected.items()}
    dcp.load(state, checkpoint_id=made, no_dist=True)
    check_same_tensors(state, expected, name)
    check(dcp.FileSystemReader(made).read_metadata().state_dict_metadata.keys() == expected.keys(), "other names")
    proof = setting.run("verify", folder, "--prove-map", name)
    check("gives %d tensors back" % len([key for key in hf if not key.endswith("inv_freq") and
          not key.startswith(("vision_model.", "multi_modal_projector."))]) in proof.stdout, proof.stdout)
    setting.run("consolidate", made, setting.path(stem + "-back/"), "--map", name, "--config", folder + "/config.json")
    return done, load_hf(setting.path(stem + "-back/"))[0]


GEOMETRY = {"num_attention_heads": 6, "num_key_value_heads": 2, "num_hidden_layers": LAYERS}


@case(first=(2, 15))
def case_map_import_torchtitan(setting):
    sizes = Sizes(6, 2, 8, experts=5, q_rank=4, mtp_layers=2)
    for family, adapter_name in (("llama3", "Llama3StateDictAdapter"), ("qwen3", "Qwen3StateDictAdapter"),
                                 ("deepseek_v3", "DeepSeekV3StateDictAdapter")):
        adapter = make_adapter(family, adapter_name, sizes)
        hf = to_hf(adapter, make_state(adapter, sizes, torch.bfloat16))
        expected = {key: tensor.contiguous() for key, tensor in adapter.from_hf(dict(hf)).items()}
        check(("mtp_layers.1.eh_proj.weight" in expected) == (family == "deepseek_v3"), "no further layers")
        _, back = check_import(setting, hf, expected, "torchtitan-" + family.replace("_", "-"), GEOMETRY, family)
        check_same_tensors(back, hf, family + " and back")


@case(first=(2, 15))
def case_map_import_torchtitan_expert_bias(setting):
    """torchtitan's models with experts save a buffer that Hugging Face's lack. dcp.load requires it; fsdpck-map(5) tells how
    to add it."""
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint import DefaultLoadPlanner
    from torch.distributed.checkpoint.api import CheckpointException
    sizes = Sizes(6, 2, 8, experts=5)
    adapter = make_adapter("qwen3", "Qwen3StateDictAdapter", sizes)
    hf = to_hf(adapter, make_state(adapter, sizes, torch.bfloat16))
    model = {key: tensor.contiguous() for key, tensor in adapter.from_hf(dict(hf)).items()}
    gates = [key for key in model if key.endswith("moe.router.gate.weight")]
    check(gates and not any("expert_bias" in key for key in model), "from_hf makes the buffer")
    for gate in gates:
        model[gate.replace("router.gate.weight", "expert_bias_E")] = torch.zeros(5)
    folder = write_hf(setting, "hf", hf, GEOMETRY)
    options = ("--map", "torchtitan-qwen3", "--import")
    setting.run("reshard", folder, setting.path("made"), "--world-size", "1", "--format", "dcp", *options)
    state = {key: torch.ones_like(tensor) for key, tensor in model.items()}
    try:
        dcp.load(dict(state), checkpoint_id=setting.path("made"), no_dist=True)
        check(False, "loads without the buffer")
    except CheckpointException as error:
        check("expert_bias_E" in str(error), str(error))
    dcp.load(dict(state), checkpoint_id=setting.path("made"), no_dist=True,
             planner=DefaultLoadPlanner(allow_partial_load=True))
    # As in fsdpck-map(5)
    setting.run("consolidate", folder, setting.path("model.pt"), *options)
    made = torch.load(setting.path("model.pt"), mmap=True)
    for name in [n for n in made if n.endswith("moe.router.gate.weight")]:
        made[name.replace("router.gate.weight", "expert_bias_E")] = torch.zeros(len(made[name]))
    dcp.save(made, checkpoint_id=setting.path("step-0"), no_dist=True)
    dcp.load(state, checkpoint_id=setting.path("step-0"), no_dist=True)
    check_same_tensors(state, model, "with the buffer")


@case(first=(2, 15))
def case_map_import_torchtitan_tied(setting):
    """A tied model's folder omits the output layer; old ones have a buffer that from_hf omits."""
    sizes = Sizes(6, 2, 8)
    adapter = make_adapter("llama3", "Llama3StateDictAdapter", sizes)
    hf = to_hf(adapter, make_state(adapter, sizes, torch.bfloat16))
    del hf["lm_head.weight"]
    hf["model.layers.0.self_attn.rotary_emb.inv_freq"] = torch.ones(4)
    adapter.model_config.enable_weight_tying = True
    expected = {key: tensor.contiguous() for key, tensor in adapter.from_hf(dict(hf)).items()}
    check("lm_head.weight" in expected, "not tied")
    done, back = check_import(setting, hf, expected, "torchtitan-llama3", {**GEOMETRY, "tie_word_embeddings": True})
    check("tied: lm_head.weight = tok_embeddings.weight" in done.stdout, done.stdout)
    check("model.layers.0.self_attn.rotary_emb.inv_freq" in done.stdout, done.stdout)
    check(torch.equal(back["lm_head.weight"].view(torch.int16),
                      hf["model.embed_tokens.weight"].view(torch.int16)), "another output layer")


def rank_save_norms(folder, state):
    """DTensors in uneven shards, as FSDP2 makes them."""
    import torch.distributed.checkpoint as dcp
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard, distribute_tensor
    mesh = init_device_mesh("cpu", (RANKS,), mesh_dim_names=("dp_shard",))
    dcp.save({name: distribute_tensor(tensor, mesh, [Shard(0)]) for name, tensor in state.items()}, checkpoint_id=folder)


@case(first=(2, 15))
def case_map_add(setting):
    """Zero-centered norms: add 1 is torch's w + 1, bit for bit, and import is w - 1."""
    generator = torch.Generator().manual_seed(5)
    state = {}
    for dtype in (torch.bfloat16, torch.float16, torch.float32, torch.float64):
        near = torch.randn(1031, generator=generator, dtype=torch.float64)
        wide = near * torch.logspace(-30, 4, 1031, dtype=torch.float64)
        state["%s.norm" % str(dtype)[6:]] = torch.cat([near, wide, torch.tensor([0.0, -0.0, -1.0, float("inf")])]).to(dtype)
        state["%s.weight" % str(dtype)[6:]] = near.reshape(-1, 1).to(dtype)
    folder = setting.path("dcp")
    run_ranks(RANKS, rank_save_norms, folder, state)
    with open(setting.path("norms.map"), "w", encoding="utf-8") as text:
        text.write("let offset = 0\n*.norm -> *.norm : add offset\n*.weight -> *.weight\n")
    of_map = ("--map", setting.path("norms.map"), "--map-set", "offset=1")
    expected = {name: tensor + 1 if name.endswith("norm") else tensor for name, tensor in state.items()}
    check(all(tensor.dtype == state[name].dtype for name, tensor in expected.items()), "torch widened a dtype")
    _, made = setting.consolidate(folder, "hf/", *of_map)
    check_same_tensors(load_hf(made)[0], expected, "hf")
    check(digests_of(setting, folder, *of_map) == digests_of(setting, made), "digest otherwise")
    setting.run("reshard", folder, setting.path("for5"), "--world-size", "5", *of_map)
    check(digests_of(setting, setting.path("for5")) == digests_of(setting, made), "resharded otherwise")
    # The cast comes after the sum.
    _, cast = setting.consolidate(folder, "cast/", "--dtype", "bf16", *of_map)
    check_same_tensors(load_hf(cast)[0], {name: tensor.to(torch.bfloat16) for name, tensor in expected.items()}, "cast")
    _, back = setting.consolidate(made, "back.safetensors", "--import", *of_map)
    check_same_tensors(load_file(back), {name: tensor - 1 if name.endswith("norm") else tensor
                                         for name, tensor in expected.items()}, "back")
    proof = setting.run("verify", made, "--prove-map", *of_map[1:])
    check("gives 8 tensors back, 4 up to rounding" in proof.stdout, proof.stdout)


@case(first=(2, 15))
def case_map_add_shared(setting):
    """Tensors on one storage of which some get a constant: no output shares elements that differ."""
    weight, whole = torch.randn(64), torch.arange(100.0)
    state = {"a": weight, "b": weight, "low": whole[:50], "middle": whole[25:75], "even": whole[::2]}
    torch.save(state, setting.path("shared.pt"))
    for rules, added in (("a -> a : add 1\nkeep *\n", {"a": 1}), ("low -> low : add -1\nkeep *\n", {"low": -1}),
                         ("* -> * : add -1\n", dict.fromkeys(state, -1))):
        with open(setting.path("some.map"), "w", encoding="utf-8") as text:
            text.write(rules)
        for target in ("out.pt", "out.safetensors"):
            _, made = setting.consolidate(setting.path("shared.pt"), target, "--map", setting.path("some.map"))
            found = torch.load(made) if target.endswith(".pt") else load_file(made)
            check_same_tensors(found, {name: tensor + added.get(name, 0) for name, tensor in state.items()}, rules + target)
            os.remove(made)
