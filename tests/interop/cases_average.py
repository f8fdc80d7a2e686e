"""average: equals numpy's sums in the same order bit for bit, whatever the formats and shardings of the inputs."""

import json
import math
import os
import sys

import numpy
import torch
import torch.distributed.checkpoint as dcp
from safetensors.torch import load_file, save_file

from support import BAD_INPUT, USAGE, case, check, check_same_tensors, load_hf, load_pt, tensors_of_state

EACH_DTYPE = (torch.float32, torch.bfloat16, torch.float16, torch.float64)


def make_state(seed):
    source = torch.Generator().manual_seed(seed)

    def random(*shape):
        return torch.randn(*shape, generator=source, dtype=torch.float64)

    state = {"layers.%d.weight" % i: random(48 + i, 40).to(dtype) for i, dtype in enumerate(EACH_DTYPE)}
    state["norm.bias"] = random(96).to(torch.bfloat16)
    state["experts.w"] = random(6, 20, 24)[:, ::2].contiguous().to(torch.float32)
    state["scale"] = random(1)[0].to(torch.float32)
    state["huge"] = (random(700, 1600) * 100).to(torch.float16)  # more than one chunk of the average
    state["position_ids"] = torch.arange(128)
    state["mask"] = torch.arange(64) % 3 == 0
    return state


def number_type(tensor, wide):
    return numpy.float64 if wide or tensor.dtype == torch.float64 else numpy.float32


def to_numpy(tensor, dtype):
    """Exact, except of float64 as float32."""
    return numpy.atleast_1d(tensor.to(torch.float64).numpy()).astype(dtype)


def round_once(array, like):
    """To the dtype of a tensor: from float64 to 16 bits in one step, which torch does in two."""
    found = torch.from_numpy(numpy.ascontiguousarray(array)).reshape(like.shape)
    if array.dtype == numpy.float64 and like.dtype in (torch.bfloat16, torch.float16):
        nearest = found.to(like.dtype)
        best = nearest.clone()
        for step in (-1, 1):
            other = (nearest.view(torch.int16) + step).view(like.dtype)
            nearer = (other.double() - found).abs() < (best.double() - found).abs()
            even = ((other.double() - found).abs() == (best.double() - found).abs()) & (other.view(torch.int16) % 2 == 0)
            best = torch.where(nearer | even, other, best)
        return best
    return found.to(like.dtype)


def weighted_sum(states, weights, wide=False):
    result = {}
    for name, first in states[0].items():
        if not first.is_floating_point():
            result[name] = first
            continue
        dtype = number_type(first, wide)
        total = numpy.zeros(to_numpy(first, dtype).shape, dtype)
        for weight, state in zip(weights, states):
            total = total + dtype(weight) * to_numpy(state[name], dtype)
        result[name] = round_once(total, first)
    return result


def save_dcp(path, state):
    dcp.save({"model": state}, storage_writer=dcp.FileSystemWriter(path), no_dist=True)


def write_inputs(setting, states):
    """Each state in a format and sharding of its own; returns the paths."""
    forms = (
        ("file", None),
        ("torch", None),
        ("dcp3", ("--format", "dcp", "--world-size", "3")),
        ("columns4", ("--format", "pt-ranks", "--world-size", "4", "--shard", "layers.*=1")),
        ("hsdp", ("--format", "pt-ranks", "--mesh", "dp_replicate=2,dp_shard=2")),
        ("st5", ("--format", "dcp-safetensors", "--world-size", "5")),
        ("tp22", ("--format", "pt-ranks", "--mesh", "fsdp=2,tp=2", "--shard", "huge=1")),
        ("hdf5", "out.h5"),
    )
    paths = []
    for number, state in enumerate(states):
        name, options = forms[number % len(forms)]
        plain = setting.path("plain%d.safetensors" % number)
        save_file(state, plain)
        path = setting.path("in%d-%s" % (number, name))
        if name == "file":
            path = plain
        elif name == "torch":
            save_dcp(path, state)
        elif isinstance(options, str):
            path += os.path.splitext(options)[1]
            options = ("--compress", "gzip") if name == "hdf5" else ()
            setting.run("consolidate", plain, path, *options)
        else:
            setting.run("reshard", plain, path, *options)
        paths.append(path)
    return paths


def differences(states, average):
    """By name: the largest distance of an element of an input, in the dtype of the sum."""
    found = {}
    for name, tensor in average.items():
        if tensor.is_floating_point():
            dtype = number_type(tensor, False)
            result = to_numpy(tensor, dtype)
            found[name] = max(float(numpy.abs(to_numpy(s[name], dtype) - result).max()) for s in states)
    return found


@case(first=(2, 15))
def case_average_mean(setting):
    states = [make_state(i) for i in range(8)]
    paths = write_inputs(setting, states)
    for count in range(2, 9):
        states, paths = states[3:] + states[:3], paths[3:] + paths[:3]
        expected = weighted_sum(states[:count], [1 / count] * count)
        target = setting.path("mean%d.safetensors" % count)
        threads = str(1 + count % 3)
        report = json.loads(setting.run("average", *paths[:count], target, "--threads", threads, "--json").stdout)
        found = load_file(target)
        check_same_tensors(found, expected, "mean of %d" % count)
        distances = {row["name"].removeprefix("model."): row["distance"] for row in report["average"]["distances"]}
        check(distances == differences(states[:count], expected), "distances of %d: %r" % (count, distances))
        check([i["coefficient"] for i in report["average"]["inputs"]] == [1 / count] * count, "coefficients")
        setting.run("verify", "--level", "checksum", target)


@case(first=(2, 15))
def case_average_outputs(setting):
    """The same bits in each format and sharding of the output, and in each order of reading."""
    states = [make_state(i) for i in range(3)]
    paths = write_inputs(setting, [states[2], states[1], states[0]])[::-1]
    weights = [0.5, -0.25, 1.25]
    expected = weighted_sum(states, weights)
    option = "--weights=" + ",".join(map(str, weights))
    for name, options in (("a.safetensors", ()), ("b.pt", ("--threads", "1")), ("c", ("--format", "hf")),
                          ("d", ("--format", "dcp", "--world-size", "3")), ("e", ("--format", "pt-ranks", "--mesh", "fsdp=2,tp=2")),
                          ("f.h5", ()), ("g", ("--world-size", "2", "--format", "dcp-safetensors")), ("h", ())):
        target = setting.path(name)
        setting.run("average", option, *paths, target, *options)
        plain = setting.path(name + ".plain.safetensors")
        setting.run("consolidate", target, plain, "--part", "model")
        check_same_tensors(load_file(plain), expected, name)
    check(os.path.exists(setting.path("h", ".metadata")), "a folder is not of the format of the first input")
    check_same_tensors(load_hf(setting.path("c"))[0], expected, "hf")
    check_same_tensors(tensors_of_state(load_pt(setting.path("b.pt"))), expected, "pt")


@case(first=(2, 15))
def case_average_fp64(setting):
    states = [make_state(i) for i in range(5)]
    paths = write_inputs(setting, states)
    weights = [1 / 3, 1 / 7, 0.1, 1e-9, 0.3]
    setting.run("average", *paths, setting.path("out.safetensors"), "--accumulate", "fp64", "--weights",
                ",".join(map(repr, weights)))
    check_same_tensors(load_file(setting.path("out.safetensors")), weighted_sum(states, weights, wide=True), "fp64")
    setting.run("average", *paths, setting.path("norm.safetensors"), "--normalize", "--weights", "1,2,3,1,1")
    check_same_tensors(load_file(setting.path("norm.safetensors")), weighted_sum(states, [w / 8 for w in (1, 2, 3, 1, 1)]), "normalized")


def schedule_by_megatron(decay, count):
    """schedule_to_merge_coefficients of Megatron-LM's tools/checkpoint/weighted_merge.py."""
    if count == 1:
        return [1.0]
    factors = [decay(i / count) for i in range(count)]
    rest = [factors[k] - factors[k + 1] for k in range(1, count - 1)] + [factors[-1]]
    return [1 - sum(rest)] + rest


@case(first=(2, 15))
def case_average_schedules(setting):
    states = [make_state(i) for i in range(5)]
    paths = write_inputs(setting, states)
    for count in (1, 2, 5):
        schedules = {"linear": schedule_by_megatron(lambda x: 1 - x, count),
                     "minus-sqrt": schedule_by_megatron(lambda x: 1 - math.sqrt(x), count)}
        ema = [0.9 ** (count - 1 - i) * (1 - 0.9) for i in range(count)]
        ema[0] = 0.9 ** (count - 1)
        schedules["ema=0.9"] = ema
        for name, expected in schedules.items():
            target = setting.path("out.safetensors")
            report = setting.run("average", *paths[:count], target, "--force", "--schedule", name, "--json").stdout
            found = [i["coefficient"] for i in json.loads(report)["average"]["inputs"]]
            check(all(abs(a - b) < 1e-15 for a, b in zip(found, expected)) and len(found) == count, "%s: %r" % (name, found))
            check(name != "ema=0.9" or found == expected, "powers: %r" % found)
            check_same_tensors(load_file(target), weighted_sum(states[:count], found), name)


@case(first=(2, 15))
def case_average_task(setting):
    states = [make_state(i) for i in range(3)]
    base = make_state(9)
    paths = write_inputs(setting, states)
    save_file(base, setting.path("base.safetensors"))
    weights, scale = [0.75, 0.5, 0.25], 0.4
    setting.run("average", *paths, setting.path("out.safetensors"), "--base", setting.path("base.safetensors"),
                "--weights", ",".join(map(str, weights)), "--scale", str(scale))
    expected = {}
    for name, first in base.items():
        if not first.is_floating_point():
            expected[name] = first
            continue
        dtype = number_type(first, False)
        origin = to_numpy(first, dtype)
        total = numpy.zeros(origin.shape, dtype)
        for weight, state in zip(weights, states):
            total = total + dtype(weight) * (to_numpy(state[name], dtype) - origin)
        expected[name] = round_once(origin + dtype(scale) * total, first)
    check_same_tensors(load_file(setting.path("out.safetensors")), expected, "task arithmetic")


def import_mergekit():
    for name in ("FSDPCK_PEFT", "FSDPCK_TRANSFORMERS", "FSDPCK_MERGEKIT"):
        if os.environ[name] not in sys.path:
            sys.path.insert(0, os.environ[name])
    os.environ["HF_HUB_OFFLINE"] = "1"
    import mergekit.merge_methods.slerp as slerp
    return slerp


def check_slerp(found, pair, t, what):
    """Within one unit in the last place of what mergekit computes in float64. Where the two products cancel, the rounding
    errors of both programs' float64 factors are added: 2^-48 of the products."""
    mergekit = import_mergekit()
    first, second = (tensor.double()[None] for tensor in pair)
    expected = mergekit.slerp(torch.tensor([t], dtype=torch.float64), first, second)[0]
    digits = {torch.float64: 52, torch.float32: 23, torch.float16: 10, torch.bfloat16: 7}[found.dtype]
    info = torch.finfo(found.dtype)
    ulp = 2.0 ** (torch.floor(torch.log2(expected.abs().clamp(min=1e-300))) - digits)
    limit = ulp.clamp(min=info.smallest_normal * info.eps) + 2.0 ** -48 * (first.abs() + second.abs())[0]
    distance = (found.double() - expected).abs()
    check((distance <= limit).all(), "%s: %g units" % (what, (distance / ulp).max()))


@case(first=(2, 15))
def case_average_slerp(setting):
    states = [make_state(i) for i in range(2)]
    states[1]["layers.1.weight"] = (states[0]["layers.1.weight"] * 1.5).clone()  # parallel
    states[1]["layers.2.weight"] = (states[1]["layers.2.weight"] * 0.05 + states[0]["layers.2.weight"]).clone()  # a small angle
    states[1]["experts.w"] = (states[1]["experts.w"] * 0.5 - states[0]["experts.w"]).clone()
    states[0]["norm.bias"] = torch.zeros_like(states[0]["norm.bias"])
    paths = write_inputs(setting, [states[0]] * 3 + [states[1]])[2:]
    for t in ("0", "0.3", "1"):
        target = setting.path("out%s.safetensors" % t)
        setting.run("average", *paths, target, "--slerp", t, "--threads", "3")
        found = load_file(target)
        check(set(found) == set(states[0]), "names of slerp")
        for name, tensor in found.items():
            if tensor.is_floating_point():
                check_slerp(tensor, [state[name] for state in states], float(t), "slerp %s of %s" % (t, name))
            else:
                check(torch.equal(tensor, states[0][name]), name)


@case(first=(2, 15))
def case_average_refused(setting):
    states = [make_state(i) for i in range(2)]
    paths = write_inputs(setting, states)
    target = setting.path("out.safetensors")

    def refuse(finding, *arguments, expected=BAD_INPUT):
        report = json.loads(setting.run("average", *arguments, target, "--json", expected=expected).stdout)
        check((report["error"].get("finding") or "") == finding, "%s: %r" % (finding, report["error"]))
        check(not os.path.exists(target), "an output was left")
        return report["error"]

    for name, change, what in (
            ("nan", lambda s: s["huge"][699].fill_(math.nan), "huge"),
            ("inf", lambda s: s["layers.3.weight"][7, 7].fill_(-math.inf), "layers.3.weight"),
            ("integer", lambda s: s["position_ids"][100].fill_(7), "position_ids"),
            ("bool", lambda s: s["mask"][1].fill_(True), "mask"),
            ("lost", lambda s: s.pop("scale"), ""),
            ("extra", lambda s: s.update(extra=torch.zeros(2)), ""),
            ("shape", lambda s: s.update(scale=torch.zeros(2)), ""),
            ("dtype", lambda s: s.update(scale=s["scale"].half()), "")):
        state = {k: v.clone() for k, v in states[1].items()}
        change(state)
        other = setting.path(name + ".safetensors")
        save_file(state, other)
        error = refuse("AVERAGE-NONFINITE" if name in ("nan", "inf") else "AVERAGE-DIFFER", paths[0], other)
        if what:
            check(error["tensor"] == what and error["path"] == other, "%s: %r" % (name, error))
        else:
            check("'scale'" in error["message"] or "'extra'" in error["message"], "%s: %r" % (name, error))
    changed = setting.path("integer.safetensors")
    for number, source in ((1, states[0]), (2, load_file(changed))):
        setting.run("average", paths[0], changed, target, "--objects-from", number)
        check(torch.equal(load_file(target)["position_ids"], source["position_ids"]), "--objects-from %d" % number)
        os.remove(target)
    error = refuse("AVERAGE-OVERFLOW", paths[0], paths[1], "--weights", "1e5,1e5", "--keys", "layers.2.weight")
    check(error["tensor"] == "layers.2.weight" and not error.get("path"), "overflow: %r" % error)
    setting.run("average", paths[0], setting.path("extra.safetensors"), target, "--exclude", "extra")
    os.remove(target)
    refuse("", paths[0], paths[1], "--weights", "1", expected=USAGE)
    refuse("", *paths, paths[0], "--slerp", "0.5", expected=USAGE)
    refuse("", paths[0], paths[1], "--schedule", "cubic", expected=USAGE)


@case(first=(2, 15))
def case_average_optimizer(setting):
    """Optimizer state only on request; param_groups must be equal."""
    model = torch.nn.Linear(6, 5)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    states = []
    for step in range(2):
        model(torch.randn(3, 6)).sum().backward()
        optimizer.step()
        state = {"model": {k: v.clone() for k, v in model.state_dict().items()}, "optimizer": optimizer.state_dict()}
        path = setting.path("step%d.pt" % step)
        torch.save(state, path)
        states.append((path, load_pt(path, weights_only=False)))
    paths = [path for path, _ in states]
    first, second = (tensors_of_state(state) for _, state in states)
    setting.run("average", *paths, setting.path("model.pt"))
    found = tensors_of_state(load_pt(setting.path("model.pt"), weights_only=False))
    names = [name for name in first if name.startswith("model.")]
    check(sorted(found) == sorted(name[len("model."):] for name in names) or sorted(found) == sorted(names), "%r" % sorted(found))
    setting.run("average", *paths, setting.path("all.pt"), "--part", "all")
    found = tensors_of_state(load_pt(setting.path("all.pt"), weights_only=False))
    check_same_tensors(found, weighted_sum([first, second], [0.5, 0.5]), "all")
    torch.save({**states[1][1], "optimizer": {**states[1][1]["optimizer"], "param_groups": []}}, setting.path("other.pt"))
    setting.run("average", paths[0], setting.path("other.pt"), setting.path("no.pt"), "--part", "all", expected=BAD_INPUT)


@case(first=(2, 15))
def case_average_optimizer_order(setting):
    """State by number of optimizers that received their parameters in different orders is averaged by name or not at all."""
    orders, states = (["a", "b", "c"], ["c", "a", "b"], ["a", "b", "c"]), []
    for at, order in enumerate(orders):
        model = torch.nn.ModuleDict({name: torch.nn.Linear(6, 6, bias=False) for name in "abc"})
        optimizer = torch.optim.AdamW([("%s.weight" % name, model[name].weight) for name in order])
        sum(model[name](torch.randn(4, 6)).square().sum() for name in order).backward()
        optimizer.step()
        states.append({"%s.weight" % name: optimizer.state[model[name].weight]["exp_avg"] for name in order})
        torch.save({"model": model.state_dict(), "optim": optimizer.state_dict()}, setting.path("%d.pt" % at))
    one, other, same = (setting.path("%d.pt" % at) for at in range(3))
    options = ("--part", "all", "--objects-from", 1)
    done = setting.run("average", one, other, setting.path("no.pt"), *options, expected=BAD_INPUT)
    check("param_names" in done.stderr and "--optim-keys name" in done.stderr, done.stderr)
    setting.run("average", one, other, setting.path("names.pt"), *options, "--optim-keys", "name")
    setting.run("average", one, same, setting.path("numbers.pt"), *options)
    names, numbers = (load_pt(setting.path(name + ".pt"))["optim"]["state"] for name in ("names", "numbers"))
    for at, name in enumerate(states[0]):
        check(torch.equal(names[name]["exp_avg"], (states[0][name] + states[1][name]) / 2), name)
        check(torch.equal(numbers[at]["exp_avg"], (states[0][name] + states[2][name]) / 2), "%d" % at)


@case(first=(2, 15))
def case_average_ema(setting):
    """The moving averages that torchtitan keeps in the state of its optimizer."""
    states = [{k: v for k, v in make_state(i).items() if v.is_floating_point()} for i in range(2)]
    paths = []
    for number, state in enumerate(states):
        paths.append(setting.path("step%d" % number))
        saved = {name: torch.zeros_like(tensor) for name, tensor in state.items()}
        for name, tensor in state.items():
            saved["optimizer.ema_params." + name] = tensor
            saved["optimizer.state.%s.exp_avg" % name] = torch.ones_like(tensor)
            saved["optimizer.param_groups.%s.lr" % name] = 0.1
        dcp.save(saved, storage_writer=dcp.FileSystemWriter(paths[-1]), no_dist=True)
    for inputs, expected in ((paths, weighted_sum(states, [0.5, 0.5])), (paths[:1], states[0])):
        for target in ("ema%d.safetensors" % len(inputs), "ema%d" % len(inputs)):
            setting.run("average", *inputs, setting.path(target), "--part", "ema")
            setting.run("consolidate", setting.path(target), setting.path("plain.safetensors"), "--force")
            check_same_tensors(load_file(setting.path("plain.safetensors")), expected, target)
    setting.run("average", setting.path("ema1.safetensors"), setting.path("no.safetensors"), "--part", "ema", expected=BAD_INPUT)


@case(first=(2, 15))
def case_average_ties(setting):
    """Names that share a storage in all inputs share one in the output; others are averaged on their own."""
    paths, states = [], []
    for number in range(3):
        source = torch.Generator().manual_seed(number)
        embedding = torch.randn(10, 8, generator=source)
        state = {"emb.weight": embedding, "x": torch.randn(3, generator=source),
                 "head.weight": embedding if number < 2 else torch.randn(10, 8, generator=source)}
        paths.append(setting.path("tied%d.pt" % number))
        torch.save(state, paths[-1])
        states.append(state)
    for chosen, shared in (((0, 1), True), ((0, 2), False), ((2, 1), False)):
        target = setting.path("out%d%d.pt" % chosen)
        setting.run("average", *(paths[i] for i in chosen), target)
        found = load_pt(target)
        check_same_tensors(found, weighted_sum([states[i] for i in chosen], [0.5, 0.5]), "ties %d %d" % chosen)
        check((found["emb.weight"].data_ptr() == found["head.weight"].data_ptr()) == shared, "shared: %d %d" % chosen)
    setting.run("average", *paths[:2], setting.path("one.safetensors"), "--tied", "first")
    check(sorted(load_file(setting.path("one.safetensors"))) == ["emb.weight", "x"], "--tied first")


@case(first=(2, 15))
def case_average_replicas(setting):
    """Copies of a chunk in one input are compared, as consolidate compares them."""
    states = [make_state(i) for i in range(2)]
    save_file(states[0], setting.path("a.safetensors"))
    save_file(states[1], setting.path("b.safetensors"))
    setting.run("reshard", setting.path("b.safetensors"), setting.path("b"), "--format", "pt-ranks",
                "--mesh", "dp_replicate=2,dp_shard=2", "--no-manifest")
    path = setting.path("b", "model_world_size_4_rank_3.pt")
    shard = torch.load(path, weights_only=False)
    tensor = shard["huge"]
    tensor._local_tensor[0, 0] += 1
    torch.save(shard, path)
    inputs = (setting.path("a.safetensors"), setting.path("b"))
    target = setting.path("out.safetensors")
    done = setting.run("average", *inputs, target, "--replicas", "compare", "--json", expected=BAD_INPUT)
    check(json.loads(done.stdout)["error"]["finding"] == "REPLICA-DIFFER", done.stdout)
    setting.run("average", *inputs, target, "--replicas", "first")
    check_same_tensors(load_file(target), weighted_sum(states, [0.5, 0.5]), "replicas first")
