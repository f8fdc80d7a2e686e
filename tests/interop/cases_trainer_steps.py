"""Steps of the Trainer of transformers whose optimizer.pt, scheduler.pt and trainer_state.json are of two saves. Where they are
of one, whatever the scheduler, nothing is reported."""

import json
import os
import warnings

import torch
from safetensors.torch import save_file
from torch.optim import lr_scheduler

from support import case, check

FACTORIES = {
    "constant": lambda o: lr_scheduler.LambdaLR(o, lambda step: 1.0),
    "cosine": lambda o: lr_scheduler.CosineAnnealingLR(o, 10),
    "restarts": lambda o: lr_scheduler.CosineAnnealingWarmRestarts(o, 4),
    "one-cycle": lambda o: lr_scheduler.OneCycleLR(o, 0.5, total_steps=20),
    "sequence": lambda o: lr_scheduler.SequentialLR(o, [lr_scheduler.StepLR(o, 2), lr_scheduler.CosineAnnealingLR(o, 9)], [3]),
    "plateau": lr_scheduler.ReduceLROnPlateau,  # a step at each evaluation
}


def save_step(folder, scheduler="constant", scheduled=6, optimized=6, trained=6, scaler=False, optimizer=torch.optim.AdamW):
    os.makedirs(folder)
    model = torch.nn.Linear(4, 4)
    o = optimizer(model.parameters(), lr=0.5)
    s = FACTORIES[scheduler](o)
    for _ in range(optimized):
        model(torch.ones(1, 4)).sum().backward()
        o.step()
    for _ in range(scheduled):
        s.step(*([1.0] if scheduler == "plateau" else []))
    save_file(dict(model.state_dict()), os.path.join(folder, "model.safetensors"), metadata={"format": "pt"})
    states = {"optimizer.pt": o.state_dict(), "scheduler.pt": s.state_dict(), "training_args.bin": {"fp16": scaler}}
    if scaler:
        states["scaler.pt"] = {"scale": 1.0, "growth_factor": 2.0, "_growth_tracker": 0}
    for name, state in states.items():
        torch.save(state, os.path.join(folder, name))
    with open(os.path.join(folder, "trainer_state.json"), "w") as file:
        json.dump({"global_step": trained}, file)


def differing(setting, run):
    """What verify and latest report about the step of the run; both accept it."""
    folder = os.path.join(run, "checkpoint-6")
    report = json.loads(setting.run("verify", folder, "--json").stdout)
    found = [f.get("found", "") for f in report["findings"] if f["finding"] == "STEP-STATE"]
    latest = setting.run("latest", run)
    check(latest.stdout.strip() == folder, latest.stdout)
    check(("[STEP-STATE]" in latest.stderr) == bool(found), "%s: verify %r, latest %s" % (run, found, latest.stderr))
    return found


@case((2, 2))
def case_trainer_steps(setting):
    warnings.simplefilter("ignore")
    good = [{"scheduler": name} for name in FACTORIES if name != "plateau"]
    good += [{"scheduler": "plateau", "scheduled": 2}, {"scheduled": 5, "optimized": 5, "scaler": True},
             {"optimizer": torch.optim.SGD}]
    for i, words in enumerate(good):
        run = setting.path("good-%d" % i)
        save_step(os.path.join(run, "checkpoint-6"), **words)
        check(differing(setting, run) == [], "%r: %r" % (words, differing(setting, run)))
    bad = [({"scheduled": 4}, "step 4 in 'scheduler.pt'"), ({"scheduled": 8}, "step 8 in 'scheduler.pt'"),
           ({"optimized": 4}, "step 4 in 'optimizer.pt'"), ({"trained": 7}, "step 6 in 'optimizer.pt'"),
           ({"scheduled": 3, "optimized": 5, "scaler": True}, "step 3 in 'scheduler.pt'"),
           ({"scheduled": 8, "optimizer": torch.optim.SGD}, "step 8 in 'scheduler.pt'")]
    for i, (words, expected) in enumerate(bad):
        run = setting.path("bad-%d" % i)
        save_step(os.path.join(run, "checkpoint-6"), **words)
        check(differing(setting, run) == [expected], "%r: %r" % (words, differing(setting, run)))
