"""Models of the kinds that FSDP is tested with, small; where each is wrapped; how it is trained. Needs torch alone."""

import functools
import time

import torch
import torch.distributed as dist
from torch import nn


class Transformer(nn.Module):
    """For ties and buffers: embedding and output projection are one parameter, BatchNorm counts, a float buffer is
    part of the sum, a long buffer of the result."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(13, 6)
        self.encoder = nn.ModuleList([nn.TransformerEncoderLayer(6, 2, 9, dropout=0, batch_first=True)])
        self.decoder = nn.ModuleList([nn.TransformerDecoderLayer(6, 2, 7, dropout=0, batch_first=True)])
        self.norm = nn.BatchNorm1d(5)
        self.head = nn.Linear(6, 13)
        self.head.weight = self.embedding.weight
        self.register_buffer("shift", torch.linspace(-1, 1, 6))
        self.register_buffer("order", torch.arange(13).flip(0))

    def forward(self, tokens):
        x = self.embedding(tokens) + self.shift
        memory = x
        for layer in self.encoder:
            memory = layer(memory)
        for layer in self.decoder:
            x = layer(x, memory)
        return self.head(self.norm(x))[..., self.order]


class Nested(nn.Sequential):
    """For units in units: linears two and three deep, between them parameters of every level."""

    def __init__(self, between=nn.Identity):
        super().__init__(
            nn.Linear(6, 5), between(),
            nn.Sequential(nn.Linear(5, 7, bias=False), nn.Sequential(nn.Linear(7, 3), between(), nn.Linear(3, 4)),
                          nn.Linear(4, 5)),
            between(), nn.Linear(5, 6))


class Late(torch.autograd.Function):
    """Nothing, but that each rank takes another time for it on the way back."""

    @staticmethod
    def forward(context, x):
        return x.clone()

    @staticmethod
    def backward(context, grad):
        time.sleep(0.001 * (1 + dist.get_rank()))
        return grad.clone()


class Delay(nn.Module):
    def forward(self, x):
        return Late.apply(x)


class Delayed(Nested):
    """For timing: the same state as Nested's, whose backward passes wait at three places, other times on each rank."""

    def __init__(self):
        super().__init__(Delay)


class Experts(nn.Module):
    """For groups of one rank: an expert that each rank has of its own, beside a gate that all of them share."""

    def __init__(self):
        super().__init__()
        self.gate = nn.Linear(6, 6)
        self.expert = nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 6, bias=False))
        self.out = nn.Linear(6, 3)

    def forward(self, x):
        return self.out(x + self.gate(x).softmax(-1) * self.expert(x))


class Outer(nn.Module):
    """For names: what stands where DDP would, and is none."""

    def __init__(self, module):
        super().__init__()
        self.module = module

    def forward(self, *inputs):
        return self.module(*inputs)


def outer():
    return Outer(Nested())


LAYERS = ["encoder.0", "decoder.0"]
# name -> (model, paths of the modules that are wrapped, the root's "" among them)
ZOO = {
    "transformer": (Transformer, ["", *LAYERS]),
    "transformer.whole": (Transformer, [""]),
    "transformer.deep": (Transformer, ["", *LAYERS, "encoder.0.self_attn", "norm"]),
    "nested.all": (Nested, ["", "0", "2", "2.0", "2.1", "2.1.0", "2.1.2", "2.2", "4"]),
    "nested.part": (Nested, ["", "2", "2.1"]),
    "nested.inner": (Nested, ["", "2.1.2"]),
    "nested.whole": (Nested, [""]),
    "nested.leaves": (Nested, ["2.0", "2.1"]),
    "delayed": (Delayed, ["", "2", "2.1"]),
    "experts": (Experts, ["", "expert"]),
    "outer": (outer, ["module", "module.2"]),
}
OF_ONE_RANK = ["expert"]  # paths of modules in a group of their own


def build(name):
    """The same on every rank, but for the experts."""
    torch.manual_seed(5)
    model = ZOO[name][0]()
    if name == "experts":
        with torch.no_grad():
            for parameter in model.expert.parameters():
                parameter += 0.25 * dist.get_rank()
    return model


def batch(name, step, same=True):
    """same: for all ranks, so that the statistics of batches stay equal."""
    rank = 0 if same else dist.get_rank()
    if name.startswith("transformer"):
        return (torch.arange(20).reshape(4, 5) * (step + 3) + rank) % 13
    return torch.sin(torch.arange(24).reshape(4, 6) * (step + 2.0) + rank)


MAKERS = {"adam": torch.optim.Adam, "sgd": functools.partial(torch.optim.SGD, momentum=0.5)}


def train(name, model, steps=2, same=True, maker="adam"):
    """Returns the optimizer."""
    optimizer = MAKERS[maker](model.parameters(), lr=0.0625)
    for step in range(steps):
        optimizer.zero_grad()
        model(batch(name, step, same)).float().square().mean().backward()
        optimizer.step()
    return optimizer


def train_by_hand(model):
    """Where there is no backward pass: gradients are the parameters, so that it matters not who holds them."""
    optimizer = torch.optim.Adam(model.parameters(), lr=0.0625)
    for _ in range(2):
        for parameter in model.parameters():
            if parameter.numel():
                parameter.grad = parameter.detach().clone()
        optimizer.step()
    return optimizer


# Wrapping


def own_group():
    """A group of this rank alone; all ranks call it together."""
    return [dist.new_group([rank]) for rank in range(dist.get_world_size())][dist.get_rank()]


def wrap_paths(model, paths, wrap):
    """wrap(module, path) takes the place of the module at each path, inner ones first."""
    for path in sorted(paths, key=lambda path: -len(path.split(".")) if path else 1):
        if path == "":
            return wrap(model, path)
        parent, _, name = path.rpartition(".")
        setattr(model.get_submodule(parent), name, wrap(model.get_submodule(path), path))
    return model


def wrap_flat(name, around=lambda module: module, inner=None, **options):
    """FSDP1. With a policy, it chooses the units. around: put around each module before FSDP is; inner: options of
    units inside others."""
    from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
    options.setdefault("device_id", torch.device("cpu"))
    own = own_group() if name == "experts" else None
    paths = ZOO[name][1] if "auto_wrap_policy" not in options else [""]

    def wrap(module, path):
        if path in OF_ONE_RANK:
            return FSDP(module, **{**options, "process_group": own})
        return FSDP(around(module) if path else module, **{**options, **(inner or {} if path else {})})

    return wrap_paths(build(name), paths, wrap)


def wrap_sharded(name, mesh, **options):
    """FSDP2. The expert stays as it is: a mesh of one rank would give the same name to other tensors on each."""
    try:
        from torch.distributed.fsdp import fully_shard
    except ImportError:
        from torch.distributed._composable.fsdp import fully_shard
    model = build(name)
    own = {"ignored_params": set(model.expert.parameters())} if name == "experts" else {}

    def wrap(module, path):
        if path in OF_ONE_RANK:
            return module
        return fully_shard(module, mesh=mesh, **options, **(own if path == "" else {})) or module

    return wrap_paths(model, ZOO[name][1], wrap)


# What state holds in full


def whole(tensor):
    """A tensor of a sharded state put together by hand; all ranks call it together."""
    if hasattr(tensor, "full_tensor"):
        return tensor.full_tensor()
    if not hasattr(tensor, "local_shards"):
        return tensor
    if tensor._process_group.size() == 1:
        return tensor.local_shards()[0].tensor
    everyone = [None] * dist.get_world_size()
    dist.all_gather_object(everyone, [(shard.metadata.shard_offsets, shard.tensor.detach())
                                      for shard in tensor.local_shards()])
    result, missing = torch.empty(tensor.size(), dtype=tensor.dtype), torch.ones(tensor.size(), dtype=torch.bool)
    for offsets, piece in (row for rows in everyone for row in rows):
        box = tuple(slice(offset, offset + size) for offset, size in zip(offsets, piece.shape))
        result[box], missing[box] = piece, False
    if missing.any():
        raise ValueError("torch's shards leave holes")
    return result
