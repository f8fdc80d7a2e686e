"""A: the arguments of a training in common.pt, which a tensor map needs."""

import os

from rows import ANY, Row, fixture_bytes, from_fixture
from pickle_builder import Build, Call, FLOATS, Global, archive, saved

GOOD = fixture_bytes("arguments/full.pt", "")
NAMESPACE = Global("argparse", "Namespace")
NUMBERS = {"num_attention_heads": 6, "group_query_attention": True, "num_query_groups": 2, "vocab_size": 11}


def row(id, name, cls, finding, data, commands=("consolidate", "reshard", "digest"), **words):
    def put(path):
        with open(os.path.join(path, "common.pt"), "wb") as f:
            f.write(data)

    return Row(id, name, cls, finding, from_fixture("maps/megatron-llama.llama", put, ""), commands=commands,
               options=("--map", "megatron-llama"), converts=False, **words)


def arguments(**more):
    return saved({"args": Build(NAMESPACE, {**NUMBERS, **more})})


def nested(depth):
    """A .pt whose pickle has lists in lists."""
    return archive(b"\x80\x02" + b"]" * depth + b"a" * (depth - 1) + b".", {"0": FLOATS})


ROWS = [
    row("A01", "full", "A", None, GOOD, strict=False),
    row("A01", "by-hand", "A", None, arguments(), strict=False),
    row("A02", "empty", "R", "ZIP-EMPTY", b""),
    row("A02", "text", "R", "PT-CONTAINER", b"no zip"),
    row("A02", "shortened", "R", "ZIP-NOEND", GOOD[:1000]),
    row("A03", "no-stop", "R", "PKL-TRUNCATED", archive(b"\x80\x02}", {"0": FLOATS}), offset=ANY),
    row("A03", "opcode", "R", "PKL-OPCODE", archive(b"\x80\x02\xff.", {"0": FLOATS}), offset=ANY),
    row("A03", "deep", "L", "PKL-DEPTH", nested(20_000), offset=ANY),
    row("A04", "runs-code", "R", "PKL-GLOBAL", arguments(x=Call(Global("os", "system"), "touch marker"))),
    row("A04", "is-code", "R", "PKL-GLOBAL", saved({"args": Call(Global("posix", "system"), "touch marker")})),
    row("A04", "unknown-class", "A", None, arguments(x=Call(Global("megatron.x", "Unknown"), 1, "a")), strict=False),
    row("A05", "no-args", "R", "MAP-VARIABLE", saved({"iteration": 5}),
        expect={"consolidate": 2, "reshard": 2, "digest": 2}),
    row("A05", "no-heads", "R", "MAP-VARIABLE", arguments(num_attention_heads=None),
        expect={"consolidate": 2, "reshard": 2, "digest": 2}),
    row("A05", "groups-of-another", "R", "MAP-SHAPE", arguments(num_query_groups=7)),
    row("A05", "rows-of-another", "R", "MAP-SHAPE", arguments(vocab_size=17)),
    row("A06", "refused", "U", "MAP-ARGUMENTS", arguments(rotary_interleaved=True)),
]
