"""scripts/make_demo and the commands of fsdpck-examples(7) on what it makes, compared with torch."""

import os
import re
import shutil
import subprocess
import sys

import torch
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save

from support import case, check, check_same_tensors, load_file, load_pt

ROOT = os.path.join(os.path.dirname(__file__), "..", "..")


def commands():
    """As the page lists them; each begins with the name of the program."""
    with open(os.path.join(ROOT, "man/fsdpck-examples.7")) as f:
        section = f.read().split(".SH A CHECKPOINT TO TRY")[1].split(".RE")[0]
    return [line.replace("\\-", "-").split()[1:] for line in re.findall(r"^fsdpck .*$", section, re.MULTILINE)]


@case(first=(2, 6))
def case_demo(setting):
    run = setting.path("run")
    subprocess.run([os.path.join(ROOT, "scripts/make_demo"), run], check=True, capture_output=True, env={**os.environ, "PYTHON": sys.executable})
    listed = commands()
    check(len(listed) == 7, "the page has %d commands" % len(listed))
    where = os.path.dirname(run)
    for words in listed:
        done = subprocess.run([os.path.abspath(setting.program), *words], cwd=where, capture_output=True, text=True)
        check(done.returncode == (1 if words[0] == "diff" else 0), "%s: %s%s" % (words, done.stdout, done.stderr))
        check(words[0] != "latest" or done.stdout == "run/step-3\n", done.stdout)
    states = []
    for step in (1, 2, 3):
        whole = setting.path("step-%d.pt" % step)
        dcp_to_torch_save("%s/step-%d" % (run, step), whole)
        states.append(load_pt(whole))
    check([s["step"] for s in states] == [1, 2, 3], "steps")
    check_same_tensors(load_file(where + "/gpt.safetensors"), states[2]["model"], "gpt.safetensors")
    dcp_to_torch_save(where + "/six", setting.path("six.pt"))
    check_same_tensors(load_pt(setting.path("six.pt"))["model"], states[2]["model"], "six")
    mean = load_pt(where + "/mean.pt")
    for name, tensor in mean.get("model", mean).items():
        expected = sum(s["model"][name].double() for s in states) / 3
        check(torch.allclose(tensor.double(), expected, rtol=0, atol=1e-6), "mean of " + name)
    shutil.rmtree(run)
