"""--merge-adapter into models with tied embeddings: the output computes what the trained model computed, or LORA-TIED says that it
does not."""

import copy
import json
import os
import warnings

import torch
from safetensors.torch import load_file, save_file

from cases_merge import check_merged, merge_by_peft, run_merge, save_adapter
from peft_models import import_peft, make_gpt2, make_llama
from support import BAD_INPUT, case, check, load_hf

IDS = torch.arange(12)[None]
# Options -> whether a warning names the tie.
TRAINED = {
    "embedding": ({"target_modules": ["q_proj", "embed_tokens"]}, True),
    "head": ({"target_modules": ["q_proj", "lm_head"]}, True),
    "both": ({"target_modules": ["q_proj", "lm_head", "embed_tokens"]}, True),
    "embedding ensured": ({"target_modules": ["q_proj", "embed_tokens"], "ensure_weight_tying": True}, False),
    "head ensured": ({"target_modules": ["q_proj", "lm_head"], "ensure_weight_tying": True}, False),
    "both ensured": ({"target_modules": ["q_proj", "lm_head", "embed_tokens"], "ensure_weight_tying": True}, False),
    "ranks ensured": ({"target_modules": ["q_proj", "embed_tokens"], "ensure_weight_tying": True, "use_rslora": True,
                       "rank_pattern": {"q_proj": 2}, "alpha_pattern": {"q_proj": 3}}, False),
    "alpha of one ensured": ({"target_modules": ["q_proj", "embed_tokens"], "ensure_weight_tying": True,
                              "alpha_pattern": {"lm_head": 3}}, True),
    "DoRA ensured": ({"target_modules": ["q_proj", "embed_tokens"], "ensure_weight_tying": True, "use_dora": True}, True),
    "parameter": ({"target_modules": ["q_proj"], "target_parameters": ["embed_tokens.weight"]}, True),
    "parameter ensured": ({"target_modules": ["q_proj"], "target_parameters": ["embed_tokens.weight"], "ensure_weight_tying": True}, True),
    "saved ensured": ({"target_modules": ["q_proj"], "modules_to_save": ["embed_tokens"], "ensure_weight_tying": True}, False),
    "tokens": ({"target_modules": ["q_proj"], "trainable_token_indices": [1, 5]}, False),
    "tokens of the embedding": ({"target_modules": ["q_proj"], "trainable_token_indices": {"embed_tokens": [1, 5]}}, False),
    "tokens of the head": ({"target_modules": ["q_proj"], "trainable_token_indices": {"lm_head": [1, 5]}}, True),
    "tokens of both": ({"target_modules": ["q_proj"], "trainable_token_indices": {"lm_head": [1, 5], "embed_tokens": [1, 5]}}, False),
    "other tokens of both": ({"target_modules": ["q_proj"], "trainable_token_indices": {"lm_head": [2, 5], "embed_tokens": [1, 5]}}, True),
    "tokens ensured": ({"target_modules": ["q_proj"], "trainable_token_indices": [1, 5], "ensure_weight_tying": True}, False)}


def train(base, options):
    peft, _ = import_peft()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = peft.get_peft_model(copy.deepcopy(base), peft.LoraConfig(r=4, lora_alpha=8, **copy.deepcopy(options)))
    random = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter.copy_(torch.randn(parameter.shape, generator=random) * 0.1)
    return model


def logits_of(model):
    with torch.no_grad():
        return model(IDS).logits


def distance(base, folder, expected):
    return float((logits_of(type(base).from_pretrained(folder)) - expected).abs().max())


def check_trained(setting, name, make):
    """A base model as transformers saves it, with both weights in the file, and untied by its config."""
    options, warns = TRAINED[name]
    torch.manual_seed(2)
    base = make()
    model = train(base, options)
    expected = logits_of(model)
    check(float((logits_of(base) - expected).abs().max()) > 0.1, name + ": the adapter changes nothing")
    truth = save_adapter(model, setting.path(name + "-adapter"))
    folder = setting.path(name + "-base")
    base.save_pretrained(folder)
    for kind in ("one", "two", "untied"):
        if kind == "two":
            weights = load_file(os.path.join(folder, "model.safetensors"))
            weights["lm_head.weight"] = weights["model.embed_tokens.weight"].clone()
            save_file(weights, os.path.join(folder, "model.safetensors"), {"format": "pt"})
        if kind == "untied":
            base.config.tie_word_embeddings = False
            base.config.save_pretrained(folder)
        done, out = run_merge(setting, folder, "%s-%s" % (name, kind), [truth])
        what = "%s, %s: %s" % (name, kind, done.stderr)
        untied = kind == "untied"
        check(("LORA-TIED" in done.stderr) == (warns and not untied), what)
        if untied and "token" in name:
            continue  # PEFT decides by the config of the training which tokens the output projection has
        far = distance(base, out, expected)
        check((far > 0.1) == (warns and not untied) and (far > 0.1 or far < 1e-5), "logits differ by %g: %s" % (far, what))


@case(first=(2, 15))
def case_merge_trained_products(setting):
    for name in list(TRAINED)[:9]:
        check_trained(setting, name, lambda: make_llama(tie_word_embeddings=True))


@case(first=(2, 15))
def case_merge_trained_others(setting):
    for name in list(TRAINED)[9:]:
        check_trained(setting, name, lambda: make_llama(tie_word_embeddings=True))


@case(first=(2, 15))
def case_merge_trained_state(setting):
    """A state with the base model and the adapter, whose tied tensors share their storage, and one in which they do not."""
    for name in ("embedding ensured", "head ensured", "DoRA ensured", "tokens", "tokens of the head"):
        options, warns = TRAINED[name]
        torch.manual_seed(2)
        base = make_llama(tie_word_embeddings=True)
        model = train(base, options)
        truth = save_adapter(model, setting.path(name + "-adapter"))
        for kind in ("shared", "copied"):
            state = model.state_dict()
            if kind == "copied":
                state = {key: tensor.clone() for key, tensor in state.items()}
            folder = setting.path("%s-%s" % (name, kind))
            os.makedirs(folder)
            torch.save(state, os.path.join(folder, "state.pt"))
            base.config.save_pretrained(folder)
            done, out = run_merge(setting, os.path.join(folder, "state.pt"), "%s-%s-out" % (name, kind), ["self"],
                                  "--adapter-config", os.path.join(truth, "adapter_config.json"))
            check(("LORA-TIED" in done.stderr) == warns, "%s %s: %s" % (name, kind, done.stderr))
            base.config.save_pretrained(out)
            far = distance(base, out, logits_of(model))
            check(far < 1e-5 or (far > 0.1 and "LORA-TIED" in done.stderr), "%s %s: %g" % (name, kind, far))


def has_head(base, folder):
    """Whether PEFT loads factors for the output projection."""
    peft, _ = import_peft()
    model = peft.PeftModel.from_pretrained(copy.deepcopy(base), folder)
    return any("lm_head.lora_A" in name for name, _ in model.named_parameters(remove_duplicate=False))


@case(first=(2, 15))
def case_merge_trained_dropped(setting):
    """ensure_weight_tying removes lm_head from target_modules. PEFT adds it again when it loads the adapter, if it finds a name of
    embeddings that it knows; wte of GPT-2 is none. In bfloat16 the factors of both weights differ, in float32 they are one."""
    lists = (["c_attn", "transformer.wte", "wte"], ["c_attn", "wte", "lm_head"], ["c_attn", "transformer.wte", "x.embed_tokens"],
             ".*(c_attn|wte)", ".*(c_attn|wte|lm_head)")
    for dtype in (torch.float32, torch.bfloat16):
        torch.manual_seed(2)
        base = make_gpt2().to(dtype)
        model = train(base, {"target_modules": ["c_attn", "wte", "lm_head"], "ensure_weight_tying": True})
        name = str(dtype)
        base.save_pretrained(setting.path(name + "-base"))
        adapter = save_adapter(model, setting.path(name + "-adapter"))
        path = os.path.join(adapter, "adapter_config.json")
        with open(path, encoding="utf-8") as text:
            config = json.load(text)
        check("lm_head" not in config["target_modules"], "PEFT keeps the name: %s" % config["target_modules"])
        for i, targets in enumerate(lists):
            with open(path, "w", encoding="utf-8") as text:
                json.dump({**config, "target_modules": targets}, text)
            what = "%s %s" % (name, targets)
            drops = not has_head(base, adapter)
            done = setting.run("verify", adapter)
            check(("LORA-CONFIG" in done.stdout + done.stderr) == drops, what + ": " + done.stdout + done.stderr)
            refused = drops and dtype == torch.bfloat16
            done, out = run_merge(setting, setting.path(name + "-base"), "%s-%d" % (name, i), [adapter],
                                  expected=BAD_INPUT if refused else 0)
            check(("LORA-CONFIG" in done.stderr) == refused, what + ": " + done.stderr)
            if not refused and (drops or dtype == torch.bfloat16):  # PEFT merges equal factors twice
                found, expected = load_hf(out)[0], merge_by_peft(base, [adapter])
                check_merged(found, {key: expected[key] for key in found}, what)
