"""Faults in an exported folder, one at a time: verify --like BASE finds each and names it, and finds nothing else."""

import json
import os
import re
import shutil

import torch
from safetensors.torch import load_file, save_file

from support import check

INDEX, WEIGHTS = "model.safetensors.index.json", "model.safetensors"


class Export:
    """A copy of a folder, of which a fault changes tensors, index or config.json."""

    def __init__(self, setting, folder):
        self.path = setting.path("faulty")
        shutil.rmtree(self.path, ignore_errors=True)
        shutil.copytree(folder, self.path)
        os.remove(os.path.join(self.path, "fsdpck-manifest.json"))  # a copy of the model seldom has it
        with open(os.path.join(self.path, INDEX), encoding="utf-8") as text:
            self.index = json.load(text)
        self.names = sorted(self.index["weight_map"])

    def file_of(self, name):
        return os.path.join(self.path, self.index["weight_map"][name])

    def set(self, name, tensor):
        """None removes it. A new name goes into the first file."""
        if tensor is None or name in self.index["weight_map"]:
            path = self.file_of(name)
        else:
            path = self.file_of(self.names[0])
        tensors = load_file(path)
        tensors.pop(name, None)
        self.index["weight_map"].pop(name, None)
        if tensor is not None:
            tensors[name] = tensor.contiguous()
            self.index["weight_map"][name] = os.path.basename(path)
        if not tensors:  # an empty file is another fault
            return self.set_from_another(path)
        save_file(tensors, path, metadata={"format": "pt"})
        every = [self.get(other) for other in self.index["weight_map"]]
        self.index["metadata"] = {"total_size": sum(t.nbytes for t in every),
                                  "total_parameters": sum(t.numel() for t in every)}
        self.write_index()

    def set_from_another(self, path):
        """Moves a tensor into the file."""
        files = list(self.index["weight_map"].values())
        name = next(n for n, file in self.index["weight_map"].items() if files.count(file) > 1)
        tensor = self.get(name)
        self.set(name, None)
        self.index["weight_map"][name] = os.path.basename(path)
        save_file({name: tensor}, path, metadata={"format": "pt"})
        self.set(name, tensor)

    def get(self, name):
        return load_file(self.file_of(name))[name]

    def write_index(self):
        with open(os.path.join(self.path, INDEX), "w", encoding="utf-8") as text:
            json.dump(self.index, text)

    def config(self):
        with open(os.path.join(self.path, "config.json"), encoding="utf-8") as text:
            return json.load(text)

    def set_config(self, key, value):
        config = self.config()
        (config if key in config else config["text_config"])[key] = value
        with open(os.path.join(self.path, "config.json"), "w", encoding="utf-8") as text:
            json.dump(config, text)

    def embedding(self):
        return next(name for name in self.names if name.endswith(("embed_tokens.weight", "embeddings.weight")))

    def join(self):
        """Into one file, without an index."""
        tensors = {name: self.get(name) for name in self.names}
        for name in {self.file_of(name) for name in self.names}:
            os.remove(name)
        os.remove(os.path.join(self.path, INDEX))
        save_file(tensors, os.path.join(self.path, WEIGHTS), metadata={"format": "pt"})


# Each returns (findings, text that the report holds); None: it does not apply to the folder.

def lost_expert(export):
    """All that a layer has of its expert 1; of fused experts, one tensor."""
    lost = [name for name in export.names if ".experts.1." in name] or [n for n in export.names if ".experts." in n]
    if not lost:
        return None
    layer = lost[0].split(".experts.")[0]
    lost = [name for name in lost if name.startswith(layer)][:None if ".experts.1." in lost[0] else 1]
    for name in lost:
        export.set(name, None)
    return ["EXPORT-KEYS"], lost


def lost_tensor(export):
    name = export.names[len(export.names) // 2]
    export.set(name, None)
    return ["EXPORT-KEYS"], [name]


def extra_key(export):
    export.set("model.layers.0.extra.weight", torch.ones(2, 3))
    return ["EXPORT-KEYS"], ["model.layers.0.extra.weight"]


def wrong_dtype(export):
    name = export.names[-1]
    export.set(name, export.get(name).half())
    return ["EXPORT-DTYPE"], [name, "float16"]


def wrong_kind(export):
    name = export.names[1]
    export.set(name, export.get(name).to(torch.int32))
    return ["EXPORT-DTYPE"], [name, "int32"]


def ghost_entry(export):
    export.index["weight_map"]["model.ghost.weight"] = os.path.basename(export.file_of(export.names[0]))
    export.write_index()
    return ["IDX-TENSOR"], ["model.ghost.weight"]


def stale_file(export):
    shutil.copy(export.file_of(export.names[0]), os.path.join(export.path, "consolidated.safetensors"))
    return ["IDX-EXTRA"], ["consolidated.safetensors"]


def stale_beside_one(export):
    """Without an index, loaders read every file."""
    export.join()
    shutil.copy(os.path.join(export.path, WEIGHTS), os.path.join(export.path, "consolidated.safetensors"))
    return ["IDX-EXTRA"], ["consolidated.safetensors"]


def untied_head(export):
    """A head with other bytes than the embedding to which config.json ties it."""
    if not export.config().get("tie_word_embeddings"):
        return None
    export.set("lm_head.weight", export.get(export.embedding()) + 1)
    return ["TIE-DIFFERS"], ["lm_head.weight", export.embedding()]


def lost_head(export):
    """Of a model that config.json does not tie."""
    if export.config().get("tie_word_embeddings") or "lm_head.weight" not in export.names:
        return None
    export.set("lm_head.weight", None)
    return ["EXPORT-KEYS"], ["lm_head.weight"]


def wrong_vocab_size(export):
    size = export.get(export.embedding()).shape[0]
    export.set_config("vocab_size", size + 3)
    return ["EXPORT-CONFIG"], ["vocab_size", export.embedding(), str(size + 3)]


def padded_embedding(export):
    name = export.embedding()
    embedding = export.get(name)
    export.set(name, torch.cat([embedding, torch.zeros(3, embedding.shape[1])]))
    return ["EXPORT-CONFIG", "EXPORT-SHAPE"], [name, "vocab_size"]


FAULTS = (lost_expert, lost_tensor, extra_key, wrong_dtype, wrong_kind, ghost_entry, stale_file, stale_beside_one,
          untied_head, lost_head, wrong_vocab_size, padded_embedding)


def check_faults(setting, label, folder, base):
    """Returns the names of the faults that applied. BASE has unrelated values, which are not compared here."""
    options = ["--strict", "--no-nearness", "--like", base]
    setting.run("verify", folder, *options)
    joined = Export(setting, folder)
    joined.join()
    setting.run("verify", joined.path, *options)
    planted = []
    for fault in FAULTS:
        export = Export(setting, folder)
        expected = fault(export)
        if expected is None:
            continue
        what = "%s, %s" % (label, fault.__name__)
        done = setting.run("verify", export.path, *options, expected=1)
        found = sorted(set(re.findall(r"\[([A-Z]+-[A-Z0-9-]+)\]", done.stdout)))
        check(found == expected[0], "%s: %s: %s" % (what, found, done.stdout))
        for text in expected[1]:
            check(text in done.stdout, "%s: '%s' is not named: %s" % (what, text, done.stdout))
        planted.append(fault.__name__)
    return planted
