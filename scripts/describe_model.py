#!/usr/bin/env python3
"""Describes a model for `fsdpck --model FILE` (fsdpck-model(5)). Requires only torch; copy it to the training code.

    from describe_model import describe
    if torch.distributed.get_rank() == 0:
        with open("model.json", "w") as out:
            json.dump(describe(model, optimizer), out)  # optimizer: optional, or {"optim": optimizer, ...}

Accepts a model before or after wrapping: FSDP (both modes), fully_shard, replicate, DDP, activation checkpointing,
torch.compile. It communicates nothing and reads no parameter. Torch 2.0 to 2.15.

    describe_model.py [--fsdp1 CLASS,...] [--fully-shard CLASS,...] MODULE:FUNCTION >model.json

describes the unwrapped model that FUNCTION() returns, created without memory for weights. The options, and arguments of
describe with the same names, define the wrapping of a planned run: the root and every module of these classes become
units, of FSDP1 with use_orig_params or of fully_shard. Next: fsdpck layout model.json --world-size 1024.
"""

import argparse
import importlib
import json
import os
import sys

import torch
import torch.distributed as dist
from torch.nn.parallel import DataParallel, DistributedDataParallel

# Attribute under which a wrapper keeps its module -> key of the description.
WRAPPERS = {"_checkpoint_wrapped_module": "checkpoint", "_orig_mod": "compile", "_fsdp_wrapped_module": None}


def dtype_name(dtype):
    return str(dtype).replace("torch.", "")


def without_none(**values):
    return {key: value for key, value in values.items() if value is not None}


def group_size():
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else None


def flat_state(module):
    """The state of FSDP1 that sits on a module, or None."""
    try:
        from torch.distributed.fsdp._common_utils import _FSDPState, _get_module_fsdp_state
    except ImportError:
        return None
    state = _get_module_fsdp_state(module)
    return state if isinstance(state, _FSDPState) else None


def flat_handles(state):
    handles = getattr(state, "_handles", None) or [getattr(state, "_handle", None)]
    return [handle for handle in handles if handle is not None]


def shard_state(module):
    """The state of FSDP2, or None."""
    state = module._get_fsdp_state() if hasattr(module, "_get_fsdp_state") else None
    return state if state is not None and shard_groups(state) is not None else None


def shard_groups(state):
    if hasattr(state, "_fsdp_param_groups"):
        return state._fsdp_param_groups
    if hasattr(state, "_fsdp_param_group"):
        return [state._fsdp_param_group] if state._fsdp_param_group else []
    return None


def is_replicated(module):
    try:
        from torch.distributed._composable.contract import _get_registry
    except ImportError:
        return False
    return "replicate" in (_get_registry(module) or {})


def class_name(module):
    names = [cls.__name__ for cls in type(module).__mro__]
    return names[2] if "FSDPModule" in names[:2] else names[0]  # fully_shard makes a class FSDP<Name>


def clean_name(name):
    return ".".join(part for part in name.split(".") if part not in WRAPPERS)


def join_path(path, name):
    return path + "." + name if path and name else path or name


def overridden(module):
    """Children whose parameters a module's own named_parameters() names otherwise than the walk does -> the path that
    it puts in place of the child's (TorchRec's DistributedModelParallel)."""
    if type(module).named_parameters is torch.nn.Module.named_parameters:
        return {}
    asked = {id(param): clean_name(name) for name, param in module.named_parameters()}
    found = {}
    for child, below in module._modules.items():
        for name, param in torch.nn.Module.named_parameters(below) if below is not None else ():
            name, given = clean_name(name), asked.get(id(param), "")
            if ("." + given).endswith("." + name):
                found[child] = given[:-len(name)].rstrip(".")
                break
    return found


class Describer:
    def __init__(self):
        self.world_size = group_size()
        self.modules = []
        self.paths = {}       # id of a module -> its first path
        self.shard_paths = {}  # id of a state of FSDP2 -> path of its first module
        self.names = {}       # key of a parameter -> its first name
        self.learnt = set()
        self.uses = {}        # key of a parameter -> [(entry, whether the unit of this name has it)]
        self.flat = {}        # id of a module -> [(name, key, shape, strides, dtype, requires_grad)]
        self.flat_keys = {}   # id of an original parameter -> key
        self.shard_dims = {}  # id of a parameter of FSDP2 -> placement
        self.flat_names = {}  # id of a flat parameter -> PREFIX._flat_param

    def learn_flat(self, state):
        """What a flat parameter knows of the originals; shared names have the key of the first."""
        for flat in (handle.flat_param for handle in flat_handles(state)):
            if id(flat) in self.learnt:
                continue
            self.learnt.add(id(flat))
            infos = list(flat._param_infos)
            strides = getattr(flat, "_strides", None) or [None] * len(infos)
            contiguous = getattr(flat, "_contiguities", None) or [True] * len(infos)
            originals = getattr(flat, "_params", None) or [None] * len(infos)
            first = {}
            for i, info in enumerate(infos):
                original = originals[i]
                grad = flat.requires_grad if original is None else original.requires_grad
                row = ((id(flat), i), list(flat._shapes[i]), None if contiguous[i] else list(strides[i]),
                       dtype_name(flat.dtype), grad)
                first[id(info.module), info.param_name] = row
                self.flat.setdefault(id(info.module), []).append((info.param_name, *row))
                if original is not None:
                    self.flat_keys[id(original)] = row
            for shared in flat._shared_param_infos:
                row = first[id(shared.prim_module), shared.prim_param_name]
                self.flat.setdefault(id(shared.module), []).append((shared.param_name, *row))

    def flat_settings(self, state):
        size = state.process_group.size()
        precision = state.mixed_precision
        dtypes = {key: dtype_name(getattr(precision, key)) for key in ("param_dtype", "reduce_dtype", "buffer_dtype")
                  if precision is not None and getattr(precision, key) is not None}
        return without_none(
            use_orig_params=state._use_orig_params, sharding_strategy=state.sharding_strategy.name,
            world_size=size if size not in (1, self.world_size) else None,
            cpu_offload=True if state.cpu_offload.offload_params else None,
            limit_all_gathers=None if getattr(state, "limit_all_gathers", True) else False, **dtypes)

    def shard_settings(self, state, path):
        settings = {}
        first = self.shard_paths.setdefault(id(state), path)
        if first != path:
            settings["with"] = first
        for group in shard_groups(state)[:1]:
            size = getattr(group.mesh_info, "shard_mesh_size", 1)
            after = getattr(group.post_forward_mesh_info, "shard_mesh_size", None)
            # Before 2.8 the root keeps its parameters whatever it was told.
            if after is None or not getattr(state, "_auto_reshard_after_forward", after == size):
                settings["reshard_after_forward"] = False if after is None else True if after == size else after
            if size not in (1, self.world_size):
                settings["world_size"] = size
            precision = getattr(state, "_mp_policy", None)
            for key in ("param_dtype", "reduce_dtype"):
                if getattr(precision, key, None) is not None:
                    settings[key] = dtype_name(getattr(precision, key))
            if type(group.offload_policy).__name__ == "CPUOffloadPolicy":
                settings["cpu_offload"] = True
        for group in shard_groups(state):
            for param in group.fsdp_params:
                self.shard_dims[id(param.sharded_param)] = getattr(param, "fsdp_placement", None)
        return settings

    def is_local(self, size):
        return size == 1 and self.world_size not in (None, 1)

    def unwrap(self, module, entry):
        """The innermost module; what is around it becomes keys. Returns it with the state of FSDP1, or None."""
        found = None
        while True:
            state = flat_state(module)
            if state is not None:
                found = state
                entry["fsdp"] = self.flat_settings(state)
                if self.is_local(state.process_group.size()):
                    entry["local_group"] = True
            inner = [name for name in WRAPPERS if name in module._modules]
            if isinstance(module, (DistributedDataParallel, DataParallel)):
                entry["ddp"] = True
                module = module.module
            elif inner:
                if WRAPPERS[inner[0]]:
                    entry[WRAPPERS[inner[0]]] = True
                module = module._modules[inner[0]]
            else:
                return module, found

    @staticmethod
    def tensor(name, shape, strides, dtype, requires_grad=True):
        return without_none(name=name, shape=shape, dtype=dtype, strides=strides,
                            requires_grad=None if requires_grad else False)

    def params(self, module, path, scope):
        """The entries of a module's own parameters, in the order of registration as far as it is known."""
        known = {row[0]: row[1:] for row in self.flat.get(id(module), [])}
        live_params = {name: p for name, p in module._parameters.items()
                       if p is not None and name not in ("_flat_param", "flat_param")}
        for name in dict.fromkeys([*known, *live_params]):
            live = live_params.get(name)
            row = known.get(name) or self.flat_keys.get(id(live)) or self.live_row(live)
            fqn = path + "." + name if path else name
            first = self.names.setdefault(row[0], fqn)
            entry = {"name": name, "same_as": first} if first != fqn else self.tensor(name, *row[1:])
            dim = getattr(self.shard_dims.get(id(live)), "dim", 0)
            if dim and first == fqn:
                entry["shard_dim"] = dim
            if row[0] == id(live) and scope.ignores(live, self.shard_dims):
                entry["ignored"] = True
            self.uses.setdefault(row[0], []).append((entry, name in known))
            yield entry

    @staticmethod
    def live_row(param):
        whole = isinstance(param.data, torch.Tensor) and type(param.data).__name__ != "DTensor"
        strides = list(param.stride()) if whole and param.dim() > 0 and not param.is_contiguous() else None
        return id(param), list(param.shape), strides, dtype_name(param.dtype), param.requires_grad

    def buffers(self, module):
        for name, buffer in module._buffers.items():
            if buffer is not None:
                entry = self.tensor(name, list(buffer.shape), None, dtype_name(buffer.dtype))
                if name in module._non_persistent_buffers_set:
                    entry["persistent"] = False
                yield entry

    def add(self, module, path, state_path, overrides, scope):
        """One module. Returns its children in order, with what this takes of them. state_path: before its names in
        state; overrides: it is another one than the walk's on from its parent's."""
        entry = {"name": path}
        if overrides:
            entry["override"] = state_path
        module, flat = self.unwrap(module, entry)
        if id(module) in self.paths:
            self.modules.append({"name": path, "same_as": self.paths[id(module)],
                                 **({"override": state_path} if overrides else {})})
            return []
        self.paths[id(module)] = path
        entry["class"] = class_name(module)
        shard = None
        if is_replicated(module):
            entry["replicate"] = True
            scope = Scope(closed=True)
        else:
            shard = shard_state(module)
            if shard is not None:
                entry["fully_shard"] = self.shard_settings(shard, path)
                if any(self.is_local(group.mesh_info.mesh.size()) for group in shard_groups(shard)):
                    entry["local_group"] = True
        if flat is not None or shard is not None:
            scope = Scope(flat, shard is not None, scope.closed)
        elif scope.leaves_out(module):
            entry["ignored"] = True
            scope = Scope(closed=True)
        for name in ("_flat_param", "flat_param"):
            if module._parameters.get(name) is not None:
                self.flat_names[id(module._parameters[name])] = join_path(state_path, "_flat_param")
        params = list(self.params(module, path, scope))
        buffers = list(self.buffers(module))
        if params:
            entry["params"] = params
        if buffers:
            entry["buffers"] = buffers
        self.modules.append(entry)
        given = overridden(module)
        return [(child, join_path(path, name), join_path(state_path, given.get(name, name)),
                 given.get(name, name) != name, scope)
                for name, child in module._modules.items() if child is not None]

    def walk(self, model):
        stack = [(model, "", "", False, Scope())]
        while stack:
            stack.extend(reversed(self.add(*stack.pop())))
        self.state_units()

    def state_units(self):
        """Of a parameter tied across units only the unit that was wrapped first has it, in use_orig_params."""
        for uses in self.uses.values():
            flattened = [entry for entry, has_it in uses if has_it]
            if flattened and len(flattened) < len(uses):
                flattened[0]["flattened"] = True


class Scope:
    """What the nearest FSDP call around a module leaves out. closed: all is left out already."""

    def __init__(self, flat=None, sharded=False, closed=False):
        self.modules = getattr(flat, "_ignored_modules", ())
        self.params = getattr(flat, "_ignored_params", ())
        self.sharded, self.closed = sharded, closed

    def leaves_out(self, module):
        return not self.closed and module in self.modules

    def ignores(self, param, sharded_params):
        if self.closed:
            return False
        return param in self.params or (self.sharded and id(param) not in sharded_params)


def describe_groups(describer, optimizer):
    """Names of the parameters of each param_group; a flat parameter of FSDP1 is PREFIX._flat_param."""
    names = {key: describer.names[row[0]] for key, row in describer.flat_keys.items() if row[0] in describer.names}
    names.update(describer.names)
    names.update(describer.flat_names)
    return [[names[id(param)] for param in group["params"]] for group in optimizer.param_groups]


def plan(modules, key, classes, settings):
    """Marks the root and all modules of `classes`, names of classes, as units."""
    missing = set(classes) - {entry.get("class") for entry in modules}
    if missing:
        raise ValueError("no module has class %s" % ", ".join(sorted(missing)))
    for entry in modules:
        if "same_as" in entry or (entry["name"] and entry.get("class") not in classes):
            continue
        if "fsdp" in entry or "fully_shard" in entry:
            raise ValueError("module '%s' is already wrapped" % entry["name"])
        entry[key] = dict(settings)


def describe(model, optimizer=None, fsdp1=None, fully_shard=None):
    """fsdp1, fully_shard: of an unwrapped model, names of the classes whose modules shall be units besides the root."""
    describer = Describer()
    # Flat parameters know the names of parameters that modules further up share with them.
    for module in model.modules():
        state = flat_state(module)
        if state is not None:
            describer.learn_flat(state)
    describer.walk(model)
    if fsdp1 is not None:
        plan(describer.modules, "fsdp", fsdp1, {"use_orig_params": True})
    if fully_shard is not None:
        plan(describer.modules, "fully_shard", fully_shard, {})
    optimizers = optimizer
    if optimizer is not None and not isinstance(optimizer, dict):
        optimizers = {"optim": optimizer}
    if optimizers is not None:
        optimizers = {key: describe_groups(describer, value) for key, value in optimizers.items()}
    return without_none(version=1, torch=str(torch.__version__), world_size=describer.world_size,
                        optimizers=optimizers, modules=describer.modules)


def main():
    """describe_model.py MODULE:FUNCTION calls FUNCTION() without memory for weights and prints its model."""
    def classes(text):
        return [name for name in text.split(",") if name]

    parser = argparse.ArgumentParser(formatter_class=argparse.RawDescriptionHelpFormatter, epilog=__doc__.strip())
    wrapping = parser.add_mutually_exclusive_group()
    wrapping.add_argument("--fsdp1", type=classes, metavar="CLASS,...", help="FSDP1 units in addition to the root")
    wrapping.add_argument("--fully-shard", type=classes, metavar="CLASS,...", help="fully_shard units in addition to the root")
    parser.add_argument("function", metavar="MODULE:FUNCTION")
    arguments = parser.parse_args()
    if ":" not in arguments.function:
        parser.error("MODULE:FUNCTION has no colon")
    sys.path.insert(0, os.getcwd())
    module, _, function = arguments.function.partition(":")
    with torch.device("meta"):
        model = getattr(importlib.import_module(module), function)()
    try:
        print(json.dumps(describe(model, fsdp1=arguments.fsdp1, fully_shard=arguments.fully_shard)))
    except ValueError as error:
        sys.exit("describe_model.py: %s" % error)


if __name__ == "__main__":
    main()
