"""--merge-adapter against merge_and_unload of PEFT, bit for bit: adapters in sharded states and beside a base model."""

import copy
import json
import os
import shutil
import warnings
from functools import partial

import torch
from safetensors.torch import load_file, save_file

from cases_lora import bare, flat_model, rank_save_dcp, rank_save_files, under_model
from peft_models import LORA, VARIANTS, import_peft, make_base, make_gpt2, make_llama, make_moe, make_peft
from process_group import run_ranks
from support import BAD_INPUT, UNSUPPORTED, USAGE, case, check, check_nothing_at, check_same_names, load_hf

# Larger than the smallest shapes, whose products other code of torch computes, in another order.
WIDE = {"hidden_size": 64, "intermediate_size": 160, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 320}
# torch's norms add in an order of their own, and convolutions too; no element may be further away than this.
ULPS = {"float32": 8, "bfloat16": 1, "float16": 1}


def save_adapter(model, folder):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.save_pretrained(folder)
    return folder


def save_base(model, folder):
    os.makedirs(folder, exist_ok=True)
    state = {name: tensor.contiguous().clone() for name, tensor in model.state_dict().items()}
    save_file(state, os.path.join(folder, "model.safetensors"), {"format": "pt"})
    return folder


def unload(model):
    return copy.deepcopy(model).unload()


def merge_by_peft(base, folders, safe=False):
    """The state after merging the adapters of these folders in order, each loaded as users load it."""
    peft, _ = import_peft()
    names = ["a%d" % i for i in range(len(folders))]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = peft.PeftModel.from_pretrained(copy.deepcopy(base), folders[0], adapter_name=names[0])
        for name, folder in zip(names[1:], folders[1:]):
            model.load_adapter(folder, adapter_name=name)
        return model.merge_and_unload(safe_merge=safe, adapter_names=names).state_dict()


def ordered(tensor):
    """Integers in the order of the floats, neighbours one apart."""
    kind, sign = (torch.int32, 31) if tensor.dtype == torch.float32 else (torch.int16, 15)
    bits = tensor.contiguous().view(kind).long()
    return torch.where(bits < 0, (-1 << sign) - bits, bits)


def check_merged(found, expected, what, ulps=0, without=()):
    """Names, dtypes, shapes, and values within so many units in the last place. Returns how many differ."""
    expected = {name: tensor for name, tensor in expected.items() if name not in without}
    found = {name: tensor for name, tensor in found.items() if name not in without}
    check_same_names(found, expected, what)
    different = 0
    for name, tensor in expected.items():
        check((found[name].dtype, found[name].shape) == (tensor.dtype, tensor.shape), "%s: '%s' is %s %s" % (
            what, name, found[name].dtype, tuple(found[name].shape)))
        distance = (ordered(found[name]) - ordered(tensor)).abs()
        check(int(distance.max()) <= ulps, "%s: '%s' differs in %d elements, by at most %d ulp" % (
            what, name, int((distance > 0).sum()), int(distance.max())))
        different += int((distance > 0).sum())
    return different


def tied_names(model):
    """A sharded state has both names of tied weights, but does not show that they are tied."""
    return ["lm_head.weight"] if getattr(getattr(model, "config", None), "tie_word_embeddings", False) else []


def run_merge(setting, source, target, adapters, *options, expected=0):
    for adapter in adapters:
        options += ("--merge-adapter", adapter)
    done, path = setting.consolidate(source, target, "--format", "hf", *options, expected=expected)
    return done, path


def ulps_of(name):
    return 64 if "conv" in name else ULPS[VARIANTS[name][2]] if "dora" in name else 0


def check_variant(setting, name, world_size, files):
    model = make_peft(name)
    truth = save_adapter(model, setting.path(name + "-adapter"))
    base = unload(model)
    expected = merge_by_peft(base, [truth])
    beside = save_base(base, setting.path(name + "-base"))
    _, out = run_merge(setting, beside, name + "-beside", [truth])
    check_merged(load_hf(out)[0], expected, name + " beside", ulps_of(name), tied_names(base))
    sharded = setting.path("%s-w%d" % (name, world_size))
    if files:
        run_ranks(world_size, rank_save_files, sharded, partial(make_peft, name))
    else:
        wrap = (bare, flat_model, under_model)[world_size % 3]
        run_ranks(world_size, rank_save_dcp, sharded, partial(make_peft, name), True, wrap)
    done, out = run_merge(setting, sharded, name + "-inside", ["self"], "--adapter-config", os.path.join(truth, "adapter_config.json"))
    check_merged(load_hf(out)[0], expected, name + " inside", ulps_of(name), tied_names(base))
    check("merged: adapter default, " in done.stdout, done.stdout)


def variants_of(part):
    return [name for i, name in enumerate(VARIANTS) if i % 3 == part]


@case(first=(2, 15))
def case_merge_variants_2_ranks(setting):
    for i, name in enumerate(variants_of(0)):
        check_variant(setting, name, 2, files=i % 3 == 2)


@case(first=(2, 15))
def case_merge_variants_3_ranks(setting):
    for i, name in enumerate(variants_of(1)):
        check_variant(setting, name, 3, files=i % 3 == 2)


@case(first=(2, 15))
def case_merge_variants_4_ranks(setting):
    for i, name in enumerate(variants_of(2)):
        check_variant(setting, name, 4, files=i % 3 == 2)


def set_adapter_values(model, seed):
    """Of the size that a training leaves."""
    random = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, tensor in model.named_parameters():
            if "lora_magnitude" in name:
                tensor.mul_(1 + 0.1 * torch.rand(tensor.shape, generator=random).to(tensor.dtype))
            elif "lora_" in name or "modules_to_save" in name or "trainable_tokens" in name:
                tensor.copy_(torch.randn(tensor.shape, generator=random) * 0.05)


def make_wide(kind, dtype):
    torch.manual_seed(1)
    model = {"llama": lambda: make_llama(**WIDE), "moe": make_moe, "gpt2": make_gpt2}[kind]()
    return model.to(getattr(torch, dtype))


ALL = ["q_proj", "v_proj", "down_proj"]
# kind of model, options of each adapter, --merge-safe
SETTINGS = (
    [("llama", [{"r": rank, "lora_alpha": 2 * rank, "target_modules": ALL}], False) for rank in (4, 8, 16, 32, 64, 128)] +
    [("llama", [{"r": 16, "lora_alpha": 20, "use_rslora": True, "target_modules": ALL}], False),
     ("llama", [{"r": 16, "lora_alpha": 20, "target_modules": ALL}], True),
     ("llama", [{"r": 8, "lora_alpha": 20, "target_modules": ALL, "rank_pattern": {"layers.0.self_attn.q_proj": 4},
                 "alpha_pattern": {"v_proj": 7}}], False),
     ("llama", [{"r": 8, "lora_alpha": 20, "target_modules": ["q_proj", "embed_tokens", "lm_head"]}], False),
     ("llama", [{"r": 8, "lora_alpha": 20, "target_modules": ["q_proj", "embed_tokens"]}], True),
     ("llama", [{"r": 8, "lora_alpha": 20, "target_modules": ["q_proj"], "modules_to_save": ["lm_head", "norm"]}], False),
     ("llama", [{"r": 8, "lora_alpha": 20, "target_modules": ["q_proj"], "trainable_token_indices": [5, 300, 17]}], False),
     ("llama", [{"r": 8, "lora_alpha": 20, "target_modules": ["q_proj"],
                 "trainable_token_indices": {"embed_tokens": [5, 17]}}], False),
     ("llama", [{"r": 8, "lora_alpha": 20, "target_modules": ["q_proj", "v_proj"]},
                {"r": 4, "lora_alpha": 4, "target_modules": ["q_proj", "o_proj"]},
                {"r": 2, "lora_alpha": 3, "target_modules": ["q_proj"]}], False),
     ("llama", [{"r": 8, "lora_alpha": 20, "target_modules": ["v_proj"], "target_parameters": ["q_proj.weight"]}], False),
     ("gpt2", [{"r": 8, "lora_alpha": 20, "target_modules": ["c_attn", "c_proj", "c_fc"]}], False),
     ("gpt2", [{"r": 8, "lora_alpha": 20, "lora_bias": True, "target_modules": ["c_attn", "c_proj"]}], True),
     ("gpt2", [{"r": 8, "lora_alpha": 20, "bias": "all", "target_modules": ["c_attn"]}], False),
     ("moe", [{"r": 8, "lora_alpha": 20, "target_modules": ["q_proj"],
               "target_parameters": ["mlp.experts.gate_up_proj", "mlp.experts.down_proj"]}], False)])
DORA = (("llama", {"r": 8, "lora_alpha": 20, "use_dora": True, "target_modules": ALL + ["embed_tokens"]}),
        ("gpt2", {"r": 8, "lora_alpha": 20, "use_dora": True, "target_modules": ["c_attn", "c_proj"]}))


def save_setting(setting, kind, options, dtype, folder):
    """A base model and adapters. Returns (base, folder of the base, folders of the adapters)."""
    peft, _ = import_peft()
    base = make_wide(kind, dtype)
    adapters = []
    for i, one in enumerate(options):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = peft.get_peft_model(copy.deepcopy(base), peft.LoraConfig(**one))
        set_adapter_values(model, i)
        adapters.append(save_adapter(model, setting.path("%s-a%d" % (folder, i))))
    return base, save_base(base, setting.path(folder)), adapters


def check_settings(setting, dtype):
    for i, (kind, options, safe) in enumerate(SETTINGS):
        what = "%s %s %s" % (kind, dtype, options)
        base, source, adapters = save_setting(setting, kind, options, dtype, "s%d" % i)
        _, out = run_merge(setting, source, "out%d" % i, adapters, *(["--merge-safe"] if safe else []))
        check_merged(load_hf(out)[0], merge_by_peft(base, adapters, safe), what, 0, tied_names(base))
    different = 0
    for i, (kind, options) in enumerate(DORA):
        base, source, adapters = save_setting(setting, kind, [options], dtype, "d%d" % i)
        _, out = run_merge(setting, source, "dora%d" % i, adapters)
        different += check_merged(load_hf(out)[0], merge_by_peft(base, adapters), kind + " DoRA " + dtype, ULPS[dtype], tied_names(base))
    check(dtype == "float32" or different < 40, "%d elements of DoRA differ" % different)


@case(first=(2, 15))
def case_merge_settings_bfloat16(setting):
    check_settings(setting, "bfloat16")


@case(first=(2, 15))
def case_merge_settings_float16(setting):
    check_settings(setting, "float16")


@case(first=(2, 15))
def case_merge_fused_experts(setting):
    """PEFT doubles r and lora_alpha of gate_up_proj for target_modules of experts: lora_alpha alone would halve its scale."""
    peft, _ = import_peft()
    options = {"r": 4, "lora_alpha": 8, "target_modules": ["q_proj", "gate_proj", "up_proj", "down_proj"]}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = peft.get_peft_model(make_wide("moe", "float32"), peft.LoraConfig(**options))
    set_adapter_values(model, 1)
    base = unload(model)
    truth = save_adapter(model, setting.path("truth"))
    config = os.path.join(truth, "adapter_config.json")
    with open(config, encoding="utf-8") as file:
        patterns = json.load(file)
    check((patterns["r"], patterns["rank_pattern"], patterns["alpha_pattern"]) == (
        4, {r".*\.gate_up_proj": 8}, {r".*\.gate_up_proj": 16}), "PEFT: %r" % (patterns,))
    source = setting.path("state.pt")
    torch.save({"model": model.state_dict()}, source)
    for words in (["--part", "adapter"], ["--merge-adapter", "self"]):
        done, _ = setting.consolidate(source, "never", *words, "--lora-alpha", "8", expected=BAD_INPUT)
        check("LORA-CONFIG" in done.stderr and "gate_up_proj" in done.stderr, done.stderr)
        check_nothing_at(setting.path("never"))
    _, out = run_merge(setting, source, "merged", ["self"], "--adapter-config", config)
    check_merged(load_hf(out)[0], merge_by_peft(base, [truth]), "fused experts", 0, tied_names(base))
    _, found = setting.consolidate(source, "adapter", "--part", "adapter", "--adapter-config", config)
    _, out = run_merge(setting, save_base(base, setting.path("base")), "again", [found])
    check_merged(load_hf(out)[0], merge_by_peft(base, [truth]), "fused experts again", 0, tied_names(base))


@case(first=(2, 15))
def case_merge_settings_float32(setting):
    check_settings(setting, "float32")


TIED = ([{"target_modules": ["q_proj"], "modules_to_save": saved} for saved in (["lm_head"], ["embed_tokens"], ["lm_head", "embed_tokens"])] +
        [{"target_modules": ["q_proj", "lm_head"]}, {"target_modules": ["q_proj", "embed_tokens"]},
         {"target_modules": ["q_proj"], "trainable_token_indices": [1, 5]},
         {"target_modules": ["q_proj", "embed_tokens"], "modules_to_save": ["lm_head"]},
         {"target_modules": ["q_proj", "lm_head"], "modules_to_save": ["embed_tokens"]},
         {"target_modules": ["q_proj", "lm_head"], "ensure_weight_tying": True},
         {"target_modules": ["q_proj"], "modules_to_save": ["lm_head"], "ensure_weight_tying": True}])


@case(first=(2, 15))
def case_merge_tied(setting):
    """lm_head and embed_tokens share one storage; a module of modules_to_save has its own, so merging it unties them. PEFT casts the
    factors for a bfloat16 model to float32, after which ensure_weight_tying no longer holds."""
    peft, _ = import_peft()
    for i, options in enumerate(TIED):
        torch.manual_seed(2)
        base = make_llama(tie_word_embeddings=True).to(torch.bfloat16)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = peft.get_peft_model(copy.deepcopy(base), peft.LoraConfig(r=8, lora_alpha=20, **copy.deepcopy(options)))
        set_adapter_values(model, i)
        truth = save_adapter(model, setting.path("t%d" % i))
        expected = merge_by_peft(base, [truth])
        torch.save(model.state_dict(), setting.path("inside%d.pt" % i))
        torch.save(base.state_dict(), setting.path("base%d.pt" % i))
        config = ("--adapter-config", os.path.join(truth, "adapter_config.json"))
        for source, words in (("inside", ("--merge-adapter", "self") + config), ("base", ("--merge-adapter", truth))):
            done, out = setting.consolidate(setting.path("%s%d.pt" % (source, i)), "%s%d-out.pt" % (source, i), *words)
            check_merged(torch.load(out, weights_only=True), expected, "%s %s" % (source, options))
            check(("LORA-TIED" in done.stderr) == (i not in (5, 9)), "%s %s: %s" % (source, options, done.stderr))


@case(first=(2, 15))
def case_merge_tied_folder(setting):
    """A file with both weights of a tied model: transformers ties them again only if both have the trained tokens."""
    peft, transformers = import_peft()
    torch.manual_seed(2)
    base = make_llama(tie_word_embeddings=True).to(torch.bfloat16)
    for i, tokens in enumerate(([1, 5], {"embed_tokens": [1, 5]}, {"embed_tokens": [1, 5], "lm_head": [1, 5]})):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            options = {"r": 8, "lora_alpha": 20, "target_modules": ["q_proj"], "trainable_token_indices": copy.deepcopy(tokens)}
            model = peft.get_peft_model(copy.deepcopy(base), peft.LoraConfig(**options))
        set_adapter_values(model, i)
        truth = save_adapter(model, setting.path("t%d" % i))
        expected = merge_by_peft(base, [truth])
        source = save_base(base, setting.path("base%d" % i))
        base.config.save_pretrained(source)
        done, out = run_merge(setting, source, "out%d" % i, [truth])
        check("LORA-TIED" not in done.stderr, done.stderr)
        check_merged(load_hf(out)[0], expected, "file %s" % tokens)
        loaded = transformers.LlamaForCausalLM.from_pretrained(out)
        check(loaded.lm_head.weight is loaded.model.embed_tokens.weight, "untied by %s" % tokens)
        check_merged(loaded.state_dict(), expected, "loaded %s" % tokens)


@case(first=(2, 15))
def case_merge_views(setting):
    """Two weights that are parts of one storage are not tied."""
    base, source, (adapter,) = save_setting(setting, "llama", [dict(LORA, task_type=None, target_modules=["k_proj"])], "bfloat16", "base")
    state = base.state_dict()
    key, value = ("model.layers.0.self_attn.%s_proj.weight" % name for name in "kv")
    fused = torch.cat([state[key], state[value]])
    state[key], state[value] = fused[:len(fused) // 2], fused[len(fused) // 2:]
    torch.save(state, setting.path("views.pt"))
    _, out = setting.consolidate(setting.path("views.pt"), "out.pt", "--merge-adapter", adapter)
    check_merged(torch.load(out, weights_only=True), merge_by_peft(base, [adapter]), "views")


@case(first=(2, 15))
def case_merge_large_rank(setting):
    """Above 128, torch adds parts of the sum."""
    base, source, adapters = save_setting(setting, "llama", [{"r": 256, "lora_alpha": 16, "target_modules": ALL}], "bfloat16", "s")
    _, out = run_merge(setting, source, "out", adapters)
    check_merged(load_hf(out)[0], merge_by_peft(base, adapters), "rank 256", 1)


@case(first=(2, 15))
def case_merge_reshard(setting):
    """Other sharding, formats and dtypes of the output have the same values."""
    import torch.distributed.checkpoint as dcp
    name = "llama_all"
    model = make_peft(name)
    truth = save_adapter(model, setting.path("adapter"))
    config = ("--adapter-config", os.path.join(truth, "adapter_config.json"))
    base = unload(model)
    expected = merge_by_peft(base, [truth])
    run_ranks(4, rank_save_dcp, setting.path("w4"), partial(make_peft, name), False, under_model)
    setting.run("reshard", setting.path("w4"), setting.path("w3"), "--world-size", 3, "--merge-adapter", "self", *config)
    read = {key: torch.empty_like(tensor) for key, tensor in expected.items()}
    dcp.load(read, checkpoint_id=setting.path("w3"), no_dist=True)
    check_merged(read, expected, "resharded")
    _, path = setting.consolidate(setting.path("w4"), "cast.pt", "--merge-adapter", "self", "--dtype", "fp32", *config)
    check_merged(torch.load(path, weights_only=True), merge_by_peft(base.float(), [truth]), "float32")
    base.bfloat16()
    _, path = setting.consolidate(setting.path("w4"), "globs.pt", "--merge-adapter", "self", "--dtype", "*proj*=fp32", *config)
    cast = torch.load(path, weights_only=True)
    check_merged(cast, {key: tensor.float() if "proj" in key else tensor for key, tensor in expected.items()}, "cast of some")
    _, path = setting.consolidate(setting.path("w4"), "small", "--format", "hf", "--merge-adapter", "self", "--max-shard-size", "4K",
                                  "--memory", "16M", "--threads", "1", *config)
    check_merged(load_hf(path)[0], expected, "one thread, little memory")


@case(first=(2, 15))
def case_merge_facts(setting):
    """lora_alpha from the options; the output of another scaling differs."""
    model = make_peft("llama_bf16")
    truth = save_adapter(model, setting.path("adapter"))
    run_ranks(2, rank_save_files, setting.path("files"), partial(make_peft, "llama_bf16"))
    expected = merge_by_peft(unload(model), [truth])
    done, _ = run_merge(setting, setting.path("files"), "none", ["self"], expected=BAD_INPUT)
    check("LORA-CONFIG" in done.stderr, done.stderr)
    check_nothing_at(setting.path("none"))
    _, out = run_merge(setting, setting.path("files"), "given", ["self"], "--lora-alpha", "7.5")
    check_merged(load_hf(out)[0], expected, "lora_alpha")
    _, out = run_merge(setting, setting.path("files"), "other", ["self"], "--lora-alpha", "15")
    check(load_hf(out)[0]["model.layers.0.self_attn.q_proj.weight"].ne(expected["model.layers.0.self_attn.q_proj.weight"]).any(), "same")
    shutil.copy(os.path.join(truth, "adapter_config.json"), setting.path("files"))
    _, out = run_merge(setting, setting.path("files"), "beside", ["self"])
    check_merged(load_hf(out)[0], expected, "config in the folder")


@case(first=(2, 15))
def case_merge_several_inside(setting):
    """Two adapters in one state: each, both in either order."""
    make = partial(make_peft, "llama", ("one", "two"))
    model = make()
    folder = save_adapter(model, setting.path("adapters"))
    run_ranks(3, rank_save_dcp, setting.path("w3"), make, False, under_model)
    base = unload(model)
    done, _ = run_merge(setting, setting.path("w3"), "none", ["self"], "--lora-alpha", "16", expected=USAGE)
    check("self:NAME" in done.stderr, done.stderr)
    _, out = run_merge(setting, setting.path("w3"), "two", ["self:two"], "--adapter-config",
                       os.path.join(folder, "two", "adapter_config.json"))
    check_merged(load_hf(out)[0], merge_by_peft(base, [os.path.join(folder, "two")]), "two")
    done, _ = run_merge(setting, setting.path("w3"), "three", ["self:three"], "--lora-alpha", "16", expected=USAGE)
    check("no adapter 'three'" in done.stderr, done.stderr)
    beside = save_base(base, setting.path("base"))
    for order in (("one", "two"), ("two", "one")):
        folders = [os.path.join(folder, name) for name in order]
        _, out = run_merge(setting, beside, "-".join(order), folders)
        check_merged(load_hf(out)[0], merge_by_peft(base, folders), str(order))


@case(first=(2, 15))
def case_merge_refused(setting):
    """Adapters that do not fit, or that would be merged wrongly."""
    base, source, (adapter,) = save_setting(setting, "llama", [dict(LORA, task_type=None)], "bfloat16", "base")
    tensors = load_file(os.path.join(adapter, "adapter_model.safetensors"))
    first = sorted(tensors)[0]

    def refused(name, changed, edit, code, status, options=()):
        folder = setting.path(name)
        shutil.copytree(adapter, folder)
        save_file(changed, os.path.join(folder, "adapter_model.safetensors"), {"format": "pt"})
        with open(os.path.join(folder, "adapter_config.json"), encoding="utf-8") as text:
            config = json.load(text)
        config.update(edit)
        with open(os.path.join(folder, "adapter_config.json"), "w", encoding="utf-8") as text:
            json.dump({key: value for key, value in config.items() if value is not None}, text)
        done, out = run_merge(setting, source, name + "-out", [folder], *options, expected=status)
        check(code in done.stderr, "%s: %s" % (name, done.stderr))
        check_nothing_at(out)

    without = {key: value for key, value in tensors.items() if key != first}
    refused("pair", without, {}, "LORA-PAIR", BAD_INPUT)
    refused("module", {key.replace("layers.1", "layers.7"): value for key, value in tensors.items()}, {}, "LORA-BASE", BAD_INPUT)
    refused("extra", {**tensors, "base_model.model.model.lora_of_nobody": torch.zeros(3)}, {}, "LORA-", BAD_INPUT)
    refused("shape", {**tensors, first: torch.zeros(8, 63)}, {}, "LORA-SHAPE", BAD_INPUT)
    refused("rank", tensors, {"r": 4}, "LORA-RANK", BAD_INPUT)
    refused("alpha", tensors, {"lora_alpha": None}, "LORA-CONFIG", BAD_INPUT)
    refused("dora", tensors, {"use_dora": True}, "LORA-PAIR", BAD_INPUT)
    refused("kind", tensors, {"peft_type": "LOHA"}, "LORA-KIND", UNSUPPORTED)
    refused("nan", {**tensors, first: tensors[first].clone().fill_(float("nan"))}, {}, "LORA-NAN", BAD_INPUT, ("--merge-safe",))
    done, _ = run_merge(setting, source, "none", ["self"], "--lora-alpha", "16", expected=USAGE)
    check("contains no adapter" in done.stderr, done.stderr)
    zero = {key: torch.zeros_like(value) if "lora_B" in key else value for key, value in tensors.items()}
    save_file(zero, os.path.join(adapter, "adapter_model.safetensors"), {"format": "pt"})
    done, out = run_merge(setting, source, "zero", [adapter])
    check("LORA-ZERO" in done.stderr, done.stderr)
    check_merged(load_hf(out)[0], base.state_dict(), "zero")
