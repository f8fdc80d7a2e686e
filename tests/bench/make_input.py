"""Makes the inputs of scripts/bench with real torch: deterministic, any size.

    make_input.py dcp   DST --bytes N --ranks R     fp32 model and two Adam moments, cut by rows (DCP folder)
    make_input.py rows  DST --bytes N --ranks R     bf16 row shards of the HuggingFace writer's form
    make_input.py many  DST --tensors T --ranks R   T small tensors, cut by rows, the same form
    make_input.py columns DST --bytes N --ranks R --width W   bf16 column shards of [.., W], the same form
    make_input.py shapes DST --shapes FILE --ranks R   bf16 tensors of {name: [shape, dim that is cut]} (DCP folder)
    make_input.py model  DST --bytes N --seed S     a llama in bf16, of layers of 0.1 GB (Hugging Face folder)
    make_input.py adapter DST --bytes N --rank R    an adapter for all linear layers of that model (PEFT's folder)
    make_input.py chunks DST --tensors T            T tensors of 64 numbers, written by one process (DCP folder)
    make_input.py metadata DST --tensors T --ranks R   T tensors in R chunks each: a real .metadata, and data files of
                                                    the right size with nothing in them

DCP folders are written by R processes over gloo, as training writes them. The safetensors shards are written with
the safetensors library and DCP_SHARDING_INFO, which is what torch's HuggingFaceStorageWriter leaves.
"""
import argparse
import json
import os
import pathlib

os.environ.setdefault("USE_LIBUV", "0")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch  # noqa: E402

WIDTH = 2048


def values(name, rows, width, first_row, dtype):
    """The rows [first_row, first_row + rows) of a tensor: a ramp that differs by name and row."""
    seed = sum(ord(c) * (i + 1) for i, c in enumerate(name)) % 1000003
    line = torch.arange(width, dtype=torch.float32) * 0.37 + seed
    column = (torch.arange(rows, dtype=torch.float32) + first_row).unsqueeze(1)
    return torch.sin(line + column * 1.618).to(dtype)


def layer_names(nbytes, itemsize, rows_each, width=WIDTH):
    count = max(1, round(nbytes / (rows_each * width * itemsize)))
    return [f"layers.{i}.weight" for i in range(count)]


def chunk(n, world, rank):
    size = -(-n // world)
    begin = min(n, rank * size)
    return begin, min(n, begin + size)


def dcp_rank(rank, world, dst, nbytes):
    import torch.distributed as dist
    import torch.distributed.checkpoint as dcp
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import DTensor, Shard

    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29531", RANK=str(rank), WORLD_SIZE=str(world))
    dist.init_process_group("gloo", rank=rank, world_size=world)
    mesh = init_device_mesh("cpu", (world,))
    rows = 5001  # not divisible by 8: the last rank holds fewer
    begin, end = chunk(rows, world, rank)

    def shard(name):
        local = values(name, end - begin, WIDTH, begin, torch.float32)
        return DTensor.from_local(local, mesh, [Shard(0)], run_check=False, shape=(rows, WIDTH), stride=(WIDTH, 1))

    names = layer_names(nbytes / 3, 4, rows)
    state = {"model": {n: shard(n) for n in names},
             "optim": {"state": {n: {"step": torch.tensor(7.0), "exp_avg": shard(n + ".m"),
                                     "exp_avg_sq": shard(n + ".v")} for n in names},
                       "param_groups": [{"lr": 1e-3, "params": names}]}}
    dcp.save(state, checkpoint_id=dst)
    dist.destroy_process_group()


def shapes_rank(rank, world, dst, listed):
    """Each tensor is a ramp over all its elements, so that a piece in another place shows."""
    import torch.distributed as dist
    import torch.distributed.checkpoint as dcp
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import DTensor, Shard

    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29532", RANK=str(rank), WORLD_SIZE=str(world))
    dist.init_process_group("gloo", rank=rank, world_size=world)
    mesh = init_device_mesh("cpu", (world,))
    state = {}
    for name, (shape, dim) in listed.items():
        shape = torch.Size(shape)
        begin, end = chunk(shape[dim], world, rank)
        before = shape[:dim].numel()
        after = shape[dim + 1:].numel()
        local = values(name, before * (end - begin), after, 0, torch.bfloat16) if after > 1 else values(
            name, 1, before * (end - begin), 0, torch.bfloat16)
        local = local.add_(rank).reshape(*shape[:dim], end - begin, *shape[dim + 1:])
        stride = torch.empty(shape, device="meta").stride()
        state[name] = DTensor.from_local(local, mesh, [Shard(dim)], run_check=False, shape=shape, stride=stride)
    dcp.save(state, checkpoint_id=dst)
    dist.destroy_process_group()


LLAMA = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 2048, "intermediate_size": 5632,
         "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 32000, "max_position_embeddings": 2048,
         "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "hidden_act": "silu", "tie_word_embeddings": False, "torch_dtype": "bfloat16"}


def llama_shapes(nbytes):
    hidden, inner, keys, rows = LLAMA["hidden_size"], LLAMA["intermediate_size"], 512, LLAMA["vocab_size"]
    linear = {"self_attn.q_proj": (hidden, hidden), "self_attn.k_proj": (keys, hidden), "self_attn.v_proj": (keys, hidden),
              "self_attn.o_proj": (hidden, hidden), "mlp.gate_proj": (inner, hidden), "mlp.up_proj": (inner, hidden),
              "mlp.down_proj": (hidden, inner)}
    layers = max(1, round((nbytes / 2 - 2 * rows * hidden) / sum(a * b for a, b in linear.values())))
    norms = {"input_layernorm": (hidden,), "post_attention_layernorm": (hidden,)}
    shapes = {f"model.layers.{i}.{name}.weight": shape for i in range(layers) for name, shape in {**linear, **norms}.items()}
    shapes.update({"model.embed_tokens.weight": (rows, hidden), "model.norm.weight": (hidden,), "lm_head.weight": (rows, hidden)})
    return layers, shapes


def make_model(dst, nbytes, seed):
    from safetensors.torch import save_file

    layers, shapes = llama_shapes(nbytes)
    random = torch.Generator().manual_seed(seed)
    folder = pathlib.Path(dst)
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps({**LLAMA, "num_hidden_layers": layers}))
    save_file({name: (torch.randn(shape, generator=random) * 0.02).bfloat16() for name, shape in shapes.items()},
              folder / "model.safetensors", {"format": "pt"})


def make_adapter(dst, nbytes, rank):
    from safetensors.torch import save_file

    linear = {name: shape for name, shape in llama_shapes(nbytes)[1].items() if "_proj" in name}
    random = torch.Generator().manual_seed(99)
    tensors = {}
    for name, (rows, columns) in linear.items():
        stem = "base_model.model." + name.removesuffix("weight")
        tensors[stem + "lora_A.weight"] = torch.randn(rank, columns, generator=random) * 0.02
        tensors[stem + "lora_B.weight"] = torch.randn(rows, rank, generator=random) * 0.02
    folder = pathlib.Path(dst)
    folder.mkdir(parents=True)
    targets = sorted({name.split(".")[-2] for name in linear})
    (folder / "adapter_config.json").write_text(json.dumps({
        "peft_type": "LORA", "r": rank, "lora_alpha": 2 * rank, "target_modules": targets, "task_type": "CAUSAL_LM"}))
    save_file(tensors, folder / "adapter_model.safetensors", {"format": "pt"})


def make_chunks(dst, tensors):
    import torch.distributed.checkpoint as dcp

    state = {f"blocks.{i}.w": values(f"blocks.{i}.w", 1, 64, 0, torch.float32)[0] for i in range(tensors)}
    dcp.save(state, checkpoint_id=dst, no_dist=True)


def make_metadata(dst, tensors, ranks):
    """What many ranks save, by one process. Names and offsets come once a chunk, as ranks send their own."""
    import pickle
    from torch.distributed.checkpoint.filesystem import _StorageInfo
    from torch.distributed.checkpoint.metadata import (ChunkStorageMetadata, Metadata, MetadataIndex, StorageMeta,
                                                       TensorProperties, TensorStorageMetadata)

    # More rows than columns: torch sweeps along the longer dim, and would compare each chunk with each along the other.
    rows, width = -(-2 * WIDTH // ranks), WIDTH
    length = rows * width * 4 + 1200
    files = [f"__{rank}_0.distcp" for rank in range(ranks)]
    state, stored = {}, {}
    for i in range(tensors):
        name = f"model.layers.{i}.self_attn.q_proj.weight"
        chunks = [ChunkStorageMetadata(torch.Size([rank * rows, 0]), torch.Size([rows, width])) for rank in range(ranks)]
        state[name] = TensorStorageMetadata(TensorProperties(), torch.Size([rows * ranks, width]), chunks)
        for rank in range(ranks):
            index = MetadataIndex((name + " ")[:-1], torch.Size([rank * rows, 0]), rank)
            stored[index] = _StorageInfo(files[rank], i * length, length)
    folder = pathlib.Path(dst)
    folder.mkdir(parents=True)
    metadata = Metadata(state, {name: (name,) for name in state}, stored, StorageMeta(checkpoint_id=dst))
    with open(folder / ".metadata", "wb") as f:
        pickle.dump(metadata, f)
    for name in files:
        with open(folder / name, "wb") as f:
            f.truncate(tensors * length)


def save_shard(dst, rank, tensors, offsets):
    from safetensors.torch import save_file

    info = {name: {"saved_offsets": offsets[name]} for name in tensors}
    meta = {"format": "pt", "DCP_VERSION": "1.0", "DCP_SHARDING_INFO": json.dumps(info)}
    save_file(tensors, f"{dst}/shard-{rank + 1:05d}-model-00001-of-00001.safetensors", metadata=meta)


def shards_rank(rank, world, dst, kind, nbytes, tensors, wide):
    pathlib.Path(dst).mkdir(parents=True, exist_ok=True)
    out, offsets = {}, {}
    if kind == "many":
        names, rows, width, dtype = [f"blocks.{i}.w" for i in range(tensors)], 64, 256, torch.bfloat16
    else:
        width, dtype = wide, torch.bfloat16
        rows = 4096 * WIDTH // width
        names = layer_names(nbytes, 2, rows, width)
    for name in names:
        if kind == "columns":
            begin, end = chunk(width, world, rank)
            out[name] = values(name, rows, width, 0, dtype)[:, begin:end].contiguous()
            offsets[name] = [0, begin]
        else:
            begin, end = chunk(rows, world, rank)
            out[name] = values(name, end - begin, width, begin, dtype)
            offsets[name] = [begin, 0]
    save_shard(dst, rank, out, offsets)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("kind", choices=["dcp", "rows", "many", "columns", "shapes", "model", "adapter", "chunks", "metadata"])
    p.add_argument("dst")
    p.add_argument("--bytes", type=float, default=3e9)
    p.add_argument("--ranks", type=int, default=8)
    p.add_argument("--width", type=int, default=WIDTH)
    p.add_argument("--shapes", type=pathlib.Path)
    p.add_argument("--tensors", type=int, default=4000)
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--rank", type=int, default=16)
    a = p.parse_args()
    torch.set_num_threads(1)
    if a.kind == "dcp":
        torch.multiprocessing.spawn(dcp_rank, (a.ranks, a.dst, a.bytes), a.ranks)
    elif a.kind == "shapes":
        listed = json.loads(a.shapes.read_text())
        torch.multiprocessing.spawn(shapes_rank, (a.ranks, a.dst, listed), a.ranks)
    elif a.kind == "model":
        make_model(a.dst, a.bytes, a.seed)
    elif a.kind == "adapter":
        make_adapter(a.dst, a.bytes, a.rank)
    elif a.kind == "chunks":
        make_chunks(a.dst, a.tensors)
    elif a.kind == "metadata":
        make_metadata(a.dst, a.tensors, a.ranks)
    else:
        for rank in range(a.ranks):
            shards_rank(rank, a.ranks, a.dst, a.kind, a.bytes, a.tensors, a.width)


if __name__ == "__main__":
    main()
