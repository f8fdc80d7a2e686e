"""What tensors are in Python beside their bytes: Parameters, requires_grad, Buffers, attributes. By real torch."""

import json
import os

import torch
from torch import nn

from support import case, check, load_pt, tensors_of_state


def make_state():
    count = nn.Parameter(torch.arange(4, dtype=torch.int64), requires_grad=False)
    tagged = nn.Parameter(torch.arange(5.))
    tagged.tp_degree = 4
    noted = torch.arange(7.)
    noted.note = "kept by pickle"
    shared = nn.Parameter(torch.arange(10.))
    state = {"weight": nn.Parameter(torch.arange(6.).reshape(2, 3)),
             "frozen": nn.Parameter(torch.arange(4.), requires_grad=False), "count": count, "tagged": tagged,
             "noted": noted, "leaf": torch.arange(8., requires_grad=True),
             "plain": torch.arange(2.), "half": nn.Parameter(torch.arange(3.).bfloat16()), "shared": shared,
             "view": shared.detach()[:4], "list": [nn.Parameter(torch.ones(2)), torch.zeros(2)],
             "tuple": (nn.Parameter(torch.ones(3)), torch.ones(3, requires_grad=True), torch.zeros(1), 7)}
    if hasattr(nn, "Buffer"):
        state["buffer"] = nn.Buffer(torch.arange(9.))
    return state


def kinds_of(state):
    return {name: (isinstance(tensor, nn.Parameter), tensor.requires_grad)
            for name, tensor in tensors_of_state(state).items()}


def check_kinds(path, expected, what):
    found = kinds_of(load_pt(path, weights_only=False))
    check(found == expected, "%s: %r" % (what, sorted(set(found.items()) ^ set(expected.items()))))


def report_of(setting, *arguments):
    """(what counts.attributes_lost says, messages of PT-ATTRS)"""
    report = json.loads(setting.run(*arguments, "--json").stdout)
    messages = [f["message"] for f in report["findings"] if f["finding"] == "PT-ATTRS"]
    check(len(messages) <= 1, "one finding: %r" % messages)
    return report["counts"].get("attributes_lost", 0), "".join(messages)


@case((2, 1))
def case_attributes_pt(setting):
    source, state = setting.path("source.pt"), make_state()
    torch.save(state, source)
    state = load_pt(source, weights_only=False)
    expected = kinds_of(state)
    check(sum(is_parameter for is_parameter, _ in expected.values()) == 8, "the source's own Parameters")
    lost = [name for name, tensor in tensors_of_state(state).items() if vars(tensor)]
    check(lost[:2] == ["tagged", "noted"], "the source's own attributes: %r" % lost)

    count, message = report_of(setting, "consolidate", source, setting.path("out.pt"))
    check(count == len(lost) and "'tagged'" in message, "pt: %d, %r" % (count, message))
    check_kinds(setting.path("out.pt"), expected, "pt")
    load_pt(setting.path("out.pt"))  # by the restricted unpickler as well
    check(report_of(setting, "consolidate", setting.path("out.pt"), setting.path("again.pt")) == (0, ""), "lost before")
    check_kinds(setting.path("again.pt"), expected, "pt of pt")

    # A Buffer is no other thing there, and attributes that are left out are not lost by the format.
    for name, options in (("out.safetensors", ["--part", "all"]), ("dcp", ["--format", "dcp"])):
        count, message = report_of(setting, "consolidate", source, setting.path(name), *options)
        check(count == 2 and "'tagged'" in message, "%s: %d, %r" % (name, count, message))
    check(report_of(setting, "consolidate", source, setting.path("some.pt"), "--keys", "w*", "--keys", "leaf") == (0, ""),
          "--keys")
    check_kinds(setting.path("some.pt"), {n: expected[n] for n in ("weight", "leaf")}, "--keys")

    # No integer has a gradient; a cast to another floating dtype changes nothing.
    setting.consolidate(source, "cast.pt", "--dtype", "bfloat16")
    check_kinds(setting.path("cast.pt"), expected, "cast")

    # DCP keeps tensors as torch does, without any of this; an object is pickled whole.
    setting.consolidate("dcp", "back.pt")
    inside = {name: kind for name, kind in expected.items() if name.startswith("tuple.")}
    check(any(kind != (False, False) for kind in inside.values()), "tensors inside the tuple")
    check_kinds(setting.path("back.pt"), {n: inside.get(n, (False, False)) for n in expected}, "dcp")


def save_parameters(folder):
    import torch.distributed as dist
    from cases_fsdp import fully_shard
    torch.manual_seed(5)
    model = nn.Sequential(nn.Linear(4, 6), nn.Linear(6, 3))
    for module in (*model, model):
        fully_shard(module)
    for parameter in model[0].parameters():
        parameter.requires_grad_(False)
    named = dict(model.named_parameters())
    named["1.weight"].tag = 1
    state = {"parameters": named, "state": model.state_dict(), "scale": nn.Parameter(torch.ones(3))}
    torch.save(state, os.path.join(folder, "state_rank%d.pt" % dist.get_rank()))


@case((2, 6))
def case_attributes_ranks(setting):
    from process_group import run_ranks
    folder = setting.path("ranks")
    os.mkdir(folder)
    run_ranks(2, save_parameters, folder)
    expected = kinds_of(load_pt(os.path.join(folder, "state_rank0.pt"), weights_only=False))
    check(sorted(set(expected.values())) == [(False, False), (True, False), (True, True)], "all kinds: %r" % expected)

    lost = report_of(setting, "consolidate", folder, setting.path("out.pt"))
    check(lost[0] == 1 and "'parameters.1.weight'" in lost[1], "attributes of a DTensor: %r" % (lost,))
    check_kinds(setting.path("out.pt"), expected, "pt of ranks")
    setting.run("reshard", folder, setting.path("three"), "--world-size", "3")
    for name in sorted(os.listdir(setting.path("three"))):
        if name.endswith(".pt"):
            check_kinds(setting.path("three", name), expected, name)
    setting.consolidate("three", "again.pt")
    check_kinds(setting.path("again.pt"), expected, "pt of three ranks")
