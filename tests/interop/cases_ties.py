"""Several names of one tensor, tensors that each rank has of its own, names that an outer wrapper gives: by real torch."""

import glob
import json
import os
import sys

import torch
import torch.distributed as dist
from torch import nn

from checkpoint_truth import seeded
from release import RELEASE
from support import BAD_INPUT, UNSUPPORTED, USAGE, case, check, check_nothing_at, check_same_tensors, load_file, load_pt, \
    tensors_of_state

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../scripts"))


class Norm(nn.LayerNorm):
    """A buffer beside the parameters; BatchNorm's counter is made up by torch where a state lacks it."""

    def __init__(self, count):
        super().__init__(count)
        self.register_buffer("running", torch.arange(3.))


class Tied(nn.Module):
    """A head that is the embedding, a module registered twice, a buffer that goes with it."""

    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(11, 6)
        self.norm = Norm(6)
        self.again = self.norm
        self.head = nn.Linear(6, 11, bias=False)
        self.head.weight = self.emb.weight

    def forward(self, tokens):
        return self.head(self.again(self.norm(self.emb(tokens))))


def described(setting, model, name="model.json"):
    from describe_model import describe
    with open(setting.path(name), "w", encoding="utf-8") as out:
        json.dump(describe(model), out)
    return setting.path(name)


def copies(state):
    """The same with a storage for each name: what DCP and safetensors make of it."""
    return {name: tensor.detach().clone() for name, tensor in state.items()}


@case()
def case_safetensors_metadata(setting):
    """Texts of `__metadata__` go from one safetensors file to another; the record of a tie stays with it."""
    from safetensors import safe_open
    from safetensors.torch import load_model, save_file, save_model
    texts = {"format": "pt", "license": "x", "ss_network_dim": "8", "a \"b\"\n\u00e9": "\u4e16"}
    save_file({"w": torch.ones(3), "v": torch.zeros(2)}, setting.path("in.safetensors"), metadata=texts)
    setting.consolidate(setting.path("in.safetensors"), "out.safetensors", "--dtype", "bf16")
    setting.consolidate(setting.path("in.safetensors"), "hf")
    setting.consolidate(setting.path("hf"), "again.safetensors")
    setting.consolidate(setting.path("in.safetensors"), "two", "--max-shard-size", "12", "--format", "hf")
    for name in ("out.safetensors", "hf/model.safetensors", "again.safetensors", "two/model-00001-of-00002.safetensors",
                 "two/model-00002-of-00002.safetensors"):
        with safe_open(setting.path(name), "pt") as found:
            check(found.metadata() == texts, "%s: %r" % (name, found.metadata()))
    for name in ("note.pt", "note.h5"):
        done, _ = setting.consolidate(setting.path("in.safetensors"), name)
        check("left out: 3 texts of '__metadata__'" in done.stderr and "'license'" in done.stderr, done.stderr)
    done = setting.run("reshard", setting.path("in.safetensors"), setting.path("note.dcp"), "--world-size", "2")
    check("left out: 3 texts of '__metadata__'" in done.stderr, done.stderr)
    save_file({"w": torch.ones(3)}, setting.path("flax.safetensors"), metadata={"format": "flax"})
    with safe_open(setting.consolidate(setting.path("flax.safetensors"), "out.safetensors", "--force")[1], "pt") as found:
        check(found.metadata() == {"format": "flax"}, found.metadata())
    model, other = Tied(), Tied()
    save_model(model, setting.path("tied.safetensors"))
    done, out = setting.consolidate(setting.path("tied.safetensors"), "tied_out.safetensors")
    with safe_open(setting.path("tied.safetensors"), "pt") as before:
        tied = {key: name for key, name in before.metadata().items() if key != "format"}
        check(len(tied) > 1 and not tied.keys() & set(before.keys()), before.metadata())
    said = [key for key, name in tied.items() if "'%s' as tied to '%s', and %d more" % (key, name, len(tied) - 1) in done.stderr]
    check(len(said) == 1 and "ST-TIED" in done.stderr, done.stderr)
    done, lacking = setting.consolidate(setting.path("tied.safetensors"), "lacking.pt")
    check("ST-TIED" in done.stderr and set(load_pt(lacking)) == set(model.state_dict()) - tied.keys(), done.stderr)
    done, filled = setting.consolidate(setting.path("tied.safetensors"), "filled.pt", "--model", described(setting, model))
    check_same_tensors(load_pt(filled), model.state_dict(), "filled by the model")
    with safe_open(setting.path("tied.safetensors"), "pt") as before, safe_open(out, "pt") as after:
        check(before.metadata().items() <= after.metadata().items(), after.metadata())
    check(load_model(other, out) == (set(), []), "load_model")
    check_same_tensors(other.state_dict(), model.state_dict(), "load_model")


@case()
def case_safetensors_metadata_of_shards(setting):
    """Texts of `__metadata__` of several files are joined; only those that differ are left out, and named."""
    from safetensors import safe_open
    from safetensors.torch import save_file
    state = {"a": torch.ones(4), "b": torch.zeros(4), "c": torch.full((4,), 2.0)}
    same = {"format": "pt", "tensor_names": '["a", "b", "c"]'}
    os.makedirs(setting.path("src"))
    weight_map = {}
    for i, name in enumerate(state):
        file = "model-%05d-of-00003.safetensors" % (i + 1)
        save_file({name: state[name]}, setting.path("src/" + file), metadata={**same, name: "of " + name, "part": str(i)})
        weight_map[name] = file
    of_index = {"total_parameters": 12, "total_size": 48, "recipe": {"bits": [4, "x"]}}
    with open(setting.path("src/model.safetensors.index.json"), "w", encoding="utf-8") as out:
        json.dump({"metadata": of_index, "weight_map": weight_map}, out)
    joined = {**same, "a": "of a", "b": "of b", "c": "of c"}

    def texts(path):
        with safe_open(path, "pt") as found:
            return found.metadata()

    def index(folder):
        with open(setting.path(folder + "/model.safetensors.index.json"), encoding="utf-8") as found:
            return json.load(found)["metadata"]

    for dst, options in (("one.safetensors", ()), ("one", ()), ("three", ("--max-shard-size", "16")),
                         ("like", ("--like", setting.path("src")))):
        done, out = setting.consolidate(setting.path("src"), dst, *options)
        check("left out: 1 text of '__metadata__' that differs between files: 'part'" in done.stderr, done.stderr)
        files = [out] if os.path.isfile(out) else glob.glob(out + "/*.safetensors")
        check(len(files) == (3 if dst in ("three", "like") else 1), files)
        for file in files:
            check(texts(file) == joined, "%s: %r" % (file, texts(file)))
        check(("'recipe'" in done.stderr) == (len(files) == 1), done.stderr)
    check(index("three") == of_index and index("like") == of_index, index("three"))
    setting.consolidate(setting.path("src"), "two", "--max-shard-size", "16", "--exclude", "a")
    check(index("two") == {"recipe": of_index["recipe"], "total_size": 32}, index("two"))
    done, _ = setting.consolidate(setting.path("src"), "whole.pt")
    check("left out: 5 texts of '__metadata__'" in done.stderr and "'recipe'" in done.stderr, done.stderr)
    done = setting.run("reshard", setting.path("src"), setting.path("whole.dcp"), "--world-size", "2")
    check("left out: 5 texts of '__metadata__'" in done.stderr, done.stderr)
    setting.run("reshard", setting.path("src"), setting.path("shards"), "--world-size", "2", "--format", "dcp-safetensors")
    _, back = setting.consolidate(setting.path("shards"), "back.safetensors")
    check(texts(back) == joined, texts(back))


@case((2, 4))
def case_ties_keep_first_link(setting):
    from safetensors import safe_open
    from safetensors.torch import load_model, save_file
    torch.manual_seed(3)
    model = Tied()
    description = described(setting, model)
    state = copies(model.state_dict())
    save_file(state, setting.path("two.safetensors"))
    torch.save(state, setting.path("two.pt"))
    for source in ("two.safetensors", "two.pt"):
        done, kept = setting.consolidate(setting.path(source), "kept.pt", "--model", description, "--force")
        check("head.weight = emb.weight" in done.stdout and "again.weight = norm.weight" in done.stdout, done.stdout)
        check_same_tensors(load_pt(kept), state, "kept")
        _, linked = setting.consolidate(setting.path(source), "linked.pt", "--model", description, "--tied", "link",
                                        "--force")
        loaded = load_pt(linked)
        check(source != "two.pt" or list(loaded) == list(state), "names in another order: %s" % list(loaded))
        check_same_tensors(loaded, state, "linked")
        check(loaded["head.weight"].data_ptr() == loaded["emb.weight"].data_ptr(), "two storages")
        check(os.path.getsize(linked) < os.path.getsize(kept), "no bytes less")
        _, first = setting.consolidate(setting.path(source), "first.safetensors", "--model", description, "--tied",
                                       "first", "--force")
        with safe_open(first, "pt") as found:
            check(found.metadata()["head.weight"] == "emb.weight", found.metadata())
            check(found.metadata()["again.running"] == "norm.running", found.metadata())
            check("head.weight" not in found.keys(), list(found.keys()))
        fresh = Tied()
        check(load_model(fresh, first) == (set(), []), "names missing or left over")
        check_same_tensors(copies(fresh.state_dict()), state, "load_model")
    done, path = setting.consolidate(setting.path("two.pt"), "x.safetensors", "--tied", "link", expected=USAGE)
    check("a .pt file can link them" in done.stderr, done.stderr)
    check_nothing_at(path)


@case((2, 4))
def case_ties_that_differ(setting):
    from safetensors.torch import save_file
    import torch.distributed.checkpoint as dcp
    torch.manual_seed(3)
    model = Tied()
    description = described(setting, model)
    state = copies(model.state_dict())
    state["head.weight"][7, 2] += 1
    save_file(state, setting.path("two.safetensors"))
    torch.save(state, setting.path("two.pt"))
    dcp.save({"model": state}, storage_writer=dcp.FileSystemWriter(setting.path("two")))
    for source in ("two.safetensors", "two.pt", "two"):
        for mode in ("keep", "first"):
            for replicas in ("crc", "compare"):
                done, path = setting.consolidate(setting.path(source), "out.pt", "--model", description, "--tied",
                                                 mode, "--replicas", replicas, expected=BAD_INPUT)
                check("TIE-DIFFERS" in done.stderr and "head.weight" in done.stderr and "emb.weight" in done.stderr,
                      done.stderr)
                check_nothing_at(path)
        setting.consolidate(setting.path(source), "first.pt", "--model", description, "--replicas", "first", "--force")
        setting.consolidate(setting.path(source), "without.pt", "--force")  # nobody says that they are one


@case((2, 4))
def case_ties_filled(setting):
    """A head that is not in the data: wanted by the description, by the index, or by both."""
    from safetensors.torch import save_file
    torch.manual_seed(3)
    model = Tied()
    description = described(setting, model)
    state = copies(model.state_dict())
    data = {name: tensor for name, tensor in state.items() if name != "head.weight"}
    torch.save({"model": data, "step": 3}, setting.path("data.pt"))
    done, path = setting.consolidate(setting.path("data.pt"), "out.pt", "--model", description)
    check("'head.weight' is not in the checkpoint" in done.stderr, done.stderr)
    check_same_tensors(tensors_of_state(load_pt(path)["model"]), state, "filled")
    for kind in ("model", "config"):
        folder = setting.path(kind)
        os.mkdir(folder)
        embedding = "emb.weight" if kind == "model" else "model.embed_tokens.weight"
        head = "head.weight" if kind == "model" else "lm_head.weight"
        rest = {name: tensor for name, tensor in data.items() if name != "emb.weight"}
        save_file({embedding: state["emb.weight"]}, os.path.join(folder, "model-00001-of-00002.safetensors"))
        save_file(rest, os.path.join(folder, "model-00002-of-00002.safetensors"))
        places = {name: "model-00002-of-00002.safetensors" for name in [*rest, head]}
        places[embedding] = "model-00001-of-00002.safetensors"
        with open(os.path.join(folder, "model.safetensors.index.json"), "w", encoding="utf-8") as out:
            json.dump({"metadata": {"total_size": 0}, "weight_map": places}, out)
        done, path = setting.consolidate(folder, "bare.safetensors", expected=BAD_INPUT)
        check("IDX-TENSOR" in done.stderr and "--model" in done.stderr, done.stderr)
        with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as out:
            json.dump({"architectures": ["X"], "tie_word_embeddings": kind == "config"}, out)
        options = ["--model", description] if kind == "model" else []
        done, path = setting.consolidate(folder, kind + ".pt", *options)
        check("IDX-TIED" in done.stderr, done.stderr)
        found = load_pt(path)
        check_same_tensors({head: found[head]}, {head: state["emb.weight"]}, "filled by " + kind)
        check_same_tensors({embedding: found[embedding]}, {embedding: state["emb.weight"]}, "kept by " + kind)


@case(first=(2, 15))
def case_defaults_of_tied_embeddings(setting):
    """lib/state/model_ties.def is what transformers makes of each model type."""
    from tie_defaults import HEAD, find_rows, print_rows
    rows = find_rows()
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../lib/state/model_ties.def"), encoding="utf-8") as file:
        table = file.read()
    check(len(rows) > 300 and table == HEAD + print_rows(rows), "lib/state/model_ties.def: run scripts/make_tie_defaults")
    # The program, on an index that lists the output projection, which no file has.
    from safetensors.torch import save_file
    folder = setting.path("folder")
    os.mkdir(folder)
    save_file({"model.embed_tokens.weight": torch.arange(6.).reshape(3, 2)}, os.path.join(folder, "model-00001-of-00001.safetensors"))
    places = {name: "model-00001-of-00001.safetensors" for name in ("model.embed_tokens.weight", "lm_head.weight")}
    with open(os.path.join(folder, "model.safetensors.index.json"), "w", encoding="utf-8") as out:
        json.dump({"metadata": {"total_size": 24}, "weight_map": places}, out)
    for name, tied, _, _ in rows[::17]:
        with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as out:
            json.dump({"model_type": name}, out)
        done, _ = setting.consolidate(folder, name + ".pt", expected=0 if tied else BAD_INPUT)
        check(("IDX-TIED" in done.stderr) == tied, "%s: %s" % (name, done.stderr))


def rank_tied(folder):
    """FSDP2 with the head's parameter being the embedding's."""
    from cases_fsdp import fully_shard
    from torch.distributed.device_mesh import init_device_mesh
    import torch.distributed.checkpoint as dcp
    torch.manual_seed(3)
    model = Tied()
    fully_shard(model, mesh=init_device_mesh("cpu", (dist.get_world_size(),)))
    dcp.save({"model": model.state_dict()}, storage_writer=dcp.FileSystemWriter(os.path.join(folder, "dcp")))
    from describe_model import describe
    if dist.get_rank() == 0:
        with open(os.path.join(folder, "model.json"), "w", encoding="utf-8") as out:
            json.dump(describe(model), out)


def rank_read_links(folder):
    path = os.path.join(folder, "out", "model_world_size_2_rank_%d.pt" % dist.get_rank())
    state = torch.load(path, weights_only=False)["model"]
    locals_ = [state[name].to_local() for name in ("emb.weight", "head.weight")]
    check(locals_[0].data_ptr() == locals_[1].data_ptr(), "two storages")
    full = {name: getattr(tensor, "full_tensor", lambda t=tensor: t)() for name, tensor in state.items()}
    torch.manual_seed(3)
    check_same_tensors(full, copies(Tied().state_dict()), "rank %d" % dist.get_rank())


@case((2, 6))
def case_ties_of_fsdp2(setting):
    """DCP keeps both names; rank files link them."""
    from process_group import run_ranks
    run_ranks(3, rank_tied, setting.folder)
    torch.manual_seed(3)
    truth = {"model." + name: tensor for name, tensor in copies(Tied().state_dict()).items()}
    done, path = setting.consolidate(setting.path("dcp"), "out.pt", "--model", setting.path("model.json"), "--tied",
                                     "link")
    check("model.head.weight = model.emb.weight" in done.stdout, done.stdout)
    check_same_tensors(tensors_of_state(load_pt(path)), truth, "linked")
    setting.run("reshard", setting.path("dcp"), setting.path("out"), "--format", "pt-ranks", "--device-type", "cpu",
                "--torch", "%d.%d" % RELEASE[:2], "--world-size", "2", "--model", setting.path("model.json"), "--tied",
                "link")
    run_ranks(2, rank_read_links, setting.folder)


class Experts(nn.Module):
    """The expert lives in a group of one rank, so that each rank has its own; the gate is everybody's."""

    def __init__(self, wrap, wrap_alone):
        super().__init__()
        torch.manual_seed(5)
        self.before = nn.Linear(6, 6)
        self.gate = wrap(nn.Linear(6, 6))
        torch.manual_seed(100 + dist.get_rank())
        self.expert = wrap_alone(nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5), nn.Linear(5, 6)))
        torch.manual_seed(6)
        self.after = nn.Linear(6, 2)

    def forward(self, x):
        x = self.gate(self.before(x))
        return self.after(x + self.expert(x))


def make_experts(orig):
    from cases_fsdp1 import allow_cpu
    from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
    allow_cpu()
    alone = [dist.new_group([rank]) for rank in range(dist.get_world_size())][dist.get_rank()]
    options = {"device_id": torch.device("cpu"), "use_orig_params": orig}
    model = FSDP(Experts(lambda module: FSDP(module, **options),
                         lambda module: FSDP(module, process_group=alone, **options)), **options)
    return model, torch.optim.AdamW(model.parameters(), lr=0.01)


def train_experts(model, optimizer):
    generator = torch.Generator().manual_seed(dist.get_rank())
    for _ in range(2):
        model(torch.randn(4, 6, generator=generator)).square().sum().backward()
        optimizer.step()
        optimizer.zero_grad()


def save_of_rank(folder, family, state):
    os.makedirs(folder, exist_ok=True)
    torch.save(state, os.path.join(folder, "%s_world_size_%d_rank_%d.pt" % (family, dist.get_world_size(),
                                                                           dist.get_rank())))


def moments_of_expert(model, optimizer):
    """State of the expert's parameters on this rank, under its names."""
    found = {}
    for name, param in model.named_parameters():
        name = name.replace("_fsdp_wrapped_module.", "").replace("_flat_param", "")
        if not name.startswith("expert."):
            continue
        infos = ([(name, param.shape)] if hasattr(param, "_fqns") is False else
                 [(name + fqn, shape) for fqn, shape in zip(param._fqns, param._shapes)])
        for key, value in optimizer.state[param].items():
            parts = value.split([shape.numel() for _, shape in infos]) if value.dim() == 1 else [value] * len(infos)
            for (fqn, shape), part in zip(infos, parts):
                found["optim.state.%s.%s" % (fqn, key)] = part.view(shape).clone() if value.dim() else value.clone()
    return found


def rank_experts(folder, orig):
    from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, StateDictType
    from describe_model import describe
    model, optimizer = make_experts(orig)
    train_experts(model, optimizer)
    kinds = {"full": StateDictType.FULL_STATE_DICT, "local": StateDictType.LOCAL_STATE_DICT,
             "sharded": StateDictType.SHARDED_STATE_DICT}
    for name, kind in kinds.items():
        with FSDP.state_dict_type(model, kind):
            save_of_rank(os.path.join(folder, name), "model", model.state_dict())
    save_of_rank(os.path.join(folder, "local"), "optim", optimizer.state_dict())
    with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT):
        save_of_rank(os.path.join(folder, "truth"), "model", {name: t.clone() for name, t in model.state_dict().items()})
    save_of_rank(os.path.join(folder, "truth"), "optim", moments_of_expert(model, optimizer))
    if dist.get_rank() == 0:
        with open(os.path.join(folder, "model.json"), "w", encoding="utf-8") as out:
            json.dump(describe(model), out)


def truth_of_moments(setting, world):
    return {"%s.rank%d" % (name, rank): tensor for rank in range(world) for name, tensor in
            load_pt(setting.path("truth", "optim_world_size_%d_rank_%d.pt" % (world, rank))).items()}


def truth_of_experts(setting, world, prefix=""):
    """What each rank has, under the names that fsdpck gives."""
    truth = {}
    for rank in range(world):
        state = load_pt(setting.path("truth", "model_world_size_%d_rank_%d.pt" % (world, rank)))
        for name, tensor in state.items():
            truth[prefix + name + (".rank%d" % rank if name.startswith("expert.") else "")] = tensor
    return truth


def rank_load_experts(folder, target, orig):
    """Loads what was written for as many ranks: each has its own expert again, and training goes on."""
    from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, StateDictType
    model, optimizer = make_experts(orig)
    name = "model_world_size_%d_rank_%d.pt" % (dist.get_world_size(), dist.get_rank())
    state = torch.load(os.path.join(folder, target, name), weights_only=False)
    if target == "flat":
        with FSDP.state_dict_type(model, StateDictType.LOCAL_STATE_DICT):
            model.load_state_dict(state, strict=not orig)
    else:
        state = {name: tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor for name, tensor in state.items()}
        with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT):
            model.load_state_dict(state)
    with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT):
        found = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    check_same_tensors(found, torch.load(os.path.join(folder, "truth", name)), "rank %d of %s" % (dist.get_rank(), target))
    train_experts(model, optimizer)


def check_experts_again(setting, source, target, world, orig):
    from process_group import run_ranks
    described_by = ("--model", setting.path("model.json"), "--assume", "order")
    if target == "flat":
        reshard = ("reshard", setting.path(source), setting.path(target), *described_by, "--format", "fsdp1",
                   "--world-size", world)
        done = setting.run(*reshard, expected=UNSUPPORTED)
        check("MODEL-OPTIM" in done.stderr and "--part model" in done.stderr, done.stderr)
        setting.run(*reshard, "--part", "model")
    else:
        setting.run("reshard", setting.path(source), setting.path(target), *described_by, "--format", "pt-ranks",
                    "--device-type", "cpu", "--world-size", world)
    run_ranks(world, rank_load_experts, setting.folder, target, orig)


def check_experts(orig):
    def run(setting):
        from process_group import run_ranks
        world = 3
        run_ranks(world, rank_experts, setting.folder, orig)
        model = ("--model", setting.path("model.json"), "--assume", "order")
        for source in ("full", "sharded", "local"):
            done, path = setting.consolidate(setting.path(source), source + ".pt", *model, "--part", "model")
            check("rank-local tensors" in done.stderr, done.stderr)
            prefix = "model." if source == "local" else ""
            check_same_tensors(tensors_of_state(load_pt(path)), truth_of_experts(setting, world, prefix), source)
        done, path = setting.consolidate(setting.path("local"), "all.pt", *model)
        everything = tensors_of_state(load_pt(path))
        moments = {name: tensor for name, tensor in everything.items() if ".expert." in name and "optim" in name}
        check_same_tensors(moments, truth_of_moments(setting, world), "moments")
        check("optim.state.gate.weight.exp_avg" in everything, sorted(everything))
        for source, target in (("full", "again"), ("local", "flat")):
            check_experts_again(setting, source, target, world, orig)
        done, path = setting.consolidate(setting.path("full"), "bare.pt", expected=BAD_INPUT)
        check("RANK-DIFFER" in done.stderr and "--per-rank keep" in done.stderr, done.stderr)
        check_nothing_at(path)
    run.__name__ = "case_ties_experts_" + ("orig" if orig else "flat")
    return run


for orig_params in (False, True):
    case((2, 4))(check_experts(orig_params))


class Outer(nn.Module):
    """Gives its module's names as its own, as TorchRec's DistributedModelParallel does."""

    def __init__(self, inner):
        super().__init__()
        self._dmp_wrapped_module = inner

    def named_parameters(self, prefix="", recurse=True, remove_duplicate=True):
        yield from self._dmp_wrapped_module.named_parameters(prefix, recurse, remove_duplicate)

    def state_dict(self, destination=None, prefix="", keep_vars=False):
        return self._dmp_wrapped_module.state_dict(destination=destination, prefix=prefix, keep_vars=keep_vars)

    def forward(self, x):
        return self._dmp_wrapped_module(x)


class Sides(nn.Module):
    """An overridden module beside one that is not, further down."""

    def __init__(self, wrap=lambda module: module):
        super().__init__()
        self.left = Outer(wrap(nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 3))))
        self.right = wrap(nn.Linear(3, 2))

    def forward(self, x):
        return self.right(self.left(x))


@case((2, 4))
def case_ties_overridden_names(setting):
    torch.manual_seed(3)
    for name, model in (("outer", Outer(Tied())), ("sides", Sides())):
        description = described(setting, model, name + ".json")
        with open(description, encoding="utf-8") as text:
            modules = {module["name"]: module.get("override") for module in json.load(text)["modules"]}
        expected = ("_dmp_wrapped_module", "") if name == "outer" else ("left._dmp_wrapped_module", "left")
        check({path: given for path, given in modules.items() if given is not None} == dict([expected]), modules)
        state = copies(model.state_dict())
        walk = {fqn: tensor for fqn, tensor in nn.Module.state_dict(model).items()} if name == "outer" else None
        torch.save(state, setting.path("in.pt"))
        done, path = setting.consolidate(setting.path("in.pt"), name + ".pt", "--model", description)
        check_same_tensors(load_pt(path), state, name)
        check("warning" not in done.stderr, done.stderr)
        first = next(iter(state))
        less = {fqn: tensor for fqn, tensor in state.items() if fqn not in (first, "head.weight")}
        torch.save(less, setting.path("less.pt"))
        done, path = setting.consolidate(setting.path("less.pt"), "less-out.pt", "--model", description, "--force")
        check("MODEL-OVERRIDE" in done.stderr and "'%s'" % first in done.stderr, done.stderr)
        if walk is not None:
            torch.save(copies(walk), setting.path("walk.pt"))
            done, path = setting.consolidate(setting.path("walk.pt"), "walk-out.pt", "--model", description)
            check("warning" not in done.stderr and "emb.weight" in done.stdout, done.stderr + done.stdout)


def rank_overridden(folder, orig):
    from cases_fsdp1 import allow_cpu
    from describe_model import describe
    from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, StateDictType
    allow_cpu()
    torch.manual_seed(3)
    options = {"device_id": torch.device("cpu"), "use_orig_params": orig}
    model = FSDP(Sides(lambda module: FSDP(module, **options)), **options)
    for name, kind in (("truth", StateDictType.FULL_STATE_DICT), ("local", StateDictType.LOCAL_STATE_DICT)):
        with FSDP.state_dict_type(model, kind):
            save_of_rank(os.path.join(folder, name), "model", dict(model.state_dict()))
    if dist.get_rank() == 0:
        with open(os.path.join(folder, "model.json"), "w", encoding="utf-8") as out:
            json.dump(describe(model), out)


@case((2, 4))
def case_ties_overridden_units(setting):
    """Units are named as state names them."""
    from process_group import run_ranks
    for orig in (False, True):
        run_ranks(2, rank_overridden, setting.folder, orig)
        done, path = setting.consolidate(setting.path("local"), "out.pt", "--model", setting.path("model.json"), "--force")
        truth = load_pt(setting.path("truth", "model_world_size_2_rank_0.pt"))
        check_same_tensors(load_pt(path), truth, "orig %d" % orig)
        check("warning" not in done.stderr, done.stderr)


@case((2, 4))
def case_ties_with_another_view_between(setting):
    """Two pairs of equal views, and a fifth view, of one byte: their order is no matter."""
    whole = seeded("w", (4, 4))
    torch.save({"a": whole, "x": whole.view(16), "b": whole, "y": whole.view(16), "z": whole.t()},
               setting.path("views.pt"))
    done, path = setting.consolidate(setting.path("views.pt"), "first.safetensors", "--tied", "first")
    check("b = a, y = x" in done.stdout or "y = x, b = a" in done.stdout, done.stdout)
    check_same_tensors(load_file(path), {"a": whole, "x": whole.view(16), "z": whole.t()}, "first.safetensors")


@case()
def case_ties_cast_apart(setting):
    """A name that --dtype alone casts is no tie: it is written, and the report names no tie."""
    weight = seeded("w", (3, 4))
    torch.save({"emb": weight, "head": weight, "third": weight}, setting.path("m.pt"))
    for which in ("link", "first"):
        done, path = setting.consolidate(setting.path("m.pt"), which + ".pt", "--tied", which, "--dtype", "head=bf16")
        state = load_pt(path)
        check("third = emb" in done.stdout and "head =" not in done.stdout, done.stdout)
        check(torch.equal(state["head"], weight.bfloat16()) and state["emb"].dtype == torch.float32, str(state))
        check(list(state) == ["emb", "head"] + (["third"] if which == "link" else []), str(state))
        check(which == "first" or state["emb"].data_ptr() == state["third"].data_ptr(), "the others are not linked")
        check(state["emb"].data_ptr() != state["head"].data_ptr(), "dtypes share a storage")
