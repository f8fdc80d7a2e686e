"""Folders whose model is lost: what else lies there is not taken for it. Files that the ranks or models of accelerate number."""

import json
import os
import shutil

import torch
from safetensors.torch import load_file, save_file

from cases_export_like import transformers
from support import BAD_INPUT, OK, case, check, check_nothing_at, load_pt, tensors_of_state

CONFIG = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 8, "vocab_size": 16,
          "num_hidden_layers": 2, "tie_word_embeddings": False}
HEAD = {"v_head.summary.weight": torch.ones(1, 8), "v_head.summary.bias": torch.ones(1)}


def make_model():
    state = {"model.embed_tokens.weight": torch.arange(128.).reshape(16, 8), "model.norm.weight": torch.ones(8),
             "lm_head.weight": torch.ones(16, 8)}
    for layer in range(2):
        state["model.layers.%d.mlp.up_proj.weight" % layer] = torch.full((8, 8), float(layer))
    return state


def make_folder(setting, name):
    folder = setting.path(name)
    os.makedirs(folder)
    with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as file:
        json.dump(CONFIG, file)
    save_file(make_model(), os.path.join(folder, "model.safetensors"), {"format": "pt"})
    return folder


def save_optimizer(path):
    weight = torch.nn.Parameter(torch.ones(3))
    optimizer = torch.optim.Adam([weight])
    weight.grad = torch.ones(3)
    optimizer.step()
    torch.save(optimizer.state_dict(), path)


def check_lost(setting, folder, model, other):
    """With the model the folder is good; without it, only the path of what is left is."""
    setting.run("verify", "-q", folder)
    os.remove(os.path.join(folder, model))
    done = setting.run("verify", folder, expected=1)
    check("WEIGHTS-LOST" in done.stdout + done.stderr, "verify of %s: %s" % (folder, done.stdout + done.stderr))
    if other is None:
        return
    done, path = setting.consolidate(folder, "lost.safetensors", expected=BAD_INPUT)
    check("WEIGHTS-LOST" in done.stderr and other in done.stderr, "%s: %s" % (folder, done.stderr))
    check_nothing_at(path)
    setting.run("verify", "-q", os.path.join(folder, other))
    setting.consolidate(os.path.join(folder, other), os.path.basename(folder) + ".safetensors", "-q")


@case(first=(2, 6))
def case_lost_weights(setting):
    folder = make_folder(setting, "head")
    save_file(HEAD, os.path.join(folder, "value_head.safetensors"), {"format": "pt"})
    check_lost(setting, folder, "model.safetensors", "value_head.safetensors")
    folder = make_folder(setting, "nested")
    os.mkdir(os.path.join(folder, "draft"))
    draft = {name: tensor[..., :4].clone() for name, tensor in make_model().items()}
    save_file(draft, os.path.join(folder, "draft", "model.safetensors"), {"format": "pt"})
    check_lost(setting, folder, "model.safetensors", "draft")
    folder = make_folder(setting, "nested-pt")
    os.mkdir(os.path.join(folder, "ref"))
    torch.save(draft, os.path.join(folder, "ref", "model.pt"))
    check_lost(setting, folder, "model.safetensors", "ref/model.pt")
    folder = make_folder(setting, "optimizer")
    os.remove(os.path.join(folder, "config.json"))
    save_optimizer(os.path.join(folder, "optimizer.pt"))
    check_lost(setting, folder, "model.safetensors", None)


@case(first=(2, 6))
def case_lost_weights_same_sizes(setting):
    """A model of the same sizes in a folder inside may be the one that config.json describes: a warning."""
    folder = make_folder(setting, "run")
    os.mkdir(os.path.join(folder, "best"))
    os.rename(os.path.join(folder, "model.safetensors"), os.path.join(folder, "best", "model.safetensors"))
    done = setting.run("verify", folder)
    check("WEIGHTS-LOST" in done.stdout + done.stderr, done.stdout + done.stderr)
    done, path = setting.consolidate(folder, "best.safetensors", "-q")
    check("WEIGHTS-LOST" in done.stderr and set(load_file(path)) == set(make_model()), done.stderr)


@case(first=(2, 6))
def case_lost_weights_other_models(setting):
    """Models without numbered layers, but with the embedding that config.json describes, are complete."""
    for number, names in enumerate((("encoder.weight", "rnn.weight_ih_l0", "decoder.weight"), ("emb.weight", "linear.weight"))):
        folder = make_folder(setting, "other-%d" % number)
        save_file({name: torch.ones(16, 8) for name in names}, os.path.join(folder, "model.safetensors"), {"format": "pt"})
        done = setting.run("verify", folder)
        check("WEIGHTS-LOST" not in done.stdout + done.stderr, done.stdout + done.stderr)


@case(first=(2, 15))
def case_lost_layers_of_transformers(setting):
    """Whole models of transformers have no warning; without a layer, or a tensor of one, they have."""
    library = transformers()
    library.utils.logging.set_verbosity_error()
    sizes = {"num_hidden_layers": 4, "hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 32, "vocab_size": 32}
    configs = [library.GPT2Config(n_layer=4, n_embd=16, n_head=2, vocab_size=32), library.BloomConfig(n_layer=4, n_head=2, hidden_size=16, vocab_size=32),
               library.OPTConfig(ffn_dim=32, word_embed_proj_dim=16, **sizes), library.GPTNeoXConfig(**sizes), library.BertConfig(**sizes),
               library.ViTConfig(image_size=16, patch_size=8, **sizes), library.MambaConfig(state_size=4, **sizes),
               library.BartConfig(vocab_size=32, d_model=16, encoder_layers=4, decoder_layers=4, encoder_attention_heads=2, decoder_attention_heads=2),
               library.WhisperConfig(vocab_size=32, d_model=16, encoder_layers=4, decoder_layers=4, encoder_attention_heads=2, decoder_attention_heads=2,
                                     encoder_ffn_dim=32, decoder_ffn_dim=32, pad_token_id=0),
               library.LongT5Config(vocab_size=32, d_model=16, d_kv=8, d_ff=32, num_layers=4, num_heads=2),
               library.UMT5Config(vocab_size=32, d_model=16, d_kv=8, d_ff=32, num_layers=4, num_heads=2)]
    if hasattr(library, "HYV4Config"):
        configs.append(library.HYV4Config(num_hidden_layers=5, indexer_types=["full"] * 4 + ["shared"], mlp_layer_types=["dense"] * 5, pad_token_id=0,
                                          layer_types=["indexed_attention"] * 5, hidden_size=16, intermediate_size=32, moe_intermediate_size=8, vocab_size=32,
                                          num_attention_heads=2, num_key_value_heads=2, n_routed_experts=2, num_experts_per_tok=1, q_lora_rank=8,
                                          kv_lora_rank=8, qk_rope_head_dim=8, qk_nope_head_dim=8, v_head_dim=8, head_dim=8))
    for config in configs:
        folder = setting.path(config.model_type)
        library.AutoModel.from_config(config).save_pretrained(folder)
        path = os.path.join(folder, "model.safetensors")
        model = load_file(path)
        setting.run("verify", "-q", "--strict", folder)
        inner = [name for name in model if ".2." in "." + name]
        check(len(inner) > 5, "%s has no layers: %s" % (config.model_type, sorted(model)))
        for lost in (inner, [name for name in model if ".3." in "." + name], inner[:1], inner[-1:]):
            save_file({name: tensor for name, tensor in model.items() if name not in lost}, path, {"format": "pt"})
            done = setting.run("verify", folder)
            check("EXPORT-KEYS" in done.stdout + done.stderr, "%s without %s: %s" % (config.model_type, lost[0], done.stdout))


@case(first=(2, 6))
def case_lost_weights_verl(setting):
    """Of verl's three kinds of rank files those of the model are lost."""
    folder = setting.path("verl", "global_step_10", "actor")
    os.makedirs(folder)
    for rank in range(2):
        name = os.path.join(folder, "%%s_world_size_2_rank_%d.pt" % rank)
        torch.save(make_model(), name % "model")
        save_optimizer(name % "optim")
        torch.save({"lr_scheduler": {"last_epoch": 3}, "rng": {"cpu": torch.ones(4)}}, name % "extra_state")
    setting.run("verify", "-q", folder)
    for rank in range(2):
        os.remove(os.path.join(folder, "model_world_size_2_rank_%d.pt" % rank))
    for done in (setting.run("latest", setting.path("verl")), setting.run("verify", folder),
                 setting.run("reshard", "-q", folder, setting.path("out"), "--format", "pt-ranks", "--world-size", 2,
                             "--per-rank", "first")):
        check("WEIGHTS-LOST" in done.stdout + done.stderr, done.stdout + done.stderr)


def save_accelerate_fsdp(folder):
    """The folders of accelerate's SHARDED_STATE_DICT."""
    import torch.distributed.checkpoint as dcp
    dcp.save({"model": make_model()}, checkpoint_id=os.path.join(folder, "pytorch_model_fsdp_0"), no_dist=True)
    dcp.save({"optimizer": {"state": {"w.exp_avg": torch.ones(3)}}}, checkpoint_id=os.path.join(folder, "optimizer_0"),
             no_dist=True)


@case(first=(2, 6))
def case_lost_weights_fsdp_folders(setting):
    """An optimizer's folder alone; the model's folder below a config.json is the model."""
    folder = setting.path("checkpoint-1")
    save_accelerate_fsdp(folder)
    with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as file:
        json.dump(CONFIG, file)
    os.rename(os.path.join(folder, "optimizer_0"), setting.path("kept"))
    setting.run("verify", "-q", folder, expected=OK)
    _, path = setting.consolidate(folder, "model.pt", "-q")
    check(set(tensors_of_state(load_pt(path))) == {"model." + name for name in make_model()}
          or set(tensors_of_state(load_pt(path))) == set(make_model()), "names of %s" % path)
    os.rename(setting.path("kept"), os.path.join(folder, "optimizer_0"))
    shutil.rmtree(os.path.join(folder, "pytorch_model_fsdp_0"))
    done = setting.run("verify", folder, expected=1)
    check("WEIGHTS-LOST" in done.stdout + done.stderr, done.stdout + done.stderr)
    setting.run("verify", "-q", os.path.join(folder, "optimizer_0"))


@case(first=(2, 6))
def case_second_model_of_accelerate(setting):
    """model_1.safetensors is another model: it is checked too, and no advice is to remove it."""
    folder = setting.path("run")
    os.mkdir(folder)
    save_file(make_model(), os.path.join(folder, "model.safetensors"), {"format": "pt"})
    second = os.path.join(folder, "model_1.safetensors")
    save_file(HEAD, second, {"format": "pt"})
    done = setting.run("verify", folder)
    said = done.stdout + done.stderr
    check("model_1.safetensors" in said and "remove" not in said, said)
    with open(second, "r+b") as file:
        file.truncate(os.path.getsize(second) - 3)
    done = setting.run("verify", folder, expected=1)
    check("model_1.safetensors" in done.stdout + done.stderr, done.stdout + done.stderr)
