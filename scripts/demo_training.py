"""demo_training.py DIR RANKS STEPS: trains a small GPT with FSDP2 on the CPU, and saves DIR/step-N/ as training scripts do: a DCP
folder with the model, Adam's state and the step. The text is this file. scripts/make_demo runs it."""

import os
import sys
import tempfile

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.multiprocessing as mp
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

WIDTH, HEADS, LAYERS, VOCABULARY, CONTEXT, BATCH = 64, 4, 4, 256, 64, 4


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1 = nn.LayerNorm(WIDTH)
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.proj = nn.Linear(WIDTH, WIDTH)
        self.norm2 = nn.LayerNorm(WIDTH)
        self.up = nn.Linear(WIDTH, 4 * WIDTH)
        self.down = nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        batch, length, _ = x.shape
        q, k, v = (part.view(batch, length, HEADS, -1).transpose(1, 2) for part in self.qkv(self.norm1(x)).chunk(3, dim=-1))
        mixed = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(mixed.transpose(1, 2).reshape(batch, length, WIDTH))
        return x + self.down(nn.functional.gelu(self.up(self.norm2(x))))


class Gpt(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, WIDTH)
        self.positions = nn.Embedding(CONTEXT, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, ids):
        x = self.tokens(ids) + self.positions(torch.arange(ids.shape[1]))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def batch_of(text, generator):
    starts = torch.randint(len(text) - CONTEXT - 1, (BATCH,), generator=generator)
    rows = torch.stack([text[s:s + CONTEXT + 1] for s in starts])
    return rows[:, :-1], rows[:, 1:]


def train(rank, folder, ranks, steps, store):
    dist.init_process_group("gloo", init_method="file://" + store, rank=rank, world_size=ranks)
    torch.manual_seed(0)
    model = Gpt()
    mesh = init_device_mesh("cpu", (ranks,), mesh_dim_names=("fsdp",))
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    with open(__file__, "rb") as f:
        text = torch.tensor(list(f.read()))
    generator = torch.Generator().manual_seed(rank)
    for step in range(1, steps + 1):
        ids, expected = batch_of(text, generator)
        loss = nn.functional.cross_entropy(model(ids).flatten(0, 1), expected.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        weights, state = get_state_dict(model, optimizer)
        dcp.save({"model": weights, "optim": state, "step": step}, checkpoint_id=os.path.join(folder, "step-%d" % step))
        if rank == 0:
            print("step %d, loss %.3f: %s" % (step, loss.item(), os.path.join(folder, "step-%d" % step)), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    ranks = int(sys.argv[2])
    with tempfile.TemporaryDirectory() as where:
        mp.spawn(train, (sys.argv[1], ranks, int(sys.argv[3]), os.path.join(where, "store")), nprocs=ranks)
