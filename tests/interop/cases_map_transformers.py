"""Tensor maps against transformers 5: a state_dict() of DTensors on 3 ranks becomes what save_pretrained writes."""

import os
import sys

import torch

from process_group import run_ranks
from support import case, check, check_same_tensors, load_hf

RANKS = 3
# Four experts on three ranks are uneven, as are most of the other dims.
SMALL = {
    "vocab_size": 32, "hidden_size": 16, "intermediate_size": 12, "moe_intermediate_size": 10, "num_hidden_layers": 3,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "num_experts": 4, "num_local_experts": 4,
    "n_routed_experts": 4, "moe_num_experts": 4, "num_experts_per_tok": 2, "moe_k": 2, "n_group": 1, "topk_group": 1,
    "first_k_dense_replace": 1, "q_lora_rank": 8, "kv_lora_rank": 8, "qk_rope_head_dim": 4, "qk_nope_head_dim": 4,
    "v_head_dim": 8, "shared_expert_intermediate_size": 6, "moe_shared_expert_intermediate_size": 6, "pad_token_id": 0,
    "bos_token_id": 0, "eos_token_id": 0, "max_position_embeddings": 64, "n_shared_experts": 1,
    "num_shared_experts": 1, "linear_num_value_heads": 2, "linear_num_key_heads": 2, "linear_key_head_dim": 4,
    "linear_value_head_dim": 4}
EXPERTS = """afmoe axk1 cohere2_moe deepseek_v2 deepseek_v3 deepseek_v32 dots1 ernie4_5_moe flex_olmo glm4_moe
    glm4_moe_lite glm_moe_dsa hunyuan_v1_moe jamba longcat_flash mellum olmoe qwen2_moe qwen3_moe qwen3_5_moe_text
    qwen3_next qwen4_exp_text solar_open""".split()
MIXTRAL = "mixtral minimax minimax_m2 phimoe".split()


def make_model(model_type):
    """A small model with numbers in every parameter."""
    from transformers import AutoModelForCausalLM
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING
    config_class = CONFIG_MAPPING[model_type]
    known = config_class()
    sizes = {name: size for name, size in SMALL.items() if hasattr(known, name) and
             not isinstance(getattr(known, name), bool)}
    model = AutoModelForCausalLM.from_config(config_class(tie_word_embeddings=False, **sizes)).to(torch.bfloat16)
    check(sum(p.numel() for p in model.parameters()) < 1 << 20, model_type + " is not small")
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for tensor in list(model.parameters()) + list(model.buffers()):
            if tensor.is_floating_point():
                tensor.copy_(torch.randn(tensor.shape, generator=generator))
    return model


def rank_save(folder, states):
    """As FSDP2: parameters are DTensors, buffers are not."""
    import torch.distributed.checkpoint as dcp
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard, distribute_tensor
    mesh = init_device_mesh("cpu", (RANKS,), mesh_dim_names=("dp_shard",))
    for name, (state, parameters) in states.items():
        sharded = {key: distribute_tensor(tensor, mesh, [Shard(0)]) if key in parameters else tensor
                   for key, tensor in state.items()}
        dcp.save({"model": sharded}, checkpoint_id=os.path.join(folder, name))


def check_families(setting, families, name):
    sys.path.insert(0, os.environ["FSDPCK_TRANSFORMERS"])
    os.environ["TRANSFORMERS_VERBOSITY"] = "error"
    os.environ["HF_HUB_OFFLINE"] = "1"
    from transformers.utils import logging
    logging.disable_progress_bar()
    states = {}
    for family in families:
        model = make_model(family)
        states[family] = (model.state_dict(), {key for key, _ in model.named_parameters()})
        model.save_pretrained(setting.path("saved-" + family))
        stacked = [key for key in states[family][0] if key.endswith(".experts.gate_up_proj")]
        check(len(stacked) > 0, family + " has no fused experts")
    run_ranks(RANKS, rank_save, setting.path("dcp"), states)
    for family in families:
        _, folder = setting.consolidate(setting.path("dcp/" + family), family + "/", "--map", name)
        check_same_tensors(load_hf(folder)[0], load_hf(setting.path("saved-" + family))[0], family)


@case(first=(2, 15))
def case_map_transformers_experts(setting):
    check_families(setting, EXPERTS, "transformers-5-experts")


@case(first=(2, 15))
def case_map_transformers_mixtral(setting):
    check_families(setting, MIXTRAL, "transformers-5-mixtral")
