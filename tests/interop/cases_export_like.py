"""consolidate --like: torchtitan's states in the folders that transformers makes and loads."""

import json
import os
import shutil
import struct
import sys

import torch

from cases_map_trainers import RANKS, rank_save
from process_group import run_ranks
from support import BAD_INPUT, UNSUPPORTED, case, check, check_same_tensors, load_hf
from torchtitan_adapter import LAYERS, VOCABULARY, Sizes, make_adapter, make_state, to_hf

GEOMETRY = {"hidden_size": 16, "intermediate_size": 7, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8,
            "vocab_size": VOCABULARY, "num_hidden_layers": LAYERS}
SIZES = Sizes(4, 2, 8, hidden=16)


def transformers():
    sys.path.insert(0, os.environ["FSDPCK_TRANSFORMERS"])
    os.environ["HF_HUB_OFFLINE"] = "1"
    import transformers as module
    module.utils.logging.disable_progress_bar()
    return module


def save_base(setting, name, config, dtype, **options):
    """A folder that transformers saves, of a model with other values."""
    folder = setting.path(name)
    torch.manual_seed(1)
    transformers().AutoModelForCausalLM.from_config(config).to(dtype).save_pretrained(folder, **options)
    return folder


def header_of(path):
    """[(name, dtype, shape)] in the order of the data."""
    with open(path, "rb") as file:
        header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
    rows = [(t["data_offsets"], n, t["dtype"], t["shape"]) for n, t in header.items() if n != "__metadata__"]
    return [row[1:] for row in sorted(rows)]


def check_same_files(found, base):
    """Files of weights, their tensors in order, the index."""
    names = sorted(n for n in os.listdir(base) if n.endswith(".safetensors"))
    check(sorted(n for n in os.listdir(found) if n.endswith(".safetensors")) == names, "files of weights differ")
    for name in names:
        check(header_of(os.path.join(found, name)) == header_of(os.path.join(base, name)), name + " differs")
    check(load_hf(found)[1] is None or load_hf(found)[1]["weight_map"] == load_hf(base)[1]["weight_map"], "index")


def check_loads(folder, expected, dtype):
    """from_pretrained misses nothing, ignores nothing, and has these values."""
    model, info = transformers().AutoModelForCausalLM.from_pretrained(folder, dtype="auto", output_loading_info=True)
    check(not any(info[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys")), "loads: %r" % (info,))
    check(model.dtype == dtype, "dtype of the model: %s" % model.dtype)
    state = model.state_dict()
    check_same_tensors({name: state[name] for name in expected}, expected, "from_pretrained")
    with torch.no_grad():
        check(bool(torch.isfinite(model(torch.arange(5)[None]).logits).all()), "logits")
    return model


def check_verifies(setting, folder, base, finding=None):
    """verify --like finds nothing, or an error. The values are another model's."""
    done = setting.run("verify", "--strict", folder, "--like", base, "--no-nearness", expected=0 if finding is None else 1)
    check(finding is None or finding in done.stdout, done.stdout)


def make_cache(folder, cache):
    """A snapshot with the links that huggingface_hub makes."""
    transformers()
    from huggingface_hub.file_download import _create_symlink
    repository = os.path.join(cache, "models--org--name")
    blobs, snapshot = os.path.join(repository, "blobs"), os.path.join(repository, "snapshots", "0123456789abcdef" * 2 + "01234567")
    os.makedirs(blobs)
    for root, _, files in os.walk(folder):
        for name in files:
            path = os.path.join(root, name)
            blob, link = os.path.join(blobs, os.urandom(20).hex()), os.path.join(snapshot, os.path.relpath(path, folder))
            os.makedirs(os.path.dirname(link), exist_ok=True)
            shutil.copy(path, blob)
            _create_symlink(blob, link, new_blob=True)
            check(os.path.islink(link) and not os.path.isabs(os.readlink(link)), "no relative link")
    return snapshot


@case(first=(2, 15))
def case_export_like_hub_cache(setting):
    """BASE as snapshot_download leaves it: the output has files of its own, with all chat templates."""
    base = save_base(setting, "base", transformers().LlamaConfig(**GEOMETRY, tie_word_embeddings=False), torch.bfloat16)
    from tokenizers import Tokenizer, models
    tokenizer = transformers().PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.WordLevel({"a": 0, "b": 1}, unk_token="a")))
    tokenizer.chat_template = {"default": "{{ messages }}", "rag": "{{ documents }}"}
    tokenizer.save_pretrained(base)
    check(os.path.exists(os.path.join(base, "additional_chat_templates", "rag.jinja")), "no additional template")
    snapshot = make_cache(base, setting.path("cache"))
    expected = load_hf(base)[0]
    done, found = setting.consolidate(base, "out", "--like", snapshot)
    check("SIDE-UNREAD" not in done.stderr, done.stderr)
    for root, folders, files in os.walk(found):
        check(not any(os.path.islink(os.path.join(root, name)) for name in folders + files), "a link in " + root)
    check_loads(found, expected, torch.bfloat16)
    check(transformers().AutoTokenizer.from_pretrained(found).chat_template == tokenizer.chat_template, "chat templates")
    check_verifies(setting, found, snapshot)


@case(first=(2, 15))
def case_export_like_resized_vocabulary(setting):
    """resize_token_embeddings changes embedding, output projection and config.json."""
    for tied in (False, True):
        config = transformers().LlamaConfig(**GEOMETRY, tie_word_embeddings=tied)
        base = save_base(setting, "base-%s" % tied, config, torch.bfloat16)
        model = transformers().AutoModelForCausalLM.from_pretrained(base, dtype="auto")
        model.resize_token_embeddings(VOCABULARY + 3, mean_resizing=False)
        tuned = setting.path("tuned-%s" % tied)
        model.save_pretrained(tuned)
        done = setting.run("verify", "--json", tuned, "--like", base)
        found = [(f["finding"], f["tensors"]) for f in json.loads(done.stdout)["findings"]]
        names = ["model.embed_tokens.weight", *([] if tied else ["lm_head.weight"])]
        check([(f, sorted(n)) for f, n in found] == [("EXPORT-VOCAB", sorted(names))], "%r" % found)
        setting.run("verify", "--strict", tuned, "--like", base, "--set", "EXPORT-VOCAB=note")
        with open(os.path.join(tuned, "config.json"), encoding="utf-8") as file:
            text = file.read()
        with open(os.path.join(tuned, "config.json"), "w", encoding="utf-8") as file:
            file.write(text.replace('"vocab_size": %d' % (VOCABULARY + 3), '"vocab_size": %d' % VOCABULARY))
        done = setting.run("verify", tuned, "--like", base, expected=1)
        check("EXPORT-SHAPE" in done.stdout and '"vocab_size": %d' % (VOCABULARY + 3) in done.stdout, done.stdout)


@case(first=(2, 15))
def case_map_export_like_llama(setting):
    adapter = make_adapter("llama3", "Llama3StateDictAdapter", SIZES)
    state = make_state(adapter, SIZES, torch.bfloat16)
    expected = to_hf(adapter, state)
    source = setting.path("dcp")
    run_ranks(RANKS, rank_save, source, state, "all")
    config = transformers().LlamaConfig(**GEOMETRY, tie_word_embeddings=False)
    for options in ({}, {"max_shard_size": "2KB"}):
        base = save_base(setting, "base", config, torch.bfloat16, **options)
        done, folder = setting.consolidate(source, "out/", "--like", base)
        check("chosen for model type 'llama'" in done.stdout, "the report names no map")
        check_same_files(folder, base)
        check_loads(folder, expected, torch.bfloat16)
        check_verifies(setting, folder, base)
        check_verifies(setting, base, folder)
        for name in ("config.json", "generation_config.json"):
            with open(os.path.join(base, name), "rb") as one, open(os.path.join(folder, name), "rb") as other:
                check(one.read() == other.read(), name + " was changed")
        shutil.rmtree(base)
        shutil.rmtree(folder)
    # A folder of another dtype, and a dtype of one's own: config.json follows.
    base = save_base(setting, "base", config, torch.float32)
    for dtype, options in ((torch.float32, ()), (torch.float16, ("--dtype", "fp16"))):
        _, folder = setting.consolidate(source, "out/", "--like", base, *options)
        check_loads(folder, {name: tensor.to(dtype) for name, tensor in expected.items()}, dtype)
        shutil.rmtree(folder)
    # A model of other sizes.
    whole = save_base(setting, "whole", config, torch.float32)
    small = save_base(setting, "small", transformers().LlamaConfig(**{**GEOMETRY, "intermediate_size": 8}), torch.float32)
    done = setting.run("consolidate", source, setting.path("no"), "--like", small, expected=BAD_INPUT)
    check("EXPORT-SHAPE" in done.stderr, done.stderr)
    check_verifies(setting, whole, small, "EXPORT-SHAPE")
    few = save_base(setting, "few", transformers().LlamaConfig(**{**GEOMETRY, "num_hidden_layers": 1}), torch.float32)
    done = setting.run("consolidate", source, setting.path("no"), "--like", few, expected=BAD_INPUT)
    check("EXPORT-KEYS" in done.stderr and "model.layers.1." in done.stderr, done.stderr)
    check_verifies(setting, whole, few, "EXPORT-KEYS")
    check_verifies(setting, few, whole, "EXPORT-KEYS")
    # No map leads from these names to another family.
    geometry = {name: number for name, number in GEOMETRY.items() if name != "head_dim"}
    other = save_base(setting, "other", transformers().Qwen2Config(**geometry), torch.float32)
    setting.run("consolidate", source, setting.path("no"), "--like", other, expected=UNSUPPORTED)


@case(first=(2, 15))
def case_map_export_config(setting):
    """--config FILE instead of --like: transformers opens the folder, in the dtype of the weights."""
    adapter = make_adapter("llama3", "Llama3StateDictAdapter", SIZES)
    state = make_state(adapter, SIZES, torch.bfloat16)
    source = setting.path("dcp")
    run_ranks(RANKS, rank_save, source, state, "all")
    base = save_base(setting, "base", transformers().LlamaConfig(**GEOMETRY, tie_word_embeddings=False), torch.float32)
    _, folder = setting.consolidate(source, "out/", "--map", "torchtitan-llama3", "--config", base + "/config.json")
    check(os.path.exists(os.path.join(folder, "generation_config.json")), "no generation_config.json")
    check_loads(folder, to_hf(adapter, state), torch.bfloat16)


@case(first=(2, 15))
def case_map_export_like_tied(setting):
    """Tied in transformers: torchtitan's folder has both names all the same."""
    adapter = make_adapter("qwen3", "Qwen3StateDictAdapter", SIZES)
    state = make_state(adapter, SIZES, torch.bfloat16)
    state = {name: tensor for name, tensor in state.items() if ".moe." not in name}
    state["lm_head.weight"] = state["tok_embeddings.weight"].clone()
    expected = to_hf(adapter, state)
    source = setting.path("dcp")
    run_ranks(RANKS, rank_save, source, state, "all")
    base = save_base(setting, "base", transformers().Qwen3Config(**GEOMETRY, tie_word_embeddings=True), torch.bfloat16)
    check("lm_head.weight" not in load_hf(base)[0], "transformers writes both names")
    done, folder = setting.consolidate(source, "out/", "--like", base)
    check("torchtitan-qwen3" in done.stdout and "lm_head.weight = model.embed_tokens.weight" in done.stdout, done.stdout)
    check_same_files(folder, base)
    model = check_loads(folder, expected, torch.bfloat16)
    check(model.lm_head.weight is model.model.embed_tokens.weight, "the names are not tied")
    check_verifies(setting, folder, base)
    by_map = ["--map", "torchtitan-qwen3", "--config", os.path.join(base, "config.json")]
    done, folder = setting.consolidate(source, "equal/", *by_map)
    check("TIE-DIFFERS" not in done.stderr and "lm_head.weight" in load_hf(folder)[0], done.stderr)
    check("TIE-DIFFERS" not in setting.run("verify", folder, "--level", "checksum").stdout, "equal")
    # One bit of difference is no tie.
    state["lm_head.weight"][-1, -1] *= 2
    shutil.rmtree(source)
    run_ranks(RANKS, rank_save, source, state, "all")
    done, folder = setting.consolidate(source, "differs/", *by_map)
    check("TIE-DIFFERS" in done.stderr, done.stderr)
    check("TIE-DIFFERS" in setting.run("verify", folder, "--level", "checksum").stdout, "verify of names that differ")
    done = setting.run("consolidate", source, setting.path("no"), "--like", base, expected=BAD_INPUT)
    check("TIE-DIFFERS" in done.stderr, done.stderr)


def write_safetensors(path, rows):
    """rows: [(name, tensor)], whose order the library's own writer would not keep."""
    header, data = {"__metadata__": {"format": "pt"}}, b""
    for name, tensor in rows:
        raw = tensor.view(torch.uint8).numpy().tobytes()
        kind = {torch.bfloat16: "BF16", torch.float32: "F32", torch.int64: "I64"}[tensor.dtype]
        header[name] = {"dtype": kind, "shape": list(tensor.shape), "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)


@case(first=(2, 15))
def case_export_like_order(setting):
    """The order in a file and dtypes that differ between tensors: of the folder, unless torch could not load it."""
    values = {"z": torch.randn(4, 2), "a": torch.randn(2, 4), "gate.bias": torch.randn(2), "ids": torch.arange(4)}
    order = ["ids", "z", "gate.bias", "a"]
    dtypes = {"z": torch.bfloat16, "a": torch.bfloat16, "gate.bias": torch.float32, "ids": torch.int64}
    os.mkdir(setting.path("base"))
    write_safetensors(setting.path("base/model.safetensors"), [(n, torch.zeros_like(values[n]).to(dtypes[n])) for n in order])
    torch.save(values, setting.path("source.pt"))
    expected = {name: tensor.to(dtypes[name]) for name, tensor in values.items()}
    _, folder = setting.consolidate(setting.path("source.pt"), "out/", "--like", setting.path("base"))
    check_same_files(folder, setting.path("base"))
    check_verifies(setting, folder, setting.path("base"))
    check_same_tensors(load_hf(folder)[0], expected, "as the folder")
    # --dtype without a glob leaves the router's fp32 and integers; then the order must suit the larger elements.
    expected.update({name: values[name].to(torch.float64) for name in "za"})
    _, folder = setting.consolidate(setting.path("source.pt"), "wide/", "--like", setting.path("base"), "--dtype", "fp64")
    check_same_tensors(load_hf(folder)[0], expected, "--dtype")
    rows = [name for name, _, _ in header_of(os.path.join(folder, "model.safetensors"))]
    check(rows[-1] == "gate.bias", "not aligned: %s" % rows)


def tied_models(T):
    """Models whose files lack copies other than lm_head."""
    small = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 24, "vocab_size": 37}
    wide = {"d_model": 16, "encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 2, "decoder_attention_heads": 2,
            "encoder_ffn_dim": 24, "decoder_ffn_dim": 24, "vocab_size": 37, "pad_token_id": 1, "eos_token_id": 2, "bos_token_id": 0}
    audio = {"num_mel_bins": 8, "max_source_positions": 20, "max_target_positions": 20}
    t5 = {"d_model": 16, "d_kv": 8, "d_ff": 24, "num_layers": 1, "num_heads": 2, "vocab_size": 37}
    return ((T.T5ForConditionalGeneration, T.T5Config(**t5)),
            (T.WhisperForConditionalGeneration, T.WhisperConfig(**wide, **audio)),
            (T.BertForMaskedLM, T.BertConfig(**small)),
            (T.RobertaForMaskedLM, T.RobertaConfig(**small)),
            (T.BigBirdPegasusForConditionalGeneration, T.BigBirdPegasusConfig(**wide)))


@case(first=(2, 15))
def case_export_like_tied_copies(setting):
    """save_pretrained writes one of several tied names; a state_dict has them all, in one storage or in several."""
    for number, (make, config) in enumerate(tied_models(transformers())):
        model = make(config)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.copy_(torch.randn(parameter.shape))
        base = setting.path("base%d" % number)
        model.save_pretrained(base)
        state = model.state_dict()
        copies = set(state) - set(load_hf(base)[0])
        check(len(copies) > 0, "no tied copies in " + make.__name__)
        source = setting.path("source%d.pt" % number)
        for values in (dict(state), {name: tensor.clone() for name, tensor in state.items()}):
            torch.save(values, source)
            done, folder = setting.consolidate(source, "out/", "--like", base)
            check(all(name + " = " in done.stdout for name in copies), done.stdout)
            with open(folder + "/model.safetensors", "rb") as one, open(base + "/model.safetensors", "rb") as other:
                check(one.read() == other.read(), make.__name__ + ": not the file of save_pretrained")
            shutil.rmtree(folder)
        # A copy of another value is none.
        name = next(n for n in sorted(copies) if state[n].dim() == 2 and n != "lm_head.weight")
        values[name][-1, -1] += 1
        torch.save(values, source)
        done = setting.run("consolidate", source, setting.path("no"), "--like", base, expected=BAD_INPUT)
        check("EXPORT-KEYS" in done.stderr and name in done.stderr, done.stderr)


@case(first=(2, 15))
def case_export_like_marian(setting):
    """A state has the positions, which save_pretrained omits and from_pretrained makes."""
    config = transformers().MarianConfig(vocab_size=24, d_model=16, encoder_layers=1, decoder_layers=1, encoder_attention_heads=2,
                                         decoder_attention_heads=2, encoder_ffn_dim=8, decoder_ffn_dim=8, max_position_embeddings=12,
                                         pad_token_id=0, decoder_start_token_id=0, eos_token_id=1)
    base = setting.path("base")
    torch.manual_seed(1)
    transformers().MarianMTModel(config).save_pretrained(base)
    torch.manual_seed(2)
    state = transformers().MarianMTModel(config).state_dict()
    positions = [name for name in state if name.endswith("embed_positions.weight")]
    check(len(positions) == 2 and not any(name in load_hf(base)[0] for name in positions), "%r" % positions)
    source = setting.path("state.pt")
    torch.save(state, source)
    _, found = setting.consolidate(source, "out", "--like", base)
    again, info = transformers().MarianMTModel.from_pretrained(found, output_loading_info=True)
    check(not any(info[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys")), "loads: %r" % (info,))
    check_same_tensors(again.state_dict(), state, "from_pretrained")
    check_verifies(setting, found, base)
