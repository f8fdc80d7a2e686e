"""Units, orders and names of described models against torch's own; descriptions come from scripts/describe_model.py."""

import json
import os
import subprocess
import sys

import torch
from torch import nn

import zoo
from support import case, check

SCRIPTS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "scripts")
CPU = torch.device("cpu")


class Block(nn.Module):
    def __init__(self, *children):
        super().__init__()
        for i, child in enumerate(children):
            setattr(self, "sub%d" % i, child)


class Sub(Block):
    pass


class Transformer(nn.Module):
    """Embedding and output tied, BatchNorm, a float and a long buffer."""

    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(11, 6)
        self.layers = nn.ModuleList(nn.TransformerEncoderLayer(6, 2, 10, batch_first=True) for _ in range(2))
        self.norm = nn.BatchNorm1d(6)
        self.head = nn.Linear(6, 11)
        self.head.weight = self.emb.weight
        self.register_buffer("scale", torch.ones(3))
        self.register_buffer("steps", torch.zeros(2, dtype=torch.long), persistent=False)


def nested():
    """mod(sub0(subsub0, subsub1), sub1(subsub0, subsub1))"""
    return Block(Sub(nn.Linear(3, 5), nn.Linear(5, 2)), Sub(nn.Linear(2, 4), nn.Linear(4, 3)))


def flat(module, **options):
    from torch.distributed.fsdp import FullyShardedDataParallel
    return FullyShardedDataParallel(module, device_id=CPU, **options)


def by_hand(**options):
    model = nested()
    model.sub1 = flat(model.sub1, **options)
    model.sub0 = flat(model.sub0, **options)
    return flat(model, **options)


def by_class(**options):
    from torch.distributed.fsdp.wrap import ModuleWrapPolicy
    return flat(nested(), auto_wrap_policy=ModuleWrapPolicy({Sub}), **options)


def only_inner(**options):
    model = nested()
    model.sub1.sub0 = flat(model.sub1.sub0, **options)
    return model


def transformer(**options):
    from torch.distributed.fsdp.wrap import ModuleWrapPolicy
    return flat(Transformer(), auto_wrap_policy=ModuleWrapPolicy({nn.TransformerEncoderLayer}), **options)


def mixed(**options):
    from torch.distributed.fsdp import MixedPrecision
    return transformer(mixed_precision=MixedPrecision(param_dtype=torch.bfloat16), **options)


def with_replicate(**options):
    from torch.distributed._composable.replicate import replicate
    model = Block(nn.Linear(2, 2), Block(nn.Linear(3, 3), nn.Linear(1, 1)), nn.Linear(2, 5))
    model.sub1.sub0 = flat(model.sub1.sub0, **options)
    replicate(model.sub1)
    model.sub2 = flat(model.sub2, **options)
    return flat(model, **options)


def with_ignored(**options):
    model = Block(nn.Linear(2, 2), Block(nn.Linear(3, 3), nn.Linear(1, 1)), nn.Linear(2, 5))
    model.sub1.sub0 = flat(model.sub1.sub0, **options)
    return flat(model, ignored_modules=[model.sub1], **options)


def with_ignored_parameters(**options):
    model = Block(nn.Linear(2, 2), nn.Linear(2, 5))
    return flat(model, ignored_states=[model.sub0.bias, model.sub1.weight], **options)


def with_all_of_it(**options):
    """replicate above a nested unit, a module registered twice, ignored parameters, a unit below: in one tree."""
    from torch.distributed._composable.replicate import replicate
    shared = nn.Linear(2, 3)
    model = Block(Block(shared, nn.Linear(5, 2)), Block(nn.Linear(3, 3), nn.Linear(1, 1)), nn.Linear(2, 5), shared)
    model.sub1.sub0 = flat(model.sub1.sub0, **options)
    replicate(model.sub1)
    model.sub0 = flat(model.sub0, ignored_states=[model.sub0.sub1.bias], **options)
    return flat(model, ignored_states=[model.sub2.weight, model.sub0.sub1.bias], **options)


def with_shared_module(**options):
    shared = nn.Linear(2, 3)
    model = Block(Block(shared, nn.Linear(2, 2)), nn.Linear(1, 1), shared, Block(shared))
    return flat(model, **options)


def with_shared_unit(**options):
    shared = nn.Linear(2, 3)
    model = Block(Block(shared), nn.Linear(1, 1), shared)
    model.sub0 = flat(model.sub0, **options)
    return flat(model, **options)


def tied_over_units(**options):
    model = Block(nn.Linear(3, 5, bias=False), Block(nn.Linear(3, 5, bias=False), nn.Linear(2, 2)), nn.Linear(3, 3))
    model.sub1.sub0.weight = model.sub0.weight
    model.sub1 = flat(model.sub1, **options)
    return flat(model, **options)


def tied_siblings(first_wrapped):
    """Units beside each other with one parameter: the order in which they were wrapped decides which has it."""
    def build(**options):
        model = Block(Block(nn.Linear(3, 5), nn.Linear(2, 2)), nn.Linear(3, 3), nn.Linear(3, 5))
        model.sub2.weight = model.sub0.sub0.weight
        for name in (first_wrapped, *(name for name in ("sub0", "sub1", "sub2") if name != first_wrapped)):
            setattr(model, name, flat(getattr(model, name), **options))
        return flat(model, **options)
    build.__name__ = "tied_siblings_" + first_wrapped
    return build


def tied_by_class(**options):
    """A policy wraps in the order of the modules."""
    from torch.distributed.fsdp.wrap import ModuleWrapPolicy
    model = Block(Block(nn.Linear(3, 5), nn.Linear(2, 2)), nn.Linear(3, 3), nn.Linear(3, 5))
    model.sub2.weight = model.sub0.sub0.weight
    return flat(model, auto_wrap_policy=ModuleWrapPolicy({nn.Linear}), **options)


def tied_outside_in(**options):
    """The inner unit is wrapped after a sibling that shares its parameter, and shares another with the root."""
    model = Block(Block(nn.Linear(3, 5, bias=False), nn.Linear(2, 2)), nn.Linear(3, 5, bias=False), nn.Linear(2, 2))
    model.sub1.weight = model.sub0.sub0.weight
    model.sub2.bias = model.sub0.sub1.bias
    model.sub1 = flat(model.sub1, **options)
    model.sub0.sub0 = flat(model.sub0.sub0, **options)
    model.sub0 = flat(model.sub0, **options)
    return flat(model, **options)


def tied_twice(**options):
    model = Block(nn.Linear(3, 3), nn.Linear(3, 3), nn.Linear(3, 3))
    model.sub1.weight = model.sub2.weight
    model.sub1.bias = model.sub0.bias
    model.sub2.bias = model.sub0.bias
    return flat(model, **options)


def experts(**options):
    import torch.distributed as dist
    groups = [dist.new_group([rank]) for rank in range(dist.get_world_size())]
    model = Block(nn.Linear(4, 4), Block(nn.Linear(4, 6)))
    model.sub1.sub0 = flat(model.sub1.sub0, process_group=groups[dist.get_rank()], **options)
    return flat(model, **options)


def checkpointed(**options):
    from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
    model = nested()
    model.sub0 = flat(checkpoint_wrapper(model.sub0), **options)
    model.sub1 = checkpoint_wrapper(flat(model.sub1, **options))
    return flat(model, **options)


def inside_ddp(**options):
    from torch.nn.parallel import DistributedDataParallel
    model = Block(nn.Linear(3, 3), flat(nn.Linear(3, 2), **options))
    model._ddp_params_and_buffers_to_ignore = [name for name, _ in model.named_parameters() if "sub1" in name]
    return DistributedDataParallel(model)


def channels_last(**options):
    model = Block(nn.Conv2d(3, 4, 2).to(memory_format=torch.channels_last), nn.Linear(2, 2))
    return flat(model, **options)


def hybrid(**options):
    import torch.distributed as dist
    from torch.distributed.fsdp import ShardingStrategy
    inside = [dist.new_group([0, 1]), dist.new_group([2, 3])]
    across = [dist.new_group([0, 2]), dist.new_group([1, 3])]
    groups = inside[dist.get_rank() // 2], across[dist.get_rank() % 2]
    return flat(nested(), process_group=groups, sharding_strategy=ShardingStrategy.HYBRID_SHARD, **options)


def offloaded(**options):
    from torch.distributed.fsdp import CPUOffload
    model = nested()
    model.sub0.sub1.bias.requires_grad = False
    model.sub0.sub1 = flat(model.sub0.sub1, cpu_offload=CPUOffload(True), **{**options, "use_orig_params": True})
    return model


def no_shard(**options):
    from torch.distributed.fsdp import ShardingStrategy
    return flat(nested(), sharding_strategy=ShardingStrategy.NO_SHARD, **options)


BUILDERS = [by_hand, by_class, only_inner, transformer, mixed, with_replicate, with_ignored, with_ignored_parameters,
            with_all_of_it, with_shared_module, with_shared_unit, tied_over_units,
            tied_siblings("sub0"), tied_siblings("sub2"), tied_by_class, tied_outside_in, tied_twice, experts, checkpointed, inside_ddp,
            channels_last, hybrid, offloaded, no_shard]


def of_zoo(name, param_dtype):
    def build(**options):
        from torch.distributed.fsdp import MixedPrecision
        return zoo.wrap_flat(name, mixed_precision=MixedPrecision(param_dtype=param_dtype), **options)
    build.__name__ = "%s.%s" % (name, param_dtype)
    return build


ZOO = [of_zoo(name, param_dtype) for name in zoo.ZOO for param_dtype in (None, torch.bfloat16)]


def clean(name):
    for part in ("_fsdp_wrapped_module.", "_checkpoint_wrapped_module.", "_orig_mod."):
        name = name.replace(part, "")
    return name


def truth_of_units(model):
    """What torch's handles say, with names from the root."""
    from torch.distributed.fsdp._traversal_utils import _get_fsdp_handles, _get_fsdp_states_with_modules
    names = {}
    for name, module in model.named_modules():
        names.setdefault(id(module), clean(name + ".").strip("."))
    states, modules = _get_fsdp_states_with_modules(model)
    prefixes = [names[id(module)] for state, module in zip(states, modules) if state._handle is not None]
    units = []
    for prefix, handle in zip(prefixes, _get_fsdp_handles(model)):
        param = handle.flat_param
        if isinstance(model, nn.parallel.DistributedDataParallel):
            prefix = prefix[len("module"):].lstrip(".")
        below = prefix + "." if prefix else ""
        shared = [[below + clean(".".join(filter(None, pair))) for pair in
                   ((info.module_name, info.param_name), (info.prim_module_name, info.prim_param_name))]
                  for info in param._shared_param_infos]
        units.append({"prefix": prefix, "fqns": [below + clean(name) for name in param._fqns], "shared": sorted(shared),
                      "shapes": [list(shape) for shape in param._shapes],
                      "total": param._unpadded_unsharded_size.numel(), "world_size": handle.world_size})
    return units


def rank_flat(folder, builders):
    import torch.distributed as dist
    sys.path.insert(0, SCRIPTS)
    from describe_model import describe
    for builder in builders:
        for use_orig_params in (False, True):
            model = builder(use_orig_params=use_orig_params)
            if dist.get_rank() == 0:
                with open(os.path.join(folder, "%s.%d" % (builder.__name__, use_orig_params)), "w") as out:
                    json.dump({"description": describe(model), "units": truth_of_units(model)}, out)
            dist.barrier()


def model_table(setting, description, *arguments, expected=0):
    program = os.path.join(os.path.dirname(setting.program), "tests", "model_table")
    done = subprocess.run([program, *map(str, arguments)], input=json.dumps(description), capture_output=True,
                          text=True, timeout=600)
    check(done.returncode == expected, "model_table: exit %d: %s" % (done.returncode, done.stderr))
    return json.loads(done.stdout) if expected == 0 else done.stderr


def check_units(found, expected, what):
    prefixes = [unit["prefix"] for unit in found]
    check(prefixes == [unit["prefix"] for unit in expected], "%s: units %s, torch's are %s" % (
        what, prefixes, [unit["prefix"] for unit in expected]))
    for unit, truth in zip(found, expected):
        inside = [pair for pair in unit["shared"] if pair[0].startswith(unit["prefix"])]
        outside = [pair for pair in inside if pair not in truth["shared"]]
        for key in ("fqns", "shapes", "total", "world_size"):
            check(unit[key] == truth[key], "%s, '%s': %s is %s, torch's is %s" % (
                what, unit["prefix"], key, unit[key], truth[key]))
        check(sorted(pair for pair in inside if pair not in outside) == truth["shared"],
              "%s, '%s': shared %s, torch's %s" % (what, unit["prefix"], unit["shared"], truth["shared"]))
        yield outside


def check_flat(setting, world_size, builders):
    from process_group import run_ranks
    run_ranks(world_size, rank_flat, setting.folder, builders)
    for builder in builders:
        for use_orig_params in (False, True):
            what = "%s.%d" % (builder.__name__, use_orig_params)
            with open(setting.path(what)) as text:
                row = json.load(text)
            check(row["units"], what + ": torch has no units")
            found = model_table(setting, row["description"])
            outside = sum(check_units(found["units"], row["units"], what), [])
            # torch does not list the names that a module registered in an outer unit as well has there.
            known = ("with_shared_unit", "tied_over_units", "tied_siblings_sub0", "tied_siblings_sub2", "tied_by_class",
                     "tied_outside_in")
            check(not outside or builder.__name__ in known, "%s: shared names that torch has not: %s" % (what, outside))
            check(found["fully_sharded"] == [], what + ": FSDP2 units")


@case(first=(2, 1))
def case_model_tree_flat(setting):
    check_flat(setting, 4, BUILDERS)


def check_zoo(world_size):
    def run(setting):
        check_flat(setting, world_size, ZOO)
    run.__name__ = "case_model_tree_zoo_%d_ranks" % world_size
    return run


for size in (2, 3, 4, 8):
    case(first=(2, 1))(check_zoo(size))


# A policy in the description chooses as torch's does.


def policies():
    import functools
    from torch.distributed.fsdp import MixedPrecision
    from torch.distributed.fsdp.wrap import ModuleWrapPolicy, size_based_auto_wrap_policy
    half = MixedPrecision(param_dtype=torch.bfloat16)
    classes = ModuleWrapPolicy({nn.TransformerEncoderLayer, nn.Linear})
    names = ["TransformerEncoderLayer", "Linear", "NonDynamicallyQuantizableLinear"]  # a subclass of Linear
    yield "classes", Transformer, {"classes": names}, classes, None
    yield "classes.half", Transformer, {"classes": ["TransformerEncoderLayer"]}, \
        ModuleWrapPolicy({nn.TransformerEncoderLayer}), half
    for model in (Transformer, nested, deep):
        for numel in (0, 5, 20, 30, 60, 100, 150, 300, 10000):
            policy = functools.partial(size_based_auto_wrap_policy, min_num_params=numel)
            for precision in (None, half):
                name = "%s.%d%s" % (model.__name__, numel, ".half" if precision else "")
                yield name, model, {"min_numel": numel}, policy, precision


def deep():
    """Sizes that only add up, a tie, a list and a shared module."""
    shared = nn.Linear(2, 3)
    layers = nn.ModuleList([nn.Linear(4, 4), Block(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 4))])
    model = Block(Block(Block(nn.Linear(3, 3), nn.Linear(3, 3)), nn.Linear(3, 2)), layers, shared,
                  nn.MultiheadAttention(4, 2))
    layers[1].sub2.weight = layers[0].weight
    return model


def rank_policies(folder):
    import torch.distributed as dist
    sys.path.insert(0, SCRIPTS)
    from describe_model import describe
    for name, build, keys, policy, precision in policies():
        plain = build()
        description = describe(plain)
        # With original parameters torch counts what a rank has left of a tied one that is flattened already.
        use_orig_params = "classes" in keys
        description["modules"][0]["fsdp"] = {"use_orig_params": use_orig_params}
        if precision is not None:
            description["modules"][0]["fsdp"]["param_dtype"] = "bfloat16"
        description["auto_wrap"] = {"module": "", **keys}
        model = flat(plain, auto_wrap_policy=policy, mixed_precision=precision, use_orig_params=use_orig_params)
        if dist.get_rank() == 0:
            with open(os.path.join(folder, name), "w") as out:
                json.dump({"description": description, "units": truth_of_units(model)}, out)
        dist.barrier()


@case(first=(2, 1))
def case_model_tree_policies(setting):
    from process_group import run_ranks
    run_ranks(2, rank_policies, setting.folder)
    counts = set()
    for name, *_ in policies():
        with open(setting.path(name)) as text:
            row = json.load(text)
        found = model_table(setting, row["description"])
        list(check_units(found["units"], row["units"], name))
        counts.add(len(found["units"]))
    check(len(counts) > 4, "the policies chose alike: %s" % counts)


# FSDP2


def sharded_nested(fully_shard):
    model = nested()
    for module in (model.sub0, model.sub1, model):
        fully_shard(module)
    return model


def sharded_transformer(fully_shard):
    from torch.distributed.fsdp import MixedPrecisionPolicy
    model = Transformer()
    for layer in model.layers:
        fully_shard(layer, reshard_after_forward=False, mp_policy=MixedPrecisionPolicy(param_dtype=torch.bfloat16))
    fully_shard(model)
    return model


def sharded_part(fully_shard):
    """No unit at the root; ignored parameters; replicate above a nested call."""
    from torch.distributed._composable.replicate import replicate
    model = Block(nested(), Block(nn.Linear(3, 3), nn.Linear(2, 2)), nn.Linear(2, 2))
    fully_shard(model.sub0.sub1, reshard_after_forward=2)
    fully_shard(model.sub0, ignored_params={model.sub0.sub0.sub1.bias})
    fully_shard(model.sub1.sub0)
    replicate(model.sub1)
    return model


def sharded_together(fully_shard):
    model = Block(nn.Linear(2, 2), nn.LayerNorm(4), nn.Linear(4, 4), nn.Linear(4, 4))
    model.sub3.weight = model.sub2.weight
    fully_shard([model.sub1, model.sub3])
    fully_shard(model)
    return model


def sharded_all_of_it(fully_shard):
    """replicate above a nested call, a module registered twice, ignored parameters: in one tree."""
    from torch.distributed._composable.replicate import replicate
    shared = nn.Linear(2, 3)
    model = Block(Block(nn.Linear(5, 2)), Block(nn.Linear(3, 3), nn.Linear(1, 1)), nn.Linear(2, 5), shared, Block(shared))
    ignored = {model.sub0.sub0.bias, model.sub2.weight}
    fully_shard(model.sub1.sub0)
    replicate(model.sub1)
    fully_shard(model.sub0, ignored_params=ignored)
    fully_shard(model, ignored_params=ignored | set(model.sub1.parameters()))
    return model


SHARDED = [sharded_nested, sharded_transformer, sharded_part, sharded_together, sharded_all_of_it]


def truth_of_groups(model):
    from describe_model import shard_groups
    names = {id(module): name for name, module in model.named_modules()}
    groups, seen, within = [], set(), set()
    for module in model.modules():
        state = module._get_fsdp_state() if hasattr(module, "_get_fsdp_state") else None
        if state is None or id(state) in seen:
            continue
        seen.add(id(state))
        # The root keeps its parameters, which torch settles at the first forward.
        root = module not in within and getattr(state, "_auto_reshard_after_forward", True)
        within.update(module.modules())
        for group in shard_groups(state):
            infos = [param._module_info for param in group.fsdp_params]
            paths = [names[id(info.module)] for info in infos]
            after = group.post_forward_mesh_info
            groups.append({"module": names[id(module)],
                           "post_forward": 0 if after is None or root else
                           1 if after.shard_mesh_size == group.mesh_info.shard_mesh_size else after.shard_mesh_size,
                           "params": [(path + "." if path else "") + info.param_name
                                      for path, info in zip(paths, infos)]})
    return groups


def rank_sharded(folder):
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    sys.path.insert(0, SCRIPTS)
    from describe_model import describe
    mesh = init_device_mesh("cpu", (4,))
    for builder in SHARDED:
        model = builder(lambda module, **options: fully_shard(module, mesh=mesh, **options))
        description = describe(model)
        groups = truth_of_groups(model)
        if dist.get_rank() == 0:
            with open(os.path.join(folder, builder.__name__), "w") as out:
                json.dump({"description": description, "groups": groups}, out)


@case(first=(2, 8))
def case_model_tree_fully_shard(setting):
    from process_group import run_ranks
    run_ranks(4, rank_sharded, setting.folder)
    for builder in SHARDED:
        what = builder.__name__
        with open(setting.path(what)) as text:
            row = json.load(text)
        found = [{key: unit[key] for key in ("module", "post_forward", "params")}
                 for unit in model_table(setting, row["description"])["fully_sharded"]]
        truth = row["groups"]
        # torch lists what its traversal for flat parameters would not enter.
        if builder in (sharded_part, sharded_all_of_it):
            truth = [group for group in truth if not group["module"].startswith("sub1")]
        check(found == truth, "%s: %s, torch has %s" % (what, found, truth))


@case(first=(2, 1))
def case_model_tree_unwrapped(setting):
    """What is not wrapped, and what a compiled model is called."""
    sys.path.insert(0, SCRIPTS)
    from describe_model import describe
    model = Transformer()
    compiled = torch.compile(model)
    found = model_table(setting, describe(compiled), 4)
    expected = {}
    for name, param in model.named_parameters(remove_duplicate=False):
        expected.setdefault(id(param), []).append(name)
    check(sorted(found["names"]) == sorted(expected.values()), "names %s, torch has %s" % (
        found["names"], list(expected.values())))
    check(["emb.weight", "head.weight"] in found["names"], "tied names: %s" % found["names"])
    check(found["buffers"] == [name for name, _ in model.named_buffers()], "buffers %s" % found["buffers"])
    check(found["units"] == [] and found["fully_sharded"] == [], "units of an unwrapped model")
    with open(setting.path("building.py"), "w") as out:
        out.write("from torch import nn\ndef build():\n    return nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3))\n")
    done = subprocess.run([sys.executable, os.path.join(SCRIPTS, "describe_model.py"), "building:build"],
                          capture_output=True, text=True, cwd=setting.folder, timeout=300)
    check(done.returncode == 0, "describe_model.py: %s" % done.stderr[-500:])
    found = model_table(setting, json.loads(done.stdout), 4)
    check(found["names"] == [["0.weight"], ["0.bias"], ["1.weight"], ["1.bias"]], "names %s" % found["names"])


@case(first=(2, 1))
def case_model_tree_planned(setting):
    """Wrapping that is only said, of classes: --fsdp1 and --fully-shard, and what layout makes of it."""
    with open(setting.path("planning.py"), "w") as out:
        out.write("from torch import nn\nclass Block(nn.Linear):\n    pass\n"
                  "def build():\n    return nn.Sequential(nn.Linear(8, 8), Block(8, 8), Block(8, 8))\n")

    def describe_as(*options):
        return subprocess.run([sys.executable, os.path.join(SCRIPTS, "describe_model.py"), *options, "planning:build"],
                              capture_output=True, text=True, cwd=setting.folder, timeout=300)

    for option, kind in (("--fsdp1", "units"), ("--fully-shard", "fully_sharded")):
        done = describe_as(option, "Block")
        check(done.returncode == 0, "describe_model.py %s: %s" % (option, done.stderr[-500:]))
        found = model_table(setting, json.loads(done.stdout), 4)[kind]
        check(len(found) == 3, "%s: units %s" % (option, found))
    done = describe_as("--fsdp1", "Blocks")
    check(done.returncode == 1 and "Blocks" in done.stderr, "a class that is not there: %s" % done.stderr[-500:])
