"""Folders of all trainers that save with torch alone: the good ones are silent and name the trainer; one lost file, one cut file, one
file of another save is found. Those of DeepSpeed and Megatron-Core are in their own cases."""

import fnmatch
import json
import os
import pickle
import shutil

import torch

from cases_reshard import make_model, states_of, step
from support import LEVELS, case, check, check_good

# Ranks, steps: an older step of the same run; the save; one of another run.
OLDER, GOOD, OTHER = (2, 2), (2, 3), (3, 4)


class Save:
    """What a rank saves, and how."""

    def __init__(self, root, model, optimizer, steps):
        import torch.distributed as dist
        from torch.distributed.checkpoint.state_dict import StateDictOptions, get_optimizer_state_dict
        self.root, self.steps, self.rank, self.world = root, steps, dist.get_rank(), dist.get_world_size()
        states = states_of(model, optimizer)
        self.model, self.optim = states["model"], states["optim"]
        self.flat = get_optimizer_state_dict(model, optimizer, options=StateDictOptions(flatten_optimizer_state_dict=True))
        self.whole = {name: t.full_tensor() if hasattr(t, "full_tensor") else t for name, t in self.model.items()}
        self.numbered = {"state": {i: {"exp_avg": t * 0.5} for i, t in enumerate(self.whole.values()) if t.is_floating_point()},
                         "param_groups": [{"lr": 0.5, "params": [i for i, t in enumerate(self.whole.values()) if t.is_floating_point()]}]}

    def path(self, name):
        made = os.path.join(self.root, name)
        os.makedirs(os.path.dirname(made), exist_ok=True)
        return made

    def dcp(self, name, state, **options):
        import torch.distributed.checkpoint as dcp
        dcp.save(state, checkpoint_id=None if options else self.path(name).rstrip("/"), **options)

    def each(self, name, state):
        """A file of each rank."""
        torch.save(state, self.path(name % self.rank))

    def once(self, name, state):
        if self.rank == 0:
            torch.save(state, self.path(name))

    def text(self, name, text):
        if self.rank == 0:
            with open(self.path(name), "w" if isinstance(text, str) else "wb") as f:
                f.write(text)

    def pickled(self, name, state):
        with open(self.path(name % self.rank), "wb") as f:
            pickle.dump(state, f)


def state_of_rank(s):
    return {"step": s.steps, "rng": torch.full((16,), s.rank + s.steps, dtype=torch.uint8)}


def save_accelerate(s):
    """save_fsdp_model and save_fsdp_optimizer, SHARDED_STATE_DICT; save_accelerator_state."""
    s.dcp("pytorch_model_fsdp_0", {"model": s.model})
    s.dcp("optimizer_0", {"optimizer": s.optim})
    s.once("scheduler.bin", {"last_epoch": s.steps})
    s.pickled("random_states_%d.pkl", {"step": s.steps, "random_state": list(range(50))})


def save_transformers(s):
    """Trainer._save_checkpoint with FSDP, SHARDED_STATE_DICT."""
    s.dcp("pytorch_model_fsdp_0", {"model": s.model})
    s.dcp("optimizer_0", {"optimizer": s.optim})
    save_transformers_state(s)


def save_transformers_state(s):
    s.once("scheduler.pt", {"last_epoch": s.steps})
    s.once("training_args.bin", {"lr": 0.5})
    s.each("rng_state_%d.pth", state_of_rank(s))
    s.text("trainer_state.json", json.dumps({"global_step": s.steps, "log_history": []}))


def save_transformers_full(s):
    """FULL_STATE_DICT: accelerate's names."""
    s.once("pytorch_model_fsdp.bin", s.whole)
    s.once("optimizer.bin", s.numbered)
    save_transformers_state(s)


def save_local(s):
    """accelerate's LOCAL_STATE_DICT without DCP."""
    s.each("pytorch_model_fsdp_0_rank%d.bin", s.model)
    s.each("optimizer_0_rank%d.bin", s.optim)


def save_torchtitan(s, ema=False):
    """CheckpointManager.states; torchtitan#3985 for the average."""
    more = {"ema_params." + name: value for name, value in s.model.items()} if ema else {}
    s.dcp("", {**s.model, "optimizer": {**s.flat, **more}, "lr_scheduler": {"last_epoch": s.steps},
               "train_state": {"step": torch.tensor(s.steps)}, "dataloader": {"dp_rank_%d" % s.rank: b"abc"}})


def save_torchtitan_ema(s):
    save_torchtitan(s, True)


def save_verl(s):
    """FSDPCheckpointManager.save_checkpoint."""
    for part, state in (("model", s.model), ("optim", s.optim), ("extra_state", state_of_rank(s))):
        s.each("actor/%s_world_size_%d_rank_%%d.pt" % (part, s.world), state)
    s.text("actor/fsdp_config.json", json.dumps({"FSDP_version": 2, "world_size": s.world}))
    s.text("actor/huggingface/config.json", json.dumps({"torch_dtype": "float32"}))


def lightning_state(s, with_release=True):
    return {"epoch": 1, "global_step": s.steps, **({"pytorch-lightning_version": "2.6.6"} if with_release else {}),
            "loops": {"fit_loop": {"n": [1, 2]}}, "lr_schedulers": [{"last_epoch": s.steps}]}


def save_lightning(s):
    """FSDPStrategy.save_checkpoint."""
    s.dcp("", {"model": s.model, "optimizer_0": s.optim})
    s.once("meta.pt", lightning_state(s))


def save_lightning_parallel(s):
    """ModelParallelStrategy.save_checkpoint."""
    s.dcp("", {"state_dict": s.model, "optimizer_0": s.optim})
    s.once("meta.pt", lightning_state(s))


def save_fabric(s):
    s.dcp("", {"net": s.model, "optimizer": s.optim})
    s.once("meta.pt", {"iteration": s.steps})


def save_olmo(s):
    """Checkpointer.save of OLMo-core."""
    s.dcp("model_and_optim", {"model": s.model, "optim": s.optim})
    s.each("train/rank%d.pt", state_of_rank(s))
    s.text("config.json", json.dumps({"run_name": "mine"}))
    s.text(".metadata.json", json.dumps({"version": "2.0"}))


def save_veomni(s):
    """veomni/checkpoint/layout.py of 2026."""
    s.dcp("model/ckpt", {"model": s.model})
    s.dcp("model/optimizer", {"optimizer": s.optim})
    s.once("model/lr_scheduler.pt", {"last_epoch": s.steps})
    s.each("loader/rank_%d.pt", {"at": s.steps})
    s.each("extra_state/rank_%d.pt", state_of_rank(s))
    s.text("checkpoint_manifest.json", json.dumps({"format_version": 1, "global_step": s.steps, "world_size": s.world, "modules": []}))


def save_veomni_0_1(s):
    s.dcp("", {"model": s.model, "optimizer": s.optim})
    s.each("extra_state/extra_state_rank_%d.pt", state_of_rank(s))


def save_veomni_0_2(s):
    s.dcp("", {"model": s.model, "optimizer": s.optim})
    s.each("trainer_state_rank_%d.pt", state_of_rank(s))


def composer_state(model, optimizer, s):
    return {"state": {"model": model, "optimizers": {"DecoupledAdamW": optimizer}, "rank_zero_seed": 3, "run_name": "mine"}, "rng": [s.steps]}


def save_composer(s):
    """Composer 0.32, sharded."""
    s.dcp("", composer_state(s.model, s.optim, s))


def save_composer_pair(s):
    """composer.checkpoint.save_checkpoint_to_disk."""
    s.dcp("model", s.model)
    s.dcp("optim", s.optim)
    s.text("composer_metadata.json", json.dumps({"composer_version": "0.32.1"}))
    s.text("resumption.pkl", pickle.dumps({"timestamp": list(range(50))}))


def save_composer_one(s):
    """Composer 0.32, not sharded."""
    s.once("ep0-ba10-rank0.pt", composer_state(s.whole, s.numbered, s))


def save_slime(s):
    """save() of slime's fsdp_utils/checkpoint.py; miles is alike."""
    s.dcp("model", {"model_state": {"model": s.model}})
    s.dcp("optimizer", {"optim_state": {"optim": s.optim}})
    s.dcp("lr_scheduler", {"lr_scheduler_state": {"last_epoch": s.steps}})
    s.once("rng.pt", state_of_rank(s))


def save_torchtune(s):
    """DistributedCheckpointer of torchtune 0.6.1."""
    s.dcp("", {"model": s.model, "optim": s.optim, "epochs_run": s.steps})


def save_torchtune_files(s):
    """FullModelHFCheckpointer of torchtune 0.6.1."""
    from safetensors.torch import save_file
    if s.rank == 0:
        names = sorted(s.whole)
        of = {name: "model-%05d-of-00002.safetensors" % (1 + (i >= len(names) // 2)) for i, name in enumerate(names)}
        for file in sorted(set(of.values())):
            save_file({name: s.whole[name].contiguous() for name in names if of[name] == file}, s.path(file), {"format": "pt"})
        s.text("model.safetensors.index.json", json.dumps({"metadata": {}, "weight_map": of}))
        s.text("config.json", json.dumps({"model_type": "mine"}))
        s.once("../recipe_state/recipe_state.pt", {"optimizer": s.numbered, "epochs_run": s.steps})


def save_automodel(s):
    """NeMo Automodel 0.7, safetensors."""
    from torch.distributed.checkpoint import HuggingFaceStorageWriter
    os.makedirs(s.path("model"), exist_ok=True)
    s.dcp("", s.model, storage_writer=HuggingFaceStorageWriter(s.path("model"), save_distributed=True))
    s.text("model/.hf_metadata/config.json", json.dumps({"model_type": "mine"}))
    s.text("model/.hf_metadata/fqn_to_file_index_mapping.json", json.dumps({name: 1 for name in s.model}))
    s.dcp("optim", {"optim": s.flat})
    s.text("config.yaml", "step: %d\n" % s.steps)


def save_automodel_torch(s):
    s.dcp("model", s.model)
    s.dcp("optim", {"optim": s.flat})


def save_experimental(s):
    """torch.distributed.checkpoint._experimental."""
    s.each("checkpoint_%d.pt", {"model": s.model, "optim": s.optim})


# Of each row: the folder of a step, the trainer that inspect names ("": torch itself, or a name that it has from nobody).
TRAINERS = {
    "accelerate": (save_accelerate, "checkpoint_%d", "accelerate"),
    "transformers": (save_transformers, "checkpoint-%d", "accelerate"),
    "transformers-full": (save_transformers_full, "checkpoint-%d", "transformers"),
    "accelerate-local": (save_local, "checkpoint_%d", "accelerate"),
    "torchtitan": (save_torchtitan, "step-%d", "torchtitan"),
    "torchtitan-ema": (save_torchtitan_ema, "step-%d", "torchtitan"),
    "verl": (save_verl, "global_step_%d", "verl"),
    "lightning": (save_lightning, "epoch=1-step=%d.ckpt", "lightning"),
    "lightning-parallel": (save_lightning_parallel, "epoch=1-step=%d.ckpt", "lightning"),
    "fabric": (save_fabric, "step-%d", "lightning"),
    "olmo": (save_olmo, "step%d", "olmo-core"),
    "veomni": (save_veomni, "global_step_%d", "veomni"),
    "veomni-0.1": (save_veomni_0_1, "global_step_%d", "veomni"),
    "veomni-0.2": (save_veomni_0_2, "global_step_%d", "veomni"),
    "composer": (save_composer, "ep0-ba%d", "composer"),
    "composer-pair": (save_composer_pair, "ep0-ba%d", "composer"),
    "composer-one": (save_composer_one, "ep0-ba%d", "composer"),
    "slime": (save_slime, "iter_%07d", "slime"),
    "torchtune": (save_torchtune, "dist_epoch_%d", "torchtune"),
    "torchtune-files": (save_torchtune_files, "epoch_%d", "torchtune"),
    "automodel": (save_automodel, "epoch_0_step_%d", "automodel"),
    "automodel-torch": (save_automodel_torch, "epoch_0_step_%d", "automodel"),
    "experimental": (save_experimental, "step-%d", ""),
}
OPTIONAL = "the trainer loads a step without it; latest compares the step with older ones"
NO_RECORD = "the file has no mark of its save; a manifest shows it"
WHOLE = "all weights of another save of the same model; a manifest shows it"
# What nothing in the folder shows, by trainer and file: (faults, reason). Every file of an older step is found with a manifest, and
# latest notices a lost file that is OPTIONAL.
SILENT = {
    ("accelerate", "scheduler.bin"): (("lost",), OPTIONAL),
    ("transformers*", "training_args.bin"): (("lost",), OPTIONAL),
    ("verl", "actor/fsdp_config.json"): (("lost",), OPTIONAL),
    ("verl", "actor/huggingface/config.json"): (("lost",), OPTIONAL),
    ("fabric", "meta.pt"): (("lost",), OPTIONAL),
    ("olmo", "config.json"): (("lost",), OPTIONAL),
    ("veomni", "model/lr_scheduler.pt"): (("lost",), OPTIONAL),
    ("composer-pair", "composer_metadata.json"): (("lost",), OPTIONAL),
    ("composer-pair", "resumption.pkl"): (("lost",), OPTIONAL),
    ("slime", "rng.pt"): (("lost",), OPTIONAL),
    ("torchtune-files", "config.json"): (("lost",), OPTIONAL),
    ("accelerate", "scheduler.bin "): (("other",), NO_RECORD),
    ("accelerate", "random_states_*.pkl"): (("other",), NO_RECORD),
    ("transformers*", "rng_state_*.pth"): (("other",), NO_RECORD),
    ("transformers*", "scheduler.pt "): (("other",), NO_RECORD),
    ("fabric", "meta.pt "): (("other",), NO_RECORD),
    ("olmo", "train/rank*.pt"): (("other",), NO_RECORD),
    ("veomni", "*/*.pt"): (("other",), NO_RECORD),
    ("veomni-0.1", "extra_state/*.pt"): (("other",), NO_RECORD),
    ("veomni-0.2", "trainer_state_rank_*.pt"): (("other",), NO_RECORD),
    ("slime", "rng.pt "): (("other",), NO_RECORD),
    ("slime", "lr_scheduler/*.distcp"): (("other",), NO_RECORD),
    ("transformers-full", "*.bin"): (("other",), WHOLE),
    ("composer-one", "*.pt"): (("other",), WHOLE),
    ("torchtune-files", "model-*.safetensors"): (("other",), WHOLE),
    ("transformers-full", "rng_state_1.pth"): (("lost",), "the file of the last rank; nothing else counts the ranks"),
    ("slime", "lr_scheduler/__1_0.distcp"): (("lost", "cut"), "the rank wrote nothing into it"),
    ("automodel", "config.yaml"): (("lost", "cut", "other"), "settings in a form that fsdpck does not read"),
    ("automodel", "model/.hf_metadata/*"): (("lost",), "config and tokenizer; nothing lists them"),
}


def rank_save(folders, steps):
    model, optimizer = make_model((torch.distributed.get_world_size(),), ("fsdp",))
    for _ in range(steps):
        step(model, optimizer)
    for name, folder in folders.items():
        TRAINERS[name][0](Save(folder, model, optimizer, steps))
        torch.distributed.barrier()


def save_all(setting, ranks, steps, where):
    from process_group import run_ranks
    folders = {name: setting.path(where, name, pattern % steps) for name, (_, pattern, _) in TRAINERS.items()}
    for folder in folders.values():
        os.makedirs(folder)
    run_ranks(ranks, rank_save, folders, steps)
    return folders


def files_of(folder):
    return sorted(os.path.relpath(os.path.join(where, name), folder) for where, _, names in os.walk(folder) for name in names)


def findings(setting, *words):
    """What verify reports but for notes; the finding of an error that ends it."""
    done = setting.run("verify", "--json", *words, expected=None)
    report = json.loads(done.stdout)
    found = [f["finding"] for f in report["findings"] if f["severity"] != "note" and f["finding"] != "RANKS-UNKNOWN"]
    return found or ([report["error"].get("finding", report["error"]["message"])] if done.returncode not in (0, 1) else [])


def is_optional(name, file):
    return any(reason == OPTIONAL and fnmatch.fnmatch(name, n) and fnmatch.fnmatch(file, f) for (n, f), (_, reason) in SILENT.items())


def is_silent(name, file, fault):
    return any(fnmatch.fnmatch(name, n) and fnmatch.fnmatch(file, f.strip()) and fault in faults for (n, f), (faults, _) in SILENT.items())


class Faults:
    """One file at a time, in a copy of the folder."""

    def __init__(self, setting, name, saves):
        self.setting, self.name, self.wrong = setting, name, []
        self.older, self.good, self.other = (save[name] for save in saves)
        self.manifest = setting.path(name + ".json")

    def expect(self, file, fault, *words):
        found = findings(self.setting, "--level", "checksum", self.good, *words)
        if bool(found) == is_silent(self.name, file, fault):
            self.wrong.append("%s %s: %s" % (fault, file, found or "not found"))

    def try_file(self, file):
        path = os.path.join(self.good, file)
        with open(path, "rb") as f:
            content = f.read()
        os.remove(path)
        self.expect(file, "lost")
        if is_optional(self.name, file):
            done = self.setting.run("latest", os.path.dirname(self.good), expected=None)
            if done.stdout.strip() == self.good and "LATEST-PARTS" not in done.stderr:
                self.wrong.append("lost %s: not noticed by latest: %s" % (file, done.stderr))
        with open(path, "wb") as f:
            f.write(content[:len(content) * 2 // 3])
        self.expect(file, "cut")
        for fault, folder, words in (("other", self.other, ()), ("older", self.older, ("--manifest", self.manifest))):
            source = os.path.join(folder, file)
            if not os.path.exists(source):
                continue
            with open(source, "rb") as f:
                foreign = f.read()
            if foreign == content:
                continue
            with open(path, "wb") as f:
                f.write(foreign)
            self.expect(file, fault, *words)
        with open(path, "wb") as f:
            f.write(content)


@case(first=(2, 15))
def case_trainer_faults(setting):
    saves = [save_all(setting, *save, where) for save, where in ((OLDER, "run"), (GOOD, "run"), (OTHER, "other"))]
    wrong = []
    for name, (_, _, trainer) in TRAINERS.items():
        folder = saves[1][name]
        check_good(setting, folder, levels=LEVELS)
        told = json.loads(setting.run("inspect", "--json", folder).stdout)["source"].get("trainer", "")
        check(told == trainer, "%s is named '%s'" % (name, told))
        faults = Faults(setting, name, saves)
        setting.run("digest", "-q", folder, "--manifest", faults.manifest)
        for file in files_of(folder):
            faults.try_file(file)
        wrong += ["%s: %s" % (name, line) for line in faults.wrong]
        check(findings(setting, folder) == [], name + " is not restored")
    check(not wrong, "\n".join(wrong))
