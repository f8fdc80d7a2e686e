"""Every fixture, committed and made afresh by the running torch, into .pt and into safetensors."""

import glob
import os

from checkpoint_truth import read_digests
from make_fixtures import fixed_save_id, gather_cases
from release import RELEASE
from support import CASES, check_to_pt, check_to_safetensors, fixture_source

import torch


def can_load(stem):
    """Whether the running torch has every dtype of the fixture, and can load it: bits dtypes exist since 2.1,
    which cannot save or load them yet."""
    dtypes = {label.split("[")[0] for _, label in read_digests(stem + ".digests").values()}
    if any(d.startswith("bits") for d in dtypes) and RELEASE < (2, 2):
        return False
    return all(hasattr(torch, d) for d in dtypes)


def check_committed(stem):
    def committed(setting):
        check_to_pt(setting, fixture_source(stem), stem)
        check_to_safetensors(setting, fixture_source(stem), stem)
    return committed


def check_live(make):
    def live(setting):
        stem = setting.path("source")
        with fixed_save_id():
            make(stem)
        check_to_pt(setting, fixture_source(stem), stem)
        check_to_safetensors(setting, fixture_source(stem), stem)
    return live


def register(fixtures):
    stems = glob.glob(fixtures + "/torch-*/*.digests") + glob.glob(fixtures + "/*.digests")
    for stem in sorted(path[:-len(".digests")] for path in stems):
        if can_load(stem):
            CASES.append(("fixture:" + os.path.relpath(stem, fixtures), check_committed(stem)))
    for name, make in gather_cases().items():
        CASES.append(("live:" + name, check_live(make)))
