"""Tensor maps against transformers 5: a state_dict() of DTensors on 3 and 4 ranks becomes what save_pretrained
writes."""

import os

from safetensors.torch import load_file

from process_group import run_ranks
from support import case, check, check_same_tensors, digests_of, load_hf
from transformers_models import import_transformers, make_model

EXPERTS = """afmoe cohere2_moe deepseek_v2 deepseek_v3 deepseek_v32 dots1 ernie4_5_moe flex_olmo glm4_moe
    glm4_moe_lite glm_moe_dsa hunyuan_v1_moe jamba longcat_flash mellum olmoe qwen2_moe qwen3_moe qwen3_5_moe_text
    qwen3_next qwen4_exp_text solar_open""".split()
MIXTRAL = "mixtral minimax minimax_m2".split()
OTHERS = "axk1 exaone_moe hy_v3 lfm2_moe nemotron_h phimoe".split()


def rank_save(folder, states):
    """As FSDP2: parameters are DTensors, buffers are not."""
    import torch.distributed.checkpoint as dcp
    from torch.distributed import get_world_size
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard, distribute_tensor
    mesh = init_device_mesh("cpu", (get_world_size(),), mesh_dim_names=("dp_shard",))
    for name, (state, parameters) in states.items():
        sharded = {key: distribute_tensor(tensor, mesh, [Shard(0)]) if key in parameters else tensor
                   for key, tensor in state.items()}
        dcp.save({"model": sharded}, checkpoint_id=os.path.join(folder, name))


def check_families(setting, families, name):
    import_transformers()
    states = {}
    for family in families:
        model = make_model(family)
        states[family] = (model.state_dict(), {key for key, _ in model.named_parameters()})
        model.save_pretrained(setting.path("saved-" + family))
        stacked = [key for key in states[family][0] if key.endswith(".experts.down_proj")]
        check(len(stacked) > 0, family + " has no fused experts")
    run_ranks(3, rank_save, setting.path("dcp"), states)
    run_ranks(4, rank_save, setting.path("of4"), states)
    for family in families:
        _, folder = setting.consolidate(setting.path("dcp/" + family), family + "/", "--map", name)
        check_same_tensors(load_hf(folder)[0], load_hf(setting.path("saved-" + family))[0], family)
        check(digests_of(setting, setting.path("of4/" + family), "--map", name) == digests_of(setting, folder),
              family + " of 4 ranks otherwise")
        saved = setting.path("saved-" + family)
        process, folder = setting.consolidate(setting.path("dcp/" + family), family + "-like/", "--like", saved)
        check("map: %s," % name in process.stdout, family + " is read through another map")
        check_same_tensors(load_hf(folder)[0], load_hf(saved)[0], family + " by --like")
        # The way back: what save_pretrained wrote becomes the model's state, and the map is proved on it.
        setting.run("consolidate", saved, setting.path(family + ".safetensors"), "--map", name, "--import")
        check_same_tensors(load_file(setting.path(family + ".safetensors")), states[family][0], family + " imported")
        setting.run("verify", saved, "--prove-map", name)


@case(first=(2, 15))
def case_map_transformers_experts(setting):
    check_families(setting, EXPERTS, "transformers-5-experts")


@case(first=(2, 15))
def case_map_transformers_mixtral(setting):
    check_families(setting, MIXTRAL, "transformers-5-mixtral")


@case(first=(2, 15))
def case_map_transformers_others(setting):
    for family in OTHERS:
        check_families(setting, [family], "transformers-5-" + family.replace("_", "-"))


def check_loads_imported(setting, model, saved, name, stem):
    """The trainer's model loads what import makes, and has its own values again."""
    import torch
    import torch.distributed.checkpoint as dcp
    made = setting.path(stem + "-dcp")
    done = setting.run("reshard", saved, made, "--world-size", "3", "--format", "dcp", "--map", name, "--import")
    expected = model.state_dict()
    state = {key: torch.zeros_like(tensor) for key, tensor in expected.items()}
    dcp.load(state, checkpoint_id=made, no_dist=True)
    check_same_tensors(state, expected, stem + " imported")
    check(dcp.FileSystemReader(made).read_metadata().state_dict_metadata.keys() == expected.keys(), stem + ": other names")
    return done


@case(first=(2, 15))
def case_map_transformers_tied(setting):
    """Folders of tied models omit the output layer, which the state_dict() of the model has."""
    import_transformers()
    families = [(family, "transformers-5-experts") for family in EXPERTS]
    families += [(family, "transformers-5-mixtral") for family in MIXTRAL]
    families += [(family, "transformers-5-" + family.replace("_", "-")) for family in OTHERS]
    for family, name in families:
        model = make_model(family, tied=True)
        saved = setting.path("tied-" + family)
        model.save_pretrained(saved)
        # nemotron_h ties nothing.
        check(("lm_head.weight" in load_hf(saved)[0]) == (family == "nemotron_h"), family + " is saved otherwise")
        done = check_loads_imported(setting, model, saved, name, family)
        check(("tied: lm_head.weight = model.embed_tokens.weight" in done.stdout) == (family != "nemotron_h"), done.stdout)


@case(first=(2, 15))
def case_map_transformers_classifier(setting):
    """A classifier has no output layer, though its config ties the embeddings."""
    import_transformers()
    import transformers
    for tied in (False, True):
        config = make_model("qwen3_moe", tied=tied).config
        config.num_labels = 3
        model = transformers.AutoModelForSequenceClassification.from_config(config)
        check("score.weight" in model.state_dict() and "lm_head.weight" not in model.state_dict(), "no classifier")
        saved = setting.path("classifier-%d" % tied)
        model.save_pretrained(saved)
        done = check_loads_imported(setting, model, saved, "transformers-5-experts", "score-%d" % tied)
        check("lm_head" not in done.stdout + done.stderr, done.stderr)
