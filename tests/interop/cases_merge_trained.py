"""--merge-adapter into models with tied embeddings: the output computes what the trained model computed, or LORA-TIED says that it
does not."""

import copy
import os
import warnings

import torch
from safetensors.torch import load_file, save_file

from cases_merge import run_merge, save_adapter
from peft_models import import_peft, make_llama
from support import case, check

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
