"""Every fixture, committed and made afresh by the running torch, into .pt and into safetensors."""

import glob
import os

from checkpoint_truth import read_digests
from make_fixtures import fixed_save_id, gather_cases
from release import RELEASE
from support import CASES, check_good, check_to_pt, check_to_safetensors, fixture_source

import torch


def can_load(stem):
    """Whether the running torch has every dtype of the fixture, and can load it: bits dtypes exist since 2.1,
    which cannot save or load them yet."""
    dtypes = {label.split("[")[0] for _, label in read_digests(stem + ".digests").values()}
    if any(d.startswith("bits") for d in dtypes) and RELEASE < (2, 2):
        return False
    return all(hasattr(torch, d) for d in dtypes)


def reading_options(name, stem):
    """What a user must say for a checkpoint that torch recorded wrongly, or not at all."""
    if os.path.exists(stem + ".units.json"):
        return ["--model", stem + ".units.json", "--assume", "order"]
    if name == "fairscale":
        return ["--assume", "order"]
    if name.startswith("wrong-boxes"):
        return ["--repair-strided"]
    return ["--assume", "fsdp2-tp-2.3"] if name.endswith("wrong-order") else []


# What default conversions refuse of good checkpoints: an option or another format takes it.
CHOICES = ("KEY-DTYPE", "MODEL-NEEDED", "RANK-DIFFER", "RANK-FLAT")


def check_both(setting, stem, options):
    check_to_pt(setting, fixture_source(stem), stem, options=options)
    check_to_safetensors(setting, fixture_source(stem), stem, options=options)


def check_committed(stem):
    return lambda setting: check_both(setting, stem, reading_options(os.path.basename(stem), stem))


def check_live(name, make):
    def live(setting):
        stem = setting.path("source")
        with fixed_save_id():
            make(stem)
        if os.path.exists(stem + ".digests"):  # else one that cannot be read right: the unit tests' own
            options = reading_options(name, stem)
            if not name.startswith("wrong-"):
                check_good(setting, fixture_source(stem), *options, *("--set=%s=note" % name for name in CHOICES))
            check_both(setting, stem, options)
    return live


def register(fixtures):
    stems = glob.glob(fixtures + "/torch-*/*.digests") + glob.glob(fixtures + "/*.digests")
    for stem in sorted(path[:-len(".digests")] for path in stems):
        if can_load(stem):
            CASES.append(("fixture:" + os.path.relpath(stem, fixtures), check_committed(stem)))
    for name, make in gather_cases().items():
        CASES.append(("live:" + name, check_live(name, make)))
