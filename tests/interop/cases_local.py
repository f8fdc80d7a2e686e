"""Outputs on each host's own disk (--output-local): what one host gets is enough for torch's ranks there."""

import os
import shutil
import socket
import traceback

import torch
import torch.distributed as dist
import torch.multiprocessing as multiprocessing

from support import case, check

RANKS, HOSTS = 4, 2


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def load_rank(rank, port, source, folders, replicas):
    """One rank loads its part from its host's folder alone."""
    import torch.distributed.checkpoint as dcp
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor
    try:
        dist.init_process_group("gloo", init_method="tcp://127.0.0.1:%d" % port, rank=rank, world_size=RANKS)
        whole = torch.load(source, weights_only=False)
        if replicas:
            mesh = init_device_mesh("cpu", (2, RANKS // 2), mesh_dim_names=("dp_replicate", "dp_shard"))
            placements = [Replicate(), Shard(0)]
        else:
            mesh = init_device_mesh("cpu", (RANKS,), mesh_dim_names=("fsdp",))
            placements = [Shard(0)]
        state = {"model.%s" % k: distribute_tensor(torch.zeros_like(v), mesh, placements) for k, v in whole["model"].items()}
        state["step"] = 0
        dcp.load(state, checkpoint_id=folders[rank * HOSTS // RANKS])
        for name, value in whole["model"].items():
            expected = distribute_tensor(value, mesh, placements).to_local()
            assert torch.equal(state["model.%s" % name].to_local(), expected), name
        assert state["step"] == whole["step"], state["step"]
        dist.barrier()
        dist.destroy_process_group()
    except Exception:
        traceback.print_exc()
        raise


@case(first=(2, 5))
def case_local_outputs_load(setting):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(37, 64), torch.nn.LayerNorm(64), torch.nn.Linear(64, 13))
    source = setting.path("src.pt")
    torch.save({"model": model.state_dict(), "step": 7}, source)
    for replicas, words in ((False, ["--world-size", RANKS]), (True, ["--mesh", "dp_replicate=2,dp_shard=2"])):
        whole = setting.path("whole%d" % replicas)
        setting.run("reshard", source, whole, "--format", "dcp", "--output-local", *words)
        folders = []
        for host in range(HOSTS):
            ranks = [r for r in range(RANKS) if r * HOSTS // RANKS == host]
            # The step is with rank 0; replicas with the lowest that have them.
            files = {0, *ranks, *(r % (RANKS // 2) for r in ranks if replicas)}
            folder = setting.path("host%d-%d" % (host, replicas))
            os.mkdir(folder)
            for name in [".metadata", *("__%d_0.distcp" % r for r in files)]:
                shutil.copy(os.path.join(whole, name), folder)
            folders.append(folder)
        if not replicas:
            check(not os.path.exists(os.path.join(folders[0], "__3_0.distcp")), "host 0 has what host 1 needs")
        multiprocessing.start_processes(load_rank, (free_port(), source, folders, replicas), nprocs=RANKS, start_method="fork")
