"""F: folders of trainers and of torch's own checkpointers: a lost file, a cut file, a file of another save; formats of
other programs."""

import os
import shutil

from pickle_builder import Call, Global, saved, tensor
from rows import FIXTURES, SEED, Row, from_fixture

RANKS = 4


def row(id, name, cls, finding, build, **words):
    return Row(id, name, cls, finding, build, **words)


def names_of(path, first):
    for rank in range(RANKS):
        os.rename(os.path.join(path, "state_rank%d.pt" % rank), os.path.join(path, first(rank)))


def ranks(first, change=None):
    """The rank files of a fixture under the names that torch gives them."""
    def put(path):
        names_of(path, first)
        if change is not None:
            change(path)
    return from_fixture("ranks-dtensor", put)


def experimental(rank):
    return "checkpoint_%d.pt" % rank


def replica(rank):
    return "rank_%d_replica_partner_%d.pt" % ((rank + RANKS // 2) % RANKS, rank)


def lost(name):
    return lambda path: os.remove(os.path.join(path, name))


def cut(name):
    def change(path):
        full = os.path.join(path, name)
        os.truncate(full, os.path.getsize(full) // 2)
    return change


def replaced(name, by):
    """By a file of another save."""
    def change(path):
        shutil.copyfile(os.path.join(FIXTURES, SEED, by), os.path.join(path, name))
    return change


def swapped(one, other):
    def change(path):
        names = [os.path.join(path, name) for name in (one, other)]
        os.rename(names[0], path + "/x")
        os.rename(names[1], names[0])
        os.rename(path + "/x", names[1])
    return change


def renamed(old, new):
    return lambda path: os.rename(os.path.join(path, old), os.path.join(path, new))


def pair(change=None):
    """model/ and optim/, as composer.checkpoint and NeMo Automodel write them."""
    def put(path):
        os.rename(path + "/pytorch_model_fsdp_0", path + "/model")
        os.rename(path + "/optimizer_0", path + "/optim")
        os.remove(path + "/scheduler.bin")
        if change is not None:
            change(path)
    return from_fixture("parts-accelerate", put)


def automodel(change=None):
    """NeMo Automodel's safetensors: model/ with .hf_metadata/, and optim/."""
    def put(path):
        step = os.path.join(os.path.dirname(path), "epoch_0_step_9")
        os.makedirs(step)
        os.rename(path, step + "/model")
        os.makedirs(step + "/model/.hf_metadata")
        shutil.copytree(os.path.join(os.path.dirname(__file__), "../fixtures/torch-2.15.0/dcp-fsdp2"), step + "/optim")
        with open(step + "/model/.hf_metadata/config.json", "w") as f:
            f.write("{}")
        if change is not None:
            change(step)
        return step
    return from_fixture("hf-shards", put)


def veomni(manifest, change=None):
    """A step of VeOmni of 2026, with this checkpoint_manifest.json and the files of two ranks."""
    def put(path):
        step = os.path.join(os.path.dirname(path), "global_step_3")
        os.makedirs(step + "/model")
        os.rename(path + "/pytorch_model_fsdp_0", step + "/model/ckpt")
        os.rename(path + "/optimizer_0", step + "/model/optimizer")
        for folder in ("loader", "extra_state"):
            os.makedirs(os.path.join(step, folder))
            for rank in range(2):
                with open(os.path.join(step, folder, "rank_%d.pt" % rank), "wb") as f:
                    f.write(saved({"step": 3}))
        with open(step + "/checkpoint_manifest.json", "wb") as f:
            f.write(manifest)
        if change is not None:
            change(step)
        return step
    return from_fixture("parts-accelerate", put)


def bytes_of(name, data):
    def build(where):
        path = os.path.join(where, name)
        with open(path, "wb") as f:
            f.write(data)
        return path
    return build


def link(text):
    """A file of Composer beside the checkpoint."""
    def put(path):
        os.rename(path, os.path.join(os.path.dirname(path), "ep0-ba10"))
        name = os.path.join(os.path.dirname(path), "latest-rank0.symlink")
        with open(name, "wb") as f:
            f.write(text)
        return name
    return from_fixture("dcp-fsdp2", put)


def files(*names):
    def build(where):
        for name in names:
            full = os.path.join(where, "step_1", name)
            os.makedirs(os.path.dirname(full), exist_ok=True)
            with open(full, "wb") as f:
                f.write(b"{}")
        return os.path.join(where, "step_1")
    return build


def foreign(name, *names):
    return row("F06", name, "U", "SRC-FOREIGN", files(*names), commands=("inspect", "structure", "consolidate", "reshard", "digest"),
               expect={"structure": 4})


def lightning(data):
    """A folder of Lightning; verify alone reports its meta.pt, the weights are read without it."""
    def put(path):
        with open(path + "/meta.pt", "wb") as f:
            f.write(data)
    return from_fixture("dcp-fsdp2", put)


def trainer(optimizer, training, change=None):
    """checkpoint-30 of transformers, whose optimizer and trainer_state.json record these steps."""
    def put(path):
        step = os.path.join(os.path.dirname(path), "checkpoint-30")
        os.rename(path, step)
        state = {"state": {0: {"step": optimizer, "exp_avg": tensor()}}, "param_groups": [{"lr": 1, "params": [0]}]}
        scheduler = {"base_lrs": [1], "last_epoch": training, "_step_count": training + 1}
        for name, content in (("optimizer.pt", saved(state)), ("scheduler.pt", saved(scheduler)), ("training_args.bin", saved({"lr": 1})),
                              ("trainer_state.json", b'{"global_step": %d}' % training)):
            with open(os.path.join(step, name), "wb") as f:
                f.write(content)
        if change is not None:
            change(step)
        return step
    return from_fixture("hf-index", put)


def with_scaler(path):
    with open(path + "/scaler.pt", "wb") as f:
        f.write(saved({"scale": 1, "growth_factor": 2, "_growth_tracker": 0}))


def adapter(change=None):
    """A folder of PEFT."""
    def build(where):
        path = os.path.join(where, "adapter")
        shutil.copytree(os.path.join(FIXTURES, "adapter/beside"), path)
        if change is not None:
            change(path)
        return path
    return build


META = saved({"epoch": 1, "callbacks": {"shift": tensor()}})
SHARD = "shard-00002-model-00001-of-00001.safetensors"
STEP = b'{"format_version": 1, "global_step": 3, "world_size": 2, "modules": []}'
MANIFESTS = {"deep": b'{"world_size": ' + b"[" * 900 + b"]" * 900 + b"}", "text": b'{"world_size": "2"}',
             "huge": b'{"world_size": 99999999999999999999, "global_step": -1}',
             "negative": b'{"world_size": -2}', "twice": b'{"world_size": 9, "world_size": 2, "global_step": 9, "global_step": 3}'}
COMPRESSED = {"gz": (b"\x1f\x8b\x08" + b"\0" * 60, "gzip -dk"), "zst": (b"\x28\xb5\x2f\xfd" + b"\0" * 60, "zstd -d"),
              "lzma": (b"\x5d\x00\x00\x80\x00" + b"\0" * 60, "xz -dk"), "lz4": (b"\x04\x22\x4d\x18" + b"\0" * 60, "lz4 -d"),
              "lzo": (b"\x89LZO\0\r\n\x1a\n" + b"\0" * 60, "lzop -d")}
LINKS = {"address": b"s3://bucket/ep0-ba10", "absolute": b"/etc", "up": b"../ep0-ba10", "none": b"ep0-ba11", "empty": b"",
         "zero": b"ep0-ba10\0", "escape": b"\x1b[31mINJECTED", "line": b"ep0-ba10\nINJECTED"}

ROWS = [
    row("F01", "experimental", "A", None, ranks(experimental)),
    row("F01", "experimental-lost", "R", "FILE-MISSING", ranks(experimental, lost("checkpoint_2.pt")), says=("checkpoint_2.pt",)),
    row("F01", "experimental-cut", "R", "ZIP-NOEND", ranks(experimental, cut("checkpoint_2.pt"))),
    row("F01", "experimental-empty", "R", "ZIP-EMPTY", ranks(experimental, lambda p: os.truncate(p + "/checkpoint_3.pt", 0))),
    row("F01", "experimental-of-another", "R", "CHUNK-GAP", ranks(experimental, replaced(
        "checkpoint_2.pt", "ranks-tp/weights_rank_2.pt")), at="coverage"),
    row("F02", "replica", "A", None, ranks(replica)),
    row("F02", "replica-lost", "R", "FILE-MISSING", ranks(replica, lost(replica(2))), says=("partner_2.pt",)),
    row("F02", "replica-cut", "R", "ZIP-NOEND", ranks(replica, cut(replica(2)))),
    row("F02", "replica-of-another", "R", "RANK-MIXED", ranks(replica, renamed(replica(2), "rank_1_replica_partner_2.pt"))),
    row("F02", "replica-huge", "L", "LIMIT-COUNT", ranks(replica, renamed(replica(2), "rank_0_replica_partner_999999999.pt"))),
    row("F03", "pair", "A", None, pair()),
    row("F03", "pair-lost", "R", "FILE-MISSING", pair(lost("optim/__1_0.distcp")), says=("optim/__1_0.distcp",)),
    row("F03", "pair-cut", "R", "FILE-SHORT", pair(cut("optim/__1_0.distcp"))),
    row("F03", "pair-swapped", "R", "FILE-SHORT", pair(swapped("optim/__0_0.distcp", "optim/__1_0.distcp"))),
    row("F03", "pair-of-another", "R", "FILE-SHORT", pair(replaced("optim/__1_0.distcp", "dcp-fsdp2/__1_0.distcp"))),
    row("F03", "pair-metadata-cut", "R", "PKL-TRUNCATED", pair(cut("optim/.metadata"))),
    row("F04", "automodel", "A", None, automodel(), strict=False),
    row("F04", "automodel-lost", "R", "FILE-MISSING", automodel(lost("model/" + SHARD))),
    row("F04", "automodel-cut", "R", "ST-HEADER-SIZE", automodel(cut("model/" + SHARD))),
    row("F04", "automodel-of-another", "R", "CHUNK-GAP", automodel(replaced(
        "model/" + SHARD, "hf-files/shard-00002-model-00001-of-00002.safetensors")), at="coverage"),
    row("F04", "automodel-optim-lost", "R", "FILE-MISSING", automodel(lost("optim/__1_0.distcp")), commands=("structure",)),
    row("F04", "automodel-optim-cut", "R", "FILE-SHORT", automodel(cut("optim/__1_0.distcp")), commands=("structure",)),
    row("F04", "automodel-optim-metadata-lost", "R", "SAVE-INCOMPLETE", automodel(lost("optim/.metadata")), commands=("structure",)),
    row("F04", "automodel-config-cut", "R", "SIDE-UNREAD", automodel(lambda p: os.truncate(p + "/model/.hf_metadata/config.json", 1)),
        commands=("structure",)),
    row("F04", "automodel-no-shards", "R", "SAVE-INCOMPLETE", automodel(
        lambda p: [os.remove(p + "/model/shard-%05d-model-00001-of-00001.safetensors" % (r + 1)) for r in range(4)])),
    *[row("F05", "link-" + name, "R", "LINK-TARGET", link(text)) for name, text in LINKS.items()],
    row("F05", "link-long", "L", "LIMIT-SIZE", link(b"x" * 5000)),
    row("F07", "lightning", "A", None, lightning(META)),
    row("F07", "lightning-cut", "R", "ZIP-NOEND", lightning(META[:-40]), commands=("structure",), says=("meta.pt",)),
    row("F07", "lightning-empty", "R", "ZIP-EMPTY", lightning(b""), commands=("structure",), says=("meta.pt",)),
    row("F07", "lightning-call", "R", "PKL-GLOBAL", lightning(saved({"epoch": Call(Global("os", "system"), "touch marker")})),
        commands=("structure",), says=("meta.pt",)),
    row("F07", "lightning-tensor", "W", "SIDE-UNREAD", lightning(saved({"epoch": 1, "shift": tensor()})), says=("shift",)),
    row("F07", "lightning-no-dict", "A", None, lightning(saved([1, 2]))),
    row("F09", "trainer", "A", None, trainer(30, 30)),
    row("F09", "trainer-optimizer-before", "W", "STEP-STATE", trainer(10, 30), commands=("structure",), says=("optimizer.pt",)),
    row("F09", "trainer-optimizer-after", "W", "STEP-STATE", trainer(40, 30), commands=("structure",)),
    row("F09", "trainer-skipped", "A", None, trainer(29, 30, with_scaler)),
    row("F09", "trainer-scaler-after", "W", "STEP-STATE", trainer(31, 30, with_scaler), commands=("structure",)),
    row("F09", "trainer-state-lost", "W", "SAVE-INCOMPLETE", trainer(30, 30, lost("trainer_state.json")), commands=("structure",)),
    *[row("F09", name + "-lost", "W", "STATE-PAIR", trainer(30, 30, lost(name + ".pt")), commands=("structure",)) for name in ("optimizer", "scheduler")],
    row("F09", "adapter", "A", None, adapter()),
    row("F09", "adapter-config-lost", "W", "SAVE-INCOMPLETE", adapter(lost("adapter_config.json")), commands=("structure",)),
    row("F08", "veomni", "A", None, veomni(STEP)),
    row("F08", "veomni-weights-lost", "R", "FILE-MISSING", veomni(STEP, lost("model/ckpt/__1_0.distcp"))),
    row("F08", "veomni-weights-cut", "R", "FILE-SHORT", veomni(STEP, cut("model/optimizer/__1_0.distcp"))),
    row("F08", "veomni-weights-of-another", "R", "FILE-SHORT", veomni(STEP, replaced("model/optimizer/__1_0.distcp", "dcp-fsdp2/__1_0.distcp"))),
    row("F08", "veomni-rank-lost", "W", "FILE-OF-SET", veomni(STEP, lost("loader/rank_1.pt"))),
    row("F08", "veomni-rank-extra", "W", "RANK-MIXED", veomni(STEP.replace(b": 2", b": 1"))),
    row("F08", "veomni-rank-cut", "R", "SIDE-UNREAD", veomni(STEP, cut("extra_state/rank_1.pt")), commands=("structure",)),
    row("F08", "veomni-step-of-another", "W", "STEP-NAME", veomni(STEP.replace(b": 3", b": 4")), commands=("structure",)),
    row("F08", "veomni-manifest-lost", "W", "SAVE-INCOMPLETE", veomni(STEP, lost("checkpoint_manifest.json")), commands=("structure",)),
    row("F08", "veomni-manifest-cut", "R", "SIDE-UNREAD", veomni(STEP[:-9]), commands=("structure",)),
    *[row("F08", "veomni-manifest-" + name, "A", None, veomni(text)) for name, text in MANIFESTS.items()],
    *[row("F09", "compressed-" + name, "U", "NO-CHECKPOINT", bytes_of("ep0-ba10-rank0.pt." + name, data), says=(says,))
      for name, (data, says) in COMPRESSED.items()],
    row("F09", "compressed-folder", "U", "SRC-FOREIGN", files("ep0-ba10-rank0.pt.zst"),
        commands=("inspect", "structure", "consolidate", "reshard", "digest"), expect={"structure": 4}),
    foreign("orbax", "_CHECKPOINT_METADATA", "d/0"),
    foreign("ocdbt", "manifest.ocdbt", "d/0"),
    foreign("zarr", "a/.zarray", "a/0.0"),
    foreign("zarr-3", "a/zarr.json", "a/c/0"),
    foreign("colossal", "pytorch_model-stage-00001-shard-00001.bin", "pytorch_model-stage-00002-shard-00001.bin"),
    foreign("nanotron", "model/model/final_layer_norm/pp_block/model_weight.safetensors"),
    foreign("nanotron-model", "model/decoder/0/pp_block/attn/qkv_proj/model_weight.safetensors"),
    foreign("vescale", "model/.metadata", "optimizer/pp_0/.metadata"),
]
