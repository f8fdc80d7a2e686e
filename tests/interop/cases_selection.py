"""Names, casts and file sizes: what the options of consolidate do to a checkpoint."""

import os
import random

import torch
import torch.distributed.checkpoint as dcp

from checkpoint_truth import read_digests, seeded, tensor_bytes, tensor_from_bytes
from support import (BAD_INPUT, USAGE, Failure, case, check, check_digests, check_nothing_at, check_same_names,
                     check_same_tensors, load_file, load_hf, load_pt, tensors_of_state)


def save_pt(setting, tensors, name="in.pt"):
    torch.save(tensors, setting.path(name))
    return setting.path(name)


def model():
    shapes = {"embed.weight": (9, 4), "layers.0.weight": (5, 4), "layers.0.bias": (5,),
              "layers.1.weight": (3, 5), "layers.1.bias": (3,), "norm.weight": (4,)}
    return {name: seeded(name, shape) for name, shape in shapes.items()}


@case()
def case_wrapper_prefixes(setting):
    source = setting.fixtures + "/torch-2.15.0/dcp-wrapped"
    digests = read_digests(source + ".digests")
    _, path = setting.consolidate(source, "kept.safetensors", "--keep-names")
    check_digests(load_file(path), digests, "kept.safetensors")
    clean = {}
    for name, value in digests.items():
        for prefix in ("_orig_mod.", "_checkpoint_wrapped_module."):
            name = name.replace(prefix, "")
        clean[name[len("module."):] if name.startswith("module.") else name] = value
    check_same_names(clean, ["first.weight", "first.bias", "second.weight", "second.bias", "plain.weight",
                             "plain.bias"], "the fixture")
    for target in ("clean.safetensors", "clean"):
        _, path = setting.consolidate(source, target)
        check_digests(load_hf(path)[0] if target == "clean" else load_file(path), clean, target)


@case()
def case_clean_names_collide(setting):
    source = save_pt(setting, {"w": seeded("a", (2,)), "_orig_mod.w": seeded("b", (2,))})
    done, path = setting.consolidate(source, "out.safetensors", expected=USAGE)
    check("'w'" in done.stderr, "the name is not given: " + done.stderr)
    check_nothing_at(path)
    _, path = setting.consolidate(source, "kept.safetensors", "--keep-names")
    check_same_names(load_file(path), ["w", "_orig_mod.w"], "kept.safetensors")


@case()
def case_clean_names_of_objects(setting):
    """torch loads a step that is an int, and the flattened param_groups, under clean names."""
    name = "_fsdp_wrapped_module.w"
    groups = [{"lr": 0.5, "params": [name]}]
    state = {"state": {name: {"step": 5, "exp_avg": torch.ones(4, 3)}}, "param_groups": groups}
    source = save_pt(setting, {"model": {name: torch.ones(4, 3)}, "optim": state})
    path = setting.path("dcp")
    setting.run("reshard", source, path, "--world-size", "1", "--format", "dcp", "--optim-keys", "flat", "--clean-names")
    found = {"optim": {"state.w.step": 0, "state.w.exp_avg": torch.zeros(4, 3), "param_groups.w.lr": 0.0}}
    dcp.load(found, checkpoint_id=path, no_dist=True)
    check(found["optim"]["state.w.step"] == 5 and found["optim"]["param_groups.w.lr"] == 0.5, str(found))
    for prefix in ("module.", "_orig_mod."):
        source = save_pt(setting, {prefix + "e.w": torch.ones(2), prefix + "e._extra_state": 7})
        _, path = setting.consolidate(source, prefix + "pt", "--format", "pt", "--clean-names")
        check_same_names(load_pt(path), ["e.w", "e._extra_state"], prefix)


@case()
def case_tied_names(setting):
    source = setting.fixtures + "/torch-2.15.0/dcp-tied"
    digests = {name[len("model."):]: value for name, value in read_digests(source + ".digests").items()
               if name.startswith("model.")}
    for target in ("out", "out.safetensors"):
        _, path = setting.consolidate(source, target)
        check_digests(load_hf(path)[0] if target == "out" else load_file(path), digests, target)
    _, path = setting.consolidate(setting.fixtures + "/torch-2.15.0/pt-views/checkpoint.pt", "views.safetensors")
    check({"tied.first", "tied.second"} <= set(load_file(path)), "a tied name was dropped")


def bit_patterns(dtype, count):
    """Random bits of a floating dtype, and all its edge cases: zeros, subnormals, largest, infinities, NaNs, ties."""
    size = torch.empty(0, dtype=dtype).element_size()
    mantissa = {torch.float64: 52, torch.float32: 23, torch.float16: 10, torch.bfloat16: 7}[dtype]
    bits = 8 * size
    generator = random.Random(bits + mantissa)
    top = ((1 << (bits - 1 - mantissa)) - 1) << mantissa
    patterns = [0, 1, (1 << mantissa) - 1, 1 << mantissa, top - 1, top, top | (1 << (mantissa - 1)), top | 1]
    for kept in (7, 10):  # halfway between two bfloat16 or float16 numbers, and one bit beside
        if kept < mantissa:
            half = 1 << (mantissa - kept - 1)
            for exponent in (1, 100 if bits > 16 else 14, (top >> mantissa) // 2, (top >> mantissa) - 1):
                for even in (0, 1, (1 << kept) - 1):
                    base = (exponent << mantissa) | (even * 2 * half)
                    patterns += [base, base + half - 1, base + half, base + half + 1]
    patterns += [p | (1 << (bits - 1)) for p in patterns]
    # numbers whose exponent a narrow dtype can hold, so that rounding is met more often than overflow
    bias = (top >> mantissa) // 2
    narrow = range(max(0, bias - 26), min(top >> mantissa, bias + 17))
    while len(patterns) < count:
        exponent = generator.choice(narrow) if len(patterns) % 2 else generator.getrandbits(bits - 1 - mantissa)
        patterns.append(generator.getrandbits(1) << (bits - 1) | exponent << mantissa | generator.getrandbits(mantissa))
    data = b"".join(p.to_bytes(size, "little") for p in patterns)
    return tensor_from_bytes(data, dtype, (len(patterns),))


def check_cast(found, source, dtype, what):
    """As torch's .to(), bit for bit; which NaN comes out is torch's own accident, that it is one is not."""
    expected = source.to(dtype)
    check(found.dtype == dtype and found.shape == expected.shape,
          "%s is %s%s" % (what, found.dtype, tuple(found.shape)))
    nans = expected.isnan()
    check(bool((found.isnan() == nans).all()), what + ": NaNs at other places")
    plain = torch.zeros((), dtype=dtype)
    left, right = torch.where(nans, plain, found), torch.where(nans, plain, expected)
    if tensor_bytes(left) != tensor_bytes(right):
        view = {2: torch.int16, 4: torch.int32, 8: torch.int64}[left.element_size()]
        index = int((left.view(view) != right.view(view)).nonzero()[0])
        raw = tensor_bytes(source[index].reshape(1))[::-1].hex()
        raise Failure("%s: element %d, bits %s: %s, torch gives %s" % (
            what, index, raw, found[index].item(), expected[index].item()))


@case()
def case_cast_to_bf16(setting):
    tensors = {"f%d" % i: bit_patterns(d, 5003) for i, d in enumerate((torch.float32, torch.float64, torch.float16))}
    tensors.update(same=bit_patterns(torch.bfloat16, 999), ids=seeded("ids", (7,), torch.int64),
                   mask=seeded("mask", (7,), torch.bool))
    source = save_pt(setting, tensors)
    _, path = setting.consolidate(source, "out.safetensors", "--dtype", "bf16")
    found = load_file(path)
    check_same_names(found, tensors, "out.safetensors")
    for name in ("f0", "f1", "f2"):
        check_cast(found[name], tensors[name], torch.bfloat16, name)
    check_same_tensors({k: found[k] for k in ("same", "ids", "mask")}, {k: tensors[k] for k in ("same", "ids", "mask")},
                       "what is not cast")


@case()
def case_cast_by_glob(setting):
    names = {"fp16": torch.float16, "fp32": torch.float32, "fp64": torch.float64, "bf16": torch.bfloat16}
    tensors = {"from_" + n: bit_patterns(d, 2001) for n, d in names.items()}
    source = save_pt(setting, tensors)
    for name, dtype in names.items():
        _, path = setting.consolidate(source, name + ".safetensors", "--dtype", "from_*=" + name)
        found = load_file(path)
        for key, tensor in tensors.items():
            check_cast(found[key], tensor, dtype, "%s to %s" % (key, name))


@case()
def case_cast_leaves_optimizer(setting):
    source = setting.fixtures + "/quickstart"
    full = load_pt(setting.consolidate(source, "full.pt")[1])
    cast = load_pt(setting.consolidate(source, "cast.pt", "--dtype", "bf16")[1])
    check_same_tensors(cast["model"], {n: t.to(torch.bfloat16) for n, t in full["model"].items()}, "model")
    check(len(full["optim"]["state"]) > 0, "no optimizer state")
    check_same_tensors(tensors_of_state(cast["optim"]), tensors_of_state(full["optim"]), "optimizer")


@case()
def case_keys_and_exclude(setting):
    tensors = model()
    source = save_pt(setting, tensors)
    _, path = setting.consolidate(source, "a.safetensors", "--keys", "layers.*", "--keys", "norm.weight",
                                  "--exclude", "*.1.*")
    wanted = ["layers.0.weight", "layers.0.bias", "norm.weight"]
    check_same_tensors(load_file(path), {n: tensors[n] for n in wanted}, "a.safetensors")
    _, path = setting.consolidate(source, "b.safetensors", "--exclude", "*bias")
    check_same_tensors(load_file(path), {n: t for n, t in tensors.items() if "bias" not in n}, "b.safetensors")
    for option in ("--keys", "--exclude"):
        _, path = setting.consolidate(source, "c.safetensors", option, "absent.*", expected=USAGE)
        check_nothing_at(path)


@case()
def case_rename(setting):
    tensors = model()
    source = save_pt(setting, tensors)
    _, path = setting.consolidate(source, "a.safetensors", "--rename", r"s/^layers\.(\d+)\./model.h.\1./",
                                  "--rename", "s/weight$/w/")
    wanted = {n.replace("layers.", "model.h.").replace("weight", "w"): t for n, t in tensors.items()}
    check_same_tensors(load_file(path), wanted, "a.safetensors")
    _, path = setting.consolidate(source, "b.safetensors", "--strip-prefix", "layers.", "--exclude", "*bias")
    wanted = {(n[7:] if n.startswith("layers.") else n): t for n, t in tensors.items() if "bias" not in n}
    check_same_tensors(load_file(path), wanted, "b.safetensors")
    _, path = setting.consolidate(source, "c.safetensors", "--rename", "s/weight|bias/x/", expected=USAGE)
    check_nothing_at(path)
    _, path = setting.consolidate(source, "d.safetensors", "--rename", "s/(/x/", expected=USAGE)
    check_nothing_at(path)


@case()
def case_max_shard_size(setting):
    source = setting.fixtures + "/quickstart"
    digests = {n[len("model."):]: v for n, v in read_digests(source + ".digests").items() if n.startswith("model.")}
    limit = 50000
    _, folder = setting.consolidate(source, "out", "--max-shard-size", limit)
    tensors, index = load_hf(folder)
    check(index is not None, "no index")
    check_digests(tensors, digests, "out")
    total = sum(len(tensor_bytes(t)) for t in tensors.values())
    check(index["metadata"]["total_size"] == total, "total_size is %r, expected %d" % (index["metadata"], total))
    files = {}
    for name, file in index["weight_map"].items():
        files.setdefault(file, []).append(name)
    count = len(files)
    check(count > 3, "only %d files" % count)
    check_same_names(files, ["model-%05d-of-%05d.safetensors" % (i + 1, count) for i in range(count)], "files")
    for file, names in files.items():
        nbytes = sum(len(tensor_bytes(tensors[n])) for n in names)
        check(nbytes <= limit or len(names) == 1, "%s holds %d bytes" % (file, nbytes))
    check(not os.path.exists(folder + "/model.safetensors"), "model.safetensors beside the shards")
    _, again = setting.consolidate(folder, "again")
    check_digests(load_hf(again)[0], digests, "again")


@case()
def case_duplicate_names_in_shards(setting):
    from safetensors.torch import save_file
    os.makedirs(setting.path("source"))
    for number in (1, 2):
        save_file({"w": seeded("w%d" % number, (2, 2))},
                  setting.path("source", "model-%05d-of-00002.safetensors" % number), metadata={"format": "pt"})
    _, path = setting.consolidate(setting.path("source"), "out.safetensors", expected=BAD_INPUT)
    check_nothing_at(path)
