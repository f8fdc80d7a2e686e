"""verify --like BASE of PEFT's folders, with models that tie their output projection: nothing is reported of a whole adapter, and each loss is
found, as --merge-adapter finds it."""

import os
import shutil

import torch
from safetensors.torch import load_file

from cases_merge import check_merged, merge_by_peft, run_merge
from cases_merge_lost import FILE, losses_of, modules_of, save_without
from cases_merge_models import make_adapter, make_bert, make_t5, make_tied
from peft_models import import_peft
from support import BAD_INPUT, UNSUPPORTED, case, check, check_nothing_at, load_hf

QV = ["q_proj", "v_proj"]
QUERY = ["query", "value"]


def make_distilbert():
    _, transformers = import_peft()
    return transformers.DistilBertForMaskedLM(transformers.DistilBertConfig(
        vocab_size=64, dim=32, n_heads=2, n_layers=2, hidden_dim=48, max_position_embeddings=16))


def make_bart():
    _, transformers = import_peft()
    return transformers.BartForConditionalGeneration(transformers.BartConfig(
        d_model=32, encoder_layers=2, decoder_layers=2, encoder_attention_heads=2, decoder_attention_heads=2, encoder_ffn_dim=48,
        decoder_ffn_dim=48, vocab_size=64, max_position_embeddings=16))


def make_classifier():
    _, transformers = import_peft()
    return transformers.RobertaForSequenceClassification(transformers.RobertaConfig(
        hidden_size=32, num_attention_heads=2, vocab_size=64, num_hidden_layers=2, intermediate_size=48, max_position_embeddings=16,
        pad_token_id=1, num_labels=3))


# Name -> model, options.
TIED = {
    "head": (make_tied, {"target_modules": QV + ["lm_head"]}),
    "embedding": (make_tied, {"target_modules": QV + ["embed_tokens"]}),
    "both": (make_tied, {"target_modules": QV + ["embed_tokens", "lm_head"], "bias": "all"}),
    "dora": (make_tied, {"target_modules": QV + ["lm_head"], "use_dora": True})}
SAVED = {
    "saved-head": (make_tied, {"target_modules": QV, "modules_to_save": ["lm_head"]}),
    "saved-both": (make_tied, {"target_modules": QV, "modules_to_save": ["lm_head", "embed_tokens"]}),
    "saved-tied": (make_tied, {"target_modules": QV, "modules_to_save": ["lm_head"], "ensure_weight_tying": True}),
    "embedding-saved-head": (make_tied, {"target_modules": QV + ["embed_tokens"], "modules_to_save": ["lm_head"]})}
# Base models whose files lack the names of tied weights.
MODELS = {
    "bert": (make_bert, {"target_modules": QUERY + ["decoder"]}),
    "bert-biases": (make_bert, {"target_modules": QUERY + ["decoder"], "bias": "all"}),
    "roberta-both": (lambda: make_bert("Roberta"), {"target_modules": QUERY + ["decoder", "word_embeddings"]}),
    "xlmr-saved": (lambda: make_bert("XLMRoberta"), {"target_modules": QUERY, "modules_to_save": ["lm_head"]}),
    "xlmr-biases": (lambda: make_bert("XLMRoberta"), {"target_modules": QUERY, "modules_to_save": ["lm_head"], "bias": "all"}),
    "classifier": (make_classifier, {"target_modules": QUERY, "modules_to_save": ["classifier"], "bias": "all"}),
    "distilbert": (make_distilbert, {"target_modules": ["q_lin", "vocab_projector"]}),
    "distilbert-saved": (make_distilbert, {"target_modules": ["q_lin"], "modules_to_save": ["vocab_projector"]}),
    "t5": (make_t5, {"target_modules": ["q", "embed_tokens"]}),
    "bart": (make_bart, {"target_modules": ["q_proj", "embed_tokens"]}),
    "bart-saved": (make_bart, {"target_modules": ["q_proj"], "modules_to_save": ["embed_tokens"]})}


def make_case(setting, name, make, options):
    """The base model, its folder, and that of the adapter."""
    torch.manual_seed(2)
    base = make()
    _, truth = make_adapter(setting, name, base, options)
    base.save_pretrained(setting.path(name + "-base"))
    return base, setting.path(name + "-base"), truth


def check_whole(setting, name, base, source, truth):
    done = setting.run("verify", truth, "--like", source)
    check("LORA" not in done.stdout, "%s: %s" % (name, done.stdout))
    _, out = run_merge(setting, source, name + "-out", [truth])
    found, expected = load_hf(out)[0], merge_by_peft(base, [truth])
    check_merged(found, {key: expected[key] for key in found}, name, ulps=8 if "dora" in name else 0)


def check_losses(setting, name, source, truth):
    """Where the merge stops, verify does, and where it warns, verify does."""
    modules = modules_of(load_file(os.path.join(truth, FILE)))
    count = 0
    for loss, names in losses_of(modules).items():
        if not save_without(truth, setting.path("lost"), [key for module in names for key in modules[module]]):
            continue
        done, out = run_merge(setting, source, "never", [setting.path("lost")], expected=None)
        found = setting.run("verify", setting.path("lost"), "--like", source, expected=None)
        what = "%s without %s: %s%s" % (name, loss, done.stderr, found.stdout)
        check(done.returncode != BAD_INPUT or found.returncode == 1, what)
        check(done.returncode not in (0, UNSUPPORTED) or found.returncode == 0, what)
        check(("LORA-PAIR" in done.stderr or done.returncode == UNSUPPORTED) <= ("LORA-PAIR" in found.stdout), what)
        count += done.returncode != 0
        shutil.rmtree(out, ignore_errors=True)
    check(count > 0, name + ": no loss")


def check_all(setting, table):
    for name, (make, options) in table.items():
        base, source, truth = make_case(setting, name, make, options)
        check_whole(setting, name, base, source, truth)
        check_losses(setting, name, source, truth)


@case(first=(2, 15))
def case_like_tied(setting):
    check_all(setting, TIED)


@case(first=(2, 15))
def case_like_tied_saved(setting):
    check_all(setting, SAVED)


@case(first=(2, 15))
def case_like_models(setting):
    for name, (make, options) in MODELS.items():
        base, source, truth = make_case(setting, name, make, options)
        check_whole(setting, name, base, source, truth)


@case(first=(2, 15))
def case_merge_tied_dora(setting):
    """DoRA of both of two tied weights is refused: PEFT takes the second norm of the weight that the first has changed."""
    for name, make, target in (("llama", make_tied, ["embed_tokens", "lm_head"]), ("bert", make_bert, ["word_embeddings", "decoder"])):
        _, source, truth = make_case(setting, name, make, {"target_modules": target, "use_dora": True})
        done, out = run_merge(setting, source, "never", [truth], expected=UNSUPPORTED)
        check("LORA-TIED" in done.stderr and "has DoRA for" in done.stderr, done.stderr)
        check_nothing_at(out)


@case(first=(2, 15))
def case_merge_lost_head(setting):
    """Two names of target_modules have no module: the first is no output projection, the second is that of the model."""
    _, source, truth = make_case(setting, "head", make_tied, {"target_modules": ["a_proj", "lm_head", "q_proj"]})
    modules = modules_of(load_file(os.path.join(truth, FILE)))
    save_without(truth, setting.path("lost"), [key for name in modules if "lm_head" in name for key in modules[name]])
    done, _ = run_merge(setting, source, "out", [setting.path("lost")])
    check("LORA-PAIR" in done.stderr and "lm_head" in done.stderr, done.stderr)
    done = setting.run("verify", setting.path("lost"), "--like", source)
    check("LORA-PAIR" in done.stdout, done.stdout)


@case(first=(2, 15))
def case_like_lost_tokens(setting):
    """The config alone shows that rows of one of two names are lost."""
    options = {"target_modules": ["q_proj"], "trainable_token_indices": {"lm_head": [2, 5], "embed_tokens": [1, 5]}}
    _, source, truth = make_case(setting, "tokens", make_tied, options)
    setting.run("verify", truth)
    save_without(truth, setting.path("lost"), [key for key in load_file(os.path.join(truth, FILE)) if "embed_tokens" in key])
    for more in ((), ("--like", source)):
        done = setting.run("verify", setting.path("lost"), *more, expected=1)
        check("LORA-PAIR" in done.stdout and "embed_tokens" in done.stdout, done.stdout)
    done, out = run_merge(setting, source, "never", [setting.path("lost")], expected=BAD_INPUT)
    check("LORA-PAIR" in done.stderr, done.stderr)
    check_nothing_at(out)
