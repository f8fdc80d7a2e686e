"""fsdpck_load from Python: a sketch in ctypes that fills tensors of torch, whole, in part, and with strides, from any checkpoint."""

import ctypes
import os

import torch

from release import RELEASE
from support import case, check, load_pt, tensors_of_state

U64S = ctypes.POINTER(ctypes.c_uint64)
PART_ALL, SWITCH_OFF = 3, 2


class Error(ctypes.Structure):
    _fields_ = [("status", ctypes.c_int), ("sys_errno", ctypes.c_int), ("rank", ctypes.c_int), ("has_offset", ctypes.c_int),
                ("offset_bytes", ctypes.c_uint64), ("finding", ctypes.c_int), ("message", ctypes.c_char * 512),
                ("path", ctypes.c_char * 1024), ("tensor", ctypes.c_char * 512), ("expected", ctypes.c_char * 256),
                ("found", ctypes.c_char * 256), ("next", ctypes.c_char * 512)]


class Select(ctypes.Structure):
    _fields_ = [("struct_nbytes", ctypes.c_size_t), ("part", ctypes.c_int), ("clean_names", ctypes.c_int)]


class Options(ctypes.Structure):
    _fields_ = [("struct_nbytes", ctypes.c_size_t), ("select", ctypes.POINTER(Select))]


class Entry(ctypes.Structure):
    _fields_ = [("struct_nbytes", ctypes.c_size_t), ("name", ctypes.c_char_p), ("dtype", ctypes.c_char_p),
                ("ndim", ctypes.c_size_t), ("offsets", U64S), ("sizes", U64S), ("strides", U64S),
                ("memory", ctypes.c_void_p), ("memory_nbytes", ctypes.c_uint64)]


def entry(name, tensor, offsets):
    """An entry that fills the tensor, which may have strides, from a box that begins at `offsets`."""
    numbers = [(ctypes.c_uint64 * max(1, tensor.dim()))(*values) for values in (offsets, tensor.shape, tensor.stride())]
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride())) + 1
    nbytes = last * tensor.element_size() if tensor.numel() > 0 else 0
    return Entry(ctypes.sizeof(Entry), name.encode(), str(tensor.dtype).replace("torch.", "").encode(), tensor.dim(),
                 *numbers, tensor.data_ptr() or None, nbytes)


def load(program, path, wanted):
    """wanted: (flat key, tensor to fill, offsets of the box). Returns the error's message, or None."""
    library = ctypes.CDLL(os.path.join(os.path.dirname(program), "libfsdpck.so"))
    library.fsdpck_context_new.restype = ctypes.c_void_p
    context, source, error = ctypes.c_void_p(library.fsdpck_context_new()), ctypes.c_void_p(), Error()
    select = Select(ctypes.sizeof(Select), PART_ALL, SWITCH_OFF)
    options = Options(ctypes.sizeof(Options), ctypes.pointer(select))
    entries = (Entry * len(wanted))(*[entry(*one) for one in wanted])
    status = library.fsdpck_open(context, os.fsencode(path), None, ctypes.byref(source), ctypes.byref(error))
    if status == 0:
        status = library.fsdpck_load(context, source, entries, ctypes.c_size_t(len(wanted)), ctypes.byref(options),
                                     ctypes.byref(error))
    library.fsdpck_close(source)
    library.fsdpck_context_free(context)
    return None if status == 0 else "%s: %s" % (error.tensor.decode(), error.message.decode())


def expected_of(setting, fixture):
    """What torch's own reader makes of a DCP folder."""
    from torch.distributed.checkpoint.format_utils import dcp_to_torch_save
    path = setting.path(os.path.basename(fixture) + ".pt")
    dcp_to_torch_save(fixture, path)
    return tensors_of_state(load_pt(path, weights_only=False))


def inner_box(tensor):
    """Offsets and sizes of a box that touches no side that it need not."""
    return [1 if size > 2 else 0 for size in tensor.shape], [size - 2 if size > 2 else size for size in tensor.shape]


def narrowed(tensor, offsets, sizes):
    for dim, (offset, size) in enumerate(zip(offsets, sizes)):
        tensor = tensor.narrow(dim, offset, size)
    return tensor


FOLDERS = ("dcp-fsdp2", "dcp-tp", "dcp-hsdp-tp", "dcp-shard-dim1", "dcp-transposed", "dcp-zstd", "dcp-tied")


@case(first=(2, 15))
def case_load_into_torch(setting):
    for folder in FOLDERS:
        path = os.path.join(setting.fixtures, "torch-2.15.0", folder)
        expected = expected_of(setting, path)
        whole, boxes, wanted = {}, {}, []
        for name, tensor in expected.items():
            whole[name] = torch.zeros(tensor.shape, dtype=tensor.dtype)
            wanted.append((name, whole[name], [0] * tensor.dim()))
            if tensor.dim() < 2:
                continue
            # A box in the middle of a larger tensor, and one that lies transposed in memory.
            offsets, sizes = inner_box(tensor)
            room = torch.zeros([size + 3 for size in sizes], dtype=tensor.dtype)
            turned = torch.zeros(sizes[::-1], dtype=tensor.dtype).permute(*reversed(range(len(sizes))))
            boxes[name] = offsets, sizes, room, turned
            wanted.append((name, narrowed(room, [2] * len(sizes), sizes), offsets))
            wanted.append((name, turned, offsets))
        problem = load(setting.program, path, wanted)
        check(problem is None, "%s: %s" % (folder, problem))
        check(len(boxes) > 0, folder + ": no tensor with two dims")
        for name, tensor in expected.items():
            check(same(whole[name], tensor), "%s: '%s' differs" % (folder, name))
        for name, (offsets, sizes, room, turned) in boxes.items():
            box = narrowed(expected[name], offsets, sizes)
            filled = torch.zeros(room.shape, dtype=room.dtype)
            narrowed(filled, [2] * len(sizes), sizes).copy_(box)
            check(same(room, filled), "%s: a box of '%s' differs, or what is around it" % (folder, name))
            check(same(turned.contiguous(), box.contiguous()), "%s: a transposed box of '%s' differs" % (folder, name))


@case(first=(2, 15))
def case_load_casts_as_torch(setting):
    path = os.path.join(setting.fixtures, "torch-2.15.0", "dcp-fsdp2")
    expected = {name: t for name, t in expected_of(setting, path).items() if t.dtype == torch.float32}
    check(len(expected) > 0, "no tensor of float32")
    for dtype in (torch.bfloat16, torch.float16, torch.float64):
        cast = {name: torch.zeros(t.shape, dtype=dtype) for name, t in expected.items()}
        problem = load(setting.program, path, [(name, t, [0] * t.dim()) for name, t in cast.items()])
        check(problem is None, problem)
        for name, tensor in cast.items():
            check(same(tensor, expected[name].to(dtype)), "%s: '%s' differs" % (dtype, name))


@case(first=(2, 15))
def case_load_names_what_is_wrong(setting):
    path = os.path.join(setting.fixtures, "torch-2.15.0", "dcp-fsdp2")
    name, tensor = next((name, t) for name, t in expected_of(setting, path).items() if t.dim() == 2)
    for wrong, offsets, message in ((name + "x", [0, 0], "no tensor of this name"), (name, [tensor.shape[0], 0], "not inside")):
        problem = load(setting.program, path, [(wrong, torch.zeros(tensor.shape), offsets)])
        check(problem is not None and message in problem and wrong in problem, "%s: %s" % (wrong, problem))


def same(a, b):
    """Bit for bit, whatever the dtype."""
    return a.dtype == b.dtype and a.shape == b.shape and bytes(a.contiguous().flatten().view(torch.uint8).numpy()) == bytes(
        b.detach().contiguous().flatten().view(torch.uint8).numpy())
