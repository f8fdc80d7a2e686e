"""What the running torch and the safetensors library write in good order: verify has nothing but notes at any level,
`latest` takes it, and digests are those of the tensors, whatever the form and however many ranks have cut it."""

import collections
import functools
import json
import os
import pickle
import shutil
import zipfile

import torch
import torch.distributed as dist
from safetensors.torch import save_file

from checkpoint_truth import dtype_name, seeded, tensor_bytes, tensor_digest, tensor_from_bytes, tensor_label
from release import RELEASE
from support import case, check, check_good, check_same_names, check_same_tensors, digests_of, load_file, load_pt

NUMBERS = {"NUM-ZERO", "NUM-ZERO-FILE", "NUM-INF", "NUM-CONSTANT", "CHECKSUM-NONE"}



@case()
def case_data_file_of_another_rank(setting):
    """One data file in place of another: FILE-SAME names both."""
    for name, copied, lost in (("dcp-wrapped", "__1_0", "__0_0"), ("dcp-fsdp1-tp", "__2_0", "__0_0"), ("dcp-float8", "__1_0", "__0_0")):
        source, folder = os.path.join(setting.fixtures, "torch-2.15.0", name), setting.path(name)
        shutil.copytree(source, folder)
        check("FILE-SAME" not in setting.run("verify", folder).stdout, "%s: false alarm" % name)
        target = os.path.join(folder, lost + ".distcp")
        os.chmod(target, 0o644)
        shutil.copyfile(os.path.join(folder, copied + ".distcp"), target)
        found = [row for row in json.loads(setting.run("verify", folder, "--json").stdout)["findings"] if row["finding"] == "FILE-SAME"]
        check(len(found) == 1 and all(rank in found[0]["path"] + found[0]["message"] for rank in (copied, lost)), "%s: %r" % (name, found))
        setting.run("verify", "--strict", folder, expected=1)


@case(first=(2, 3))
def case_data_file_of_one_record(setting):
    """A file for each tensor: equal weights may be tied or copies of each other, but gradients of two layers differ."""
    import torch.distributed.checkpoint as dcp
    moments = {"%d.weight" % layer: {key: seeded("%s%d" % (key, layer), (40, 30)) for key in ("exp_avg", "exp_avg_sq")} for layer in range(3)}
    basis, table = torch.eye(64), torch.arange(2048.0).reshape(2, 1024)
    weight, bias = seeded("w", (40, 30)), seeded("b", (4096,))
    state = {"embed.weight": weight, "head.weight": weight, "ema": {"embed.weight": weight},
             "layers": {"0.weight": weight, "1.weight": weight.clone()},
             "optim": {"state": {**{"layers." + name: value for name, value in moments.items()},
                                 "embed.weight": {"exp_avg": weight}, "head.weight": {"exp_avg": weight},
                                 "lstm.0.bias": {"exp_avg": bias}, "lstm.1.bias": {"exp_avg": bias.clone()},
                                 "fresh.0": {"exp_avg": torch.zeros(64, 64), "exp_avg_sq": basis, "table": table},
                                 "fresh.1": {"exp_avg": torch.zeros(64, 64), "exp_avg_sq": basis.clone(), "table": table.clone()}}},
             "optims": {str(copy): {"state": {"x": {"exp_avg": weight.clone()}}} for copy in range(2)}}
    folder = setting.path("dcp")
    dcp.save(state, storage_writer=dcp.FileSystemWriter(folder, single_file_per_rank=False), no_dist=True)
    check("FILE-SAME" not in setting.run("verify", folder).stdout, "false alarm")
    with open(os.path.join(folder, ".metadata"), "rb") as file:
        stored = {key.fqn: info.relative_path for key, info in pickle.load(file).storage_data.items()}
    first, second = (stored["optim.state.layers.%d.weight.exp_avg" % layer] for layer in (0, 2))
    shutil.copyfile(os.path.join(folder, second), os.path.join(folder, first))
    text = setting.run("verify", "--strict", folder, expected=1).stdout
    check("FILE-SAME" in text and first in text and second in text, text)


@case(first=(2, 3))
def case_data_file_of_many_zeros(setting):
    """The data that varies is behind more than 1,024 tensors of zeros, as fresh optimizer state has them."""
    import torch.distributed.checkpoint as dcp
    state = {"m%04d" % number: torch.zeros(8) for number in range(2600)}
    state.update({"w%04d" % number: torch.arange(8.0) + number for number in range(200)})
    dcp.save(state, storage_writer=dcp.FileSystemWriter(setting.path("dcp"), thread_count=2, sync_files=False), no_dist=True)
    check("FILE-SAME" not in setting.run("verify", setting.path("dcp")).stdout, "false alarm")
    first, second = sorted(name for name in os.listdir(setting.path("dcp")) if name.endswith(".distcp"))
    shutil.copyfile(setting.path("dcp", second), setting.path("dcp", first))
    text = setting.run("verify", "--strict", setting.path("dcp"), expected=1).stdout
    check("FILE-SAME" in text and first in text and second in text, text)


def odd_but_good():
    """What a careless check would take for damage."""
    state = {
        "norm.weight": torch.ones(5000), "norm.bias": torch.zeros(5000),
        "mask": torch.full((80, 80), float("-inf")).triu(1), "causal": torch.ones(80, 80).tril().bool(),
        "exp_avg": torch.zeros(70, 80), "exp_avg_sq": torch.zeros(70, 80), "step": torch.tensor(0.0),
        "largest": torch.tensor([torch.finfo(torch.float32).max, torch.finfo(torch.float32).tiny]),
        "half": torch.tensor([65504.0, -65504.0, 6e-8], dtype=torch.float16),
        "brain": seeded("brain", (13, 7), torch.bfloat16), "double": seeded("double", (5, 3), torch.float64),
        "empty": torch.zeros(0, 3), "nothing": torch.zeros(0), "scalar": torch.tensor(7),
        "ids": seeded("ids", (9,), torch.int64), "bytes": seeded("bytes", (9,), torch.uint8),
        "minus": torch.full((6000,), -0.0),
    }
    return state


def expected(state):
    return {name: (tensor_digest(tensor), tensor_label(tensor)) for name, tensor in state.items()}


def check_digests_of(setting, source, state, *options):
    found, truth = digests_of(setting, source, *options), expected(state)
    check_same_names(found, truth, source)
    wrong = [name for name in truth if found[name] != truth[name]]
    check(not wrong, "%s: digests of %s" % (source, wrong))


def check_latest(setting, sources):
    """Each as a step of a run: the newest is found, and nothing is said but that a last rank could be missing."""
    root = setting.path("run")
    os.mkdir(root)
    for step, source in enumerate(sources):
        os.symlink(source, os.path.join(root, "step-%d" % (step * 5 + 1)))
    for level in ("quick", "coverage"):
        done = setting.run("latest", "--level", level, "-n", len(sources), root)
        found = [os.path.basename(line) for line in done.stdout.splitlines()]
        said = [line for line in done.stderr.splitlines()
                if not line.endswith("[RANKS-UNKNOWN]") and not line.startswith("  next:     give --source-ranks N,")]
        check(found == ["step-%d" % (step * 5 + 1) for step in reversed(range(len(sources)))] and said == [],
              "latest says %s, %s" % (found, done.stderr))


# --- single files ---

@case()
def case_good_files(setting):
    state = odd_but_good()
    paths = {name: setting.path(name) for name in ("zip.pt", "stream.pt", "plain.safetensors", "twice.pt")}
    torch.save(state, paths["zip.pt"])
    torch.save(state, paths["stream.pt"], _use_new_zipfile_serialization=False)
    save_file(state, paths["plain.safetensors"], metadata={"format": "pt"})
    tied = {"head": state["brain"], "embed": state["brain"], "rows": state["brain"][2:5], "turned": state["brain"].t()}
    torch.save(tied, paths["twice.pt"])
    for name, path in paths.items():
        notes = check_good(setting, path)
        check(notes <= NUMBERS, "notes of %s: %s" % (name, sorted(notes)))
        check_digests_of(setting, path, tied if name == "twice.pt" else state)
        with open(setting.path("list"), "w", encoding="utf-8") as text:
            text.write(setting.run("digest", path).stdout)
        setting.run("digest", "-c", setting.path("list"), path)


@case()
def case_good_views_of_garbage(setting):
    """Tensors whose storages hold more than they do: what nobody sees is no finding."""
    rows, columns = torch.full((60,), float("nan")), torch.full((6, 10), float("nan"))
    rows[:6], columns[:, 2:4] = seeded("rows", (6,)), seeded("columns", (6, 2))
    state = {"rows": rows[:6], "again": rows[2:5], "columns": columns[:, 2:4]}
    for name, options in (("zip.pt", {}), ("stream.pt", {"_use_new_zipfile_serialization": False})):
        torch.save(state, setting.path(name), **options)
        check_good(setting, setting.path(name))
        check_digests_of(setting, setting.path(name), state)


@case()
def case_good_legacy_protocols(setting):
    """The stream form in every pickle protocol that torch.load reads, as one file and a file a rank."""
    state = {"weight": seeded("weight", (3, 4)), "count": torch.arange(5), "on": True, "big": 10**30, "text": "\xe9"}
    tensors = {name: item for name, item in state.items() if isinstance(item, torch.Tensor)}
    for protocol in (1, 2, 3, 4, 5):
        options = {"_use_new_zipfile_serialization": False, "pickle_protocol": protocol}
        name = "protocol-%d.pt" % protocol
        torch.save(state, setting.path(name), **options)
        check(torch.load(setting.path(name), weights_only=False)["big"] == state["big"], "torch, %s" % name)
        check_good(setting, setting.path(name))
        check_digests_of(setting, setting.path(name), tensors)
        _, output = setting.consolidate(setting.path(name), "out-%d.pt" % protocol)
        found = load_pt(output, weights_only=False)
        check(all(found[key] == state[key] for key in ("on", "big", "text")), "%s: %r" % (name, found))
        for rank in range(2):
            os.makedirs(setting.path("ranks-%d" % protocol), exist_ok=True)
            torch.save(state, setting.path("ranks-%d" % protocol, "model_rank%d.pt" % rank), **options)
        check_digests_of(setting, setting.path("ranks-%d" % protocol), tensors)


@case()
def case_good_diff_protocols(setting):
    """What torch loads as equal is equal, whatever pickle protocol and names of Python 2 the files have."""
    state = {"w": torch.ones(2), "s": slice(1, 2), "r": range(3), "c": complex(1, 2), "b": bytearray(b"ab"),
             "e": Ellipsis, "d": collections.defaultdict(list, {"a": [1]}), "u": collections.UserDict(a=1),
             "z": zip, "str": str, "reduce": functools.reduce, "set": {1, 2}, "bytes": b"\xff"}
    for protocol in (2, 3, 4, 5):
        torch.save(state, setting.path("%d.pt" % protocol), pickle_protocol=protocol)
        setting.run("diff", setting.path("%d.pt" % protocol), setting.path("2.pt"))
        _, output = setting.consolidate(setting.path("%d.pt" % protocol), "out-%d.pt" % protocol)
        setting.run("diff", setting.path("%d.pt" % protocol), output)


@case((2, 15))
def case_good_memory_formats(setting):
    """Newer pickle protocols name torch.channels_last by another module of torch."""
    state = {"w": torch.ones(2), "f": torch.channels_last, "g": [torch.contiguous_format]}
    for protocol in (4, 5):
        torch.save(state, setting.path("%d.pt" % protocol), pickle_protocol=protocol)
        _, output = setting.consolidate(setting.path("%d.pt" % protocol), "out-%d.pt" % protocol)
        setting.run("verify", output)
        setting.run("diff", setting.path("%d.pt" % protocol), output)
        found = torch.load(output, weights_only=False)
        check(found["f"] is torch.channels_last and found["g"] == [torch.contiguous_format], found)


def deflated(source, target):
    with zipfile.ZipFile(source) as given, zipfile.ZipFile(target, "w") as made:
        for entry in given.infolist():
            made.writestr(zipfile.ZipInfo(entry.filename), given.read(entry), compress_type=zipfile.ZIP_DEFLATED)


@case((2, 1))
def case_good_views_without_crc_or_deflated(setting):
    """Views that overlap, or repeat one element far beyond their storage, in records that are streams or have no CRC."""
    line = seeded("line", (4000,))
    state = {"window": line.as_strided((900, 64), (4, 1)), "turned": line.as_strided((7, 300), (3, 2), 5),
             "rows": line[:40].expand(50, 40), "every": line[3:3800:7], "last": torch.tensor(3.0).expand(100000)}
    torch.save({name: view for name, view in state.items()}, setting.path("zip.pt"))
    deflated(setting.path("zip.pt"), setting.path("deflated.pt"))
    sources = ["zip.pt", "deflated.pt"]
    if hasattr(torch.serialization, "set_crc32_options"):
        torch.serialization.set_crc32_options(False)
        torch.save(state, setting.path("crcless.pt"))
        torch.serialization.set_crc32_options(True)
        sources.append("crcless.pt")
    for source in sources:
        check_good(setting, setting.path(source))
        check_digests_of(setting, setting.path(source), state)
        _, made = setting.consolidate(setting.path(source), source + ".safetensors")
        check_same_tensors(load_file(made), {name: view.contiguous() for name, view in state.items()}, source)


@case()
def case_good_training_file(setting):
    """Optimizers before their first step and after it, by torch.save alone."""
    kinds = [torch.optim.Adam, torch.optim.AdamW, torch.optim.SGD, torch.optim.RMSprop, torch.optim.Adagrad,
             torch.optim.Adadelta, torch.optim.Rprop, torch.optim.ASGD, torch.optim.RAdam, torch.optim.NAdam]
    for kind in kinds + [getattr(torch.optim, name) for name in ("Adafactor", "Muon") if hasattr(torch.optim, name)]:
        model = torch.nn.Sequential(torch.nn.Linear(70, 80, bias=False), torch.nn.Linear(80, 70, bias=False))
        options = {"momentum": 0.9} if kind is torch.optim.SGD else {}
        optimizer = kind(model.parameters(), lr=0.01, **options)
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 3)
        for number in range(3):
            path = setting.path("%s-%d.pt" % (kind.__name__, number))
            torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(),
                        "scheduler": scheduler.state_dict(), "epoch": number}, path)
            check_good(setting, path, levels=("numeric",))
            for parameter in model.parameters():  # at first none, so that fresh moments are zeros
                parameter.grad = parameter.detach() * number
            optimizer.step()
            scheduler.step()


# --- the same state in every form ---

def make_state():
    return {"embed.weight": seeded("embed", (11, 6)), "up.weight": seeded("up", (16, 6), torch.bfloat16),
            "down.weight": seeded("down", (6, 16)), "conv.weight": seeded("conv", (9, 4, 3, 3), torch.float16),
            "norm.weight": torch.ones(6), "one.weight": seeded("one", (1,)), "mask": seeded("mask", (2, 3), torch.bool),
            "empty.weight": torch.zeros(0, 3), "count": torch.tensor(7), "ids": seeded("ids", (7,), torch.int64)}


def flip_bit(state, name):
    """The state with the lowest bit of the tensor's last element changed."""
    data = bytearray(tensor_bytes(state[name]))
    data[-state[name].element_size()] ^= 1
    return dict(state, **{name: tensor_from_bytes(bytes(data), state[name].dtype, state[name].shape)})


def rank_save(folder, state, forms):
    """Floating tensors cut by rows over all ranks, the rest whole on each."""
    import torch.distributed.checkpoint as dcp
    from cases_ranks import make_mesh
    try:
        from torch.distributed.tensor import Shard, distribute_tensor
    except ImportError:
        from torch.distributed._tensor import Shard, distribute_tensor
    mesh, rank, ranks = make_mesh(), dist.get_rank(), dist.get_world_size()
    cut = {name: distribute_tensor(tensor, mesh, [Shard(0)]) if tensor.is_floating_point() else tensor
           for name, tensor in state.items()}
    for form in forms:
        path = "%s/%s-%d" % (folder, form, ranks)
        if form == "dcp":
            dcp.save(cut, storage_writer=dcp.FileSystemWriter(path))
        elif form == "alone":
            dcp.save(cut, storage_writer=dcp.FileSystemWriter(path), use_collectives=False)
        elif form == "hf":
            flag = "save_sharded" if RELEASE < (2, 9) else "save_distributed"
            dcp.save(cut, storage_writer=dcp.HuggingFaceStorageWriter(path, **{flag: True}))
        else:
            os.makedirs(path, exist_ok=True)
            torch.save(cut, "%s/model_world_size_%d_rank_%d.pt" % (path, ranks, rank))
    dist.barrier()


def save_all(folder, state):
    from process_group import run_ranks
    os.mkdir(folder)
    forms = ["dcp", "ranks"] + ["alone"] * (RELEASE >= (2, 9)) + ["hf"] * (RELEASE >= (2, 8))
    for ranks in (1, 3, 8):
        run_ranks(ranks, rank_save, folder, state, forms)
    torch.save(state, os.path.join(folder, "whole.pt"))
    torch.save(state, os.path.join(folder, "stream.pt"), _use_new_zipfile_serialization=False)
    save_file(state, os.path.join(folder, "whole.safetensors"))
    return sorted(os.listdir(folder))


@case(first=(2, 3))
def case_good_every_form(setting):
    """Equal digests of one state, also in what this program makes of it; other digests of the tensor in which one bit
    is another, and of no other tensor."""
    state = make_state()
    changed = {name: flip_bit(state, name) for name in ("up.weight", "ids")}
    names = save_all(setting.path("good"), state)
    check(len(names) >= 3 * 2 + 3, "forms: %s" % names)
    wholes = set()
    for name in names:
        source = setting.path("good", name)
        check_good(setting, source)
        check_digests_of(setting, source, state)
        wholes.add(setting.run("digest", source).stdout.splitlines()[-1])
    check(len(wholes) == 1, "digests of the whole: %s" % wholes)
    check_latest(setting, [setting.path("good", name) for name in names if os.path.isdir(setting.path("good", name))])
    with open(setting.path("list"), "w", encoding="utf-8") as text:
        text.write(setting.run("digest", setting.path("good", "whole.pt")).stdout)
    for key, other in changed.items():
        folder = setting.path("other-" + key)
        for name in save_all(folder, other):
            source = os.path.join(folder, name)
            check_good(setting, source, levels=("numeric",))
            done = setting.run("digest", "-q", "-c", setting.path("list"), source, expected=1)
            check("'%s'" % key in done.stdout + done.stderr or key in done.stdout, "names no tensor: " + done.stdout)
            found, truth = digests_of(setting, source), expected(state)
            differ = [n for n in truth if found[n] != truth[n]]
            check(differ == [key], "%s: digests of %s differ" % (source, differ))
            setting.run("diff", "-q", setting.path("good", "dcp-3"), source, expected=1)
    for name in names:
        setting.run("diff", "-q", setting.path("good", "dcp-3"), setting.path("good", name))


@case(first=(2, 3))
def case_good_own_outputs(setting):
    """What this program writes, with and without its manifest."""
    state = make_state()
    torch.save(state, setting.path("in.pt"))
    runs = [["consolidate", "a.safetensors"], ["consolidate", "b.pt"], ["consolidate", "c"],
            ["consolidate", "d", "--max-shard-size", "700"], ["consolidate", "e", "--format", "dcp"]]
    for ranks in ("1", "3", "8"):
        for form in ("dcp", "pt-ranks", "dcp-safetensors"):
            runs.append(["reshard", form + ranks, "--format", form, "--world-size", ranks])
    runs.append(["reshard", "hsdp-tp", "--format", "dcp", "--mesh", "dp_replicate=2,dp_shard=2,tp=2", "--shard", "down*=1"])
    for command, target, *words in runs:
        for more in ([], ["--no-manifest"]):
            path = setting.path(target)
            setting.run(command, setting.path("in.pt"), path, "--force", *words, *more)
            check_good(setting, path)
        check_digests_of(setting, path, state)


# --- FSDP1: what is in no fixture ---

def rank_fsdp1(folder, orig, strategy):
    import torch.distributed.checkpoint as dcp
    from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, ShardingStrategy, StateDictType
    from cases_fsdp1 import allow_cpu
    from cases_fsdp1_live import Net, train
    allow_cpu()
    options = {"device_id": torch.device("cpu"), "use_orig_params": orig}
    if strategy == "HSDP":
        from torch.distributed.device_mesh import init_device_mesh
        options.update(sharding_strategy=ShardingStrategy.HYBRID_SHARD,
                       device_mesh=init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard")))
    torch.manual_seed(11)
    model = FSDP(Net(lambda module: FSDP(module, **options)), **options)
    optimizer = train(model)
    rank, ranks = dist.get_rank(), dist.get_world_size()
    for kind in (StateDictType.SHARDED_STATE_DICT, StateDictType.FULL_STATE_DICT):
        with FSDP.state_dict_type(model, kind):
            state = {"model": model.state_dict(), "optim": FSDP.optim_state_dict(model, optimizer), "epoch": 3}
        name = kind.name.split("_")[0].lower()
        dcp.save(state, storage_writer=dcp.FileSystemWriter("%s/dcp-%s" % (folder, name)))
        path = "%s/ranks-%s" % (folder, name)
        os.makedirs(path, exist_ok=True)
        torch.save(state, "%s/model_world_size_%d_rank_%d.pt" % (path, ranks, rank))
        if rank == 0 and name == "full":
            torch.save(state, folder + "/full.pt")
    dist.barrier()


def check_fsdp1(ranks, orig, strategy):
    def run(setting):
        from process_group import run_ranks
        folder = setting.path("fsdp1")
        os.mkdir(folder)
        run_ranks(ranks, rank_fsdp1, folder, orig, strategy)
        digests = {}
        for name in sorted(os.listdir(folder)):
            source = os.path.join(folder, name)
            check_good(setting, source)
            digests[name] = digests_of(setting, source, "--part", "model")
        for name, found in digests.items():
            check(found == digests["full.pt"], "digests of %s are others" % name)
    run.__name__ = "case_good_fsdp1_%s_%d_%s" % (strategy.lower(), ranks, "orig" if orig else "flat")
    return run


for settings in ((1, True, "FSDP"), (3, True, "FSDP"), (3, False, "FSDP"), (4, True, "HSDP")):
    case(first=(2, 3))(check_fsdp1(*settings))


# --- a real model ---

@case()
def case_good_published_model(setting):
    if setting.model_file is None:
        return
    check(check_good(setting, setting.model_file, levels=("numeric",)) <= NUMBERS, "notes")
    tensors = load_file(setting.model_file)
    torch.save(tensors, setting.path("model.pt"))
    check(check_good(setting, setting.path("model.pt"), levels=("numeric",)) <= NUMBERS, "notes")
    digests = digests_of(setting, setting.model_file)
    check(digests_of(setting, setting.path("model.pt")) == digests, "digests")
    check(len(digests) == len(tensors) > 100 and all(label.startswith(dtype_name(tensors[name].dtype))
                                                     for name, (_, label) in digests.items()), "tensors")
    if RELEASE >= (2, 3):
        import torch.distributed.checkpoint as dcp
        dcp.save(tensors, storage_writer=dcp.FileSystemWriter(setting.path("dcp")))
        check(check_good(setting, setting.path("dcp")) <= NUMBERS | {"DCP-TRACES"}, "notes of DCP")
        check(digests_of(setting, setting.path("dcp")) == digests, "digests of DCP")
        setting.run("diff", setting.path("dcp"), setting.model_file)
