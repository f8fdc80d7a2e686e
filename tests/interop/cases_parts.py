"""Parts: what is the model, in checkpoints as torch and trainers nest them, with names that only look like a trainer's."""

import collections
import json
import os

import torch
from safetensors.torch import save_file

from checkpoint_truth import seeded
from support import OK, USAGE, case, check, check_same_names, check_same_tensors, load_file, load_pt, tensors_of_state

NAMESAKES = {"emb.weight": (4, 4), "rng_embed.weight": (4, 4), "optimizer_head.weight": (4,), "optimizer.weight": (2,),
             "dataloader_proj.weight": (4, 2), "extra_state_x": (3,), "lr_scheduler_net.w": (2, 2),
             "train_state.enc.w": (2,), "rng.w": (5,), "flat_param": (7,), "blk.flat_param": (3, 2), "blk.bias": (3,)}


def namesakes():
    state = {name: seeded(name, shape) for name, shape in NAMESAKES.items()}
    state["step_norm.num_batches_tracked"] = torch.tensor(7)
    return state


def save_dcp(state, path):
    import torch.distributed.checkpoint as dcp
    dcp.save(state, checkpoint_id=path, no_dist=True)
    return path


def train():
    """A model and its optimizer after a step, their names as awkward as those above."""
    model = torch.nn.Sequential(collections.OrderedDict(rng_embed=torch.nn.Linear(4, 4), optim_head=torch.nn.Linear(4, 2)))
    model(seeded("x", (2, 4))).sum().backward()
    optimizer = torch.optim.AdamW(model.parameters())
    optimizer.step()
    return model, optimizer


def inspect(setting, source):
    return json.loads(setting.run("inspect", "--json", source).stdout)


@case((2, 6))
def case_a_bare_model_keeps_every_name(setting):
    state = namesakes()
    torch.save(state, setting.path("bare.pt"))
    save_file(state, setting.path("bare.safetensors"))
    os.mkdir(setting.path("hf"))
    save_file(state, setting.path("hf/model.safetensors"))
    save_dcp(state, setting.path("bare"))
    save_dcp({"model": state}, setting.path("nested"))
    for source in ("bare.pt", "bare.safetensors", "hf", "bare", "nested"):
        _, path = setting.consolidate(setting.path(source), source.replace(".", "-") + "-out.safetensors")
        check_same_tensors(load_file(path), state, source)
        told = inspect(setting, setting.path(source))
        check(told["parts"]["model"]["tensors"] == len(state), f"{source}: {told['parts']}")
        check(told["part_rule"] != "", f"{source}: no rule")


def layouts(model, optimizer):
    from torch.distributed.checkpoint.state_dict import StateDictOptions, get_optimizer_state_dict, get_state_dict
    names, state = get_state_dict(model, optimizer)
    flat = get_optimizer_state_dict(model, optimizer, options=StateDictOptions(flatten_optimizer_state_dict=True))
    numbers = optimizer.state_dict()
    beside = {"lr_scheduler": {"last_epoch": 3}, "dataloader": {"dp_rank_0": b"abc"},
              "train_state": {"step": torch.tensor(10)}}
    composer = {"state": {"model": names, "optimizers": {"DecoupledAdamW": state}, "rank_zero_seed": 3},
                "rng": [{"cuda": torch.zeros(3, dtype=torch.uint8)}]}
    return {
        "torchtitan": ({**names, "optimizer": flat, **beside}, ""),
        "nested": ({**names, "optimizer": state, **beside}, ""),
        "composer": (composer, "state.model."),
        "composer-numbers": ({"state": {"model": names, "optimizers": {"SGD": numbers}}}, "state.model."),
        "miles": ({"model_state": {"model": names}, "optim_state": {"optim": state}}, "model_state.model."),
        "lightning": ({"state_dict": names, "optimizer_states": [numbers], "epoch": 1}, "state_dict."),
        "nnunet": ({"network_weights": names, "optimizer_state": numbers, "current_epoch": 3}, "network_weights."),
        "accelerate": ({"model": names, "optimizer": state}, "model."),
        "short": ({"model": names, "opt": numbers, "scheduler": {}, "global_step": 3}, "model."),
    }


@case((2, 6))
def case_optimizers_are_told_by_their_shape(setting):
    model, optimizer = train()
    want = {name: value.detach() for name, value in model.state_dict().items()}
    for name, (state, outer) in layouts(model, optimizer).items():
        torch.save(state, setting.path(name + ".pt"))
        sources = [name + ".pt"]
        if name not in ("lightning", "composer-numbers", "nnunet", "short"):  # as they are saved
            sources.append(name)
            save_dcp(state, setting.path(name))
        for source in sources:
            told = inspect(setting, setting.path(source))
            check(told["parts"]["optimizer"]["tensors"] == 12, f"{source}: {told['parts']}")
            check(told["model_key"] + "." == outer or told["model_key"] == outer == "", f"{source}: {told['model_key']}")
            _, path = setting.consolidate(setting.path(source), source.replace(".", "-") + "-out.safetensors")
            check_same_tensors(load_file(path), want, source)
            _, path = setting.consolidate(setting.path(source), source.replace(".", "-") + "-opt.safetensors",
                                          "--part", "optimizer")
            check(len(load_file(path)) == 12, f"{source}: {sorted(load_file(path))}")


@case((2, 6))
def case_parameters_that_are_not_the_model_are_said(setting):
    model, optimizer = train()
    torch.save({"model": model.state_dict(), "ema": model.state_dict(), "optimizer": optimizer.state_dict()},
               setting.path("ema.pt"))
    done, path = setting.consolidate(setting.path("ema.pt"), "ema.safetensors")
    check("not part of the model: 4 floating-point tensors (120 bytes), the first is 'ema.rng_embed.weight'" in done.stdout, done.stdout)
    check_same_names(load_file(path), model.state_dict(), "ema.safetensors")
    torch.save({"net": model.state_dict(), "ema": model.state_dict(), "adam": optimizer.state_dict()},
               setting.path("net.pt"))
    done, path = setting.consolidate(setting.path("net.pt"), "net.safetensors")
    check("not the model" not in done.stdout, done.stdout)
    check_same_names(load_file(path), [k + n for k in ("net.", "ema.") for n in model.state_dict()], "net.safetensors")


@case((2, 6))
def case_a_parameter_called_flat_param(setting):
    """FSDP's flat parameters have one dim and lie in pieces; a neighbour of another is no leftover of it."""
    for shape in ((4, 4), (7,)):
        state = {"flat_param": seeded("f", shape), "norm.weight": seeded("w", (8,)), "norm.bias": seeded("b", (8,))}
        stem = "x".join(map(str, shape))
        save_dcp(state, setting.path("dcp" + stem))
        save_dcp({"model": state}, setting.path("nested" + stem))
        save_file(state, setting.path(stem + ".safetensors"))
        for source in ("dcp" + stem, "nested" + stem, stem + ".safetensors"):
            _, path = setting.consolidate(setting.path(source), source.replace(".", "-") + "-out.pt")
            found = tensors_of_state(load_pt(path))
            check_same_tensors({n.removeprefix("model."): t for n, t in found.items()}, state, source)
            done = setting.run("consolidate", "-q", "--force", setting.path(source), path)
            check(("MODEL-NEEDED" in done.stderr) == (len(shape) == 1), "%s: %s" % (source, done.stderr))
            setting.run("verify", "--strict", setting.path(source), expected=1 if len(shape) == 1 else OK)


@case(first=(2, 0))
def case_a_part_without_tensors_is_reported(setting):
    """verify tells that a default conversion selects nothing; a format that takes the state makes it a note."""
    made = {"empty": {}, "objects": {"step": 3, "lr": [1, 2]}, "other": {"lr_scheduler": {"t": torch.ones(2)}, "model": {}}}
    formats = {"safetensors": "x.safetensors", "pt": "x.pt"}
    for name, state in made.items():
        torch.save(state, setting.path(name + ".pt"))
        report = json.loads(setting.run("verify", "--level", "checksum", "--json", setting.path(name + ".pt")).stdout)
        severities = [f["severity"] for f in report["findings"] if f["finding"] == "KEY-NONE"]
        check(severities == ["warning" if name == "empty" else "note"], "%s: %s" % (name, report["findings"]))
        for kind, output in formats.items():
            none = kind == "safetensors" or name == "empty"
            done, _ = setting.consolidate(setting.path(name + ".pt"), name + output, expected=USAGE if none else OK)
            check(("KEY-NONE" in done.stderr) == none, done.stderr)
    torch.save({"a.weight": torch.ones(2), "_orig_mod.a.weight": torch.zeros(2)}, setting.path("twice.pt"))
    found = setting.run("verify", "--level", "checksum", "-v", setting.path("twice.pt")).stdout
    check("KEY-DUP" in found, "names that cleaning makes equal: " + found)
