"""FSDP1 trained by real torch, its LOCAL state and raw optimizer state put together again: as its FULL state has it."""

import json
import os
import sys
import zipfile

import torch
import torch.distributed as dist
from torch import nn

from release import RELEASE
from support import BAD_INPUT, case, check, check_good, check_nothing_at, check_same_tensors, load_pt, tensors_of_state


BUFFERS = ("running_mean", "running_var", "scale")


class Layer(nn.Module):
    """A unit with a unit inside, and buffers that every rank has."""

    def __init__(self, wrap):
        super().__init__()
        self.before = nn.Linear(6, 6)
        self.mlp = wrap(nn.Sequential(nn.Linear(6, 11), nn.ReLU(), nn.Linear(11, 6, bias=False)))
        self.norm = nn.BatchNorm1d(6)

    def forward(self, x):
        return self.norm(x + self.mlp(self.before(x)))


class Net(nn.Module):
    """Tied weights, units between parameters of the root, a parameter of one element."""

    def __init__(self, wrap):
        super().__init__()
        self.embedding = nn.Embedding(13, 6)
        self.layers = nn.ModuleList([wrap(Layer(wrap)), wrap(Layer(wrap))])
        self.one = nn.Parameter(torch.ones(1))
        self.gate = nn.Linear(6, 6)
        self.head = nn.Linear(6, 13, bias=False)
        self.head.weight = self.embedding.weight
        self.register_buffer("table", torch.arange(9))
        self.register_buffer("scale", torch.linspace(0, 1, 3))

    def forward(self, tokens):
        x = self.embedding(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.head(self.gate(x) * self.one)


def train(model, momentum=0.5):
    """Two steps; every rank sees the same tokens, so that buffers stay equal."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.125, momentum=momentum)
    for step in range(2):
        tokens = (torch.arange(8) * (step + 3)) % 13
        loss = nn.functional.cross_entropy(model(tokens), tokens)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return optimizer


def full_truth(model, optimizer):
    """What torch itself gathers. SGD has one moment, which its FULL optimizer state gets right on the CPU."""
    from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, StateDictType
    with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT):
        state = {"model": dict(model.state_dict()), "optim": FSDP.optim_state_dict(model, optimizer)}
    return tensors_of_state(state)


def rank_train(folder, orig, half, ignore, strategy=None):
    import torch.distributed.checkpoint as dcp
    from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, MixedPrecision, ShardingStrategy, StateDictType
    from cases_fsdp1 import allow_cpu, write_units
    allow_cpu()
    options = {"device_id": torch.device("cpu"), "use_orig_params": orig}
    if strategy is not None:
        options["sharding_strategy"] = ShardingStrategy[strategy]
    if half:
        options["mixed_precision"] = MixedPrecision(param_dtype=torch.bfloat16, buffer_dtype=torch.bfloat16)
    torch.manual_seed(11)
    net = Net(lambda module: FSDP(module, **options))
    ignored = {"ignored_modules": [net.gate]} if ignore else {}
    model = FSDP(net, **options, **ignored)
    optimizer = train(model)
    truth = full_truth(model, optimizer)
    with FSDP.state_dict_type(model, StateDictType.LOCAL_STATE_DICT):
        local = model.state_dict()
    rank, world = dist.get_rank(), dist.get_world_size()
    os.makedirs(os.path.join(folder, "ranks"), exist_ok=True)
    for name, state in (("model", local), ("optim", optimizer.state_dict())):
        torch.save(state, os.path.join(folder, "ranks", "%s_world_size_%d_rank_%d.pt" % (name, world, rank)))
    dcp.save({"model": local}, storage_writer=dcp.FileSystemWriter(os.path.join(folder, "dcp")))
    write_units(os.path.join(folder, "net"), model)
    sys.path.append(os.path.join(os.path.dirname(__file__), "../../scripts"))
    from describe_model import describe
    if rank == 0:
        torch.save(truth, os.path.join(folder, "truth.pt"))
        with open(os.path.join(folder, "net.model.json"), "w", encoding="utf-8") as out:
            json.dump(describe(model), out)


def make(setting, world_size, orig, half=False, ignore=False, strategy=None):
    from process_group import run_ranks
    run_ranks(world_size, rank_train, setting.folder, orig, half, ignore, strategy)
    return load_pt(setting.path("truth.pt")), setting.path("net.units.json")


def read_all(setting, source, units, *options):
    _, path = setting.consolidate(setting.path(source), source + ".pt", "--model", units, "--assume", "order", *options)
    return tensors_of_state(load_pt(path))


def check_live(world_size, orig, half):
    def run(setting):
        truth, units = make(setting, world_size, orig, half)
        for name in [name for name in truth if half and name.endswith(BUFFERS)]:
            truth[name] = truth[name].bfloat16()  # LOCAL leaves them in buffer_dtype, FULL casts them back
        check_same_tensors(read_all(setting, "ranks", units), truth, "rank files")
        model = {name: tensor for name, tensor in truth.items() if name.startswith("model.")}
        check_same_tensors(read_all(setting, "dcp", units), model, "DCP")
        described = setting.path("net.model.json")
        check_same_tensors(read_all(setting, "ranks", described, "--force"), truth, "rank files, described")
    run.__name__ = "case_fsdp1_%s%s_on_%d" % ("orig" if orig else "flat", "_bf16" if half else "", world_size)
    return run


for size in (2, 3, 4):
    for orig_params in (False, True):
        case((2, 4))(check_live(size, orig_params, False))
case((2, 4))(check_live(4, True, True))


def check_ignored(orig):
    """Parameters that are in no unit: a list of units cannot say where the optimizer counts them."""
    def run(setting):
        truth, units = make(setting, 3, orig, ignore=True)
        model = {name: tensor for name, tensor in truth.items() if name.startswith("model.")}
        check_same_tensors(read_all(setting, "dcp", units), model, "DCP")
        check_same_tensors(read_all(setting, "ranks", setting.path("net.model.json")), truth, "rank files")
        done, path = setting.consolidate(setting.path("ranks"), "out.pt", "--model", units, "--assume", "order",
                                         expected=BAD_INPUT)
        check("MODEL-OPTIM" in done.stderr and "--part model" in done.stderr, done.stderr)
        check_nothing_at(path)
        setting.consolidate(setting.path("ranks"), "out.pt", "--model", units, "--part", "model")
    run.__name__ = "case_fsdp1_ignored_" + ("orig" if orig else "flat")
    return run


for orig_params in (False, True):
    case((2, 4))(check_ignored(orig_params))


def check_same_files(setting, folder, other, world_size):
    """The optimizer's files, as each rank had them."""
    for rank in range(world_size):
        name = "optim_world_size_%d_rank_%d.pt" % (world_size, rank)
        found, expected = (torch.load(setting.path(os.path.join(f, name))) for f in (folder, other))
        check(list(found["state"]) == list(expected["state"]), "rank %d: numbers %s" % (rank, list(found["state"])))
        check(found["param_groups"] == expected["param_groups"], "rank %d: %s" % (rank, found["param_groups"]))
        for number, entries in expected["state"].items():
            check_same_tensors(found["state"][number], entries, "rank %d, state of %d" % (rank, number))


def check_strategy(strategy, orig):
    """NO_SHARD leaves parameters whole in the model's state, and flat ones in the optimizer's."""
    def run(setting):
        truth, units = make(setting, 3, orig, strategy=strategy)
        for description in (units, setting.path("net.model.json")):
            check_same_tensors(read_all(setting, "ranks", description, "--force"), truth, "rank files")
            setting.run("reshard", setting.path("ranks"), setting.path("again"), "--format", "fsdp1", "--force",
                        "--world-size", 3, "--model", description, "--assume", "order")
            check_same_files(setting, "again", "ranks", 3)
            check_same_tensors(read_all(setting, "again", description, "--force"), truth, "written again")
    run.__name__ = "case_fsdp1_%s_%s" % (strategy.lower(), "orig" if orig else "flat")
    return run


for orig_params in (False, True):
    for name in ("NO_SHARD", "SHARD_GRAD_OP"):
        case((2, 4))(check_strategy(name, orig_params))


def rank_load(folder):
    """FSDP2 on these ranks loads what was resharded, and trains on."""
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
    from torch.distributed.device_mesh import init_device_mesh
    from cases_fsdp import fully_shard
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    model = Net(lambda module: fully_shard(module, mesh=mesh) or module)
    fully_shard(model, mesh=mesh)
    optimizer = train(model)
    model_state, optimizer_state = get_state_dict(model, optimizer)
    state = {"model": model_state, "optim": optimizer_state}
    dcp.load(state, checkpoint_id=os.path.join(folder, "out"))
    set_state_dict(model, optimizer, model_state_dict=model_state, optim_state_dict=optimizer_state)
    full = {name: tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor
            for name, tensor in tensors_of_state(state).items()}
    if dist.get_rank() == 0:
        torch.save({name: tensor.clone() for name, tensor in full.items()}, os.path.join(folder, "loaded.pt"))
    train(model)


@case((2, 6))
def case_fsdp1_to_fsdp2_on_3(setting):
    from process_group import run_ranks
    for orig in (False, True):
        truth, units = make(setting, 4, orig)
        setting.run("reshard", setting.path("ranks"), setting.path("out"), "--model", units, "--format", "dcp",
                    "--world-size", "3", "--force", "--assume", "order")
        run_ranks(3, rank_load, setting.folder)
        check_same_tensors(load_pt(setting.path("loaded.pt")), truth, "loaded by FSDP2")
        for name in ("ranks", "dcp"):
            os.rename(setting.path(name), setting.path("%s-%d" % (name, orig)))


@case((2, 4))
def case_fsdp1_wants_its_model(setting):
    _, units = make(setting, 2, True)
    for source in ("ranks", "dcp"):
        done, path = setting.consolidate(setting.path(source), "out.safetensors", expected=BAD_INPUT)
        check("MODEL-NEEDED" in done.stderr and "--model" in done.stderr, done.stderr)
        check_nothing_at(path)
    with open(units, encoding="utf-8") as text:
        document = json.load(text)
    document["units"][1]["params"].pop()
    del document["units"][1]["total_unpadded"]
    wrong = setting.path("wrong.json")
    with open(wrong, "w", encoding="utf-8") as out:
        json.dump(document, out)
    done, path = setting.consolidate(setting.path("dcp"), "out.safetensors", "--model", wrong, expected=BAD_INPUT)
    check("MODEL-MISMATCH" in done.stderr and "layers.0" in done.stderr, done.stderr)
    check_nothing_at(path)


# ---- names that the optimizer received, in several groups ----


def rank_train_groups(folder, orig):
    """Four equal layers; the groups list them in neither order. The truth is made of the ranks' own shards."""
    from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, StateDictType
    from cases_fsdp1 import allow_cpu
    allow_cpu()
    sys.path.append(os.path.join(os.path.dirname(__file__), "../../scripts"))
    from describe_model import describe
    torch.manual_seed(3)
    options = {"device_id": torch.device("cpu"), "use_orig_params": orig}
    layers = [FSDP(torch.nn.Linear(4, 4, bias=False), **options) for _ in range(4)]
    model = FSDP(torch.nn.Sequential(*layers), **options)
    named = [(name.replace("_fsdp_wrapped_module.", ""), p) for name, p in model.named_parameters()]
    optimizer = torch.optim.Adam([{"params": [named[3], named[1]]}, {"params": [named[2], named[0]], "lr": 0.02}])
    for _ in range(2):
        optimizer.zero_grad()
        model(torch.randn(3, 4)).pow(2).sum().backward()
        optimizer.step()
    with FSDP.state_dict_type(model, StateDictType.LOCAL_STATE_DICT):
        local = model.state_dict()
    rank, world = dist.get_rank(), dist.get_world_size()
    for name, state in (("model", local), ("optim", optimizer.state_dict())):
        torch.save(state, os.path.join(folder, "%s_world_size_%d_rank_%d.pt" % (name, world, rank)))
    gathered = [None] * world
    dist.all_gather_object(gathered, {name: optimizer.state[p]["exp_avg"].flatten() for name, p in named
                                      if p in optimizer.state})
    described = describe(model, optimizer)
    if rank == 0:
        names = sorted(set().union(*gathered))
        truth = {name.replace("_flat_param", "weight"): torch.cat([part[name] for part in gathered if name in part])
                 for name in names}
        torch.save({name: t[:16].reshape(4, 4) for name, t in truth.items()}, os.path.join(folder, "../truth.pt"))
        with open(os.path.join(folder, "../net.model.json"), "w", encoding="utf-8") as out:
            json.dump(described, out)


@case((2, 6))
def case_fsdp1_named_groups(setting):
    from process_group import run_ranks
    from support import BAD_INPUT
    for orig in (False, True):
        folder = setting.path("orig%d" % orig, "ranks")
        os.makedirs(folder)
        run_ranks(2, rank_train_groups, folder, orig)
        truth = load_pt(os.path.join(folder, "../truth.pt"))
        path = os.path.join(folder, "../net.model.json")
        with open(path, encoding="utf-8") as text:
            described = json.load(text)
        groups = described.pop("optimizers")
        with open(setting.path("no-groups.json"), "w", encoding="utf-8") as out:
            json.dump(described, out)
        for model in (path, setting.path("no-groups.json")):
            _, whole = setting.consolidate(folder, "whole.pt", "--model", model, "--force")
            state = load_pt(whole)["optim"]["state"]
            check_same_tensors({name: of["exp_avg"] for name, of in state.items()}, truth, "orig %s" % orig)
        # A description that lists other groups contradicts the names.
        text = json.dumps(groups).replace('"0.', '"9.').replace('"3.', '"0.').replace('"9.', '"3.')
        check(text != json.dumps(groups), "the description does not name parameters: " + text)
        described["optimizers"] = json.loads(text)
        with open(setting.path("other.json"), "w", encoding="utf-8") as out:
            json.dump(described, out)
        done = setting.run("consolidate", folder, setting.path("no.pt"), "--model", setting.path("other.json"),
                           expected=BAD_INPUT)
        check("MODEL-OPTIM" in done.stderr, done.stderr)


class Siblings(nn.Module):
    """Units beside each other with one parameter."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(3, 5)
        self.between = nn.Linear(5, 3)
        self.last = nn.Linear(3, 5)
        self.last.weight = self.first.weight


def rank_tied_by_hand(folder, order):
    from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, StateDictType
    from cases_fsdp1 import allow_cpu
    allow_cpu()
    torch.manual_seed(3)
    model = Siblings()
    truth = {"model." + name: tensor.detach().clone() for name, tensor in model.state_dict().items()}
    options = {"device_id": torch.device("cpu"), "use_orig_params": True}
    for name in order:
        setattr(model, name, FSDP(getattr(model, name), **options))
    model = FSDP(model, **options)
    with FSDP.state_dict_type(model, StateDictType.LOCAL_STATE_DICT):
        local = model.state_dict()
    os.makedirs(os.path.join(folder, "ranks"), exist_ok=True)
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.save(local, os.path.join(folder, "ranks", "model_world_size_%d_rank_%d.pt" % (world, rank)))
    sys.path.append(os.path.join(os.path.dirname(__file__), "../../scripts"))
    from describe_model import describe
    description = describe(model)
    if rank == 0:
        torch.save({"model": {name[len("model."):]: tensor for name, tensor in truth.items()}},
                   os.path.join(folder, "truth.pt"))
        with open(os.path.join(folder, "model.json"), "w", encoding="utf-8") as out:
            json.dump(description, out)


@case((2, 4))
def case_fsdp1_tied_by_hand(setting):
    """torch flattens a parameter in the unit that was wrapped first."""
    from process_group import run_ranks
    for order in (("first", "between", "last"), ("last", "first", "between"), ("between", "last", "first")):
        folder = setting.path("-".join(order))
        os.makedirs(folder)
        run_ranks(2, rank_tied_by_hand, folder, order)
        description, ranks = os.path.join(folder, "model.json"), os.path.join(folder, "ranks")
        truth = load_pt(os.path.join(folder, "truth.pt"))["model"]
        _, out = setting.consolidate(ranks, "out.pt", "--model", description, "--force")
        check_same_tensors(tensors_of_state(load_pt(out)), truth, "%s: as torch saved it" % (order,))
        again = os.path.join(folder, "again")
        setting.run("reshard", os.path.join(folder, "truth.pt"), again, "--format", "fsdp1", "--world-size", 2,
                    "--model", description)
        setting.run("diff", ranks, again, "--model", description)
        for rank in range(2):
            name = "model_world_size_2_rank_%d.pt" % rank
            shards = []
            for of in (ranks, again):
                with zipfile.ZipFile(os.path.join(of, name)) as records:
                    shards.append(sorted((info.file_size, info.CRC) for info in records.infolist()
                                         if "/data/" in info.filename and info.file_size > 0))
            check(shards[0] == shards[1], "%s: sizes and CRCs of the flat shards are %s, torch's are %s" % (
                name, shards[1], shards[0]))


def rank_save_raw(folder):
    """The state that optimizer.state_dict() has on one rank, beside a model that is gathered or sharded; and the right one."""
    import torch.distributed.checkpoint as dcp
    from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, StateDictType
    from cases_fsdp1 import allow_cpu
    allow_cpu()
    torch.manual_seed(11)
    for name, orig in (("flat", False), ("orig", True)):
        model = FSDP(Net(lambda module: FSDP(module, device_id=torch.device("cpu"), use_orig_params=orig)),
                     device_id=torch.device("cpu"), use_orig_params=orig)
        optimizer = train(model)
        with FSDP.state_dict_type(model, StateDictType.SHARDED_STATE_DICT):
            sharded, right = model.state_dict(), FSDP.optim_state_dict(model, optimizer)
        dcp.save({"model": sharded, "optim": optimizer.state_dict()}, checkpoint_id=os.path.join(folder, name + "-raw"))
        dcp.save({"model": sharded, "optim": right}, checkpoint_id=os.path.join(folder, name + "-good"))
        with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT):
            full, right = model.state_dict(), FSDP.optim_state_dict(model, optimizer)
        for kind, state in (("raw", optimizer.state_dict()), ("good", right)):
            if dist.get_rank() == 0:
                torch.save({"model": full, "optim": state}, os.path.join(folder, "%s-%s.pt" % (name, kind)))


@case((2, 6))
def case_fsdp1_raw_optimizer(setting):
    from process_group import run_ranks
    run_ranks(2, rank_save_raw, setting.folder)
    for name in ("flat-raw", "orig-raw", "flat-raw.pt", "orig-raw.pt"):
        said = setting.run("verify", setting.path(name)).stdout
        check("[RANK-FLAT]" in said, "%s: the shards of one rank are not found: %s" % (name, said))
        said = setting.consolidate(setting.path(name), "out.pt", "--force")[0].stderr
        check("[RANK-FLAT]" in said, "%s: consolidate is silent: %s" % (name, said))
    for name in ("flat-good", "orig-good", "flat-good.pt", "orig-good.pt"):
        check_good(setting, setting.path(name))
