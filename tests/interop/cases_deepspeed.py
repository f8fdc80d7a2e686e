"""Folders of DeepSpeed's ZeRO optimizers, trained here on the CPU: weights as zero_to_fp32.py gathers them, or as the
module has them where that script is wrong, and optimizer state as the partitions hold it; what torch loads afterwards."""

import os
import shutil

import torch

from deepspeed_training import (Model, files, groups_of, load, moments_of, script_weights, to_universal, train, train_unsharded,
                                weights_of)
from support import BAD_INPUT, UNSUPPORTED, case, check, check_same_names, check_same_tensors, load_hf, load_pt, tensors_of_state

FOUND = 1  # verify: an error
DTYPES = (torch.float32, torch.bfloat16, torch.float16)


def check_weights(setting, step):
    _, made = setting.consolidate(step, "weights.safetensors", "--force")
    from safetensors.torch import load_file
    found, expected = load_file(made), weights_of(step)
    check_same_tensors(found, expected, "weights")
    for name, tensor in script_weights(step).items():
        if found[name].dtype == tensor.dtype:
            check(torch.equal(found[name], tensor), "'%s' is not as in zero_to_fp32.py" % name)
        else:  # a buffer, which the script widens or rounds to float32
            check(torch.equal(found[name].float(), tensor.float()), "'%s' is not as in zero_to_fp32.py" % name)
    _, hf = setting.consolidate(step, "hf/", "--force")
    check_same_tensors(load_hf(hf)[0], expected, "hf")


def check_optimizer(setting, step):
    moments, groups = moments_of(step)
    _, made = setting.consolidate(step, "all.pt", "--part", "all", "--force")
    state = load_pt(made, weights_only=False)
    check_same_names(state["optim"].get("state", {}), moments, "optimizer")
    for name, slots in moments.items():
        check_same_tensors(tensors_of_state(state["optim"]["state"][name]),
                           {k: v for k, v in slots.items() if torch.is_tensor(v)}, name)
    check([group["params"] for group in state["optim"]["param_groups"]] == groups, "param_groups")
    return state, moments


def load_from_dcp(setting, source, moments, weights=None, step=None):
    """As a training without DeepSpeed would go on: the model and torch's AdamW, by names."""
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
    folder, step = setting.path("dcp"), step or source
    shutil.rmtree(folder, ignore_errors=True)
    setting.run("reshard", source, folder, "--world-size", "2")
    model = Model()
    optimizer = torch.optim.AdamW(groups_of(model), lr=5e-3)
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter) if parameter.requires_grad else None
    optimizer.step()
    model_state, optimizer_state = get_state_dict(model, optimizer)
    wanted = weights or weights_of(step)
    model_state = {name: torch.zeros_like(wanted[name]) for name in model_state}
    state = {"model": model_state, "optim": optimizer_state}
    dcp.load(state, checkpoint_id=folder)
    check_same_tensors(state["model"], {name: wanted[name] for name in model_state}, "loaded weights")
    set_state_dict(model, optimizer, model_state_dict=state["model"], optim_state_dict=state["optim"])
    names = {parameter: name for name, parameter in model.named_parameters()}
    for parameter, slots in optimizer.state.items():
        check_same_tensors(dict(slots), moments[names[parameter]], "loaded " + names[parameter])
    saved = load(files(step, "optim")[0])["optimizer_state_dict"]
    base = saved.get("base_optimizer_state", saved.get("optimizer_state_dict"))
    check([group["lr"] for group in optimizer.param_groups] == [group["lr"] for group in base["param_groups"]], "lr")


def check_stage(setting, stage, config=None):
    for ranks, dtype in zip((2, 3, 4), DTYPES[stage % 3:] + DTYPES[:stage % 3]):
        step = train(ranks, setting.path("run%d" % ranks), stage, dtype, config)
        check_weights(setting, step)
        _, moments = check_optimizer(setting, step)
        load_from_dcp(setting, step, moments)
        for level in ("coverage", "numeric"):
            done = setting.run("verify", "--level", level, step)
            check("no error" in done.stdout, done.stdout)


@case(first=(2, 15))
def case_deepspeed_zero1(setting):
    check_stage(setting, 1)


@case(first=(2, 15))
def case_deepspeed_zero2(setting):
    check_stage(setting, 2)


@case(first=(2, 15))
def case_deepspeed_zero3(setting):
    check_stage(setting, 3, {"zero_optimization": {"sub_group_size": 40}})


def state_of(setting, step):
    """(weights, optimizer state) as fsdpck gathers them."""
    _, made = setting.consolidate(step, "all.pt", "--part", "all", "--force")
    state = load_pt(made, weights_only=False)
    return state["model"], {name: tensors_of_state(slots) for name, slots in state["optim"]["state"].items()}


def check_close(found, expected, rtol=1e-5, atol=1e-6):
    """Both: (weights, optimizer state). Up to the rounding of sums; atol: a part of the largest value."""
    check_same_names(found[0], expected[0], "weights")
    check_same_names(found[1], expected[1], "moments")
    pairs = [(found[0][name], tensor) for name, tensor in expected[0].items()]
    for name, slots in expected[1].items():
        check_same_names(found[1][name], slots, name)
        pairs += [(found[1][name][slot], value) for slot, value in slots.items()]
    for one, other in pairs:
        largest = other.abs().max().item() if other.is_floating_point() else 0.0
        torch.testing.assert_close(one, other, rtol=rtol, atol=atol * largest)


@case(first=(2, 15))
def case_deepspeed_unsharded(setting):
    """Weights and moments are those of a training without shards: of torch alone in fp32, and of DeepSpeed on one rank, with the same data
    on all ranks. With TEST_SAMPLE in the environment each stage on another number of ranks, in another dtype."""
    sample = "TEST_SAMPLE" in os.environ
    for stage in (1, 2, 3):
        for ranks in (stage + 1,) if sample else (2, 3, 4):
            step = train(ranks, setting.path("run%d-%d" % (stage, ranks)), stage, config={"gradient_clipping": 0.0})
            check_close(state_of(setting, step), train_unsharded(ranks))
        for dtype in [(torch.bfloat16, torch.float16)[stage % 2]] if sample else (torch.bfloat16, torch.float16):
            config = {"same_data": True, "gradient_clipping": 0.0}
            one, two = (state_of(setting, train(ranks, setting.path("%s%d-%d" % (str(dtype)[6:], stage, ranks)), stage, dtype, config))
                        for ranks in (1, 2))
            check_close(two, one, 2e-2, 1e-3)  # gradients of tied weights are summed in the short type


@case(first=(2, 15))
def case_deepspeed_layouts(setting):
    """Padding after each parameter, parameters in another order, state without padding, the other optimizer for bfloat16,
    no state yet."""
    zero = {"parameter_alignment": {"parameter_alignment": True}, "round_robin": {"round_robin_gradients": True},
            "elastic": {"elastic_checkpoint": True}}
    for number, (name, options) in enumerate(zero.items()):
        step = train(2 + number, setting.path(name), 1 + number % 2, torch.bfloat16, {"zero_optimization": options})
        check_weights(setting, step)
        if name != "elastic":
            _, moments = check_optimizer(setting, step)
            load_from_dcp(setting, step, moments)
            continue
        ranks = [load(path)["optimizer_state_dict"]["base_optimizer_state"] for path in files(step, "optim")]
        flat = torch.cat([rank[0]["exp_avg"] for rank in ranks])
        _, made = setting.consolidate(step, "all.pt", "--part", "all", "--force")
        first = next(iter(load(files(step, "model")[0])["param_shapes"][0]))
        found = load_pt(made, weights_only=False)["optim"]["state"][first]["exp_avg"]
        check(torch.equal(found.flatten(), flat[:found.numel()]), "elastic")
    step = train(3, setting.path("bf16"), 1, torch.bfloat16, {"data_types": {"grad_accum_dtype": "fp32"}})
    check("zero_stage" not in load(files(step, "optim")[0])["optimizer_state_dict"], "not the other optimizer")
    _, hf = setting.consolidate(step, "bf16/hf/")
    found, states = load_hf(hf)[0], load(files(step, "model")[0])["module"]
    check_same_tensors({name: tensor.to(states[name].dtype) for name, tensor in found.items()}, states, "bf16")
    _, moments = check_optimizer(setting, step)
    load_from_dcp(setting, step, moments, found)
    step = train(2, setting.path("fresh"), 2, steps=0)
    check_weights(setting, step)
    setting.run("verify", step)
    step = train(2, setting.path("momentum"), 3, optimizer=lambda groups, lr: torch.optim.SGD(groups, lr, momentum=0.9))
    check_weights(setting, step)
    state, _ = check_optimizer(setting, step)
    check(list(state["optim"]["state"]["cube"]) == ["momentum_buffer"], "slots of SGD")


def rewrite(path, change):
    state = load(path)
    change(state)
    torch.save(state, path)


@case(first=(2, 15))
def case_deepspeed_straddling(setting):
    """ZeRO 3: a parameter whose part of a rank lies in two or more sub-groups, where zero_to_fp32.py fails."""
    step = train(3, setting.path("run"), 3, torch.bfloat16)
    weights = weights_of(step)
    def split(state):
        own = state["optimizer_state_dict"]
        own["fp32_flat_groups"] = [part.clone() for part in torch.cat(own["fp32_flat_groups"]).split(9)]
        slots = own["optimizer_state_dict"]["state"]
        flats = {slot: torch.cat([slots[g][slot] for g in sorted(slots)]).split(9) for slot in ("exp_avg", "exp_avg_sq")}
        own["optimizer_state_dict"]["state"] = {i: {slot: parts[i].clone() for slot, parts in flats.items()}
                                                for i in range(len(own["fp32_flat_groups"]))}
    moments = {name: {slot: value for slot, value in slots.items() if slot != "step"}
               for name, slots in moments_of(step)[0].items()}
    for path in files(step, "optim"):
        rewrite(path, split)
    check_same_tensors(load_hf(setting.consolidate(step, "hf/")[1])[0], weights, "weights")
    _, made = setting.consolidate(step, "all.pt", "--part", "all", "--force")
    state = load_pt(made, weights_only=False)["optim"]["state"]
    for name, slots in moments.items():
        check_same_tensors(state[name], slots, name)


@case(first=(2, 15))
def case_deepspeed_universal(setting):
    """Equal to the folder that it was made from; lost files."""
    for stage, ranks, config in ((1, 3, {}), (2, 2, {"zero_optimization": {"parameter_alignment": True}}),
                                 (3, 3, {"zero_optimization": {"sub_group_size": 40}})):
        step = train(ranks, setting.path("run%d" % stage), stage, torch.bfloat16, config)
        made = to_universal(step)
        setting.run("diff", "--part", "all", step, made)
        for name, tensor in load_hf(setting.consolidate(made, "hf%d/" % stage)[1])[0].items():
            check(torch.equal(tensor, weights_of(step)[name]), name)
        load_from_dcp(setting, made, moments_of(step)[0], weights_of(step), step)
        for name in ("zero/cube/fp32.pt", "zero/norm.bias/exp_avg.pt", "zero/optimizer_state.pt",
                     os.path.basename(files(made, "model")[-1])):
            os.rename(os.path.join(made, name), setting.path("kept"))
            if len(files(made, "model")) > 0:
                refused(setting, made, "FILE-MISSING", text=name)
            os.rename(setting.path("kept"), os.path.join(made, name))


@case(first=(2, 15))
def case_deepspeed_module_states(setting):
    """The weights in the dtype of the training are in the model states of ZeRO 1 and 2."""
    step = train(2, setting.path("run"), 1, torch.bfloat16)
    path, = files(step, "model")
    _, made = setting.consolidate(path, "trained.safetensors")
    from safetensors.torch import load_file
    check_same_tensors(load_file(made), load(path)["module"], "module")


class Client:
    """Of a class that no reader knows."""

    def __init__(self):
        self.tensor = torch.ones(2)


@case(first=(2, 15))
def case_deepspeed_client_state(setting):
    client = {"rng": torch.arange(5, dtype=torch.uint8), "pair": (torch.ones(3), 2), "best": {"loss": 0.5, "at": [1, 2]},
              "odd": Client(), "model": {"clash": 1}}
    step = train(2, setting.path("run"), 2, client=client)
    done, made = setting.consolidate(step, "all.pt", "--part", "all")
    check("[ZERO-LEFT-OUT]" in done.stderr and "'odd'" in done.stderr and "'model.clash'" in done.stderr, done.stderr)
    state = load_pt(made, weights_only=False)
    check(torch.equal(state["rng"], client["rng"]) and state["best"] == client["best"], "client state")
    check(torch.equal(state["pair"][0], client["pair"][0]) and state["pair"][1] == 2, "tensor of a tuple")
    check(state["lr_scheduler"]["last_epoch"] == 3 and state["global_steps"] == 3, "trainer's state")
    setting.consolidate(step, "weights.safetensors")


def refused(setting, step, finding, status=BAD_INPUT, text=""):
    for command, target, expected in (("verify", (), FOUND if status == BAD_INPUT else status), ("consolidate", (setting.path("no.safetensors"),), status)):
        done = setting.run(command, step, *target, expected=expected)
        check(finding in done.stdout + done.stderr, done.stdout + done.stderr)
        check(text in done.stdout + done.stderr, done.stdout + done.stderr)


@case(first=(2, 15))
def case_deepspeed_lost_files(setting):
    """Missing, extra, renamed and foreign files of ZeRO 2 and 3."""
    for stage in (2, 3):
        run = setting.path("run%d" % stage)
        good = train(3, run, stage, torch.bfloat16)
        later = train(3, setting.path("later%d" % stage), stage, torch.bfloat16, steps=4)
        fewer = train(2, setting.path("fewer%d" % stage), stage, torch.bfloat16)
        def broken(change):
            folder = setting.path("broken")
            shutil.rmtree(folder, ignore_errors=True)
            shutil.copytree(good, folder)
            change(folder)
            return folder
        optim = [os.path.basename(path) for path in files(good, "optim")]
        model = [os.path.basename(path) for path in files(good, "model")]
        for name in optim + model:
            refused(setting, broken(lambda f: os.remove(os.path.join(f, name))), "FILE-MISSING", text=name)
        refused(setting, broken(lambda f: shutil.copy(os.path.join(f, optim[2]), os.path.join(f, optim[2].replace("_2_", "_3_")))),
                "RANK-MIXED", text=optim[2].replace("_2_", "_3_"))
        for name in optim:
            refused(setting, broken(lambda f: shutil.copy(os.path.join(later, name), f)), "RANK-MIXED")
        for name in model if stage == 3 else ():
            refused(setting, broken(lambda f: shutil.copy(os.path.join(later, name), f)), "RANK-MIXED", text="step")
        refused(setting, broken(lambda f: shutil.copy(os.path.join(fewer, optim[1]), f)), "RANK-MIXED")
        if stage == 2:
            def swap(folder):
                one, two = (os.path.join(folder, name) for name in optim[:2])
                os.rename(one, one + ".x"), os.rename(two, one), os.rename(one + ".x", two)
            refused(setting, broken(swap), "RANK-DISAGREE")
            refused(setting, broken(lambda f: shutil.copy(os.path.join(f, optim[0]), os.path.join(f, optim[1]))), "RANK-DISAGREE")
        refused(setting, broken(lambda f: shutil.copy(os.path.join(f, optim[0]), os.path.join(f, optim[0].replace("mp_rank_00", "mp_rank_01")))),
                "SRC-FOREIGN", UNSUPPORTED)
        refused(setting, broken(lambda f: shutil.copy(os.path.join(f, model[0]), os.path.join(f, "layer_00_expert_0_mp_rank_00_model_states.pt"))),
                "SRC-FOREIGN", UNSUPPORTED)


@case(first=(2, 15))
def case_deepspeed_latest(setting):
    """The newest complete step; the file that DeepSpeed keeps of the tag."""
    run = setting.path("run")
    train(2, run, 2, steps=2)
    step = train(2, run, 2, steps=3)
    check(setting.run("latest", run).stdout.strip() == step, "latest")
    os.remove(files(step, "optim")[1])
    done = setting.run("latest", run)
    check(done.stdout.strip().endswith("global_step2"), done.stdout)
    train(2, run, 2, steps=4)
    with open(os.path.join(run, "latest"), "w", encoding="utf-8") as text:
        text.write("global_step2")
    check("LATEST-POINTER" in setting.run("latest", run).stderr, "a pointer to an older step")
