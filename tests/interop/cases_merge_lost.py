"""Adapters of target_parameters, also beside target_modules: PEFT's folder merges without a warning, and not after it lost tensors."""

import os
import re
import shutil
import warnings

import torch
from safetensors.torch import load_file, save_file

from cases_merge import merge_by_peft, run_merge
from cases_merge_models import make_adapter
from peft_models import LLAMA, import_peft, make_llama
from support import BAD_INPUT, case, check, check_nothing_at, load_hf

FILE = "adapter_model.safetensors"
EXPERTS = ["mlp.experts.gate_up_proj", "mlp.experts.down_proj"]
SIZES = {**LLAMA, "num_hidden_layers": 3}


def make_qwen(**more):
    _, transformers = import_peft()
    return transformers.Qwen3MoeForCausalLM(transformers.Qwen3MoeConfig(
        **SIZES, head_dim=8, num_experts=3, num_experts_per_tok=2, moe_intermediate_size=12, **more))


def make_deepseek():
    """The first layer is dense."""
    _, transformers = import_peft()
    return transformers.DeepseekV3ForCausalLM(transformers.DeepseekV3Config(
        **{**SIZES, "num_key_value_heads": 2}, n_routed_experts=4, num_experts_per_tok=2, moe_intermediate_size=12,
        first_k_dense_replace=1, n_group=2, topk_group=1, q_lora_rank=8, kv_lora_rank=8, qk_rope_head_dim=4, qk_nope_head_dim=4,
        v_head_dim=8))


def make_mixtral():
    _, transformers = import_peft()
    return transformers.MixtralForCausalLM(transformers.MixtralConfig(**SIZES, num_local_experts=3))


MODELS = {"qwen": make_qwen, "qwen with a dense layer": lambda: make_qwen(mlp_only_layers=[0]), "deepseek": make_deepseek,
          "mixtral": make_mixtral, "llama": lambda: make_llama(num_hidden_layers=3)}
# Of models with experts.
MOE = [{"target_modules": ["o_proj"], "target_parameters": EXPERTS},
       {"target_modules": [], "target_parameters": EXPERTS},
       {"target_modules": ["o_proj"], "target_parameters": ["layers.1.mlp.experts.gate_up_proj"]},
       {"target_modules": ["o_proj"], "target_parameters": EXPERTS, "layers_to_transform": [1]},
       {"target_modules": ["o_proj"], "target_parameters": EXPERTS, "exclude_modules": ["layers.1.self_attn.o_proj"]},
       {"target_modules": ["o_proj"], "target_parameters": EXPERTS, "rank_pattern": {"layers.1.mlp.experts.down_proj": 6}},
       {"target_modules": "all-linear", "target_parameters": EXPERTS},
       {"target_modules": ["o_proj", "gate_proj", "up_proj", "down_proj"]}]
DENSE = [{"target_modules": ["v_proj"], "target_parameters": ["q_proj.weight"]},
         {"target_modules": [], "target_parameters": ["q_proj.weight", "up_proj.weight"]},
         {"target_modules": ["v_proj"], "target_parameters": ["up_proj.weight"], "layers_to_transform": [0]},
         {"target_modules": ["v_proj"], "target_parameters": ["embed_tokens.weight"]}]


def modules_of(keys):
    found = {}
    for key in keys:
        module = re.sub(r"^base_model\.model\.|\.lora_[AB]\.weight$", "", key)
        found.setdefault(module, []).append(key)
    return found


def losses_of(modules):
    """Name of a loss -> the modules: each one, the same of all layers, a layer, all experts."""
    found = {module: [module] for module in modules}
    for module in modules:
        found.setdefault("all " + re.sub(r"\d+", "#", module), []).append(module)
        layer = re.search(r"layers\.\d+", module)
        found.setdefault("all of " + (layer.group() if layer else "no layer"), []).append(module)
        if "experts" in module:
            found.setdefault("all experts", []).append(module)
    return found


def save_without(truth, folder, lost):
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(truth, folder)
    tensors = {key: tensor for key, tensor in load_file(os.path.join(truth, FILE)).items() if key not in lost}
    save_file(tensors, os.path.join(folder, FILE), {"format": "pt"})
    return tensors


def check_lost(setting, source, truth, what):
    modules = modules_of(load_file(os.path.join(truth, FILE)))
    for loss, names in losses_of(modules).items():
        lost = [key for name in names for key in modules[name]]
        if not save_without(truth, setting.path("lost"), lost):
            continue
        # A place outside of layers may be missing in the model that was trained: then a warning.
        inside = all("layers." in name for name in names) and any("layers." in name for name in set(modules) - set(names))
        done, out = run_merge(setting, source, "never", [setting.path("lost")], expected=BAD_INPUT if inside else 0)
        # Inside the wrapper of the other parameter of a module, one has no name.
        outer = all(name + ".base_layer" in modules for name in names) and "it lacks the tensors of another parameter" in done.stderr
        check("LORA-PAIR" in done.stderr or outer, "%s without %s: %s" % (what, loss, done.stderr))
        found = setting.run("verify", setting.path("lost"), "--like", source, expected=None if outer else 1 if inside else 0)
        check("LORA-PAIR" in found.stdout or outer, "verify --like: %s without %s: %s" % (what, loss, found.stdout))
        if inside:
            check_nothing_at(out)
        else:
            shutil.rmtree(out)


def check_model(setting, name, every):
    for n, options in enumerate(every):
        i = "%s%d" % (name.split()[-1], n)
        torch.manual_seed(2)
        base = MODELS[name]()
        what = "%s %s" % (name, options)
        model, truth = make_adapter(setting, "a" + i, base, options)
        source = setting.path("base" + i)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            base.save_pretrained(source, save_original_format=False)
        done, out = run_merge(setting, source, "out" + i, [truth])
        check("LORA" not in done.stderr, "%s: %s" % (what, done.stderr))
        expected = merge_by_peft(base, [truth])
        found = load_hf(out)[0]
        check(all(torch.allclose(found[key], expected[key], rtol=1e-4, atol=1e-6) for key in found), what)
        setting.run("verify", truth)
        done = setting.run("verify", truth, "--like", source)
        check("LORA-PAIR" not in done.stdout, "verify --like %s: %s" % (what, done.stdout))
        check_lost(setting, source, truth, what)
        # A state with base model and adapter.
        torch.save({"model": model.state_dict()}, setting.path("inside.pt"))
        done, out = run_merge(setting, setting.path("inside.pt"), "inside" + i, ["self"], "--adapter-config",
                              os.path.join(truth, "adapter_config.json"))
        check("LORA" not in done.stderr, "%s inside: %s" % (what, done.stderr))


@case(first=(2, 15))
def case_merge_lost_qwen(setting):
    check_model(setting, "qwen", MOE[:4])


@case(first=(2, 15))
def case_merge_lost_qwen_more(setting):
    check_model(setting, "qwen", MOE[4:])


@case(first=(2, 15))
def case_merge_lost_dense_and_experts(setting):
    check_model(setting, "qwen with a dense layer", MOE[:3])
    check_model(setting, "deepseek", MOE[:2])


@case(first=(2, 15))
def case_merge_lost_weights(setting):
    check_model(setting, "llama", DENSE)


@case(first=(2, 15))
def case_merge_lost_list(setting):
    """A base model whose file has a list of experts, and an adapter that lost all of them: the parameters have no name there."""
    for name in ("qwen", "mixtral"):
        torch.manual_seed(2)
        base = MODELS[name]()
        for i, options in enumerate(MOE[:3]):
            if not options["target_modules"]:
                continue
            _, truth = make_adapter(setting, "%s%d" % (name, i), base, options)
            base.save_pretrained(setting.path(name))
            save_without(truth, setting.path("lost"), [key for key in load_file(os.path.join(truth, FILE)) if "experts" in key])
            done, out = run_merge(setting, setting.path(name), "never", [setting.path("lost")], expected=BAD_INPUT)
            check("LORA-PAIR" in done.stderr and ".mlp.experts." in done.stderr, done.stderr)
            check_nothing_at(out)


def make_qwen2():
    _, transformers = import_peft()
    return transformers.Qwen2ForCausalLM(transformers.Qwen2Config(**{**SIZES, "num_hidden_layers": 2}))


@case(first=(2, 15))
def case_merge_lost_biases(setting):
    """Each trained bias, and all of them: PEFT's file has those that fsdpck expects, and no other."""
    for bias in ("all", "lora_only"):
        torch.manual_seed(2)
        base = make_qwen2()
        source = setting.path("base")
        base.save_pretrained(source)
        _, truth = make_adapter(setting, "ad", base, {"target_modules": ["q_proj", "up_proj"], "bias": bias})
        done = setting.run("verify", truth, "--like", source)
        check("LORA" not in done.stdout, bias + ": " + done.stdout)
        trained = [key for key in load_file(os.path.join(truth, FILE)) if key.endswith(".bias")]
        check(len(trained) == (6 if bias == "all" else 2), str(trained))
        for key in trained:
            save_without(truth, setting.path("lost"), [key])
            found = setting.run("verify", setting.path("lost"), "--like", source, expected=1)
            check("LORA-PAIR" in found.stdout, found.stdout)
            _, out = run_merge(setting, source, "never", [setting.path("lost")], expected=BAD_INPUT)
            check_nothing_at(out)
        save_without(truth, setting.path("lost"), trained)
        found = setting.run("verify", setting.path("lost"), "--like", source)
        check("lacks %d biases" % len(trained) in found.stdout, found.stdout)


@case(first=(2, 15))
def case_merge_lost_classifier(setting):
    """PEFT saves the classifier, which the base model does not have; names of all-linear inside it are no losses."""
    peft, transformers = import_peft()
    torch.manual_seed(2)
    config = transformers.RobertaConfig(vocab_size=40, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=24,
                                        max_position_embeddings=32, num_labels=3)
    base = transformers.RobertaForSequenceClassification(config)
    _, truth = make_adapter(setting, "ad", base, {"target_modules": "all-linear", "task_type": "SEQ_CLS"})
    keys = [key for key in load_file(os.path.join(truth, FILE)) if "classifier" in key]
    done = setting.run("verify", truth)
    check("LORA" not in done.stdout, done.stdout)
    losses = [[key for key in keys if "dense" in key], [key for key in keys if "out_proj" in key], keys]
    for lost in losses:
        check(lost != [], str(keys))
        save_without(truth, setting.path("lost"), lost)
        found = setting.run("verify", setting.path("lost"))
        check("LORA-PAIR" in found.stdout, "%s: %s" % (lost, found.stdout))
