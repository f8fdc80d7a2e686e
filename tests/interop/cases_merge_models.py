"""--merge-adapter and --part adapter against PEFT with models of other kinds: tied output projections that the files lack,
encoders and decoders, nn.MultiheadAttention."""

import copy
import os
import shutil
import warnings

import torch
from safetensors.torch import load_file, save_file

from cases_merge import check_merged, merge_by_peft, run_merge, save_adapter, save_base, set_adapter_values, tied_names
from peft_models import import_peft, make_gpt2, make_llama
from support import BAD_INPUT, UNSUPPORTED, case, check, check_nothing_at, load_hf

SMALL = {"hidden_size": 32, "num_attention_heads": 2, "vocab_size": 64}


def make_t5():
    _, transformers = import_peft()
    return transformers.T5ForConditionalGeneration(transformers.T5Config(
        d_model=32, d_kv=8, d_ff=48, num_layers=3, num_decoder_layers=3, num_heads=4, vocab_size=64))


def make_whisper():
    _, transformers = import_peft()
    return transformers.WhisperForConditionalGeneration(transformers.WhisperConfig(
        d_model=32, encoder_layers=2, decoder_layers=2, encoder_attention_heads=2, decoder_attention_heads=2, encoder_ffn_dim=48,
        decoder_ffn_dim=48, vocab_size=64, num_mel_bins=8, max_source_positions=16, max_target_positions=16, pad_token_id=0,
        bos_token_id=1, eos_token_id=2, decoder_start_token_id=1, suppress_tokens=None, begin_suppress_tokens=None))


def make_bert(kind="Bert"):
    _, transformers = import_peft()
    config = getattr(transformers, kind + "Config")(
        **SMALL, num_hidden_layers=2, intermediate_size=48, max_position_embeddings=16, pad_token_id=1)
    return getattr(transformers, kind + "ForMaskedLM")(config)


def make_gemma3n():
    """The last two of six layers use keys and values of others."""
    _, transformers = import_peft()
    return transformers.Gemma3nForCausalLM(transformers.Gemma3nTextConfig(
        vocab_size=64, vocab_size_per_layer_input=64, hidden_size=32, hidden_size_per_layer_input=8, intermediate_size=[48] * 6,
        num_hidden_layers=6, num_attention_heads=4, num_key_value_heads=2, head_dim=8, sliding_window=8, laurel_rank=4,
        altup_num_inputs=2, num_kv_shared_layers=2, layer_types=["sliding_attention", "full_attention"] * 3,
        activation_sparsity_pattern=[0.0] * 6, max_position_embeddings=32))


def make_tied():
    return make_llama(tie_word_embeddings=True)


class Attention(torch.nn.Module):
    def __init__(self, bias=True):
        super().__init__()
        self.lin = torch.nn.Linear(32, 32)
        self.attn = torch.nn.MultiheadAttention(32, 4, bias=bias, batch_first=True)

    def forward(self, x):
        return self.attn(self.lin(x), x, x)[0]


def make_adapter(setting, name, base, options):
    """The model with an adapter, and PEFT's folder of it."""
    peft, _ = import_peft()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = peft.get_peft_model(copy.deepcopy(base), peft.LoraConfig(r=4, lora_alpha=9, **copy.deepcopy(options)))
    set_adapter_values(model, 1)
    return model, save_adapter(model, setting.path(name + "-adapter"))


def check_extracted(setting, name, model, truth):
    """--part adapter of the whole state: the tensors that PEFT saves, no more and no less."""
    torch.save({"model": model.state_dict()}, setting.path(name + ".pt"))
    config = os.path.join(truth, "adapter_config.json")
    _, found = setting.consolidate(setting.path(name + ".pt"), name + "-part", "--part", "adapter", "--adapter-config", config)
    found, saved = (load_file(os.path.join(folder, "adapter_model.safetensors")) for folder in (found, truth))
    check(set(found) == set(saved), "%s: more %s, less %s" % (name, set(found) - set(saved), set(saved) - set(found)))
    check(all(torch.equal(found[key], saved[key]) for key in saved), name)


# Model, options, whether the output has two weights where the base model has one, whether a warning names the tie.
TIED = {
    "head": (make_tied, {"target_modules": ["q_proj", "lm_head"]}, False, True),
    "head-tied": (make_tied, {"target_modules": ["q_proj", "lm_head"], "ensure_weight_tying": True}, False, True),
    "embedding-tied": (make_tied, {"target_modules": ["q_proj", "embed_tokens"], "ensure_weight_tying": True}, False, True),
    "saved-head": (make_tied, {"target_modules": ["q_proj"], "modules_to_save": ["lm_head"]}, True, True),
    "saved-both": (make_tied, {"target_modules": ["q_proj"], "modules_to_save": ["lm_head", "embed_tokens"]}, True, True),
    "saved-tied": (make_tied, {"target_modules": ["q_proj"], "modules_to_save": ["lm_head"], "ensure_weight_tying": True}, False, False),
    "head-saved-embedding": (make_tied, {"target_modules": ["q_proj", "lm_head"], "modules_to_save": ["embed_tokens"]}, True, True),
    "embedding-saved-head": (make_tied, {"target_modules": ["q_proj", "embed_tokens"], "modules_to_save": ["lm_head"]}, True, True),
    "tokens": (make_tied, {"target_modules": ["q_proj"], "trainable_token_indices": [1, 5]}, False, False),
    "tokens-head": (make_tied, {"target_modules": ["q_proj"], "trainable_token_indices": {"lm_head": [1, 5]}}, False, True),
    "tokens-both": (make_tied, {"target_modules": ["q_proj"],
                                "trainable_token_indices": {"lm_head": [1, 5], "embed_tokens": [1, 5]}}, False, False),
    "tokens-differ": (make_tied, {"target_modules": ["q_proj"],
                                  "trainable_token_indices": {"lm_head": [2, 5], "embed_tokens": [1, 5]}}, False, True),
    "untied-tokens": (make_llama, {"target_modules": ["q_proj"],
                                   "trainable_token_indices": {"lm_head": [1, 5], "embed_tokens": [1, 5]}}, False, False),
    "gpt2": (make_gpt2, {"target_modules": ["c_attn", "c_proj", "lm_head"], "fan_in_fan_out": True}, False, True),
    "whisper": (make_whisper, {"target_modules": ["q_proj", "proj_out"]}, False, True),
    "whisper-tokens": (make_whisper, {"target_modules": ["q_proj"], "trainable_token_indices": [1, 5]}, False, False),
    "bert": (make_bert, {"target_modules": ["query", "decoder"], "bias": "all"}, False, True),
    "bert-saved": (make_bert, {"target_modules": ["query"], "modules_to_save": ["predictions"]}, True, True),
    "roberta": (lambda: make_bert("Roberta"), {"target_modules": ["query", "decoder"]}, False, True),
    "t5": (make_t5, {"target_modules": ["q", "lm_head"]}, False, True),
    "t5-shared": (make_t5, {"target_modules": ["q", "shared"]}, False, True),
    "t5-tokens": (make_t5, {"target_modules": ["q"], "trainable_token_indices": {"shared": [1, 5]}}, False, False)}


@case(first=(2, 15))
def case_merge_tied_models(setting):
    """Base models as transformers saves them, without the names of tied weights: the output makes the model of merge_and_unload."""
    for name, (make, options, unties, warns) in TIED.items():
        torch.manual_seed(2)
        base = make().to(torch.bfloat16)
        model, truth = make_adapter(setting, name, base, options)
        expected = merge_by_peft(base, [truth])
        base.save_pretrained(setting.path(name + "-base"))
        done, out = run_merge(setting, setting.path(name + "-base"), name + "-out", [truth])
        found = load_hf(out)[0]
        before = load_file(os.path.join(setting.path(name + "-base"), "model.safetensors"))
        check((len(found) > len(before)) == unties, "%s: %s" % (name, set(found) - set(before)))
        check_merged(found, {key: expected[key] for key in found}, name)
        loaded = type(base).from_pretrained(out, dtype=torch.bfloat16)
        check_merged(loaded.state_dict(), expected, name + " loaded")
        check(("LORA-TIED" in done.stderr) == warns, "%s: %s" % (name, done.stderr))
        check_extracted(setting, name, model, truth)


@case(first=(2, 15))
def case_merge_saved_embedding(setting):
    """PEFT unties the embedding: the model gets an output projection with the old values, whose name no file has."""
    for name, make, module, head in (("llama", make_tied, "embed_tokens", "lm_head"), ("t5", make_t5, "shared", "lm_head"),
                                     ("bert", make_bert, "word_embeddings", "cls.predictions.decoder")):
        torch.manual_seed(2)
        base = make()
        _, truth = make_adapter(setting, name, base, {"target_modules": ["q_proj", "q", "query"], "modules_to_save": [module]})
        merged = merge_by_peft(base, [truth])
        check(merged[head + ".weight"].equal(base.state_dict()[head + ".weight"]), name + ": PEFT changed both")
        base.save_pretrained(setting.path(name + "-base"))
        done, out = run_merge(setting, setting.path(name + "-base"), name + "-out", [truth], expected=UNSUPPORTED)
        check("LORA-TIED" in done.stderr and module + ".weight" in done.stderr, done.stderr)
        check_nothing_at(out)


@case(first=(2, 15))
def case_merge_saved_shared(setting):
    """Of T5, PEFT trains a copy of "shared" that neither encoder nor decoder uses. With an output projection beside it, both weights
    have names in the files, and the embedding of the encoder has none."""
    torch.manual_seed(2)
    base = make_t5()
    base.save_pretrained(setting.path("base"))
    for saved, expected in ((["shared", "lm_head"], UNSUPPORTED), (["shared", "lm_head", "embed_tokens"], 0)):
        name = "%d" % len(saved)
        _, truth = make_adapter(setting, name, base, {"target_modules": ["q"], "modules_to_save": saved})
        merged = merge_by_peft(base, [truth])
        keeps = merged["encoder.embed_tokens.weight"].equal(base.state_dict()["shared.weight"])
        check(keeps == (expected != 0) and not merged["shared.weight"].equal(base.state_dict()["shared.weight"]), str(saved))
        done, out = run_merge(setting, setting.path("base"), name + "-out", [truth], expected=expected)
        if expected == 0:
            found = load_hf(out)[0]
            check_merged(found, {key: merged[key] for key in found}, str(saved))
            continue
        check("LORA-TIED" in done.stderr and "shared.weight" in done.stderr, done.stderr)
        check_nothing_at(out)


# Options, whether a warning names the tie where both weights are equal, and where they differ.
PAIRS = {
    "head": ({"target_modules": ["q_proj", "lm_head"]}, True, True),
    "embedding": ({"target_modules": ["q_proj", "embed_tokens"]}, True, True),
    "both": ({"target_modules": ["q_proj", "embed_tokens", "lm_head"]}, True, True),
    "head-tied": ({"target_modules": ["q_proj", "lm_head"], "ensure_weight_tying": True}, True, True),
    "embedding-tied": ({"target_modules": ["q_proj", "embed_tokens"], "ensure_weight_tying": True}, True, True),
    "saved-head": ({"target_modules": ["q_proj"], "modules_to_save": ["lm_head"]}, True, True),
    "saved-embedding": ({"target_modules": ["q_proj"], "modules_to_save": ["embed_tokens"]}, True, True),
    "saved-both": ({"target_modules": ["q_proj"], "modules_to_save": ["embed_tokens", "lm_head"]}, True, True),
    "head-saved-embedding": ({"target_modules": ["q_proj", "lm_head"], "modules_to_save": ["embed_tokens"]}, True, True),
    "saved-tied": ({"target_modules": ["q_proj"], "modules_to_save": ["embed_tokens"], "ensure_weight_tying": True}, False, False),
    "neither": ({"target_modules": ["q_proj"]}, False, False),
    "tokens": ({"target_modules": ["q_proj"], "trainable_token_indices": [1, 5]}, False, False),
    "tokens-head": ({"target_modules": ["q_proj"], "trainable_token_indices": {"lm_head": [1, 5]}}, True, True),
    "tokens-both": ({"target_modules": ["q_proj"], "trainable_token_indices": {"lm_head": [1, 5], "embed_tokens": [1, 5]}}, False, False),
    "tokens-differ": ({"target_modules": ["q_proj"], "trainable_token_indices": {"lm_head": [2, 5], "embed_tokens": [1, 5]}}, True, False)}


def save_pair(setting, make, name, more):
    """A folder of a tied model that has both weights, equal or not, and the model that transformers makes of it."""
    torch.manual_seed(2)
    base = make().to(torch.bfloat16)
    folder = setting.path(name + "-base")
    base.save_pretrained(folder)
    weights = load_file(os.path.join(folder, "model.safetensors"))
    weights["lm_head.weight"] = weights["model.embed_tokens.weight"] + more
    save_file(weights, os.path.join(folder, "model.safetensors"), {"format": "pt"})
    return type(base).from_pretrained(folder, dtype=torch.bfloat16)


@case(first=(2, 15))
def case_merge_tied_pairs(setting):
    """A folder with both of two tied weights: transformers 5 ties them if they are equal."""
    for name, (options, *warns) in PAIRS.items():
        for kind, more in (("equal", 0), ("differ", 1)):
            what = name + "-" + kind
            base = save_pair(setting, make_tied, what, more)
            check((base.lm_head.weight is base.model.embed_tokens.weight) == (kind == "equal"), what + ": transformers ties by other rules")
            _, truth = make_adapter(setting, what, base, options)
            expected = merge_by_peft(base, [truth])
            done, out = run_merge(setting, setting.path(what + "-base"), what + "-out", [truth])
            check_merged(load_hf(out)[0], expected, what)
            loaded = type(base).from_pretrained(out, dtype=torch.bfloat16)
            check_merged(loaded.state_dict(), expected, what + " loaded")
            check(("LORA-TIED" in done.stderr) == warns[kind == "differ"], "%s: %s" % (what, done.stderr))
            check(("but the base model has both and they differ" in done.stderr) == (warns[1] and kind == "differ"), done.stderr)


@case(first=(2, 15))
def case_merge_tied_inside(setting):
    """A sharded state has both of two tied weights: config.json in the folder or around it tells; without one, the user is told."""
    import torch.distributed.checkpoint as dcp
    for name in ("head", "embedding", "both", "neither"):
        torch.manual_seed(2)
        base = make_tied().to(torch.bfloat16)
        model, truth = make_adapter(setting, name, base, PAIRS[name][0])
        expected = merge_by_peft(base, [truth])
        for where in ("in", "around", "nowhere"):
            folder = setting.path("%s-%s/step" % (name, where))
            dcp.save({"model": model.state_dict()}, checkpoint_id=folder, no_dist=True)
            if where != "nowhere":
                base.config.save_pretrained(folder if where == "in" else os.path.dirname(folder))
            config = ("--adapter-config", os.path.join(truth, "adapter_config.json"))
            done, out = run_merge(setting, folder, "%s-%s-out" % (name, where), ["self"], *config)
            untold = name != "neither" and where == "nowhere"
            skipped = {"head": ["model.embed_tokens.weight"], "embedding": ["lm_head.weight"],
                       "both": ["model.embed_tokens.weight", "lm_head.weight"]}[name] if untold else []
            found = load_hf(out)[0]
            check_merged({key: found[key] for key in found if key not in skipped},
                         {key: expected[key] for key in expected if key not in skipped}, "%s %s" % (name, where))
            check(("LORA-TIED" in done.stderr) == (name != "neither"), "%s %s: %s" % (name, where, done.stderr))
            check(("no config.json says" in done.stderr) == untold, "%s %s: %s" % (name, where, done.stderr))


def make_qwen2():
    """Biases of the three first projections alone, which are square."""
    _, transformers = import_peft()
    return transformers.Qwen2ForCausalLM(transformers.Qwen2Config(**SMALL, num_hidden_layers=2, num_key_value_heads=2, intermediate_size=48))


def make_square():
    return torch.nn.ModuleDict({"layers": torch.nn.ModuleList(torch.nn.Linear(32, 32) for _ in range(2))})


@case(first=(2, 15))
def case_merge_square(setting):
    """All adapted weights are square, and no adapter_config.json: the weights around them show whether they are of Conv1D."""
    for name, make, targets in (("gpt2", make_gpt2, ["attn.c_proj"]), ("bert", make_bert, ["query", "attention.output.dense"]),
                                ("qwen2", make_qwen2, ["q_proj", "k_proj"]), ("llama", make_llama, ["q_proj"]),
                                ("square", make_square, ["layers.1"])):
        torch.manual_seed(2)
        base = make()
        for dora in (False, True):
            what = "%s-%d" % (name, dora)
            model, truth = make_adapter(setting, what, base, {"target_modules": targets, "use_dora": dora})
            source = save_base(base, setting.path(what + "-base"))
            expected = merge_by_peft(base, [truth])
            adapter = setting.path(what + ".safetensors")
            shutil.copy(os.path.join(truth, "adapter_model.safetensors"), adapter)
            whole = setting.path(what + ".pt")
            torch.save({"model": model.state_dict()}, whole)
            for where, *arguments in (("beside", source, adapter), ("inside", whole, "self")):
                known = name != "square"
                done, out = run_merge(setting, arguments[0], "%s-%s" % (what, where), arguments[1:], "--lora-alpha", "9",
                                      expected=0 if known else BAD_INPUT)
                if known:
                    check_merged(load_hf(out)[0], expected, "%s %s" % (what, where), 8 if dora else 0, tied_names(base))
                else:
                    check("LORA-SHAPE" in done.stderr and "--adapter-config" in done.stderr, done.stderr)
                    check_nothing_at(out)
            # The config of the training decides.
            _, out = run_merge(setting, source, what + "-config", [truth])
            check_merged(load_hf(out)[0], expected, what + " config", 8 if dora else 0, tied_names(base))


@case(first=(2, 15))
def case_merge_layers(setting):
    """layers_to_transform: the first index of a path is that of the layer, also in encoder.block.1.layer.0."""
    for name, layers in (("one", [1]), ("two", [0, 2])):
        torch.manual_seed(2)
        base = make_t5()
        model, truth = make_adapter(setting, name, base, {"target_modules": ["q", "wi"], "layers_to_transform": layers})
        expected = merge_by_peft(base, [truth])
        base.save_pretrained(setting.path(name + "-base"))
        _, out = run_merge(setting, setting.path(name + "-base"), name + "-out", [truth])
        found = load_hf(out)[0]
        check_merged(found, {key: expected[key] for key in found}, name)
        check_extracted(setting, name, model, truth)
        setting.run("verify", truth)


@case(first=(2, 15))
def case_merge_multihead(setting):
    """PEFT adds the product of out_proj twice, in each forward pass of the training too."""
    every = ({"target_modules": ["attn"]}, {"target_modules": ["attn"], "bias": "all"}, {"target_modules": ["attn"], "bias": "lora_only"},
             {"target_modules": ["attn", "lin"], "rank_pattern": {"attn": 2}, "alpha_pattern": {"attn": 3}},
             {"target_modules": ["attn", "lin"], "rank_pattern": {"out_proj": 2}}, {"target_modules": ["attn.out_proj", "lin"]})
    for i, options in enumerate(every):
        for dtype in (torch.float32, torch.bfloat16):
            for safe in (False, True):
                name = "%d-%s-%d" % (i, str(dtype)[6:], safe)
                torch.manual_seed(2)
                base = Attention(bias="bias" in options).to(dtype)
                model, truth = make_adapter(setting, name, base, options)
                source = save_base(base, setting.path(name + "-base"))
                _, out = run_merge(setting, source, name + "-out", [truth], *(["--merge-safe"] if safe else []))
                check_merged(load_hf(out)[0], merge_by_peft(base, [truth], safe), "%s %s" % (name, options))
                check_extracted(setting, name, model, truth)
                setting.run("verify", truth)
    base = Attention()
    model, truth = make_adapter(setting, "bias", base, {"target_modules": ["attn"], "lora_bias": True})
    done, out = run_merge(setting, save_base(base, setting.path("bias-base")), "bias-out", [truth], expected=UNSUPPORTED)
    check("LORA-KIND" in done.stderr, done.stderr)
    check_nothing_at(out)


@case(first=(2, 15))
def case_merge_multihead_lost(setting):
    """An adapter that lost one of three modules."""
    torch.manual_seed(2)
    base = torch.nn.ModuleDict({"layers": torch.nn.ModuleList(Attention() for _ in range(3))})
    _, truth = make_adapter(setting, "lost", base, {"target_modules": ["attn", "lin"]})
    source = save_base(base, setting.path("base"))
    run_merge(setting, source, "whole", [truth])
    file = os.path.join(truth, "adapter_model.safetensors")
    tensors = load_file(file)
    left = {key: tensor for key, tensor in tensors.items() if "layers.1.attn" not in key}
    check(len(left) < len(tensors), sorted(tensors))
    save_file(left, file, {"format": "pt"})
    done, out = run_merge(setting, source, "never", [truth], expected=BAD_INPUT)
    check("LORA-PAIR" in done.stderr and "'layers.1.attn'" in done.stderr, done.stderr)
    check_nothing_at(out)


@case(first=(2, 15))
def case_merge_shared_values(setting):
    """Released files of Gemma 3n have weights for keys and values of all layers; the model, and so PEFT's adapter, has not."""
    torch.manual_seed(2)
    base = make_gemma3n()
    model, truth = make_adapter(setting, "shared", base, {"target_modules": ["q_proj", "k_proj", "v_proj"]})
    expected = merge_by_peft(base, [truth])
    source = setting.path("base")
    base.save_pretrained(source)
    weights = load_file(os.path.join(source, "model.safetensors"))
    check("model.layers.4.self_attn.k_proj.weight" not in weights, "the model has keys of its own in each layer")
    more = {name.replace("layers.0", "layers.%d" % layer): tensor.clone() for name, tensor in weights.items() for layer in (4, 5)
            if name.startswith("model.layers.0.self_attn") and name.split(".")[4] in ("k_proj", "v_proj", "k_norm")}
    for name, extra in (("own", {}), ("released", more)):
        save_file({**weights, **extra}, os.path.join(source, "model.safetensors"), {"format": "pt"})
        done, out = run_merge(setting, source, name, [truth])
        found = load_hf(out)[0]
        check_merged({key: found[key] for key in weights}, {key: expected[key] for key in weights}, name)
        check("EXPORT-KEYS" not in done.stderr, done.stderr)
    # A layer before them that lost its adapter is still found.
    tensors = load_file(os.path.join(truth, "adapter_model.safetensors"))
    save_file({key: tensor for key, tensor in tensors.items() if "layers.3.self_attn.k_proj" not in key},
              os.path.join(truth, "adapter_model.safetensors"), {"format": "pt"})
    done, _ = run_merge(setting, source, "never", [truth], expected=BAD_INPUT)
    check("LORA-PAIR" in done.stderr and "layers.3.self_attn.k_proj" in done.stderr, done.stderr)
