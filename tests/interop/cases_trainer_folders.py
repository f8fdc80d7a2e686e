"""Folders of trainers that need a GPU or many packages: imitations, file by file, of what their releases write."""

import filecmp
import json
import os
import pickle
import shutil

import torch
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_optimizer_state_dict, get_state_dict

from cases_parts import save_dcp, train
from support import BAD_INPUT, UNSUPPORTED, case, check, check_same_tensors, load_file, load_hf

FOUND = 1  # verify: an error; latest: no complete checkpoint


def write(path, text="{}"):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w" if isinstance(text, str) else "wb") as f:
        f.write(text)


def weights_of(model):
    return {name: value.detach() for name, value in model.state_dict().items()}


def source_of(setting, path):
    return json.loads(setting.run("inspect", "--json", path).stdout)["source"]


def check_model(setting, source, want, name="weights.safetensors"):
    done, path = setting.consolidate(source, name, "--force")
    check_same_tensors(load_file(path), want, source)
    return done


@case(first=(2, 15))
def case_composer_symlink(setting):
    """A file of Composer 0.32 (create_symlink_file): the path of the checkpoint in the object store."""
    model, optimizer = train()
    names, state = get_state_dict(model, optimizer)
    saved = {"state": {"model": names, "optimizers": {"DecoupledAdamW": state}, "rank_zero_seed": 3}, "rng": [1]}
    folder = save_dcp(saved, setting.path("run/checkpoints/ep0-ba10"))
    save_dcp({"state": {"model": names}}, setting.path("run/checkpoints/ep0-ba5"))
    check(source_of(setting, folder)["trainer"] == "composer", "trainer")
    link = setting.path("run/checkpoints/latest-rank0.symlink")
    for text in ("ep0-ba10", "run/checkpoints/ep0-ba10", "bucket/other/ep0-ba10\n"):
        write(link, text)
        done = check_model(setting, link, weights_of(model))
        check("names the checkpoint '%s'" % folder in done.stderr, done.stderr)
    os.symlink("checkpoints/latest-rank0.symlink", setting.path("run/newest.symlink"))
    write(link, "run/checkpoints/ep0-ba10")
    check_model(setting, setting.path("run/newest.symlink"), weights_of(model))
    for text in ("s3://bucket/run/ep0-ba10", folder, "../checkpoints/ep0-ba10", "ep0-ba11", "", "a\0b", "x" * 5000, "\x1b[31m"):
        write(link, text)
        done = setting.run("inspect", link, expected=7 if len(text) > 4096 else BAD_INPUT)
        check(len(text) > 4096 or "LINK-TARGET" in done.stderr, done.stderr)
        check("\x1b" not in done.stderr, "escape")


@case(first=(2, 15))
def case_composer_pair(setting):
    """composer.checkpoint.save_checkpoint_to_disk: the model without an outer key, the optimizer's state and groups."""
    model, optimizer = train()
    names, state = get_state_dict(model, optimizer)
    for folder in ("run/ep0-ba10", "other/ep0-ba10"):
        save_dcp({n: t * (2 if folder[0] == "o" else 1) for n, t in names.items()}, setting.path(folder, "model"))
        save_dcp(state, setting.path(folder, "optim"))
        write(setting.path(folder, "composer_metadata.json"), '{"composer_version": "0.32.1"}')
        write(setting.path(folder, "resumption.pkl"), pickle.dumps({"timestamp": 10}))
    check(source_of(setting, setting.path("run"))["trainer"] == "composer", "trainer")
    check_model(setting, setting.path("run"), weights_of(model))
    told = json.loads(setting.run("inspect", "--json", setting.path("run")).stdout)
    check(told["parts"]["optimizer"]["tensors"] == 12, str(told["parts"]))
    check(setting.run("latest", setting.path("run")).stdout.strip().endswith("ep0-ba10"), "latest")
    os.remove(setting.path("other/ep0-ba10/model/.metadata"))
    setting.run("latest", setting.path("other"), expected=FOUND)


def save_automodel(setting, folder, model, optimizer, factor=1):
    """NeMo Automodel 0.7: ConsolidatedHFAddon's files, torch's HuggingFaceStorageWriter, OptimizerState.state_dict()."""
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint import HuggingFaceStorageWriter
    step = setting.path(folder, "epoch_0_step_9")
    weights = {name: value * factor for name, value in weights_of(model).items()}
    os.makedirs(step + "/model")
    dcp.save(weights, storage_writer=HuggingFaceStorageWriter(step + "/model", save_distributed=True), no_dist=True)
    write(step + "/model/.hf_metadata/config.json", '{"model_type": "mine"}')
    write(step + "/model/.hf_metadata/tokenizer.json")
    write(step + "/model/.hf_metadata/fqn_to_file_index_mapping.json", json.dumps({name: 1 for name in weights}))
    write(step + "/model/consolidate.sh", "#!/bin/bash\n")
    flat = get_optimizer_state_dict(model, optimizer, options=StateDictOptions(flatten_optimizer_state_dict=True))
    save_dcp({"optim": flat}, step + "/optim")
    write(step + "/config.yaml", "step: 9\n")
    os.makedirs(step + "/rng")
    torch.save({"seed": 3}, step + "/rng/rng_global_rank_0.pt")
    return step, weights


@case(first=(2, 15))
def case_automodel(setting):
    model, optimizer = train()
    step, want = save_automodel(setting, "run", model, optimizer)
    other, _ = save_automodel(setting, "other", model, optimizer, 2)
    for source in (setting.path("run"), step):
        told = source_of(setting, source)
        check((told["format"], told["trainer"]) == ("dcp-safetensors", "automodel"), str(told))
        check("the optimizer is in '../optim'" in setting.run("inspect", source).stdout, "note")
        check_model(setting, source, want)
    _, hf = setting.consolidate(step, "hf/", "--source-ranks", "1")
    check_same_tensors(load_hf(hf)[0], want, "hf")
    check(sorted(os.listdir(hf)) == ["config.json", "fsdpck-manifest.json", "model.safetensors", "tokenizer.json"],
          str(os.listdir(hf)))
    check(len(load_file(setting.consolidate(step + "/optim", "optim.safetensors", "--part", "optimizer")[1])) == 12, "optim")
    setting.run("reshard", step + "/model", setting.path("cut"), "--world-size", "2")
    check(sorted(os.listdir(setting.path("cut/.hf_metadata"))) == sorted(os.listdir(step + "/model/.hf_metadata")), "cut")
    check(setting.run("latest", setting.path("run")).stdout.strip() == step, "latest")
    done = setting.run("verify", step)
    check("beside the weights checked too" in done.stdout, done.stdout)
    os.rename(step + "/optim/.metadata", setting.path("metadata"))
    check("SAVE-INCOMPLETE" in setting.run("latest", setting.path("run"), expected=FOUND).stderr, "optim without metadata")
    os.rename(setting.path("metadata"), step + "/optim/.metadata")
    shard = [name for name in os.listdir(step + "/model") if name.endswith(".safetensors")][0]
    with open(os.path.join(step, "model", shard), "r+b") as f:
        f.truncate(os.path.getsize(f.name) - 8)
    setting.run("verify", step, expected=FOUND)
    os.remove(os.path.join(other, "model", shard))
    setting.run("verify", other, expected=FOUND)


@case(first=(2, 15))
def case_automodel_torch_save(setting):
    """Automodel with model_save_format torch_save: two DCP folders."""
    model, optimizer = train()
    flat = get_optimizer_state_dict(model, optimizer, options=StateDictOptions(flatten_optimizer_state_dict=True))
    for folder, factor in (("step", 1), ("other", 2)):
        save_dcp({name: value * factor for name, value in weights_of(model).items()}, setting.path(folder, "model"))
        save_dcp({"optim": flat}, setting.path(folder, "optim"))
    step = setting.path("step")
    check(source_of(setting, step)["trainer"] == "automodel", "trainer")
    check_model(setting, step, weights_of(model))
    check(len(load_file(setting.consolidate(step, "optim.safetensors", "--part", "optimizer")[1])) == 12, "optim")
    shutil.copytree(step, setting.path("cut"))
    os.rename(setting.path("cut/optim/__0_0.distcp"), setting.path("lost"))
    check("FILE-MISSING" in setting.run("verify", setting.path("cut"), expected=FOUND).stdout, "lost")
    with open(setting.path("lost"), "rb") as whole:
        write(setting.path("cut/optim/__0_0.distcp"), whole.read()[:-2000])
    setting.run("verify", setting.path("cut"), expected=FOUND)
    with open(setting.path("other/model/.metadata"), "rb") as f:
        write(setting.path("clash/optim/.metadata"), f.read())
    shutil.copy(setting.path("other/model/__0_0.distcp"), setting.path("clash/optim"))
    shutil.copytree(setting.path("step/model"), setting.path("clash/model"))
    done = setting.run("verify", "--level", "checksum", setting.path("clash"), expected=FOUND)  # the same names in both
    check("REPLICA-DIFFER" in done.stdout, done.stdout)


@case(first=(2, 15))
def case_verl_megatron(setting):
    """verl 0.9 with Megatron-Core, ckpt_contents.json of version 2."""
    model, optimizer = train()
    actor = setting.path("run/global_step_3/actor")
    save_dcp(weights_of(model), actor + "/model/dist_ckpt")
    save_dcp({"optimizer": optimizer.state_dict()}, actor + "/optimizer/dist_ckpt")
    save_dcp({"rng_state": {"seed": torch.tensor(3)}}, actor + "/extra/dist_ckpt")
    for part in ("model", "optimizer", "extra"):
        torch.save({"iteration": 3}, actor + "/%s/dist_ckpt/common.pt" % part)
        write(actor + "/%s/dist_ckpt/metadata.json" % part, '{"sharded_backend": "torch_dist", "sharded_backend_version": 1}')
    write(actor + "/model/huggingface/config.json", '{"model_type": "mine"}')
    write(actor + "/ckpt_contents.json", '{"schema_version": 2}')
    for source in (setting.path("run"), actor):
        check(source_of(setting, source)["trainer"] == "verl", "trainer")
        check("the optimizer is in '../../optimizer/dist_ckpt'" in setting.run("inspect", source).stdout, "note")
        check_model(setting, source, weights_of(model))
    check("3 files of the trainer beside the weights checked too" in setting.run("verify", actor).stdout, "verify")
    os.rename(actor + "/optimizer/dist_ckpt/__0_0.distcp", setting.path("lost"))
    check("FILE-MISSING" in setting.run("verify", actor, expected=FOUND).stdout, "a lost file of the optimizer")
    os.rename(setting.path("lost"), actor + "/optimizer/dist_ckpt/__0_0.distcp")
    os.remove(actor + "/optimizer/dist_ckpt/.metadata")
    check("SAVE-INCOMPLETE" in setting.run("verify", actor, expected=FOUND).stdout, "lost metadata of the optimizer")
    setting.run("latest", setting.path("run"), expected=FOUND)


@case(first=(2, 15))
def case_trainers_are_named(setting):
    model, optimizer = train()
    names, state = get_state_dict(model, optimizer)
    both = {"model": names, "optimizer": state}
    save_dcp(both, setting.path("olmo/step100/model_and_optim"))  # OLMo-core
    write(setting.path("olmo/step100/.metadata.json"), '{"version": "2.0"}')
    os.makedirs(setting.path("olmo/step100/train"))
    torch.save({"epoch": 1}, setting.path("olmo/step100/train/rank0.pt"))
    save_dcp(both, setting.path("veomni/global_step_3"))  # VeOmni 0.1.12
    os.makedirs(setting.path("veomni/global_step_3/extra_state"))
    torch.save({"step": 3}, setting.path("veomni/global_step_3/extra_state/extra_state_rank_0.pt"))
    save_dcp({**both, "epochs_run": 1}, setting.path("torchtune/dist_epoch_0"))  # torchtune 0.6.1
    for folder, trainer in (("olmo", "olmo-core"), ("veomni", "veomni"), ("torchtune", "torchtune")):
        check(source_of(setting, setting.path(folder))["trainer"] == trainer, folder)
        check_model(setting, setting.path(folder), weights_of(model))
    os.makedirs(setting.path("tune/epoch_0"))  # torchtune's FullModelHFCheckpointer
    from safetensors.torch import save_file
    save_file(weights_of(model), setting.path("tune/epoch_0/model-00001-of-00001.safetensors"))
    os.makedirs(setting.path("tune/recipe_state"))
    torch.save({"optimizer": optimizer.state_dict()}, setting.path("tune/recipe_state/recipe_state.pt"))
    check_model(setting, setting.path("tune"), weights_of(model))


def lightning_function(module, name, **names):
    """A function of a module of Lightning, without the packages that the module imports."""
    import ast
    import typing
    with open(os.path.join(os.environ["FSDPCK_LIGHTNING"], module), encoding="utf-8") as f:
        tree = ast.parse(f.read())
    tree.body = [node for node in tree.body if getattr(node, "name", "") == name]
    names["Any"] = typing.Any
    exec(compile(tree, module, "exec"), names)
    return names[name]


def lightning_consolidated(folder, of_trainer=False):
    """What lightning.fabric.utilities.consolidate_checkpoint saves, or that of lightning.pytorch."""
    import pathlib
    import re
    load = lightning_function("load.py", "_load_distributed_checkpoint", Path=pathlib.Path, torch=torch,
                              _TORCH_GREATER_EQUAL_2_3=True, _METADATA_FILENAME="meta.pt")
    loaded = load(pathlib.Path(folder))
    return lightning_function("consolidate_checkpoint.py", "_format_checkpoint", re=re)(loaded) if of_trainer else loaded


def is_equal(one, other):
    if torch.is_tensor(one):
        return torch.is_tensor(other) and one.dtype == other.dtype and torch.equal(one, other)
    if isinstance(one, dict):
        return isinstance(other, dict) and one.keys() == other.keys() and all(is_equal(one[k], other[k]) for k in one)
    if isinstance(one, (list, tuple)):
        return type(one) is type(other) and len(one) == len(other) and all(map(is_equal, one, other))
    return type(one) is type(other) and one == other


def save_lightning(folder, model_key, optimizers=1):
    """FSDPStrategy.save_checkpoint (model) and ModelParallelStrategy.save_checkpoint (state_dict) of Lightning 2.6."""
    model, optimizer = train()
    names, state = get_state_dict(model, optimizer)
    save_dcp({model_key: names, **{"optimizer_%d" % i: state for i in range(optimizers)}}, folder)
    monitor = {"monitor": "loss", "best_model_score": torch.tensor(0.5), "best_k_models": {"a.ckpt": torch.tensor(0.25)},
               "kth_value": torch.tensor([1, 2])}
    torch.save({"epoch": 1, "global_step": 7, "pytorch-lightning_version": "2.6.6", "loops": {"fit_loop": {"state_dict": {}, "n": [1, 2]}},
                "callbacks": {"ModelCheckpoint{'monitor': 'loss'}": monitor}, "hyper_parameters": {"lr": 0.5, "names": ("a", None)},
                "lr_schedulers": [{"last_epoch": 7, "weights": torch.ones(2)}]}, folder + "/meta.pt")
    return model


def check_lightning(setting, folder, name, of_trainer, *options):
    """The keys, in their order, and values are those of Lightning's consolidation; its manifest fits the file."""
    made, manifest = setting.path(name), setting.path(name + ".json")
    setting.run("consolidate", folder, made, "--manifest", manifest, *options)
    found, want = torch.load(made, weights_only=False), lightning_consolidated(folder, of_trainer)
    check(found.keys() == want.keys(), "%s, not %s" % (sorted(found), sorted(want)))
    check(is_equal(dict(found), want), "not as Lightning's consolidation")
    check(type(found.get("optimizer_states", [])) is list, "a list")
    setting.run("verify", "--level", "checksum", "--manifest", manifest, made)
    return found


@case(first=(2, 15))
def case_lightning_latest(setting):
    """Lightning writes meta.pt after the tensors, and takes no folder without it for a checkpoint."""
    for model_key in ("model", "state_dict"):
        run, older, newer = (setting.path(model_key, name) for name in ("", "epoch=0-step=3.ckpt", "epoch=1-step=7.ckpt"))
        for folder in (older, newer):
            save_lightning(folder, model_key)
        check(setting.run("latest", run).stdout.strip() == newer, "the newest")
        with open(newer + "/meta.pt", "rb") as whole:
            data = whole.read()
        for level in ("quick", "coverage"):
            for nbytes in (0, 100, len(data) // 2, len(data) - 1):
                with open(newer + "/meta.pt", "wb") as f:
                    f.write(data[:nbytes])
                done = setting.run("latest", "--level", level, run)
                check(done.stdout.strip() == older and "SIDE-UNREAD" in done.stderr, "%d bytes: %s" % (nbytes, done.stderr))
        os.remove(newer + "/meta.pt")
        done = setting.run("latest", run)
        check(done.stdout.strip() == older and "SAVE-INCOMPLETE" in done.stderr, done.stderr)
        shutil.rmtree(older)  # no older step shows that it is missing
        check("SAVE-INCOMPLETE" in setting.run("latest", run, expected=FOUND).stderr, "a step alone")
        os.rename(newer, setting.path(model_key, "step-7"))  # another trainer's name
        check(setting.run("latest", run).stdout.strip().endswith("step-7"), "no folder of Lightning by its name")


@case(first=(2, 15))
def case_lightning(setting):
    """consolidate to .ckpt adds what Lightning keeps in meta.pt, as its own consolidation does."""
    for model_key in ("model", "state_dict"):
        folder = setting.path(model_key, "epoch=1-step=7.ckpt")
        model = save_lightning(folder, model_key, 2 if model_key == "model" else 1)
        told = source_of(setting, folder)
        check((told["trainer"], told["step"]) == ("lightning", 7), str(told))
        check("Lightning 2.6.6" in setting.run("inspect", folder).stdout, "the release")
        found = check_lightning(setting, folder, model_key + ".ckpt", model_key == "model")
        check_lightning(setting, folder, model_key + "-names.ckpt", False, "--keep-names")
        check_model(setting, folder, weights_of(model))
        setting.run("verify", "--level", "numeric", folder)
        cut, again = setting.path(model_key, "cut.ckpt"), setting.path(model_key, "again.ckpt")
        setting.run("reshard", folder, cut, "--format", "dcp", "--world-size", "2")
        setting.run("reshard", cut, again, "--format", "dcp", "--world-size", "3")
        for made in (cut, again):
            check(filecmp.cmp(folder + "/meta.pt", made + "/meta.pt", shallow=False), "meta.pt of a reshard")
            setting.run("verify", "--level", "numeric", made)
            setting.run("diff", folder, made)
            check(is_equal(dict(check_lightning(setting, made, model_key + "-cut.ckpt", model_key == "model", "--force")),
                           dict(found)), "after reshard")
        check(setting.run("latest", setting.path(model_key)).stdout.strip() == folder, "latest")
        setting.run("reshard", folder, setting.path(model_key, "part"), "--world-size", "2", "--part", "model")
        check(not os.path.exists(setting.path(model_key, "part/meta.pt")), "meta.pt of a part")
    shutil.copy(folder + "/meta.pt", setting.path("meta.pt"))
    with open(setting.path("meta.pt"), "rb") as whole, open(folder + "/meta.pt", "wb") as f:
        f.write(whole.read()[:-100])
    check("meta.pt" in setting.run("verify", folder, expected=FOUND).stdout, "a cut meta.pt")
    done = check_model(setting, folder, weights_of(model))
    check("SIDE-UNREAD" in done.stderr, done.stderr)
    torch.save({"epoch": 1, "shift": torch.arange(3.0)}, folder + "/meta.pt")
    done, _ = setting.consolidate(folder, "shift.ckpt")
    check("tensor 'shift' of 'meta.pt' is left out" in done.stderr, done.stderr)
    torch.save([1, 2], folder + "/meta.pt")  # no dict: another file of this name
    check_model(setting, folder, weights_of(model))
    torch.save({"model": 3, "state_dict": 3, 5: "five", "optimizer_0": 4}, folder + "/meta.pt")  # its keys are there already
    check_model(setting, folder, weights_of(model))


def foreign_folders(setting):
    """What the folders are, by the names of their files: the contents are not read."""
    weights = {"a.weight": torch.ones(2, 3), "b.bias": torch.ones(3)}
    for name in ("model", "optimizer/pp_0", "optimizer/pp_1"):  # VeScaleCheckpointer.save
        save_dcp(weights, setting.path("vescale", name))
    for stage in (1, 2):  # HybridParallelCheckpointIO.save_sharded_model and _optimizer
        for kind in ("model", "optim"):
            os.makedirs(setting.path("colossal", kind), exist_ok=True)
            torch.save(weights, setting.path("colossal", kind, "pytorch_%s-stage-%05d-shard-00001.bin" % (kind, stage)))
            write(setting.path("colossal", kind, "pytorch_%s.bin.index.json" % kind), json.dumps({
                "metadata": {}, "weight_map": {n: "pytorch_%s-stage-00001-shard-00001.bin" % kind for n in weights}}))
    for name in ("_CHECKPOINT_METADATA", "_METADATA", "_sharding", "manifest.ocdbt", "d/0a1b", "ocdbt.process_0/manifest.ocdbt"):
        write(setting.path("orbax/100/default" if name[0] != "_" or name == "_METADATA" else "orbax/100", name))
    write(setting.path("ocdbt/manifest.ocdbt"))
    write(setting.path("ocdbt/d/0a1b"))
    write(setting.path("zarr/params.a/.zarray"))
    write(setting.path("zarr/params.a/0.0"))
    write(setting.path("zarr3/params.a/zarr.json"))
    write(setting.path("zarr3/params.a/c/0/0"))
    for rank in range(2):
        os.makedirs(setting.path("legacy/iter_0000003/mp_rank_%02d" % rank))
        torch.save({"model": weights}, setting.path("legacy/iter_0000003/mp_rank_%02d/model_optim_rng.pt" % rank))
    return {"vescale": "veScale", "colossal/model": "Colossal-AI", "colossal/optim": "Colossal-AI", "orbax": "orbax",
            "orbax/100": "orbax", "ocdbt": "OCDBT", "zarr": "zarr", "zarr3": "zarr", "legacy": "Megatron-LM's format 'torch'"}


@case(first=(2, 15))
def case_foreign_folders(setting):
    for folder, words in foreign_folders(setting).items():
        for command in (["inspect"], ["verify"], ["consolidate"]):
            more = [setting.path("out.safetensors")] if command == ["consolidate"] else []
            done = setting.run(*command, setting.path(folder), *more, expected=None)
            check(done.returncode == UNSUPPORTED, "%s %s: exit %d" % (
                command[0], folder, done.returncode))
            check(words in done.stdout + done.stderr, "%s: %s" % (folder, done.stdout + done.stderr))
            check("next:" in done.stdout + done.stderr, folder + ": no next step")
    setting.run("inspect", setting.path("vescale/model"))
