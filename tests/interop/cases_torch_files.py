"""Files that torch's own checkpointers name in their way: one per rank, and data files below prefixes of object stores."""

import importlib.util
import json
import os
import shutil
from datetime import timedelta

import torch

from cases_reshard import full_tensors, make_model, states_of, step
from support import BAD_INPUT, case, check, check_same_tensors, load_file

FOUND = 1  # verify: an error


def trained(ranks):
    model, optimizer = make_model((ranks,), ("fsdp",))
    step(model, optimizer)
    states = states_of(model, optimizer)
    return states, full_tensors(states)


def keep_truth(truth, folder):
    import torch.distributed as dist
    if dist.get_rank() == 0:
        torch.save(truth, folder + ".truth")


def check_weights(setting, source, *options):
    truth = torch.load(source + ".truth", weights_only=True)
    want = {name.removeprefix("model."): t for name, t in truth.items() if name.startswith("model.")}
    _, made = setting.consolidate(source, "weights.safetensors", "--force", *options)
    check_same_tensors(load_file(made), want, source)
    return truth


def rank_save_experimental(folder):
    """torch.distributed.checkpoint._experimental, as its Checkpointer calls it."""
    import torch.distributed as dist
    from torch.distributed.checkpoint._experimental.checkpoint_writer import CheckpointWriter, CheckpointWriterConfig
    from torch.distributed.checkpoint._experimental.types import RankInfo
    states, truth = trained(dist.get_world_size())
    rank = RankInfo(global_world_size=dist.get_world_size(), global_rank=dist.get_rank())
    CheckpointWriter(CheckpointWriterConfig(), rank).write(folder, states)
    keep_truth(truth, folder)


@case(first=(2, 15))
def case_rank_files_of_experimental(setting):
    """checkpoint_0.pt, checkpoint_1.pt: files of ranks if they hold DTensors, otherwise of epochs."""
    from process_group import run_ranks
    source = setting.path("saved")
    run_ranks(3, rank_save_experimental, source)
    truth = check_weights(setting, source)
    told = json.loads(setting.run("inspect", "--json", source).stdout)
    check((told["source"]["format"], told["source"]["world_size"]) == ("pt-ranks", 3), str(told["source"]))
    setting.run("verify", "--level", "numeric", source)
    setting.run("reshard", source, setting.path("made"), "--world-size", "2")
    check(sorted(n for n in os.listdir(setting.path("made")) if n.endswith(".pt")) == ["checkpoint_0.pt", "checkpoint_1.pt"],
          "files of the output")
    os.rename(source + ".truth", setting.path("made.truth"))
    check_weights(setting, setting.path("made"))
    os.rename(source + "/checkpoint_1.pt", setting.path("lost.pt"))
    check("FILE-MISSING" in setting.run("verify", source, expected=FOUND).stdout, "a lost file")
    with open(setting.path("lost.pt"), "rb") as whole, open(source + "/checkpoint_1.pt", "wb") as cut:
        cut.write(whole.read()[:-1000])
    setting.run("verify", source, expected=FOUND)
    os.makedirs(setting.path("epochs"))
    weights = {name: t for name, t in truth.items() if name.startswith("model.")}
    for epoch in range(2):
        torch.save(weights, setting.path("epochs", "checkpoint_%d.pt" % epoch))
    done = setting.run("inspect", setting.path("epochs"), expected=2)
    check("--source-rank-pattern 'checkpoint_{r}.pt'" in done.stderr, done.stderr)


def rank_replicate(folder):
    import torch.distributed as dist
    from torch.distributed.checkpoint.staging import _ReplicationStager
    states, truth = trained(dist.get_world_size())
    _ReplicationStager(dist.group.WORLD, timedelta(seconds=60), torch.device("cpu"), folder).stage(states)
    keep_truth(truth, folder)


@case(first=(2, 15))
def case_rank_files_of_replicas(setting):
    """rank_R_replica_partner_P.pt holds the state of rank P."""
    from process_group import run_ranks
    source = setting.path("replicas")
    run_ranks(4, rank_replicate, source)
    check(sorted(os.listdir(source)) == ["rank_%d_replica_partner_%d.pt" % (r, (r + 2) % 4) for r in range(4)], "names")
    check_weights(setting, source)
    setting.run("verify", "--level", "numeric", source)
    os.rename(source + "/rank_1_replica_partner_3.pt", setting.path("lost.pt"))
    done = setting.run("verify", source, expected=FOUND)
    check("FILE-MISSING" in done.stdout and "partner_3.pt" in done.stdout, done.stdout)
    shutil.copy(setting.path("lost.pt"), source + "/rank_0_replica_partner_3.pt")
    check("RANK-MIXED" in setting.run("inspect", source, expected=BAD_INPUT).stderr, "a file of another number of ranks")


def s3_strategies():
    """The file of s3torchconnector that makes the prefixes; it needs torch alone."""
    spec = importlib.util.spec_from_file_location("s3_prefix_strategy", os.environ["FSDPCK_S3_STRATEGY"])
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def rank_save_below_prefixes(folder, strategy):
    """torch's writer with the prefixes of s3torchconnector, whose S3StorageWriter differs in prepare_global_plan
    and in the file system alone."""
    import dataclasses

    import torch.distributed as dist
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.filesystem import _StoragePrefix
    strategies = s3_strategies()
    make = {"binary": lambda: strategies.BinaryPrefixStrategy(epoch_num=5), "hex": strategies.HexPrefixStrategy,
            "round": lambda: strategies.RoundRobinPrefixStrategy(["shard0", "deep/shard1"])}[strategy]()

    class Writer(dcp.FileSystemWriter):
        def prepare_global_plan(self, plans):
            for rank in range(len(plans)):
                os.makedirs(os.path.dirname(os.path.join(folder, make(rank))), exist_ok=True)
            return [dataclasses.replace(plan, storage_data=_StoragePrefix(make(rank))) for rank, plan in enumerate(plans)]

    states, truth = trained(dist.get_world_size())
    dcp.save(states, storage_writer=Writer(folder))
    keep_truth(truth, folder)


@case(first=(2, 15))
def case_data_files_in_subfolders(setting):
    from process_group import run_ranks
    for strategy, file in (("binary", "1000000000/epoch_5/__1_0.distcp"), ("hex", "2000000000/__2_0.distcp"),
                           ("round", "deep/shard1/__1_0.distcp")):
        source = setting.path(strategy)
        run_ranks(3, rank_save_below_prefixes, source, strategy)
        check(os.path.exists(os.path.join(source, file)), "no " + file)
        check_weights(setting, source)
        told = json.loads(setting.run("inspect", "--json", source).stdout)
        check((told["source"]["format"], told["source"]["world_size"]) == ("dcp", 3), str(told["source"]))
        setting.run("verify", "--level", "numeric", source)
        setting.run("reshard", source, setting.path(strategy + "-made"), "--world-size", "2")
        shutil.copy(source + ".truth", setting.path(strategy + "-made.truth"))
        check_weights(setting, setting.path(strategy + "-made"))
        os.rename(os.path.join(source, file), setting.path("lost"))
        done = setting.run("verify", source, expected=FOUND)
        check("FILE-MISSING" in done.stdout and file in done.stdout, done.stdout)
        with open(setting.path("lost"), "rb") as whole, open(os.path.join(source, file), "wb") as cut:
            cut.write(whole.read()[:-1000])
        done = setting.run("verify", source, expected=FOUND)
        check("FILE-SHORT" in done.stdout or "DCP-RANGE" in done.stdout, done.stdout)
