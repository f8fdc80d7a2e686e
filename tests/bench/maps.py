"""Races of `consolidate --map` against the same run without a map, and of `verify --like` against reading; see scripts/bench.

The inputs are DCP folders of 8 ranks with the names and layouts of trainers, in bf16. Outputs are compared with what torch
makes of the input by the formula of each operation, or with the files of torchtitan's own adapter.
"""
import json
import os
import subprocess
import sys

from harness import HERE, Runner, make, remove

HIDDEN, INNER, HEADS, KV_HEADS, HEAD_DIM, VOCABULARY, EXPERTS = 2048, 8192, 32, 8, 64, 32000, 16
CONFIG = {"num_attention_heads": HEADS, "num_key_value_heads": KV_HEADS, "vocab_size": VOCABULARY, "head_dim": HEAD_DIM,
          "hidden_size": HIDDEN, "swiglu": True, "normalization": "RMSNorm", "position_embedding_type": "rope",
          "rotary_percent": 1}


def count_of(nbytes, shapes):
    """How many layers of these shapes give nbytes in bf16."""
    elements = 0
    for shape, _ in shapes:
        size = 1
        for n in shape:
            size *= n
        elements += size
    return max(1, round(nbytes / 2 / elements))


def llama3(nbytes):
    query, key = HEADS * HEAD_DIM, KV_HEADS * HEAD_DIM
    layer = {"attention.qkv_linear.wq.weight": (query, HIDDEN), "attention.qkv_linear.wk.weight": (key, HIDDEN),
             "attention.qkv_linear.wv.weight": (key, HIDDEN), "attention.wo.weight": (HIDDEN, query),
             "feed_forward.w1.weight": (INNER, HIDDEN), "feed_forward.w2.weight": (HIDDEN, INNER),
             "feed_forward.w3.weight": (INNER, HIDDEN), "attention_norm.weight": (HIDDEN,), "ffn_norm.weight": (HIDDEN,)}
    ends = {"tok_embeddings.weight": (VOCABULARY, HIDDEN), "norm.weight": (HIDDEN,), "lm_head.weight": (VOCABULARY, HIDDEN)}
    layers = count_of(nbytes - 4 * VOCABULARY * HIDDEN, [(shape, 0) for shape in layer.values()])
    return {**{f"layers.{i}.{name}": (shape, 0) for i in range(layers) for name, shape in layer.items()},
            **{name: (shape, 0) for name, shape in ends.items()}}


def fused_experts(nbytes):
    layer = {"mlp.experts.gate_up_proj": ((EXPERTS, 2048, HIDDEN), 0), "mlp.experts.down_proj": ((EXPERTS, HIDDEN, 1024), 0)}
    return {f"model.layers.{i}.{name}": cut for i in range(count_of(nbytes, layer.values())) for name, cut in layer.items()}


def megatron(nbytes):
    groups = (HEADS + 2 * KV_HEADS) * HEAD_DIM
    layer = {"self_attention.linear_qkv.weight": ((groups, HIDDEN), 1),
             "self_attention.linear_proj.weight": ((HIDDEN, HEADS * HEAD_DIM), 2),
             "mlp.linear_fc1.weight": ((2 * INNER, HIDDEN), 1), "mlp.linear_fc2.weight": ((HIDDEN, INNER), 2),
             "self_attention.linear_qkv.layer_norm_weight": ((HIDDEN,), 1), "mlp.linear_fc1.layer_norm_weight": ((HIDDEN,), 1)}
    layers = count_of(nbytes - 4 * VOCABULARY * HIDDEN, layer.values())
    return {**{f"decoder.layers.{name}": ((layers, *shape), dim) for name, (shape, dim) in layer.items()},
            "embedding.word_embeddings.weight": ((VOCABULARY, HIDDEN), 0), "output_layer.weight": ((VOCABULARY, HIDDEN), 0),
            "decoder.final_layernorm.weight": ((HIDDEN,), 0)}


def gpt_oss(nbytes):
    layer = {"moe.experts.mlp1_weight_EGD": ((EXPERTS, 4096, HIDDEN), 0), "moe.experts.mlp2_weight_EDF": ((EXPERTS, HIDDEN, 2048), 0)}
    return {f"layers.{i}.{name}": cut for i in range(count_of(nbytes, layer.values())) for name, cut in layer.items()}


# What the map makes of the tensors of a folder, in torch. Prints the names that differ.
CHECKS = {
    "map-rope": """
def expected(whole):
    import re
    for name, t in whole.items():
        if name.endswith(("wq.weight", "wk.weight")):
            heads = HEADS if name.endswith("wq.weight") else KV_HEADS
            t = t.view(heads, HEAD_DIM // 2, 2, HIDDEN).transpose(1, 2).reshape(-1, HIDDEN)
        for a, b in (("tok_embeddings", "model.embed_tokens"), ("attention.qkv_linear.w", "self_attn.w"), ("attention.wo", "self_attn.wo"),
                     ("attention_norm", "input_layernorm"), ("ffn_norm", "post_attention_layernorm"), ("feed_forward.w1", "mlp.gate_proj"),
                     ("feed_forward.w2", "mlp.down_proj"), ("feed_forward.w3", "mlp.up_proj")):
            name = name.replace(a, b)
        name = re.sub(r"self_attn.w([qkvo]).", r"self_attn.\\1_proj.", name)
        name = "model." + name if name.startswith(("layers", "norm")) else name
        yield name, t
""",
    "map-unfuse": """
def expected(whole):
    for name, t in whole.items():
        stem = name.rpartition(".")[0]
        for e in range(t.shape[0]):
            if name.endswith("gate_up_proj"):
                gate, up = t[e].chunk(2)
                yield f"{stem}.{e}.gate_proj.weight", gate
                yield f"{stem}.{e}.up_proj.weight", up
            else:
                yield f"{stem}.{e}.down_proj.weight", t[e]
""",
    "map-qkv": """
def expected(whole):
    for name, t in whole.items():
        if name == "embedding.word_embeddings.weight":
            yield "model.embed_tokens.weight", t
        elif name == "output_layer.weight":
            yield "lm_head.weight", t
        elif name == "decoder.final_layernorm.weight":
            yield "model.norm.weight", t
        else:
            for n in range(t.shape[0]):
                stem = f"model.layers.{n}."
                if name.endswith("linear_qkv.weight"):
                    per = HEADS // KV_HEADS
                    group = t[n].view(KV_HEADS, per + 2, HEAD_DIM, HIDDEN)
                    yield stem + "self_attn.q_proj.weight", group[:, :per].reshape(-1, HIDDEN)
                    yield stem + "self_attn.k_proj.weight", group[:, per].reshape(-1, HIDDEN)
                    yield stem + "self_attn.v_proj.weight", group[:, per + 1].reshape(-1, HIDDEN)
                elif name.endswith("linear_fc1.weight"):
                    gate, up = t[n].chunk(2)
                    yield stem + "mlp.gate_proj.weight", gate
                    yield stem + "mlp.up_proj.weight", up
                else:
                    end = {"linear_proj.weight": "self_attn.o_proj.weight", "linear_fc2.weight": "mlp.down_proj.weight",
                           "linear_qkv.layer_norm_weight": "input_layernorm.weight",
                           "linear_fc1.layer_norm_weight": "post_attention_layernorm.weight"}
                    yield stem + next(v for k, v in end.items() if name.endswith(k)), t[n]
""",
    "map-transpose": """
def expected(whole):
    for name, t in whole.items():
        for a, b in (("moe.experts.mlp1_weight_EGD", "mlp.experts.gate_up_proj"), ("moe.experts.mlp2_weight_EDF", "mlp.experts.down_proj")):
            name = name.replace(a, b)
        yield "model." + name, t.transpose(1, 2)
""",
}

COMPARE = """
import glob, sys
import torch
import torch.distributed.checkpoint as dcp
from safetensors import safe_open
source, output = sys.argv[1:]
reader = dcp.FileSystemReader(source)
whole = {name: torch.empty(t.size, dtype=t.properties.dtype) for name, t in reader.read_metadata().state_dict_metadata.items()}
dcp.load(whole, storage_reader=reader, no_dist=True)
files = [safe_open(path, "pt") for path in glob.glob(output + "/*.safetensors")]
where = {name: f for f in files for name in f.keys()}
seen = set()
for name, tensor in expected(whole):
    seen.add(name)
    if name not in where or not torch.equal(where[name].get_tensor(name), tensor):
        sys.exit(f"{name} differs from what torch makes of the input")
if seen != where.keys():
    sys.exit(f"other tensors: {sorted(seen ^ where.keys())[:9]}")
"""


def check_with_torch(race_name, source):
    code = "\n".join(f"{key} = {value}" for key, value in (("HEADS", HEADS), ("KV_HEADS", KV_HEADS),
                                                          ("HEAD_DIM", HEAD_DIM), ("HIDDEN", HIDDEN)))

    def check(output):
        subprocess.run([sys.executable, "-W", "ignore", "-c", code + CHECKS[race_name] + COMPARE, source, output], check=True)
    return check


def make_source(a, name, shapes):
    listed = a.work / f"{name}.json"
    listed.write_text(json.dumps(shapes))
    return make("shapes", a.work / f"{name}-{a.bytes:.0f}", "--shapes", listed)


def write_config(a, **more):
    path = a.work / "config.json"
    path.write_text(json.dumps({**CONFIG, **more}))
    return path


def map_runners(a, race_name, map_name, source, *options):
    out = f"{a.work}/mapped"
    words = [a.program, "consolidate", source, f"{out}/", "--format", "hf"]
    return [Runner(map_name, [*words, "--map", map_name, *options], out, compare=False,
                   verify=check_with_torch(race_name, source)),
            Runner("without a map", words, out, compare=False)]


def race_map(a, race, name, map_name, shapes, *options):
    source = make_source(a, name, shapes)
    race(f"{map_name}, {a.bytes / 1e9:.1f} GB, 8 ranks", source, map_runners(a, name, map_name, source, *options),
         a.rounds, None)


# torchtitan's scripts/checkpoint_conversion/convert_to_hf.py: everything into memory, its adapter, torch's writer.
CONVERT_TO_HF = """
import json, sys
sys.path.insert(0, sys.argv[1])
import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint import HuggingFaceStorageWriter
import torchtitan_adapter as titan
source, output, layers = sys.argv[2], sys.argv[3], int(sys.argv[4])
titan.LAYERS = layers
adapter = titan.make_adapter("llama3", "Llama3StateDictAdapter", titan.Sizes(*map(int, sys.argv[5:8]), hidden=int(sys.argv[8])))
reader = dcp.FileSystemReader(source)
state = {name: torch.empty(t.size, dtype=t.properties.dtype) for name, t in reader.read_metadata().state_dict_metadata.items()}
dcp.load(state, checkpoint_id=source, no_dist=True)
made = adapter.to_hf(state)
writer = HuggingFaceStorageWriter(path=output, save_distributed=True, fqn_to_index_mapping={n: 1 for n in made},
                                  enable_consolidation=True, thread_count_consolidation=5)
dcp.save(made, storage_writer=writer, no_dist=True)
"""


def race_torchtitan(a, race):
    shapes = llama3(a.bytes)
    source = make_source(a, "map-rope", shapes)
    layers = sum(name.endswith("wq.weight") for name in shapes)
    out = f"{a.work}/torchtitan"
    command = [sys.executable, "-W", "ignore", "-c", CONVERT_TO_HF, HERE.parent / "fixtures", source, out, layers, HEADS,
               KV_HEADS, HEAD_DIM, HIDDEN]
    runners = map_runners(a, "map-rope", "torchtitan-llama3", source, "--config", write_config(a))[:1]
    runners.append(Runner("torchtitan convert_to_hf", [str(word) for word in command], out, compare=False,
                          verify=check_with_torch("map-rope", source)))
    race(f"torchtitan-llama3 against torchtitan, {a.bytes / 1e9:.1f} GB", source, runners, a.rounds, None)


def race_nearness(a, race):
    """verify --like reads both folders once. The floor reads the same bytes with as many threads."""
    source = make_source(a, "map-near", llama3(a.bytes / 2))
    folders = [a.work / "near-out", a.work / "near-base"]
    config = write_config(a, model_type="llama", num_hidden_layers=sum(n.endswith("wq.weight") for n in llama3(a.bytes / 2)),
                          intermediate_size=INNER, tie_word_embeddings=False, architectures=["LlamaForCausalLM"])
    for folder in folders:
        remove(folder)
        subprocess.run([a.program, "consolidate", source, f"{folder}/", "--format", "hf", "--map", "torchtitan-llama3",
                        "--config", config], check=True, stdout=subprocess.DEVNULL)
    files = [str(path) for folder in folders for path in sorted(folder.glob("*.safetensors"))]
    nothing = a.work / "nothing"
    for where, cold in (("the page cache", []), ("the disk", folders)):
        runners = [Runner("fsdpck verify --like", [a.program, "verify", folders[0], "--like", folders[1]], nothing,
                          compare=False, cold=cold, warm=folders),
                   Runner("floor: reads only, two threads", [a.floor, "--read", *files], nothing, compare=False, cold=cold,
                          warm=folders)]
        race(f"nearness of two folders of {a.bytes / 2e9:.1f} GB, from {where}", folders[0], runners, a.rounds, None)
    for folder in folders:
        remove(folder)


def races(a, race):
    return {
        "map-rope": lambda: race_map(a, race, "map-rope", "torchtitan-llama3", llama3(a.bytes), "--config", write_config(a)),
        "map-unfuse": lambda: race_map(a, race, "map-unfuse", "transformers-5-experts", fused_experts(a.bytes)),
        "map-qkv": lambda: race_map(a, race, "map-qkv", "megatron-llama", megatron(a.bytes), "--config", write_config(a)),
        "map-transpose": lambda: race_map(a, race, "map-transpose", "torchtitan-gpt-oss", gpt_oss(a.bytes)),
        "map-torchtitan": lambda: race_torchtitan(a, race),
        "map-nearness": lambda: race_nearness(a, race),
    }
