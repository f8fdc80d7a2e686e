"""Tensor maps against the converters of trainers: torchtitan's own adapters, run on the state that its models have.

The adapters are read from the published wheel, file by file: what they import besides torch is replaced by empty classes,
which serve only as annotations there. The names of the state are those that the adapter itself lists.
"""

import importlib.util
import json
import os
import shutil
import sys
import types
from types import SimpleNamespace

import torch

from process_group import run_ranks
from support import BAD_INPUT, USAGE, case, check, check_same_tensors, digests_of, load_hf

RANKS = 3
HIDDEN, VOCABULARY, LAYERS, EXPERTS = 24, 37, 3, 5


class EmptyModule(types.ModuleType):
    __path__ = []

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {"Config": object})


def adapter_class(family, name):
    root = os.environ["INTEROP_TORCHTITAN"]
    package = "torchtitan.models.%s" % family
    for module in ("torchtitan", "torchtitan.tools", "torchtitan.tools.logging", "torchtitan.models",
                   "torchtitan.models.common", "torchtitan.models.common.decoder", "torchtitan.models.common.rope",
                   "torchtitan.protocols", "torchtitan.protocols.model", package, package + ".model"):
        sys.modules[module] = EmptyModule(module)
    for module in ("torchtitan.protocols.state_dict_adapter", "torchtitan.models.utils",
                   package + ".state_dict_adapter"):
        spec = importlib.util.spec_from_file_location(module, os.path.join(root, *module.split(".")) + ".py")
        sys.modules[module] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[module])
    return getattr(sys.modules[package + ".state_dict_adapter"], name)


def geometry(heads, kv_heads, head_dim, experts=0, tied=False):
    """What to_hf reads of a model's configuration."""
    attention = SimpleNamespace(n_heads=heads, n_kv_heads=kv_heads, head_dim=head_dim)
    moe = SimpleNamespace(num_experts=experts) if experts else None
    return SimpleNamespace(layers=[SimpleNamespace(attention=attention, moe=moe)], dim=HIDDEN,
                           enable_weight_tying=tied)


def shape_of(name, heads, kv_heads, head_dim):
    feed_forward = 2 * HIDDEN + 3
    for end, shape in (("tok_embeddings.weight", (VOCABULARY, HIDDEN)), ("lm_head.weight", (VOCABULARY, HIDDEN)),
                       ("wq.weight", (heads * head_dim, HIDDEN)), ("wk.weight", (kv_heads * head_dim, HIDDEN)),
                       ("wv.weight", (kv_heads * head_dim, HIDDEN)), ("wo.weight", (HIDDEN, heads * head_dim)),
                       ("w1.weight", (feed_forward, HIDDEN)), ("w3.weight", (feed_forward, HIDDEN)),
                       ("w2.weight", (HIDDEN, feed_forward)), ("w1_EFD", (EXPERTS, 7, HIDDEN)),
                       ("w3_EFD", (EXPERTS, 7, HIDDEN)), ("w2_EDF", (EXPERTS, HIDDEN, 7)),
                       ("router.gate.weight", (EXPERTS, HIDDEN)), ("q_norm.weight", (head_dim,)),
                       ("k_norm.weight", (head_dim,))):
        if name.endswith(end):
            return shape
    return (HIDDEN,)


def make_state(adapter, sizes, dtype):
    """A tensor for each name of torchtitan that the adapter knows, in every layer."""
    state = {}
    generator = torch.Generator().manual_seed(11)
    for name in adapter.from_hf_map.values():
        for layer in range(LAYERS if name is not None and "{}" in name else name is not None):
            shape = shape_of(name, *sizes)
            state[name.format(layer)] = torch.randn(shape, generator=generator).to(dtype)
    return state


def rank_save(folder, state, part):
    """As torchtitan's checkpointer: FSDP2's DTensors at the top level, the optimizer beside them."""
    import torch.distributed.checkpoint as dcp
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard, distribute_tensor
    mesh = init_device_mesh("cpu", (RANKS,), mesh_dim_names=("dp_shard",))
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
    return source


@case(first=(2, 15))
def case_map_torchtitan_llama3(setting):
    sizes = (6, 2, 8)
    adapter = adapter_class("llama3", "Llama3StateDictAdapter")(geometry(*sizes), None)
    for dtype in (torch.bfloat16, torch.float32):
        state = make_state(adapter, sizes, dtype)
        expected = {name: tensor.contiguous() for name, tensor in adapter.to_hf(dict(state)).items()}
        check(len(expected) == len(state) == 3 + 9 * LAYERS, "the adapter lost tensors")
        source = check_export(setting, state, expected, "torchtitan-llama3", "--config",
                              write_config(setting, "config.json", 6, 2))
        # Without the geometry nothing is guessed; with a wrong one the output is not the adapter's.
        setting.run("consolidate", source, setting.path("no/"), "--map", "torchtitan-llama3", expected=USAGE)
        _, folder = setting.consolidate(source, "wrong/", "--map", "torchtitan-llama3", "--map-set", "heads=3",
                                        "--map-set", "kv_heads=2")
        found = load_hf(folder)[0]
        check(not torch.equal(found["model.layers.0.self_attn.q_proj.weight"],
                              expected["model.layers.0.self_attn.q_proj.weight"]), "heads do not matter")
        for name in ("dcp", "hf", "for2", "wrong"):
            shutil.rmtree(setting.path(name))


@case(first=(2, 15))
def case_map_torchtitan_old_names(setting):
    """Before 2026-04: no qkv_linear, 'output' for 'lm_head', and freqs_cis was saved."""
    sizes = (4, 4, 6)
    adapter = adapter_class("llama3", "Llama3StateDictAdapter")(geometry(*sizes), None)
    state = make_state(adapter, sizes, torch.bfloat16)
    expected = {name: tensor.contiguous() for name, tensor in adapter.to_hf(dict(state)).items()}
    old = {name.replace("qkv_linear.", "").replace("lm_head", "output"): t for name, t in state.items()}
    old["freqs_cis"] = torch.ones(4, 3)
    check_export(setting, old, expected, "torchtitan-llama3", "--map-set", "heads=4", "--map-set", "kv_heads=4",
                 part="model")


@case(first=(2, 15))
def case_map_torchtitan_qwen3(setting):
    sizes = (6, 2, 8)
    adapter = adapter_class("qwen3", "Qwen3StateDictAdapter")(geometry(*sizes, experts=EXPERTS), None)
    state = make_state(adapter, sizes, torch.bfloat16)
    expected = {name: tensor.contiguous() for name, tensor in adapter.to_hf(dict(state)).items()}
    state["layers.1.moe.expert_bias_E"] = torch.zeros(EXPERTS)
    source = check_export(setting, state, expected, "torchtitan-qwen3")
    # A tensor that no rule takes is no silent loss.
    state["layers.1.moe.shared_experts.w1.weight"] = torch.zeros(3, 3)
    os.rename(source, source + "-first")
    run_ranks(RANKS, rank_save, source, state, "model")
    done = setting.run("consolidate", source, setting.path("no/"), "--map", "torchtitan-qwen3", expected=BAD_INPUT)
    check("layers.1.moe.shared_experts.w1.weight" in done.stderr, "the message names no tensor: " + done.stderr)
