"""Tiny folders of DeepSpeed's ZeRO optimizers, to be bent: parameters of 2 and 3 elements on two ranks."""

import os

from pickle_builder import Build, Call, Global, saved, tensor

ORDERED = Global("collections", "OrderedDict")


def flat(nelems, offset=0):
    return tensor((nelems,), (1,), offset)


def shape(*dims):
    return Call(Global("torch", "Size"), dims)


def stage(number):
    return Call(Global("deepspeed.runtime.zero.config", "ZeroStageEnum"), number)


def slices(*list_of_dicts):
    fragment = Global("deepspeed.utils.tensor_fragment", "fragment_address")
    return [{name: Build(fragment, {"numel": n, "start": at}) for name, (n, at) in d.items()} for d in list_of_dicts]


def model_states(third=False, **other):
    """`other` overrules keys; a value of ... removes one."""
    hole = tensor((0,), (1,))
    states = {
        "module": {"a": hole if third else flat(2), "b": hole if third else tensor((3, 1), (1, 1)), "buffer": flat(2, 1),
                   "f": hole if third else flat(3), "tied": hole if third else flat(2)},
        "buffer_names": ["buffer"], "optimizer": None, "param_shapes": [{"a": shape(2)}, {"b": shape(3, 1)}],
        "frozen_param_shapes": {"f": shape(3)}, "shared_params": {"tied": "a"},
        "frozen_param_fragments": {"f": flat(2) if third else flat(3)},
        "lr_scheduler": {"last_epoch": 3}, "global_steps": 3, "dp_world_size": 2, "mp_world_size": 1,
        "ds_config": {"zero_optimization": {"stage": 3 if third else 2}}, "ds_version": "0.19.8", **other}
    return {key: value for key, value in states.items() if value is not ...}


def optim_states(rank, third=False, base=None, **other):
    step = tensor((), (), 3)
    sizes = (1, 2) if third else ((2, 2), (2, 1))[rank]
    state = {g: {"step": step, "exp_avg": flat(n), "exp_avg_sq": flat(n, 1)} for g, n in enumerate(sizes)}
    groups = [{"lr": 1, "params": [0]}, {"lr": 2, "params": [1]}]
    name = "optimizer_state_dict" if third else "base_optimizer_state"
    states = {"zero_stage": stage(3 if third else 2), "partition_count": 2 if third else [2, 2],
              name: {"state": state, "param_groups": groups} if base is None else base,
              "fp32_flat_groups" if third else "single_partition_of_fp32_groups": [flat(n) for n in sizes]}
    if not third:
        states["param_slice_mappings"] = slices(*(({"a": (2, 0)}, {"b": (2, 0)}), ({}, {"b": (1, 0)}))[rank])
        states["single_partition_of_fp32_groups"] = [flat((2, 0)[rank]), flat((2, 1)[rank])]
        state[0] = {"step": step, "exp_avg": flat((2, 0)[rank]), "exp_avg_sq": flat((2, 0)[rank])}
    states = {**states, "ds_version": "0.19.8", **other}
    return {"optimizer_state_dict": {key: value for key, value in states.items() if value is not ...}}


def names(third=False):
    """Model states of rank 0, optimizers of ranks 0 and 1; of ZeRO 3 the model states of rank 1 last."""
    model = "zero_pp_rank_%d_mp_rank_00_model_states.pt"
    found = [model % 0 if third else "mp_rank_00_model_states.pt"]
    found += ["zero_pp_rank_%d_mp_rank_00_optim_states.pt" % rank for rank in range(2)]
    return found + [model % 1] if third else found


def folder_of(third=False, model=None, optim=None, first=None, second=None):
    """A builder of a folder. model, optim: words for all files of the kind; first, second: for those of one rank."""
    def build(folder):
        path = os.path.join(folder, "global_step3")
        os.mkdir(path)
        own = [{**(optim or {}), **(words or {})} for words in (first, second)]
        files = [model_states(third, **(model or {})), *(optim_states(rank, third, **own[rank]) for rank in range(2)),
                 model_states(third, **(model or {}))]
        for name, state in zip(names(third), files):
            with open(os.path.join(path, name), "wb") as f:
                f.write(saved(state))
        return path

    return build


UNIVERSAL = ["mp_rank_00_model_states.pt", "zero/optimizer_state.pt", "zero/a/fp32.pt", "zero/a/exp_avg.pt", "zero/a/step.pt",
             "zero/b/fp32.pt", "zero/b/exp_avg.pt", "zero/b/step.pt", "zero/buffer/fp32.pt"]


def universal_of(model=None, groups=None, **slots):
    """A builder of a universal checkpoint; slots: the state of a file by its name, as a_fp32; ...: no file."""
    def build(folder):
        path = os.path.join(folder, "global_step3_universal")
        own = {"a_fp32": {"cat_dim": 0, "param": flat(2)}, "a_exp_avg": flat(2, 1), "a_step": tensor((), (), 3),
               "b_fp32": {"cat_dim": 0, "param": tensor((3, 1), (1, 1))}, "b_exp_avg": flat(3, 1), "b_step": tensor((), (), 3),
               "buffer_fp32": flat(2, 1), **slots}
        optimizer = optim_states(0, param_groups=[{"lr": 1, "params": [0]}, {"lr": 2, "params": [1]}], **(groups or {}))
        states = [model_states(**(model or {})), optimizer["optimizer_state_dict"],
                  *(own["_".join(name[:-3].split("/")[1:])] for name in UNIVERSAL[2:])]
        for name, state in zip(UNIVERSAL, states):
            if state is not ...:
                os.makedirs(os.path.dirname(os.path.join(path, name)), exist_ok=True)
                with open(os.path.join(path, name), "wb") as f:
                    f.write(saved(state))
        return path

    return build
