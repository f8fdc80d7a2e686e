"""Races of `consolidate` on DeepSpeed's folders against zero_to_fp32.py, which DeepSpeed copies into each of them; see scripts/bench.

DeepSpeed itself writes the inputs: a step of ZeRO 1 and ZeRO 3 in bf16 on the CPU, 14 bytes for each parameter.
Both outputs are one safetensors file of the fp32 master weights, which are compared tensor by tensor.
"""
import os
import subprocess
import sys

from harness import HERE, Runner, remove

RANKS, WIDTH = 4, 2048

TRAIN = """
import os, sys
sys.path.insert(0, sys.argv[1])
import torch
from deepspeed_training import import_deepspeed
from process_group import run_ranks

def rank_train(folder, stage, layers, width):
    import deepspeed
    torch.manual_seed(3)
    model = torch.nn.Sequential(*[torch.nn.Linear(width, width) for _ in range(layers)])
    config = {"train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": 1, "zero_allow_untested_optimizer": True,
              "zero_force_ds_cpu_optimizer": False, "bf16": {"enabled": True},
              "zero_optimization": {"stage": stage, "stage3_param_persistence_threshold": 0}}
    engine, _, _, _ = deepspeed.initialize(model=model, optimizer=torch.optim.AdamW(model.parameters()), config=config)
    engine.backward(engine(torch.ones(1, width, dtype=torch.bfloat16)).float().square().mean())
    engine.step()
    engine.save_checkpoint(folder, tag="step")

import_deepspeed()
folder, stage, layers, width, ranks = sys.argv[2], *map(int, sys.argv[3:])
run_ranks(ranks, rank_train, folder + ".part", stage, layers, width)
os.rename(folder + ".part", folder)
"""


def make_source(a, stage):
    folder = a.work / f"zero{stage}-{a.bytes:.0f}"
    layers = max(1, round(a.bytes / 14 / (WIDTH * WIDTH + WIDTH)))
    if not folder.exists():
        remove(folder.with_name(folder.name + ".part"))
        words = [HERE.parent / "fixtures", folder, stage, layers, WIDTH, RANKS]
        subprocess.run([sys.executable, "-W", "ignore", "-c", TRAIN, *map(str, words)], check=True, stdout=subprocess.DEVNULL)
    return folder


def race_zero(a, race, stage, same):
    source = make_source(a, stage)
    out, peer = f"{a.work}/fsdpck-out.safetensors", f"{a.work}/script-out"
    packages = [os.environ["FSDPCK_DEEPSPEED"], os.environ["FSDPCK_TRANSFORMERS"]]
    script = ["env", f"PYTHONPATH={':'.join(packages)}", "DS_ACCELERATOR=cpu", "DS_IGNORE_CUDA_DETECTION=1", sys.executable,
              "-W", "ignore", source / "zero_to_fp32.py", source, peer, "--safe_serialization", "--max_shard_size", "999GB"]
    runners = [Runner("fsdpck", [a.program, "consolidate", source / "step", out], out),
               Runner("zero_to_fp32.py", [str(word) for word in script], peer)]
    race(f"ZeRO {stage}, {a.bytes / 1e9:.1f} GB, {RANKS} ranks -> 1 safetensors", source / "step", runners, a.rounds,
         lambda kept: same(kept["fsdpck"], kept["zero_to_fp32.py"]))


def races(a, race, same):
    return {f"zero{stage}": lambda stage=stage: race_zero(a, race, stage, same) for stage in (1, 3)}
