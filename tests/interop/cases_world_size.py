"""reshard --world-size 1 to 9 of committed fixtures: the mesh that the rule of fsdpck-reshard(1) gives, the boxes that
torch.chunk gives, and the tensors that real torch loads on so many ranks.

INTEROP_WORLD_SIZE_FIXTURES, a glob over names as torch-2.15.0/dcp-tp, chooses fixtures, '*' all; each then goes to
every sharded format. Without it a sample goes to its own format. INTEROP_WORLD_SIZES, as 3,9, chooses sizes. All of it
takes most of an hour on two cores: set INTEROP_CASE_SECONDS.
"""

import fnmatch
import glob
import json
import os
import re
import shutil
import sys

import torch

from cases_fixtures import can_load, reading_options
from checkpoint_truth import dtype_name, read_digests, tensor_bytes, tensor_digest, tensor_from_bytes, tensor_label
from support import NO_SAFETENSORS, Failure, case, check, check_digests, digests_of, fixture_source, load_pt
from support import tensors_of_state

WORLD_SIZES = range(1, 10)
SAMPLE = ["torch-2.15.0/" + name for name in (
    "dcp-hsdp", "dcp-ep-tp", "dcp-shard-dim1", "ranks-dtensor", "ranks-hsdp", "hf-shards", "hf-index", "fsdp1-orig",
    "deepspeed-zero1")]
SAMPLE += ["torch-2.1.2/ranks-dtensor", "torch-2.10.0/wrong-boxes9", "torch-2.15.0/dcp-transposed"]
FORMATS = ("dcp", "pt-ranks", "dcp-safetensors")
# Files that hold something else than one checkpoint that can be read whole.
PARTS_OF_FOLDERS = {"torch-2.15.0/fsdp1-full-optim": ("both.pt", "optim.pt")}
REPLICATE = ("dp_replicate", "ddp", "replicate")
MODEL_PARALLEL = ("tp", "model", "tensor_parallel", "ep")
# dtypes that torch saves, but has no copy_ for, which loading a DCP needs; and those that its safetensors reader lacks.
NOT_LOADED = ("float4_e2m1fn_x2", *(label for label in NO_SAFETENSORS if label.startswith("bits")))
# What torch.distributed.tensor cannot pad ("fill_cpu" not implemented for 'BComplex32'): distribute_tensor() fails where
# a dim does not divide evenly, so these shards are made by their boxes.
NOT_PADDED = ("bcomplex32",)
# What gloo gathers; other dtypes are put together from the bytes of the ranks.
GATHERED = (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.uint8,
            torch.int8)


def product(sizes):
    ranks = 1
    for size in sizes:
        ranks *= size
    return ranks


def parse_mesh(text):
    """[(name, size)] of 'dp=2,tp=2', '2x2' or nothing."""
    if not text:
        return []
    if "=" not in text:
        return [("", int(size)) for size in text.split("x")]
    return [(name, int(size)) for name, size in (dim.split("=") for dim in text.split(","))]


def fit_mesh(dims, world_size):
    """The rule, for meshes that fixtures have: (mesh, dims that are given up)."""
    if not dims:
        return [("fsdp", world_size)], []
    if product(size for _, size in dims) == world_size:
        return dims, []
    if len(dims) == 1 and dims[0][0] not in REPLICATE + MODEL_PARALLEL:
        return [(dims[0][0], world_size)], []
    rest, kept = world_size, set()
    for name, size in reversed(dims):
        if name in MODEL_PARALLEL and rest % size == 0:
            kept.add(name)
            rest //= size
    fsdp = [name for name, _ in dims if name and name not in REPLICATE + MODEL_PARALLEL]
    lost = [name for name, _ in dims if name not in kept and name not in fsdp[:1]]
    mesh = [(name, rest if name in fsdp else size) for name, size in dims if name in fsdp[:1] or name in kept]
    if not fsdp and (rest > 1 or not mesh):
        mesh.insert(0, ("fsdp", rest))
    return mesh, lost


def print_mesh(dims):
    named = all(name for name, _ in dims)
    return ",".join("%s=%d" % d for d in dims) if named else "x".join(str(size) for _, size in dims)


def parse_placements(text):
    """[(dim or None, whether it is strided)], one a mesh dim."""
    found = []
    for word in re.findall(r"Replicate\(\)|_StridedShard\(\d+, \d+\)|Shard\(\d+\)", text):
        dim = re.search(r"\d+", word)
        found.append((int(dim.group()) if dim else None, word.startswith("_")))
    return found


def piece(size, cuts):
    """Offset and size of what is left of a dim after torch.chunk by each of (number of parts, part)."""
    rows = torch.arange(size)
    for parts, part in cuts:
        chunks = rows.chunk(parts) if len(rows) else (rows,)
        rows = chunks[part] if part < len(chunks) else rows[:0]
    return (int(rows[0]) if len(rows) else size), len(rows)


def box_of(shape, sizes, placements, coordinate):
    """Offsets and sizes: plain Shards cut left to right, strided ones after those to their right."""
    plain = [i for i, (_, strided) in enumerate(placements) if not strided]
    order = plain + [i for i in reversed(range(len(placements))) if placements[i][1]]
    box = []
    for dim, size in enumerate(shape):
        cuts = [(sizes[i], coordinate[i]) for i in order if placements[i][0] == dim]
        box.append(piece(size, cuts))
    return tuple(offset for offset, _ in box), tuple(size for _, size in box)


def coordinates(sizes):
    return [tuple(map(int, torch.unravel_index(torch.tensor(rank), sizes))) for rank in range(product(sizes))]


def boxes_of(shape, sizes, placements):
    """The boxes with elements that all ranks hold."""
    boxes = {box_of(shape, sizes, placements, at) for at in coordinates(sizes)}
    return {box for box in boxes if product(box[1]) > 0}


# ---- on each rank ----


def put_together(pieces, dtype, shape):
    """pieces: [(offsets, sizes, bytes)] of all ranks."""
    import numpy
    itemsize = torch.empty(0, dtype=dtype).element_size()
    full = numpy.zeros((*shape, itemsize), dtype=numpy.uint8)
    for offsets, sizes, data in pieces:
        if product(sizes) > 0:
            part = numpy.frombuffer(data, dtype=numpy.uint8).reshape(*sizes, itemsize)
            full[tuple(slice(o, o + s) for o, s in zip(offsets, sizes))] = part
    return tensor_from_bytes(full.tobytes(), dtype, shape)


def gather_full(tensors, placements):
    """name -> full tensor on rank 0. DTensors as torch gathers them, or by boxes where it cannot."""
    import torch.distributed as dist
    full, mine = {}, {}
    for name, tensor in tensors.items():
        if not hasattr(tensor, "to_local"):
            full[name] = tensor
        elif tensor.dtype in GATHERED and not any(strided for _, strided in placements[name]):
            full[name] = tensor.full_tensor()
        else:
            sizes = tuple(tensor.device_mesh.shape)
            box = box_of(tuple(tensor.shape), sizes, spread(tensor, placements[name]),
                         tuple(tensor.device_mesh.get_coordinate()))
            check(box[1] == tuple(tensor.to_local().shape), "'%s': local shape %s, expected %s" % (
                name, tuple(tensor.to_local().shape), box))
            mine[name] = (*box, tensor_bytes(tensor.to_local()))
    gathered = [None] * dist.get_world_size() if dist.get_rank() == 0 else None
    dist.gather_object(mine, gathered)
    for name in mine if dist.get_rank() == 0 else ():
        full[name] = put_together([of[name] for of in gathered], tensors[name].dtype, tuple(tensors[name].shape))
    return full


def spread(tensor, placements):
    """Those of a DTensor on a slice of the mesh: Replicate on the other dims goes."""
    if len(placements) == tensor.device_mesh.ndim:
        return placements
    return parse_placements(str(tensor.placements))


def distribute(full, mesh, dims):
    """An empty DTensor with these dims sharded, one a mesh dim, or None."""
    from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
    words = [Replicate() if dim is None else Shard(dim) for dim in dims]
    if dtype_name(full.dtype) not in NOT_PADDED:
        return distribute_tensor(full, mesh, words, src_data_rank=None)
    _, sizes = box_of(tuple(full.shape), tuple(mesh.shape), [(dim, False) for dim in dims],
                      tuple(mesh.get_coordinate()))
    return DTensor.from_local(torch.empty(sizes, dtype=full.dtype), mesh, words, run_check=False, shape=full.shape,
                              stride=full.stride())


def make_empty(metadata, mesh, placements, digests):
    """The state to load into. A byte entry is an object: one with tensors inside, as a tuple, is loaded whole."""
    from torch.distributed.checkpoint.metadata import TensorStorageMetadata
    state = {}
    for name, entry in metadata.state_dict_metadata.items():
        if not isinstance(entry, TensorStorageMetadata) and any(n.startswith(name + ".") for n in digests):
            state[name] = None
        if not isinstance(entry, TensorStorageMetadata) or dtype_name(entry.properties.dtype) in NOT_LOADED:
            continue
        full = torch.zeros(entry.size, dtype=torch.uint8).to(entry.properties.dtype) if entry.size.numel() else \
            torch.empty(entry.size, dtype=entry.properties.dtype)
        cut = placements[name]
        if any(dim is not None for dim, _ in cut):
            full = distribute(full, mesh, [dim for dim, _ in cut])
        state[name] = full
    return state


def check_boxes(metadata, sizes, placements):
    """The files are cut as torch.chunk cuts the tensors on that mesh."""
    for name, entry in metadata.state_dict_metadata.items():
        if not hasattr(entry, "chunks"):
            continue
        found = {(tuple(c.offsets), tuple(c.sizes)) for c in entry.chunks if product(c.sizes) > 0}
        cut = placements[name] if any(dim is not None for dim, _ in placements[name]) else [(None, False)] * len(sizes)
        expected = boxes_of(tuple(entry.size), sizes, cut)
        check(found == expected, "'%s': boxes %s, expected %s" % (name, sorted(found), sorted(expected)))


def with_prefix(tensors, digests):
    """As the whole checkpoint names them: trainers keep the model and the optimizer in files of their own, and FSDP1's
    rank files add an outer key to a bare model."""
    for prefix in ["", *sorted({name.split(".")[0] + "." for name in digests})]:
        if all(prefix + name in digests for name in tensors):
            return {prefix + name: tensor for name, tensor in tensors.items()}
    bare = {name.partition(".")[2]: tensor for name, tensor in tensors.items()}
    return bare if all(name in digests for name in bare) else tensors


def load_rank_files(job, rank):
    found = {}
    for name in sorted(os.listdir(job["folder"])):
        # Random generators are each rank's own, and given back to as many ranks.
        if re.search(r"(rank|shard)_?%d\.(pt|bin)$" % rank, name) and not name.startswith("extra_state"):
            state = torch.load(os.path.join(job["folder"], name), weights_only=False)
            found.update(with_prefix(tensors_of_state(state), job["digests"]))
    return found


def load_dcp(job, reader, mesh, placements):
    """Into DTensors with the placements that fsdpck reports, but for the order of cuts, or plain tensors."""
    import torch.distributed as dist
    import torch.distributed.checkpoint as dcp
    metadata = reader.read_metadata()
    if dist.get_rank() == 0:
        check_boxes(metadata, job["sizes"], placements)
    state = make_empty(metadata, mesh, placements, job["digests"])
    dcp.load(state, storage_reader=reader)
    whole = {name: value for name, value in state.items() if not isinstance(value, torch.Tensor)}
    return {**{name: value for name, value in state.items() if name not in whole}, **tensors_of_state(whole)}


def load_tensors(job, mesh):
    """name -> tensor or DTensor, and the placements that these have."""
    import torch.distributed as dist
    import torch.distributed.checkpoint as dcp
    placements = {name: parse_placements(text) for name, text in job["placements"].items()}
    if job["format"] == "pt-ranks":
        return load_rank_files(job, dist.get_rank()), placements
    if job["format"] == "dcp":
        folders = sorted(folder for folder, _, files in os.walk(job["folder"]) if ".metadata" in files)
        readers = [dcp.FileSystemReader(folder) for folder in folders]
    else:
        from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader
        readers = [HuggingFaceStorageReader(path=job["folder"])]
    found = {}
    for reader in readers:
        found.update(load_dcp(job, reader, mesh, placements))
    return found, {name: [(dim, False) for dim, _ in cut] for name, cut in placements.items()}


def rank_load_all(jobs, result):
    """Writes [(what, why it failed)] of rank 0."""
    sys.path.append(os.environ["FSDPCK_MEGATRON"])  # objects of its classes
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    failures = []
    for job in jobs:
        try:
            names = tuple(job["names"]) if all(job["names"]) else None
            mesh = init_device_mesh("cpu", job["sizes"], mesh_dim_names=names)
            tensors, placements = load_tensors(job, mesh)
            full = gather_full(tensors, placements)
            if dist.get_rank() == 0:
                check_digests(full, job["digests"], job["format"])
        except Exception as error:
            failures.append((job["what"], dist.get_rank(), "%s: %s" % (type(error).__name__, str(error)[:400])))
    gathered = [None] * dist.get_world_size() if dist.get_rank() == 0 else None
    dist.gather_object(failures, gathered)
    if dist.get_rank() == 0:
        with open(result, "w", encoding="utf-8") as out:
            json.dump([f for of in gathered for f in of], out)


# ---- the program ----


class Source:
    def __init__(self, setting, path, name, options, digests):
        self.path, self.name, self.options, self.digests = path, name, options, digests
        self.units = os.path.join(setting.fixtures, name + ".units.json")
        self.info = json.loads(setting.run("inspect", "--json", path, *options).stdout)["source"]
        self.mesh = parse_mesh(self.info.get("mesh", ""))

    def formats(self, all_formats):
        own = self.info["format"] if self.info["format"] in FORMATS else "dcp"
        flat = ("fsdp1",) if os.path.exists(self.units) else ()
        return (FORMATS if all_formats else (own,)) + flat

    def format_options(self, output):
        """Options and the digests of what is then in the output."""
        if output == "pt-ranks":
            return ["--torch", "2.15", "--device-type", "cpu"], self.digests
        if output == "dcp":
            return [], {n: row for n, row in self.digests.items() if row[1].split("[")[0] not in NOT_LOADED}
        if output == "fsdp1":  # DCP of 1.13 says nothing of nesting
            return ["--strip-prefix", "model."] if self.name == "torch-1.13.1/fsdp1-flat-dcp" else [], self.digests
        unsavable = (*NO_SAFETENSORS, *NOT_LOADED, "float8_e8m0fnu")
        left_out = [n for n, (_, label) in self.digests.items() if label.split("[")[0] in unsavable]
        options = [word for name in left_out for word in ("--exclude", name)]
        return ["--part", "all", "--keep-names", *options], \
            {n: d for n, d in self.digests.items() if n not in left_out}


def digests_of_file(path):
    return {name: (tensor_digest(t), tensor_label(t))
            for name, t in tensors_of_state(load_pt(path, weights_only=False)).items()}


def gather_sources(setting, patterns):
    def is_wanted(name):
        return any(fnmatch.fnmatch(name, pattern) for pattern in patterns)

    paths = glob.glob(setting.fixtures + "/**/*.digests", recursive=True)
    for stem in sorted(path[:-len(".digests")] for path in paths):
        name = os.path.relpath(stem, setting.fixtures)
        # not files with data that was never written and has no fill value: refused, as the case hdf5_read shows
        if is_wanted(name) and can_load(stem) and not name.startswith(("hdf5/sparse", "hdf5/unwritten")):
            options = reading_options(os.path.basename(stem), stem)
            yield Source(setting, fixture_source(stem), name, options, read_digests(stem + ".digests"))
    for name, files in PARTS_OF_FOLDERS.items():
        for file in files if is_wanted(name) else ():
            path = os.path.join(setting.fixtures, name, file)
            yield Source(setting, path, name + "/" + file, [], digests_of_file(path))


def check_report(source, world_size, report):
    mesh, lost = fit_mesh(source.mesh, world_size)
    check(report["mesh"] == print_mesh(mesh), "mesh %s, expected %s" % (report["mesh"], print_mesh(mesh)))
    said = [f for f in report["findings"] if f["finding"] == "MESH-REFIT" and "dropped" in f["message"]]
    check(bool(said) == bool(lost), "dropped: %s, expected %s" % (said, lost))
    for name in lost if said else ():
        check(name + "=" in said[0]["message"], "'%s' is not named: %s" % (name, said[0]["message"]))
    return mesh


def check_fsdp1(setting, source, folder):
    found = with_prefix(digests_of(setting, folder, "--model", source.units, "--assume", "order"), source.digests)
    wanted = {name: row for name, row in source.digests.items() if name in found}
    check(wanted == found and len(found) > 0, "tensors of fsdp1 differ: %s" % sorted(found)[:5])
    missing = sorted(set(source.digests) - set(found))
    check(not missing, "fsdp1 lacks %s" % missing[:5])


def reshard(setting, source, output, world_size, folder):
    """The job for the ranks; None where torch has no loader for it."""
    options, digests = source.format_options(output)
    if not digests:
        return None
    words = [*source.options, "--world-size", world_size, "--format", output, "--json", *options]
    report = json.loads(setting.run("reshard", source.path, folder, *words).stdout)
    if output == "fsdp1":
        check_fsdp1(setting, source, folder)
        return None
    mesh = check_report(source, world_size, report)
    words = [w for w in words if w not in ("--torch", "2.15", "--device-type", "cpu", "--keep-names")]
    rows = json.loads(setting.run("layout", source.path, *words).stdout)["tensors"]
    placements = {row["name"]: row["placements"] for row in rows}
    for name in digests:  # layout cleans names where the format's default does
        if name not in placements and clean_name(name) in placements:
            placements[name] = placements[clean_name(name)]
    check_unsharded(source, world_size, rows)
    return {"what": "%s to %s of %d ranks" % (source.name, output, world_size), "folder": folder, "format": output,
            "placements": placements, "digests": digests, "sizes": tuple(size for _, size in mesh),
            "names": [name for name, _ in mesh]}


def clean_name(name):
    return re.sub(r"^module\.|_orig_mod\.|_checkpoint_wrapped_module\.|_fsdp_wrapped_module\.|_fpw_module\.", "", name)


def check_unsharded(source, world_size, rows):
    """At least half of the larger floating tensors are sharded."""
    large = [row for row in rows if row["dtype"].startswith(("float", "bfloat")) and product(row["shape"]) >= 8]
    whole = [row["name"] for row in large if "Shard" not in row["placements"]]
    check(world_size == 1 or 2 * len(whole) <= len(large), "on %d ranks whole: %s" % (world_size, whole))


def batches_of(jobs):
    """What the same processes load. A DTensor in a rank file finds its mesh by its ranks alone: one of several dims must
    not meet another of the same ranks."""
    batches = {}
    for job in jobs:
        apart = job["format"] == "pt-ranks" and len(job["sizes"]) > 1
        batches.setdefault((tuple(job["names"]), job["sizes"]) if apart else None, []).append(job)
    return batches.values()


def run_world_size(setting, sources, all_formats, world_size):
    from process_group import run_ranks
    jobs, failures = [], []
    for source in sources:
        for output in source.formats(all_formats):
            folder = setting.path("of-%d" % world_size, "%d" % len(jobs) + output)
            os.makedirs(os.path.dirname(folder), exist_ok=True)
            shutil.rmtree(folder, ignore_errors=True)
            try:
                job = reshard(setting, source, output, world_size, folder)
                jobs += [job] if job else []
            except Failure as failure:
                failures.append("%s to %s of %d ranks: %s" % (source.name, output, world_size, failure))
    result = setting.path("result-%d.json" % world_size)
    for batch in batches_of(jobs):
        run_ranks(world_size, rank_load_all, batch, result)
        with open(result, encoding="utf-8") as text:
            failures += ["%s, rank %d: %s" % tuple(row) for row in json.load(text)]
    shutil.rmtree(setting.path("of-%d" % world_size), ignore_errors=True)
    return len(jobs), failures


@case(first=(2, 15))
def case_world_sizes(setting):
    patterns = os.environ.get("INTEROP_WORLD_SIZE_FIXTURES")
    sources = list(gather_sources(setting, [patterns] if patterns else SAMPLE))
    check(len(sources) >= (1 if patterns else len(SAMPLE)), "fixtures are missing")
    count, failures = 0, []
    chosen = os.environ.get("INTEROP_WORLD_SIZES")
    for world_size in map(int, chosen.split(",")) if chosen else WORLD_SIZES:
        loaded, failed = run_world_size(setting, sources, patterns is not None, world_size)
        if patterns:
            print("%d ranks: %d loaded, %d failed" % (world_size, loaded, len(failed)), *failed, sep="\n", flush=True)
        count += loaded
        failures += failed
    check(not failures, "%d of %d failed:\n%s" % (len(failures), count, "\n".join(failures[:200])))
    check(count >= len(sources), "only %d checkpoints were loaded" % count)


# ---- sources that were never sharded, and rules for any dtype ----


def unsharded_state(rank):
    from checkpoint_truth import seeded
    return {"model": {"wide": seeded("wide", (8, 4)), "odd": seeded("odd", (7,)), "step": torch.tensor(3)},
            "local%d" % rank: {"table": seeded("table%d" % rank, (5, 2))}}


def rank_save_unsharded(folder):
    import torch.distributed as dist
    import torch.distributed.checkpoint as dcp
    dcp.save(unsharded_state(dist.get_rank()), checkpoint_id=folder)


def make_unsharded(setting):
    """By several ranks, some of it each rank's own; and by torch_save_to_dcp."""
    from process_group import run_ranks
    from torch.distributed.checkpoint.format_utils import torch_save_to_dcp
    run_ranks(4, rank_save_unsharded, setting.path("by4"))
    torch.save(unsharded_state(0), setting.path("one.pt"))
    torch_save_to_dcp(setting.path("one.pt"), setting.path("by1"))
    for name, ranks in (("by4", range(4)), ("by1", range(1))):
        truth = {}
        for rank in ranks:
            truth.update(tensors_of_state(unsharded_state(rank)))
        digests = {key: (tensor_digest(t), tensor_label(t)) for key, t in truth.items()}
        yield Source(setting, setting.path(name), name, [], digests)


@case(first=(2, 15))
def case_world_sizes_of_unsharded(setting):
    sources = list(make_unsharded(setting))
    for source in sources:
        rows = json.loads(setting.run("layout", source.path, "--world-size", 3, "--json").stdout)["tensors"]
        for row in rows:
            expected = "Shard(0)" if row["dtype"] == "float32" else "Replicate()"
            check(row["placements"] == expected, "%s: '%s' is %s" % (source.name, row["name"], row["placements"]))
    for world_size in (3, 4):
        _, failed = run_world_size(setting, sources, False, world_size)
        check(not failed, "\n".join(failed))


@case(first=(2, 15))
def case_rules_for_any_dtype(setting):
    from process_group import run_ranks
    from safetensors.torch import save_file
    state = {"q.weight": torch.arange(32, dtype=torch.int8).reshape(8, 4), "e.weight": torch.zeros(0, 3),
             "m.mask": torch.tensor([True, False, True]), "w.weight": torch.arange(24.0).reshape(6, 4)}
    save_file(state, setting.path("one.safetensors"))
    with open(setting.path("plan.json"), "w", encoding="utf-8") as plan:
        json.dump({"q": "Shard(1)", "e.weight": "Shard(1)", "m": "colwise"}, plan)
    cuts = {"q.weight": "[Replicate(), Shard(1)]", "e.weight": "[Replicate(), Shard(1)]",
            "m.mask": "[Replicate(), Shard(0)]", "w.weight": "[Shard(0), Replicate()]"}
    jobs = []
    for output, options in (("dcp", []), ("pt-ranks", ["--torch", "2.15", "--device-type", "cpu"]),
                            ("dcp-safetensors", [])):
        setting.run("reshard", "one.safetensors", output, "--format", output, "--mesh", "fsdp=2,tp=2", "--tp-plan",
                    "plan.json", *options)
        digests = {key: (tensor_digest(t), tensor_label(t)) for key, t in state.items()}
        jobs.append({"what": output, "folder": setting.path(output), "format": output, "placements": cuts,
                     "digests": digests, "sizes": (2, 2), "names": ["fsdp", "tp"]})
    run_ranks(4, rank_load_all, jobs, setting.path("result.json"))
    with open(setting.path("result.json"), encoding="utf-8") as text:
        failures = json.load(text)
    check(not failures, failures)
