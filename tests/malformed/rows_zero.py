"""E: folders of DeepSpeed. What is bent is a value in the pickle of one file, or of all of a kind."""

import os
import struct

from pickle_builder import Call, Global, archive, pickle, tensor
from rows import Row, from_fixture
from zero_builder import flat, folder_of, model_states, names, shape, slices, stage, universal_of

LARGE = 2**62


def row(id, name, cls, finding, build, **words):
    words.setdefault("cut", ("--world-size", "2"))
    return Row(id, name, cls, finding, build, **words)


def model(third=False, **words):
    return folder_of(third, model=words)


def optim(third=False, **words):
    return folder_of(third, optim=words)


def second(third=False, **words):
    return folder_of(third, second=words)


def removed(which, third=False):
    def build(folder):
        path = folder_of(third)(folder)
        os.remove(os.path.join(path, names(third)[which]))
        return path

    return build


def state(slots, groups=({"lr": 1, "params": [0]}, {"lr": 2, "params": [1]})):
    return {"state": slots, "param_groups": list(groups)}


def exchanged(folder):
    """State of two groups with each other's size, which is too far from their own for padding."""
    own = {"fp32_flat_groups": [flat(1), flat(6)], "base": state({0: {"exp_avg": flat(6)}})}
    return folder_of(True, model={"param_shapes": [{"a": shape(2)}, {"b": shape(12)}]}, optim=own)(folder)


def fragments(number=None):
    """The same fragment on both ranks; number: of one value, as in the weight of a norm."""
    frozen = {"frozen_param_shapes": {"f": shape(12)}, "frozen_param_fragments": {"f": flat(6)}}

    def build(folder):
        path = folder_of(True, model=frozen)(folder)
        for which in (0, 3) if number is not None else ():
            with open(os.path.join(path, names(True)[which]), "wb") as f:
                f.write(archive(pickle(model_states(True, **frozen)), {"0": struct.pack("<6f", *[number] * 6)}))
        return path

    return build


BASE = "single_partition_of_fp32_groups"
ROWS = [
    row("E01", "second-stage", "A", None, folder_of()),
    row("E01", "third-stage", "A", None, folder_of(True)),
    row("E01", "fixture", "A", None, from_fixture("deepspeed-zero3")),
    row("E02", "no-optimizer", "R", "FILE-MISSING", removed(1)),
    row("E02", "no-model", "R", "FILE-MISSING", removed(0)),
    row("E02", "no-model-of-rank", "R", "FILE-MISSING", removed(3, True)),
    row("E03", "stage", "R", "ZERO-FORM", optim(zero_stage=stage(4))),
    row("E03", "stage-of-one", "R", "RANK-MIXED", second(zero_stage=stage(1))),
    row("E03", "stage-text", "R", "ZERO-FORM", optim(zero_stage="2")),
    row("E03", "stage-lost", "R", "RANK-MIXED", second(zero_stage=...)),
    row("E04", "count", "R", "ZERO-FORM", optim(partition_count=[0, 0])),
    row("E04", "count-lost", "R", "ZERO-FORM", optim(partition_count=...)),
    row("E04", "count-large", "R", "ZERO-FORM", optim(partition_count=LARGE)),
    row("E04", "count-negative", "R", "ZERO-FORM", optim(partition_count=-2)),
    row("E04", "count-of-more", "R", "FILE-MISSING", optim(partition_count=[3, 3])),
    row("E04", "count-of-one", "R", "RANK-MIXED", second(partition_count=[3, 3])),
    row("E04", "counts", "U", "SRC-FOREIGN", optim(partition_count=[2, 1])),
    row("E05", "no-partitions", "R", "ZERO-FORM", optim(**{BASE: ...})),
    row("E05", "no-partition-of-rank", "R", "ZERO-FORM", second(**{BASE: [flat(0)]})),
    row("E05", "none-at-all", "R", "ZERO-FORM", optim(True, fp32_flat_groups=[])),
    row("E05", "object", "R", "ZERO-FORM", second(**{BASE: [1, 2]})),
    row("E05", "dims", "R", "ZERO-FORM", second(**{BASE: [flat(0), tensor((1, 1), (1, 1))]})),
    row("E05", "short", "R", "RANK-SHAPE", second(**{BASE: [flat(0), flat(0)]})),
    row("E05", "long", "R", "RANK-SHAPE", second(**{BASE: [flat(0), flat(3)]})),
    row("E05", "uneven", "R", "RANK-SHAPE", folder_of(True, second={"fp32_flat_groups": [flat(2), flat(2)]})),
    row("E05", "exchanged", "R", "RANK-SHAPE", optim(True, fp32_flat_groups=[flat(2), flat(1)])),
    row("E05", "more-groups", "R", "ZERO-FORM", optim(**{BASE: [flat(2), flat(2), flat(2)]})),
    row("E06", "shapes-lost", "R", "ZERO-FORM", model(param_shapes=...)),
    row("E06", "shapes-text", "R", "ZERO-FORM", model(param_shapes=["a", "b"])),
    row("E06", "negative", "R", "CHUNK-BOUNDS", model(param_shapes=[{"a": shape(-2)}, {"b": shape(3, 1)}])),
    row("E06", "large", "R", "CHUNK-BOUNDS", model(param_shapes=[{"a": shape(LARGE, 4)}, {"b": shape(3, 1)}])),
    row("E06", "sums", "R", "CHUNK-BOUNDS", model(param_shapes=[{"a": shape(LARGE), "c": shape(LARGE), "d": shape(LARGE), "e": shape(LARGE)},
                                                                {"b": shape(3, 1)}]), settled="a sum of more than 64 bits"),
    row("E06", "twice", "R", "KEY-DUP", model(param_shapes=[{"a": shape(2)}, {"a": shape(3)}])),
    row("E06", "name", "R", "ZERO-FORM", model(param_shapes=[{1: shape(2)}, {"b": shape(3, 1)}])),
    row("E06", "groups", "R", "ZERO-FORM", model(param_shapes=[{"a": shape(2)}])),
    row("E06", "shape", "R", "RANK-SHAPE", model(param_shapes=[{"a": shape(2)}, {"b": shape(1, 3)}])),
    row("E06", "not-shared", "W", "ZERO-LEFT-OUT", model(shared_params={}), says=("'tied'",)),
    row("E06", "other", "R", "RANK-DISAGREE", model(param_shapes=[{"a": shape(2)}, {"c": shape(3)}])),
    row("E07", "slices-of-other", "R", "RANK-DISAGREE", second(param_slice_mappings=slices({}, {"b": (1, 1)}))),
    row("E07", "slice-large", "R", "RANK-DISAGREE", second(param_slice_mappings=slices({}, {"b": (LARGE, LARGE)}))),
    row("E07", "slice-of-no-group", "R", "RANK-DISAGREE", second(param_slice_mappings=slices({}, {}, {"b": (1, 0)}))),
    row("E07", "round-robin", "A", None, folder_of(model={"ds_config": {"zero_optimization": {"round_robin_gradients": True}}},
                                                   second={"param_slice_mappings": slices({}, {"b": (1, 1)})})),
    row("E08", "paddings", "R", "ZERO-FORM", optim(param_alignment_paddings=[[0]])),
    row("E08", "padding-large", "R", "RANK-SHAPE", optim(param_alignment_paddings=[[LARGE], [0]])),
    row("E08", "padding-negative", "R", "ZERO-FORM", optim(param_alignment_paddings=[[-1], [0]])),
    row("E09", "state-text", "R", "ZERO-FORM", optim(base=state({0: "text"}))),
    row("E09", "state-of-no-group", "R", "ZERO-FORM", optim(base=state({7: {"exp_avg": flat(2)}}))),
    row("E09", "state-number", "R", "ZERO-FORM", optim(base=state({-1: {"exp_avg": flat(2)}}))),
    row("E09", "state-of-one-rank", "R", "CHUNK-GAP", folder_of(second={"base": state({})}), at="coverage"),
    row("E09", "slot-lost", "W", "ZERO-LEFT-OUT", optim(
        True, base=state({0: {"exp_avg": flat(1), "exp_avg_sq": flat(1)}, 1: {"exp_avg_sq": flat(2)}})), says=("'exp_avg' of group 1",)),
    row("E09", "other-slots", "A", None, optim(True, base=state({0: {"momentum_buffer": flat(1)}, 1: {"exp_avg": flat(2)}}))),
    row("E09", "slot-size", "R", "RANK-SHAPE", optim(True, base=state({0: {"exp_avg": flat(6)}, 1: {"exp_avg": flat(2)}})), says=("group 0",)),
    row("E09", "slots-exchanged", "R", "RANK-SHAPE", exchanged, says=("group 0",)),
    row("E09", "slot-shape", "W", "ZERO-LEFT-OUT", optim(base=state({1: {"row": tensor((2, 2), (2, 1))}}))),
    row("E09", "params-number", "R", "ZERO-FORM", optim(base=state({}, ({"params": [-1]},)))),
    row("E09", "params-of-other", "W", "ZERO-LEFT-OUT", optim(base=state({}, ({"lr": 1, "params": [0, 9]},)))),
    row("E09", "steps", "R", "RANK-MIXED", folder_of(second={"base": state({0: {"step": 4}})}, first={"base": state({0: {"step": 3}})})),
    row("E10", "fragment", "R", "RANK-SHAPE", model(True, frozen_param_fragments={"f": flat(1)})),
    row("E10", "fragment-lost", "R", "RANK-SHAPE", model(True, frozen_param_fragments={})),
    row("E10", "frozen-shape", "R", "CHUNK-BOUNDS", model(True, frozen_param_shapes={"f": shape(LARGE, LARGE)})),
    row("E10", "fragments-copied", "W", "RANK-COPIED", fragments(), says=("ranks 0 and 1",)),
    row("E10", "fragments-constant", "A", None, fragments(0.75)),
    row("E11", "version", "R", "RANK-MIXED", second(ds_version="0.19.7")),
    row("E11", "version-of-model", "R", "RANK-MIXED", model(ds_version="0.1")),
    row("E11", "ranks-of-model", "R", "RANK-MIXED", model(dp_world_size=3)),
    row("E11", "model-ranks", "U", "SRC-FOREIGN", model(mp_world_size=2)),
    row("E12", "class", "W", "ZERO-LEFT-OUT", model(mine=Call(Global("my.module", "Thing"), 1, 2))),
    row("E12", "key", "W", "ZERO-LEFT-OUT", model(model={"a": tensor()})),
    row("E12", "code", "R", "PKL-GLOBAL", model(mine=Call(Global("os", "system"), "true"))),
    row("E12", "module-lost", "R", "ZERO-FORM", model(module=...)),
    row("E13", "universal", "A", None, universal_of()),
    row("E13", "universal-fixture", "A", None, from_fixture("deepspeed-universal")),
    row("E13", "weights-lost", "R", "FILE-MISSING", universal_of(b_fp32=...), says=("zero/b/fp32.pt",)),
    row("E13", "slot-lost", "R", "FILE-MISSING", universal_of(a_exp_avg=...), says=("zero/a/exp_avg.pt",)),
    row("E13", "shape", "R", "RANK-SHAPE", universal_of(b_fp32=tensor((1, 3), (3, 1)))),
    row("E13", "elements", "R", "RANK-SHAPE", universal_of(a_exp_avg=flat(3))),
    row("E13", "no-tensor", "R", "ZERO-FORM", universal_of(a_fp32={"param": 1})),
    row("E13", "stage", "R", "ZERO-FORM", universal_of(groups={"zero_stage": stage(0)})),
    row("E13", "version", "R", "RANK-MIXED", universal_of(groups={"ds_version": "0.1"})),
    row("E13", "third-stage", "R", "RANK-MIXED", universal_of(groups={"zero_stage": stage(3), "partition_count": 2})),
    row("E13", "strided", "A", None, universal_of(b_exp_avg=tensor((3, 1), (2, 1)))),
    row("E13", "model-ranks", "U", "SRC-FOREIGN", universal_of(model={"mp_world_size": 2})),
]
