"""Manifests: digests and checksums as torch and Python compute them, whatever the format and however the state is cut;
folders with a manifest in them load everywhere."""

import argparse
import glob
import hashlib
import json
import os

import torch

from checkpoint_truth import crc64, dtype_name, seeded, tensor_digest
from support import case, check, check_same_names, check_same_tensors, load_file, load_hf, load_pt

NAME = "fsdpck-manifest.json"


def make_state():
    state = {"embed.weight": seeded("embed", (11, 6)), "up.weight": seeded("up", (16, 6), torch.bfloat16),
             "down.weight": seeded("down", (6, 16)), "conv.weight": seeded("conv", (5, 4, 3, 3)),
             "norm.weight": torch.ones(6), "bias": seeded("bias", (7,), torch.float16),
             "count": torch.tensor(7), "empty": torch.zeros(0, 3), "mask": torch.tensor([[True, False, True]])}
    state["transposed"] = seeded("turned", (9, 5)).t()
    return state


def read_manifest(path):
    with open(path) as f:
        manifest = json.load(f)
    check((manifest["schema"], manifest["version"], manifest["checksum"]) == ("fsdpck-manifest", 1, "crc64-xz"),
          "head of " + path)
    return manifest


def check_tensors(manifest, state, what):
    listed = {t["name"]: t for t in manifest["tensors"]}
    check_same_names(listed, state, what)
    for name, tensor in state.items():
        t = listed[name]
        check(t["dtype"] == dtype_name(tensor.dtype) and t["shape"] == list(tensor.shape), "%s: type of %s" % (what, name))
        check(t["digest"] == tensor_digest(tensor), "%s: digest of %s" % (what, name))
    lines = ["%s  %s[%s]  %s\n" % (t["digest"], t["dtype"], ",".join(map(str, t["shape"])), t["name"])
             for t in sorted(manifest["tensors"], key=lambda t: t["name"].encode())]
    check(manifest["digest"] == "%016x" % crc64("".join(lines).encode()), "digest of the list of " + what)


def check_files(manifest, folder, names=None):
    listed = {f["name"]: f for f in manifest["files"]}
    if names is None:
        names = {os.path.relpath(os.path.join(at, name), folder)
                 for at, _, files in os.walk(folder) for name in files} - {NAME}
    check_same_names(listed, names, folder)
    for name, f in listed.items():
        with open(os.path.join(folder, name), "rb") as data:
            data = data.read()
        check(f["nbytes"] == len(data) and f["crc64"] == "%016x" % crc64(data), "sums of " + name)
        if "sha256" in f:
            check(f["sha256"] == hashlib.sha256(data).hexdigest(), "SHA-256 of " + name)


def save_source(setting):
    state = make_state()
    torch.save(state, setting.path("in.pt"))
    return state, setting.path("in.pt")


def load_dcp(folder, state):
    import torch.distributed.checkpoint as dcp
    loaded = {name: torch.zeros_like(tensor).contiguous() for name, tensor in state.items()}
    dcp.load(loaded, checkpoint_id=folder)
    return loaded


@case(first=(2, 3))
def case_manifest_folders(setting):
    """Every folder format: sums, digests, and torch or safetensors load it with the manifest in it."""
    state, source = save_source(setting)
    runs = {"hf": ["consolidate"], "shards": ["consolidate", "--max-shard-size", "900"], "whole": ["consolidate", "--format", "dcp"]}
    for ranks in (1, 3, 8):
        runs["on%d" % ranks] = ["reshard", "--format", "dcp", "--world-size", str(ranks)]
    runs["columns"] = ["reshard", "--format", "dcp", "--mesh", "fsdp=3,tp=2", "--shard", "*down.weight=1", "--shard", "conv*=1"]
    runs["replicated"] = ["reshard", "--format", "dcp", "--mesh", "dp_replicate=2,dp_shard=3"]
    runs["files"] = ["reshard", "--format", "pt-ranks", "--world-size", "4"]
    runs["st"] = ["reshard", "--format", "dcp-safetensors", "--world-size", "3"]
    for name, words in runs.items():
        folder = setting.path(name)
        setting.run(words[0], source, folder, *words[1:], "--sha256")
        manifest = read_manifest(os.path.join(folder, NAME))
        check_tensors(manifest, state, name)
        check_files(manifest, folder)
        setting.run("verify", "--level", "checksum", "--sha256", "--require-checksums", "--strict", folder)
        setting.run("verify", "--expect", source, folder)
        if name in ("hf", "shards"):
            check_same_tensors(load_hf(folder)[0], state, name)
        elif name not in ("files", "st"):
            check_same_tensors(load_dcp(folder, state), state, name)


@case()
def case_manifest_single_files(setting):
    state, source = save_source(setting)
    for name in ("out.safetensors", "out.pt"):
        setting.run("consolidate", source, setting.path(name), "--manifest", setting.path(name + ".manifest"), "--sha256")
        manifest = read_manifest(setting.path(name + ".manifest"))
        check_tensors(manifest, state, name)
        check_files(manifest, setting.folder, [name])
        loaded = load_pt(setting.path(name)) if name.endswith(".pt") else load_file(setting.path(name))
        check_same_tensors(loaded, state, name)
    setting.run("digest", "-q", "--manifest", setting.path("in.manifest"), source)
    manifest = read_manifest(setting.path("in.manifest"))
    check_tensors(manifest, state, "the source")
    check_files(manifest, setting.folder, ["in.pt"])


@case()
def case_manifest_views(setting):
    """Tensors that share a storage, and tied names."""
    base = seeded("base", (6, 8))
    state = {"base": base, "rows": base[2:4], "columns": base[:, 1:3], "turned": base.t(), "tied": base}
    torch.save(state, setting.path("in.pt"))
    for words in ([], ["--tied", "link"]):
        setting.run("consolidate", setting.path("in.pt"), setting.path("out.pt"), "--force", "--manifest",
                    setting.path("out.manifest"), *words)
        check_tensors(read_manifest(setting.path("out.manifest")), state, " ".join(["views"] + words))
        setting.run("verify", "--level", "checksum", "--manifest", setting.path("out.manifest"), setting.path("out.pt"))
    setting.run("consolidate", setting.path("in.pt"), setting.path("hf"), "--dtype", "bf16")
    cast = {name: tensor.to(torch.bfloat16) for name, tensor in state.items()}
    check_tensors(read_manifest(setting.path("hf", NAME)), cast, "cast")


@case()
def case_manifest_views_of_every_shape(setting):
    """Views that are larger than what is read at a time, expanded ones, and single elements."""
    large = torch.arange(2 * 400 * 431, dtype=torch.int32).view(2, 400, 431)
    row = seeded("row", (300,))
    state = {"large": large, "turned": large.permute(2, 0, 1), "columns": large[:, :, 7:419], "thin": large[:, :, 5],
             "steps": large[::2, 3::5, ::7].transpose(0, 2), "row": row, "expanded": row.expand(400, 300),
             "columns_expanded": row[:, None].expand(300, 350), "one": row[17], "end": row[299:], "none": row[9:9]}
    torch.save(state, setting.path("in.pt"))
    setting.run("consolidate", setting.path("in.pt"), setting.path("out.pt"), "--manifest", setting.path("out.manifest"))
    check_tensors(read_manifest(setting.path("out.manifest")), state, "views")


@case()
def case_manifest_views_in_objects(setting):
    """A rule that names an object alone, and tensors inside an object that share a storage with others."""
    base = seeded("base", (6, 8))
    model = {"w": base, "turned": base.t()}
    out, manifest = setting.path("out.pt"), setting.path("out.manifest")
    torch.save({"model": model, "extra": argparse.Namespace(u=base[1:3])}, setting.path("in.pt"))
    setting.run("consolidate", setting.path("in.pt"), out, "--part", "all", "--objects", "opaque", "--rename", "s/^extra/other/",
                "--manifest", manifest)
    check_tensors(read_manifest(manifest), {"model.w": base, "model.turned": base.t()}, "renamed object")
    torch.save({"model": model, "lists": [base[:, 3], "text"], "extra": (base[1:3], {"s": base[5]}, "text")}, setting.path("in.pt"))
    setting.run("consolidate", setting.path("in.pt"), out, "--part", "all", "--rename", "s/s/ss/", "--manifest", manifest, "--force")
    check_tensors(read_manifest(manifest), {"model.w": base, "model.turned": base.t(), "lissts.0": base[:, 3],
                                            "extra.0": base[1:3], "extra.1.s": base[5]}, "tensors in objects")
    setting.run("verify", "--level", "checksum", "--manifest", manifest, out)


@case()
def case_manifest_of_fixtures(setting):
    """What real savers wrote, with a manifest made of it: no finding; with one byte changed: one."""
    for folder in sorted(glob.glob(setting.fixtures + "/torch-2.1*/dcp-fsdp2") + glob.glob(setting.fixtures + "/torch-*/hf-*") +
                         glob.glob(setting.fixtures + "/torch-*/ranks-dtensor")):
        if not os.path.isdir(folder) or folder.endswith("hf-snapshot"):  # that is entered
            continue
        out = setting.path("manifest")
        setting.run("digest", "-q", "--manifest", out, "--force", folder)
        check_files(read_manifest(out), folder, [f["name"] for f in read_manifest(out)["files"]])
        setting.run("verify", "--level", "checksum", "--manifest", out, folder)


@case(first=(2, 3))
def case_manifest_finds_swapped_shards(setting):
    torch.save({"w": seeded("w", (8, 4))}, setting.path("in.pt"))
    folder = setting.path("out")
    setting.run("reshard", setting.path("in.pt"), folder, "--format", "dcp", "--world-size", "2")
    names = [os.path.join(folder, "__%d_0.distcp" % rank) for rank in range(2)]
    texts = [open(name, "rb").read() for name in names]
    check(len(texts[0]) == len(texts[1]), "shards are of two sizes")
    for name, text in zip(names, reversed(texts)):
        with open(name, "wb") as f:
            f.write(text)
    check(not torch.equal(load_dcp(folder, {"w": torch.zeros(8, 4)})["w"], seeded("w", (8, 4))), "torch sees no difference")
    done = setting.run("verify", folder)
    check("swapped" in done.stdout, "the report does not say what it cannot see")
    done = setting.run("verify", "--level", "checksum", folder, expected=1)
    check("__0_0.distcp" in done.stdout and "tensor:   w" in done.stdout, "file and tensor are not named: " + done.stdout)
