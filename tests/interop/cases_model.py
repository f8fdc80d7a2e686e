"""A real model in training on 8 ranks, merged for serving and for going on."""

import torch
from torch import nn

from support import (case, check, check_same_names, check_same_tensors, load_file, load_hf, load_pt, tensors_of_state)

WORLD_SIZE = 8


def make_tree(tensors):
    """A module tree that has these names; floating tensors are parameters, the others buffers."""
    root = nn.Module()
    for name, tensor in tensors.items():
        *path, last = name.split(".")
        module = root
        for part in path:
            if not hasattr(module, part):
                module.add_module(part, nn.Module())
            module = getattr(module, part)
        if tensor.is_floating_point():
            module.register_parameter(last, nn.Parameter(tensor.clone()))
        else:
            module.register_buffer(last, tensor.clone())
    return root


def gradient_of(weight):
    return weight * 0.5


def truth_of(tensors):
    """Adam's state after one step with gradient w/2, betas 1/2 and 3/4: powers of two, so exact in any order."""
    truth = {"model." + name: tensor for name, tensor in tensors.items()}
    for name, tensor in tensors.items():
        if tensor.is_floating_point():
            gradient = gradient_of(tensor)
            truth["optim.state.%s.exp_avg" % name] = 0.0 + gradient * 0.5  # Adam too starts from 0, which -0 loses
            truth["optim.state.%s.exp_avg_sq" % name] = gradient * gradient * 0.25
            truth["optim.state.%s.step" % name] = torch.tensor(1.0)
    return truth


def rank_train(folder, model_file):
    from cases_fsdp import get_state_dict, local_piece, make_mesh, save, shard
    import torch.distributed as dist
    tensors = load_file(model_file)
    model = make_tree(tensors)
    shard(model, make_mesh(), list(model.encoder.layer.children()))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.125, betas=(0.5, 0.75))
    for parameter in model.parameters():
        parameter.grad = gradient_of(parameter.detach())
    optimizer.step()
    with torch.no_grad():  # back to the published weights, so that the truth is the file itself
        for name, parameter in model.named_parameters():
            parameter.to_local().copy_(local_piece(tensors[name], parameter))
    model_state, optimizer_state = get_state_dict(model, optimizer)
    save(folder, {"model": model_state, "optim": optimizer_state})
    if dist.get_rank() == 0:
        torch.save(optimizer_state["param_groups"], folder + ".param_groups")


@case(first=(2, 6))
def case_real_model(setting):
    from process_group import run_ranks
    check(setting.model_file, "no model file given (--model)")
    source = setting.path("checkpoint")
    run_ranks(WORLD_SIZE, rank_train, source, setting.model_file)
    tensors = load_file(setting.model_file)
    truth = truth_of(tensors)

    _, serving = setting.consolidate(source, "serving")
    found, index = load_hf(serving)
    check(index is None, "one file needs no index")
    check_same_tensors(found, tensors, "folder for serving")

    _, path = setting.consolidate(source, "resume.pt")
    state = load_pt(path)
    check_same_names(state, ["model", "optim"], "resume.pt")
    check_same_names(state["optim"], ["state", "param_groups"], "resume.pt, optim")
    check_same_tensors(tensors_of_state(state), truth, "resume.pt")
    groups = torch.load(source + ".param_groups", weights_only=True)
    check(state["optim"]["param_groups"] == groups, "param_groups are %r, expected %r" % (
        state["optim"]["param_groups"], groups))
    check(list(state["optim"]["param_groups"][0]["params"]) == groups[0]["params"], "order of params")

    _, path = setting.consolidate(source, "everything.safetensors", "--part", "all")
    check_same_tensors(load_file(path), truth, "everything.safetensors")

    _, path = setting.consolidate(source, "moments.safetensors", "--part", "optimizer")
    only = {key: value for key, value in truth.items() if key.startswith("optim.")}
    check_same_tensors(load_file(path), only, "moments.safetensors")
