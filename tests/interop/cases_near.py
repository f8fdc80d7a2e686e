"""verify --like, values: real trainings continue a model, and faults of exports are found and named."""

import json
import os

import torch
from safetensors.torch import load_file, save_file

from quantized_states import dequantize_fp8, dequantize_mxfp4, quantize_fp8, save_hf
from support import case, check
from tuned_model import EXPERTS, Model, cosine, other_rope_order, state_of, train


def save_folder(setting, name, state):
    folder = setting.path(name)
    os.makedirs(folder)
    save_file(state, os.path.join(folder, "model.safetensors"), metadata={"format": "pt"})
    with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as out:
        out.write("{}")
    return folder


def verify(setting, folder, base, expected):
    report = json.loads(setting.run("verify", folder, "--like", base, "--json", expected=expected).stdout)
    return report, [f for f in report["findings"] if f["finding"] == "EXPORT-NEAR"]


def check_cosines(report, state, base):
    """All tensors of both that are not zero, as torch computes them."""
    rows = {row["name"]: row for row in report["near_tensors"]}
    check(set(rows) == set(base), "tensors: %s" % sorted(set(rows) ^ set(base)))
    for name, tensor in state.items():
        zero = not (tensor.any() and base[name].any())
        check(("cosine" in rows[name]) != zero, "cosine of zeros: %s" % name)
        check(zero or abs(rows[name]["cosine"] - cosine(tensor, base[name])) < 1e-7, "cosine of %s" % name)


@case(first=(2, 15))
def case_near_tuned(setting):
    """No training that continues the model is a finding: not 50 steps at 1e-3, nor a tenfold rate or a tiny start."""
    dtypes = (torch.bfloat16, torch.float32, torch.float16, torch.float64)
    for number, (steps, rate, deviation) in enumerate(((50, 1e-3, 0.02), (200, 1e-3, 0.02), (50, 1e-2, 0.02), (50, 1e-3, 0.005))):
        model = Model(number, deviation)
        base = state_of(model, dtypes[number])
        train(model, steps, rate)
        tuned = state_of(model, dtypes[(number + number // 2) % 4])
        folder, like = save_folder(setting, "tuned%d" % number, tuned), save_folder(setting, "base%d" % number, base)
        report, found = verify(setting, folder, like, 0)
        check(not found and not any(row["far"] for row in report["near_tensors"]), "findings: %r" % found)
        check(report["nearness"]["judged"] > 0, "nothing was judged")
        check_cosines(report, tuned, base)


def exchanged(state, one, other):
    """Names with `one` and `other` exchanged."""
    return {name.replace(one, "\0").replace(other, one).replace("\0", other): tensor for name, tensor in state.items()}


def rotated(state, key, count):
    """The tensors of number i under number i + 1."""
    result = {}
    for name, tensor in state.items():
        before, found, rest = name.partition(key + ".")
        number, dot, rest = rest.partition(".")
        result[name if not found else "%s%s%d.%s" % (before, found, (int(number) + 1) % count, rest)] = tensor
    return result


@case(first=(2, 15))
def case_near_faults(setting):
    model = Model(3)
    base = state_of(model)
    train(model)
    tuned = state_of(model)
    like = save_folder(setting, "base", base)
    projections = ("q_proj.weight", "k_proj.weight")
    faults = {
        "rope": ({n: other_rope_order(t) if n.endswith(projections) else t for n, t in tuned.items()}, projections, "RoPE"),
        "gate": (exchanged(tuned, "gate_proj", "up_proj"), ("gate_proj.weight", "up_proj.weight"), ""),
        "experts": (rotated(tuned, "experts", EXPERTS), ("gate_proj.weight", "up_proj.weight", "down_proj.weight"), ""),
    }
    for name, (state, ends, cause) in faults.items():
        state = {key: tensor.contiguous() for key, tensor in state.items()}
        report, found = verify(setting, save_folder(setting, name, state), like, 1)
        check(len(found) == len(ends), "%s: findings: %r" % (name, found))
        for finding in found:
            check(finding["tensor"].endswith(ends) and cause in finding["found"], "%s: %r" % (name, finding))
        far = {row["name"] for row in report["near_tensors"] if row["far"]}
        check(far == {key for key in state if key.endswith(ends)}, "%s: far: %s" % (name, sorted(far)))
        if cause == "":  # the tensor that has these values
            key = found[0]["tensor"]
            source = found[0]["found"].split("'")[1]
            check(torch.equal(state[key], tuned[source]), "%s: %s does not have the values of %s" % (name, key, source))
        check_cosines(report, state, base)
    report, found = verify(setting, save_folder(setting, "scratch", state_of(Model(4))), like, 1)
    check(len(found) == 1 and "tensor" not in found[0], "from scratch: %r" % found)
    check(load_file(setting.path("base/model.safetensors")).keys() == base.keys(), "base was changed")


def rope_state(head, noise):
    """Projections of 4 heads, and other tensors, some steps away from those without noise."""
    random = torch.Generator().manual_seed(head)
    state = {}
    for layer in range(2):
        for name in ("self_attn.q_proj", "self_attn.v_proj", "self_attn.o_proj", "mlp.up_proj", "mlp.down_proj"):
            begin, step = (torch.randn(4 * head, 64, generator=random) for _ in range(2))
            state["model.layers.%d.%s.weight" % (layer, name)] = begin + noise * step
    return state


@case(first=(2, 15))
def case_near_rope_heads(setting):
    """A forgotten permutation leaves two rows of each head in place."""
    for head in (8, 16, 64, 128):
        base, state = rope_state(head, 0), rope_state(head, 0.3)
        for name, tensor in state.items():
            if "q_proj" in name:
                state[name] = tensor.view(4, 2, head // 2, 64).transpose(1, 2).reshape(4 * head, 64).contiguous()
        like = save_folder(setting, "base%d" % head, base)
        report, found = verify(setting, save_folder(setting, "rope%d" % head, state), like, 1)
        check(len(found) == 1 and "q_proj" in found[0]["tensor"], "%d rows: findings: %r" % (head, found))
        check("rows of each head (%d) in the other order of RoPE" % head in found[0]["found"], "cause: %r" % found)
        far = [row for row in report["near_tensors"] if row["far"]]
        check(len(far) == 2 and all(abs(row["cosine"] - 2 / head) < 0.1 for row in far), "far: %r" % far)


@case(first=(2, 15))
def case_near_dequantized(setting):
    """The values of a BASE that --dequantize reads, with any number of threads."""
    random = torch.Generator().manual_seed(5)
    quantized = {}
    for name, shape in (("a", (1100, 1300)), ("b", (5, 300, 200)), ("c", (257, 127)), ("d", (257, 127))):
        weight = torch.randn(shape, generator=random)
        quantized[name + ".weight"], quantized[name + ".weight_scale_inv"] = quantize_fp8(weight)
    quantized["m_blocks"] = torch.randint(0, 256, (4, 16, 4, 16), generator=random, dtype=torch.uint8)
    quantized["m_scales"] = torch.randint(118, 124, (4, 16, 4), generator=random, dtype=torch.uint8)
    base = {name + ".weight": dequantize_fp8(quantized[name + ".weight"], quantized[name + ".weight_scale_inv"])
            for name in "abcd"}
    base["m"] = dequantize_mxfp4(quantized["m_blocks"], quantized["m_scales"])
    os.makedirs(setting.path("base"))
    save_hf(setting.path("base"), quantized)
    state = {name: (t + t.float().std() * torch.randn(t.shape, generator=random) / 2).to(t.dtype)
             for name, t in base.items()}
    state["b.weight"] = state["b.weight"].float()
    folder = save_folder(setting, "tuned", state)
    rows = []
    for options in ((), ("--threads", "1"), ("--threads", "5", "--memory", "16M")):
        done = setting.run("verify", folder, "--like", setting.path("base"), "--dequantize", "--json", *options)
        report = json.loads(done.stdout)
        check(report["nearness"]["judged"] == len(base) and report["nearness"]["compressed"] == 0, "nothing was judged")
        check_cosines(report, state, base)
        rows.append(report["near_tensors"])
    check(rows[0] == rows[1] == rows[2], "the number of threads matters")
    # What is compressed is counted, not judged.
    setting.run("consolidate", folder, setting.path("packed.h5"), "--compress", "gzip")
    done = setting.run("verify", setting.path("packed.h5"), "--like", setting.path("base"), "--dequantize", "--json",
                       "--set", "EXPORT-CONFIG=ignore")
    check(json.loads(done.stdout)["nearness"]["compressed"] == len(base), "compressed: %s" % done.stdout)
    state["c.weight"], state["d.weight"] = state["d.weight"], state["c.weight"]
    done = setting.run("verify", save_folder(setting, "exchanged", state), "--like", setting.path("base"), "--dequantize",
                       "--json", expected=1)
    far = {row["name"] for row in json.loads(done.stdout)["near_tensors"] if row["far"]}
    check(far == {"c.weight", "d.weight"}, "far: %s" % far)
