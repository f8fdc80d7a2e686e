"""--dequantize against torch's reader of quantized folders and the converter of transformers."""

import shutil
import warnings

import torch

from process_group import run_ranks
from quantized_states import dequantize_fp8, dequantize_mxfp4, quantize_fp8, save_hf
from support import UNSUPPORTED, case, check, check_same_tensors, load_hf
from transformers_models import import_transformers

RANKS = 3


def big_state():
    """Some chunks of the reader's, and every byte of MXFP4 with every scale."""
    random = torch.Generator().manual_seed(3)
    state = {}
    for name, shape in (("a", (1100, 1300)), ("b", (1, 1)), ("c", (257, 127))):
        state[name + ".weight"], state[name + ".weight_scale_inv"] = quantize_fp8(torch.randn(shape, generator=random))
    state["m_blocks"] = torch.arange(256, dtype=torch.uint8).repeat(4).reshape(1, 16, 4, 16).contiguous()
    state["m_blocks"] = state["m_blocks"].repeat(4, 1, 1, 1)
    state["m_scales"] = torch.arange(256, dtype=torch.uint8).reshape(4, 16, 4)
    state["norm.weight"] = torch.randn(9, generator=random)
    return state


def torch_read(folder, names):
    """What torch's own reader makes of the 8-bit floats."""
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.quantized_hf_storage import QuantizedHuggingFaceStorageReader
    read = {name: torch.empty(shape, dtype=torch.bfloat16) for name, shape in names.items()}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        dcp.load(read, storage_reader=QuantizedHuggingFaceStorageReader(folder, target_dtype=torch.bfloat16),
                 no_dist=True)
    return read


def rank_save(folder, state):
    """Uneven shards of rows; one weight in shards of columns. The optimizer is not quantized."""
    import torch.distributed as dist
    import torch.distributed.checkpoint as dcp
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import DTensor, Shard
    mesh = init_device_mesh("cpu", (RANKS,), mesh_dim_names=("dp_shard",))
    sharded = {}
    for name, tensor in state.items():
        dim = 1 if name == "a.weight" else 0
        raw = tensor.view(torch.uint8) if tensor.dtype == torch.float8_e4m3fn else tensor
        parts = list(torch.chunk(raw, RANKS, dim))
        parts += [raw.narrow(dim, 0, 0)] * (RANKS - len(parts))
        local = parts[dist.get_rank()].contiguous().view(tensor.dtype)
        sharded[name] = DTensor.from_local(local, mesh, [Shard(dim)], run_check=False, shape=tensor.shape,
                                           stride=tensor.stride())
    dcp.save({"model": sharded}, checkpoint_id=folder)


@case(first=(2, 15))
def case_dequantize(setting):
    import os
    state = big_state()
    source = setting.path("quantized")
    os.makedirs(source)
    save_hf(source, state)
    expected = torch_read(source, {name: state[name].shape for name in ("a.weight", "b.weight", "c.weight")})
    for name, tensor in expected.items():
        check(torch.equal(tensor, dequantize_fp8(state[name], state[name + "_scale_inv"])), "the formula is not torch's")
    import_transformers()
    from transformers.integrations.mxfp4 import convert_moe_packed_tensors
    expected["m"] = convert_moe_packed_tensors(state["m_blocks"], state["m_scales"]).contiguous()
    check(torch.equal(expected["m"], dequantize_mxfp4(state["m_blocks"], state["m_scales"])),
          "the formula is not that of transformers")
    expected["norm.weight"] = state["norm.weight"]
    _, folder = setting.consolidate(source, "hf/", "--dequantize")
    check_same_tensors(load_hf(folder)[0], expected, "from a folder")
    run_ranks(RANKS, rank_save, setting.path("dcp"), state)
    _, folder = setting.consolidate(setting.path("dcp"), "from-dcp/", "--dequantize")
    check_same_tensors(load_hf(folder)[0], expected, "from shards")
    for world_size in (2, 5):
        setting.run("reshard", source, setting.path("r"), "--dequantize", "--format", "dcp", "--world-size", world_size)
        setting.run("diff", setting.path("r"), folder)
        shutil.rmtree(setting.path("r"))
    # As it is without the option, and other kinds are not guessed.
    _, folder = setting.consolidate(source, "same/")
    check_same_tensors(load_hf(folder)[0], state, "as it is")
    state["d.qweight"] = torch.zeros(4, 4, dtype=torch.int32)
    save_hf(source, state)
    done = setting.run("consolidate", source, setting.path("no/"), "--dequantize", expected=UNSUPPORTED)
    check("QUANT-KIND" in done.stderr and "d.qweight" in done.stderr, done.stderr)


@case(first=(2, 8))
def case_dequantize_blocks(setting):
    """Blocks that config.json states, by the formula."""
    import os
    random = torch.Generator().manual_seed(5)
    for i, size in enumerate(((64, 128), (128, 64), (1, 128), (32, 32))):
        weight, scale = quantize_fp8(torch.randn((2, 200, 300), generator=random), size)
        source = setting.path("blocks-%d" % i)
        os.makedirs(source)
        save_hf(source, {"a.weight": weight, "a.weight_scale_inv": scale}, size)
        _, folder = setting.consolidate(source, "out-%d/" % i, "--dequantize")
        check_same_tensors(load_hf(folder)[0], {"a.weight": dequantize_fp8(weight, scale, size)}, str(size))
