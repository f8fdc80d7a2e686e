"""consolidate --part adapter: adapters of PEFT in sharded states, compared with what save_pretrained writes."""

import json
import os
import warnings
from functools import partial

import torch
from safetensors import safe_open
from safetensors.torch import load_file

from peft_models import VARIANTS, import_peft, make_base, make_peft
from process_group import run_ranks
from support import BAD_INPUT, UNSUPPORTED, USAGE, case, check, check_nothing_at, check_same_tensors

FILE, CONFIG = "adapter_model.safetensors", "adapter_config.json"


def save_truth(setting, model, name="truth"):
    """The folder of save_pretrained."""
    folder = setting.path(name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.save_pretrained(folder)
    return folder


def shard_of(tensor, mesh):
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor
    return distribute_tensor(tensor.detach(), mesh, [Shard(0) if tensor.ndim > 0 else Replicate()])


def rank_save_dcp(folder, make, fsdp, wrap):
    import torch.distributed as dist
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.state_dict import get_model_state_dict
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    mesh = init_device_mesh("cpu", (dist.get_world_size(),), mesh_dim_names=("fsdp",))
    model = make()
    if fsdp:
        for layer in model.base_model.model.model.layers:
            fully_shard(layer, mesh=mesh)
        fully_shard(model, mesh=mesh)
        state = get_model_state_dict(model)
    else:
        state = {name: shard_of(tensor, mesh) for name, tensor in model.state_dict().items()}
    dcp.save(wrap(state), checkpoint_id=folder)


def rank_save_files(folder, make):
    """Files of verl's kind."""
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    world = dist.get_world_size()
    mesh = init_device_mesh("cpu", (world,), mesh_dim_names=("fsdp",))
    state = {name: shard_of(tensor, mesh) for name, tensor in make().state_dict().items()}
    os.makedirs(folder, exist_ok=True)
    torch.save(state, os.path.join(folder, "model_world_size_%d_rank_%d.pt" % (world, dist.get_rank())))


def under_model(state):
    return {"model": state}


def flat_model(state):
    return {"model." + name: tensor for name, tensor in state.items()}


def bare(state):
    return state


def check_folder(found, truth, same_config):
    """Names, values and dtypes of the tensors; the metadata."""
    check_same_tensors(load_file(os.path.join(found, FILE)), load_file(os.path.join(truth, FILE)), found)
    with safe_open(os.path.join(found, FILE), framework="pt") as file:
        check(file.metadata() == {"format": "pt"}, "metadata: %r" % (file.metadata(),))
    if same_config:
        with open(os.path.join(found, CONFIG), "rb") as one, open(os.path.join(truth, CONFIG), "rb") as other:
            check(one.read() == other.read(), "adapter_config.json differs")


def scalings(model):
    from peft.tuners.lora import LoraLayer
    return {name: dict(module.scaling) for name, module in model.named_modules() if isinstance(module, LoraLayer)}


def check_loads(name, found, model):
    """PeftModel.from_pretrained makes the model that was trained, with its ranks and scalings."""
    peft, _ = import_peft()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        base = make_base(name)
        loaded = peft.PeftModel.from_pretrained(base, found, autocast_adapter_dtype=False)
    trained, state = model.state_dict(), loaded.state_dict()
    check(sorted(state) == sorted(trained), "names of the model: %s" % sorted(set(state) ^ set(trained))[:4])
    for key in state:
        if any(part in key for part in ("lora_", "modules_to_save", "trainable_tokens_delta")):
            check(torch.equal(state[key], trained[key]), "%s: '%s' differs" % (found, key))
    check(scalings(loaded) == scalings(model), "scalings: %s, expected %s" % (scalings(loaded), scalings(model)))


def facts_of(name):
    options = VARIANTS[name][1]
    words = ["--lora-alpha", str(options["lora_alpha"])]
    words += ["--rslora"] if options.get("use_rslora") else []
    words += ["--fan-in-fan-out"] if options.get("fan_in_fan_out") else []
    return words + (["--task-type", options["task_type"]] if "task_type" in options else [])


def check_variant(setting, name, ranks, fsdp=False, wrap=under_model):
    make = partial(make_peft, name)
    model = make()
    truth = save_truth(setting, model)
    source = setting.path("dcp")
    run_ranks(ranks, rank_save_dcp, source, make, fsdp, wrap)
    _, found = setting.consolidate(source, "with_config", "--part", "adapter", "--adapter-config",
                                   os.path.join(truth, CONFIG))
    check_folder(found, truth, True)
    check_loads(name, found, model)
    if VARIANTS[name][3]:
        _, found = setting.consolidate(source, "with_facts", "--part", "adapter", *facts_of(name))
        check_folder(found, truth, False)
        check_loads(name, found, model)
    else:
        setting.consolidate(source, "never", "--part", "adapter", *([] if "tokens" not in name else facts_of(name)),
                            expected=USAGE)
        check_nothing_at(setting.path("never"))


def add_variant(name, ranks, **options):
    def function(setting):
        check_variant(setting, name, ranks, **options)
    function.__name__ = "case_lora_" + name
    case(first=(2, 15))(function)


for number, variant in enumerate(VARIANTS):
    add_variant(variant, 2 + number % 3, fsdp=variant in ("llama", "llama_bf16", "llama_fp16", "llama_all", "llama_ranks"),
                wrap=(under_model, flat_model, bare)[number % 3])
