"""Tensor maps proved by logits: the trainer's own model against what from_pretrained makes of the export of its checkpoint.

A trainer's small model gets random numbers and random tokens. FSDP2's state of it on 3 ranks, in uneven shards, is exported
with --like and with --map, and transformers loads the folder. Both models compute in float32 on the CPU. The rule: no
logit differs by more than 1e-5 of the largest. So that the rule has power, every tensor of the folder is changed in turn,
and the logits must then differ by more than 1e-3 of the largest.

Not proved by logits: layers that predict further tokens (DeepSeek V3 of torchtitan and Megatron-Core), which transformers' models
lack. case_map_torchtitan_deepseek_v3 and case_map_megatron_deepseek compare their tensors with those of the trainers' converters.
"""

import json
import os

import torch

from cases_export_like import save_base, transformers
from cases_map_trainers import RANKS, rank_save
from cases_map_transformers import EXPERTS, MIXTRAL, OTHERS, rank_save as save_models
from export_faults import check_faults
from meta_models import MetaSubject, make_params
from process_group import run_ranks
from support import case, check, check_same_tensors, load_hf
from transformers_models import make_subject

TOLERANCE, VISIBLE = 1e-5, 1e-3
PROVED = """litgpt-llama litgpt-qwen meta-llama torchtitan-deepseek-v3 torchtitan-gpt-oss torchtitan-llama3 torchtitan-llama4
    torchtitan-qwen3 torchtune-llama torchtune-phi3 torchtune-qwen2 transformers-5-experts transformers-5-mixtral""".split() + [
        "transformers-5-" + family.replace("_", "-") for family in OTHERS]
ELSEWHERE = ["megatron-deepseek-v3", "megatron-llama", "megatron-mixtral", "megatron-qwen3-moe"]  # cases_map_megatron.py


def libraries():
    """transformers, which asks CUDA for its state: the stubs in place of its libraries cannot answer."""
    torch.cuda.is_current_stream_capturing = lambda: False
    return transformers()


def make_tokens(vocabulary):
    return torch.randint(0, vocabulary, (2, 24), generator=torch.Generator().manual_seed(3))


def load_model(folder):
    model, info = transformers().AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager", output_loading_info=True)
    check(not any(info[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys")), "loads: %r" % (info,))
    return model.eval()


def logits_of(model, tokens):
    with torch.no_grad():
        return model(tokens, use_cache=False).logits


def difference(found, expected):
    """In units of the largest expected logit."""
    check(found.shape == expected.shape, "shape of the logits: %s" % (found.shape,))
    check(bool(torch.isfinite(expected).all()), "the trainer's logits are not finite")
    return ((found - expected).abs().max() / expected.abs().max()).item()


def check_power(label, model, tokens, expected, names, unseen):
    """Each tensor with its values in another order. unseen: ends of names that logits do not depend on."""
    hidden = []
    for name in names:
        tensor = model.state_dict()[name]
        kept = tensor.clone()
        tensor.copy_(kept.flatten().roll(1).reshape(kept.shape))
        if not difference(logits_of(model, tokens), expected) > VISIBLE:
            hidden.append(name)
        tensor.copy_(kept)
    check(all(name.endswith(tuple(unseen)) for name in hidden), "%s: logits do not depend on %s" % (label, hidden))


def check_export(setting, label, source, subject, names=None, unseen=(), save=save_base):
    """names: of the tensors to change; all by default. save: makes the folder of --like."""
    check(subject.map_name in PROVED, subject.map_name + " is not listed as proved")
    tokens = make_tokens(subject.config.get_text_config().vocab_size)
    expected = subject.logits(tokens)
    base = save(setting, label + "-base", subject.config, torch.float32, max_shard_size="8KB")
    done, folder = setting.consolidate(source, label, "--like", base)
    check("map: %s" % subject.map_name in done.stdout, "%s is read through another map: %s" % (label, done.stdout))
    model = load_model(folder)
    apart = difference(logits_of(model, tokens), expected)
    check(apart <= TOLERANCE, "%s: logits differ by %.1e of the largest" % (label, apart))
    check_power(label, model, tokens, expected, list(model.state_dict()) if names is None else names, unseen)
    check_faults(setting, label, folder, base)
    return folder, base


def check_by_map(setting, label, source, subject, folder, base):
    """Without --like: the same tensors, but that a tied output projection is kept."""
    _, by_map = setting.consolidate(source, label + "-map", "--map", subject.map_name, "--config",
                                    os.path.join(base, "config.json"))
    tensors = load_hf(by_map)[0]
    if subject.config.tie_word_embeddings:
        tensors.pop("lm_head.weight", None)
    check_same_tensors(tensors, load_hf(folder)[0], label + " by --map")


def check_trainer(setting, label, subject):
    source = setting.path(label + "-dcp")
    run_ranks(RANKS, rank_save, source, subject.model.state_dict(), "all")
    folder, base = check_export(setting, label, source, subject)
    check_by_map(setting, label, source, subject, folder, base)


@case(first=(2, 15))
def case_map_logits_list(setting):
    """A new map needs a proof."""
    maps = json.loads(setting.run("maps", "--json").stdout)["maps"]
    check(sorted(m["name"] for m in maps) == sorted(PROVED + ELSEWHERE), "other maps than those with a proof")


@case(first=(2, 15))
def case_map_logits_torchtitan(setting):
    from torchtitan_models import SUBJECTS
    for label, make in SUBJECTS.items():
        check_trainer(setting, label, make(libraries()))


def save_text(setting, name, config, dtype, **options):
    """The text model of a model that also takes images, under the names of the whole."""
    folder = setting.path(name)
    torch.manual_seed(1)
    model = transformers().AutoModelForImageTextToText.from_config(config).to(dtype)
    text = {key: tensor for key, tensor in model.state_dict().items() if "language_model." in key}
    model.save_pretrained(folder, state_dict=text, **options)
    return folder


@case(first=(2, 15))
def case_map_logits_torchtitan_llama4(setting):
    from torchtitan_llama4_models import LLAMA4
    for label, make in LLAMA4.items():
        subject, source = make(libraries()), setting.path(label + "-dcp")
        run_ranks(RANKS, rank_save, source, subject.model.state_dict(), "all")
        folder, base = check_export(setting, label, source, subject, save=save_text)
        check_by_map(setting, label, source, subject, folder, base)
        # The whole model, which then lacks only what computes on images.
        transformers().utils.logging.set_verbosity_error()
        whole, info = transformers().AutoModelForImageTextToText.from_pretrained(
            folder, dtype=torch.float32, attn_implementation="eager", output_loading_info=True)
        check(all(key.startswith(("vision_model.", "multi_modal_projector.")) for key in info["missing_keys"]) and
              not info["unexpected_keys"] and not info["mismatched_keys"], "loads: %r" % (info,))
        tokens = make_tokens(subject.config.get_text_config().vocab_size)
        apart = difference(logits_of(whole.eval(), tokens), subject.logits(tokens))
        check(apart <= TOLERANCE, "%s: logits of the whole model differ by %.1e of the largest" % (label, apart))


@case(first=(2, 15))
def case_map_logits_torchtune(setting):
    from trainer_models import TORCHTUNE
    for label, make in TORCHTUNE.items():
        check_trainer(setting, label, make(libraries()))


@case(first=(2, 15))
def case_map_logits_litgpt(setting):
    from trainer_models import LITGPT
    for label, make in LITGPT.items():
        check_trainer(setting, label, make(libraries()))


@case(first=(2, 15))
def case_map_logits_meta(setting):
    """Meta's model reads the files of 1, 2 and 4 ranks, transformers' model what is made of them."""
    for ranks, heads, kv_heads, scaled in ((1, 4, 2, False), (2, 4, 2, True), (4, 4, 4, False)):
        label = "meta-%d-ranks" % ranks
        subject = MetaSubject(libraries(), setting.path(label + "-pth"), make_params(heads, kv_heads, 6, scaled), ranks)
        check_export(setting, label, setting.path(label + "-pth"), subject)


def check_families(setting, families):
    """families: [(model type, map, whether the output projection is tied)]"""
    libraries()
    subjects = {family: make_subject(family, name, tied) for family, name, tied in families}
    run_ranks(RANKS, save_models, setting.path("dcp"), {
        family: (subject.model.state_dict(), {name for name, _ in subject.model.named_parameters()})
        for family, subject in subjects.items()})
    for family, subject in subjects.items():
        fused = [name for name in subject.model.state_dict() if ".experts." in name]
        check_export(setting, family, setting.path("dcp/" + family), subject, fused)


@case(first=(2, 15))
def case_map_logits_transformers_experts(setting):
    check_families(setting, [(family, "transformers-5-experts", family == "qwen3_moe") for family in EXPERTS])


@case(first=(2, 15))
def case_map_logits_transformers_others(setting):
    check_families(setting, [(family, "transformers-5-mixtral", False) for family in MIXTRAL] +
                   [(family, "transformers-5-" + family.replace("_", "-"), False) for family in OTHERS])
