"""fsdpck_open_memory from Python: tensors of torch in memory, whole, in shards, and as views, are written to files that torch and
safetensors read, and are compared with them."""

import ctypes
import os

import torch
from safetensors.torch import load_file

from cases_load import U64S, Error, expected_of
from support import case, check, check_same_tensors, load_pt, tensors_of_state


class Entry(ctypes.Structure):
    _fields_ = [("struct_nbytes", ctypes.c_size_t), ("name", ctypes.c_char_p), ("dtype", ctypes.c_char_p),
                ("ndim", ctypes.c_size_t), ("shape", U64S), ("offsets", U64S), ("sizes", U64S), ("strides", U64S),
                ("memory", ctypes.c_void_p), ("memory_nbytes", ctypes.c_uint64)]


class Output(ctypes.Structure):
    _fields_ = [("struct_nbytes", ctypes.c_size_t), ("format", ctypes.c_char_p)]


class Consolidate(ctypes.Structure):
    _fields_ = [("struct_nbytes", ctypes.c_size_t), ("select", ctypes.c_void_p), ("output", ctypes.POINTER(Output))]


def u64s(values):
    return (ctypes.c_uint64 * max(1, len(values)))(*values)


def entry(name, tensor, shape, offsets):
    """The tensor, with its own strides, as the box at `offsets` of a tensor of this shape."""
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride())) + 1
    nbytes = last * tensor.element_size() if tensor.numel() > 0 else 0
    return Entry(ctypes.sizeof(Entry), name.encode(), str(tensor.dtype).replace("torch.", "").encode(), tensor.dim(),
                 u64s(shape), u64s(offsets), u64s(tensor.shape), u64s(tensor.stride()), tensor.data_ptr() or None, nbytes)


class Memory:
    """A checkpoint of (name, tensor, shape, offsets)."""

    def __init__(self, setting, held):
        self.library = ctypes.CDLL(os.path.join(os.path.dirname(setting.program), "libfsdpck.so"))
        self.library.fsdpck_context_new.restype = ctypes.c_void_p
        self.context, self.source, self.error = ctypes.c_void_p(self.library.fsdpck_context_new()), ctypes.c_void_p(), Error()
        entries = (Entry * len(held))(*[entry(*one) for one in held])
        self.held = held  # the memory
        self.check(self.library.fsdpck_open_memory(self.context, entries, ctypes.c_size_t(len(held)), None,
                                                   ctypes.byref(self.source), ctypes.byref(self.error)))

    def check(self, status):
        check(status == 0, "%s: %s" % (self.error.tensor.decode(), self.error.message.decode()))

    def write(self, path, form):
        output = Output(ctypes.sizeof(Output), form.encode())
        options = Consolidate(ctypes.sizeof(Consolidate), None, ctypes.pointer(output))
        self.check(self.library.fsdpck_consolidate(self.context, self.source, os.fsencode(path), ctypes.byref(options), None,
                                                   ctypes.byref(self.error)))
        return path

    def close(self):
        self.library.fsdpck_close(self.source)
        self.library.fsdpck_context_free(self.context)


def views():
    """What models hold that is not a plain tensor, and what torch makes of it."""
    numbers = torch.arange(7 * 11 * 5, dtype=torch.float32).reshape(7, 11, 5)
    return {
        "transposed": numbers.permute(2, 0, 1),
        "expanded": numbers[0, 0].expand(3, 5),
        "sliced": numbers[1:6:2, 3:, ::2],
        "channels_last": torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last),
        "scalar": torch.tensor(2.5, dtype=torch.float64),
        "empty": torch.zeros(0, 4, dtype=torch.int64),
        "narrow": torch.randn(9, 13).to(torch.bfloat16).t()[2:5],
        "truth": torch.tensor([True, False, True]),
        "float8": torch.randn(6, 6).to(torch.float8_e4m3fn).t(),
    }


@case(first=(2, 15))
def case_memory_of_torch(setting):
    expected = views()
    memory = Memory(setting, [(name, t, t.shape, [0] * t.dim()) for name, t in expected.items()])
    found = load_file(memory.write(setting.path("m.safetensors"), "safetensors"))
    check_same_tensors(found, {name: t.contiguous() for name, t in expected.items()}, "safetensors")
    found = tensors_of_state(load_pt(memory.write(setting.path("m.pt"), "pt")))
    check_same_tensors(found, {name: t.contiguous() for name, t in expected.items()}, "pt")
    memory.close()


@case(first=(2, 15))
def case_memory_of_shards(setting):
    """As torch.chunk shards them, along each dim, by rows of the state that DCP saved."""
    expected = expected_of(setting, os.path.join(setting.fixtures, "torch-2.15.0", "dcp-fsdp2"))
    held = []
    for number, (name, tensor) in enumerate(expected.items()):
        at, dim = 0, number % max(1, tensor.dim())
        for shard in tensor.chunk(3, dim) if tensor.dim() > 0 else [tensor]:
            offsets = [at if d == dim else 0 for d in range(tensor.dim())]
            held.append((name, shard, tensor.shape, offsets))
            at += shard.shape[dim] if tensor.dim() > 0 else 0
    check(len(held) > len(expected), "no tensor has shards")
    memory = Memory(setting, held)
    from torch.distributed.checkpoint.format_utils import dcp_to_torch_save
    dcp_to_torch_save(memory.write(setting.path("dcp"), "dcp"), setting.path("dcp.pt"))
    memory.close()
    check_same_tensors(tensors_of_state(load_pt(setting.path("dcp.pt"), weights_only=False)), expected, "dcp")
    setting.run("diff", setting.path("dcp"), os.path.join(setting.fixtures, "torch-2.15.0", "dcp-fsdp2"), "--objects", "drop")
