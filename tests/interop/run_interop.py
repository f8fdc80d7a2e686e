"""Runs the program against real torch and safetensors, both ways.

    python run_interop.py --program PATH [--model FILE] [--jobs N] [CASE...]

CASE is a glob over case names; N of them run at the same time. The last line is 'N passed, N failed'; status 1 if a case failed.
"""

import argparse
import fnmatch
import importlib
import os
import select
import shutil
import signal
import sys
import tempfile
import time
import traceback
import warnings

HERE = os.path.dirname(os.path.abspath(__file__))
FIXTURES = os.path.join(os.path.dirname(HERE), "fixtures")
CASE_SECONDS_MAX = int(os.environ.get("INTEROP_CASE_SECONDS", "600"))
sys.path[:0] = [HERE, FIXTURES]
os.environ.update(USE_LIBUV="0", OMP_NUM_THREADS="1", GLOO_SOCKET_IFNAME="lo", TORCH_CPP_LOG_LEVEL="ERROR")
warnings.filterwarnings("ignore")

import torch  # noqa: E402

import cases_attributes  # noqa: E402, F401
import cases_average  # noqa: E402, F401
import cases_containers  # noqa: E402, F401
import cases_conversion  # noqa: E402, F401
import cases_dcp_interrupted  # noqa: E402, F401
import cases_deepspeed  # noqa: E402, F401
import cases_demo  # noqa: E402, F401
import cases_dequantize  # noqa: E402, F401
import cases_export_like  # noqa: E402, F401
import cases_fixtures  # noqa: E402
import cases_fsdp1_live  # noqa: E402, F401
import cases_fsdp1_write  # noqa: E402, F401
import cases_good  # noqa: E402, F401
import cases_hdf5_read  # noqa: E402, F401
import cases_hdf5_write  # noqa: E402, F401
import cases_hostile  # noqa: E402, F401
import cases_inside_objects  # noqa: E402, F401
import cases_layout  # noqa: E402, F401
import cases_load  # noqa: E402, F401
import cases_local  # noqa: E402, F401
import cases_lora  # noqa: E402, F401
import cases_lost_weights  # noqa: E402, F401
import cases_manifest  # noqa: E402, F401
import cases_map_megatron  # noqa: E402, F401
import cases_map_meta  # noqa: E402, F401
import cases_map_logits  # noqa: E402, F401
import cases_map_trainers  # noqa: E402, F401
import cases_map_transformers  # noqa: E402, F401
import cases_memory  # noqa: E402, F401
import cases_merge  # noqa: E402, F401
import cases_merge_like  # noqa: E402, F401
import cases_merge_lost  # noqa: E402, F401
import cases_merge_models  # noqa: E402, F401
import cases_merge_trained  # noqa: E402, F401
import cases_megatron  # noqa: E402, F401
import cases_model  # noqa: E402, F401
import cases_model_tree  # noqa: E402, F401
import cases_near  # noqa: E402, F401
import cases_nesting  # noqa: E402, F401
import cases_optim  # noqa: E402, F401
import cases_optim_names  # noqa: E402, F401
import cases_optim_nested  # noqa: E402, F401
import cases_optim_ranks  # noqa: E402, F401
import cases_parts  # noqa: E402, F401
import cases_plan  # noqa: E402, F401
import cases_rank_containers  # noqa: E402, F401
import cases_rank_families  # noqa: E402, F401
import cases_rank_files  # noqa: E402, F401
import cases_reshard  # noqa: E402, F401
import cases_reshard_old  # noqa: E402, F401
import cases_selection  # noqa: E402, F401
import cases_ties  # noqa: E402, F401
import cases_torch_files  # noqa: E402, F401
import cases_trainer  # noqa: E402, F401
import cases_trainer_faults  # noqa: E402, F401
import cases_trainer_folders  # noqa: E402, F401
import cases_trainer_steps  # noqa: E402, F401
import cases_units  # noqa: E402, F401
import cases_world_size  # noqa: E402, F401
import cases_zoo  # noqa: E402, F401
from peft_models import import_peft  # noqa: E402
from support import CASES, Failure, Setting  # noqa: E402

# What most cases import, and each of their ranks for itself: once for all of them. It starts no thread.
for shared in ("torch.distributed.checkpoint.state_dict", "torch.distributed.fsdp", "torch._dynamo"):
    try:
        importlib.import_module(shared)
    except ImportError:
        pass  # older releases


def run_case(function, options):
    """None, or why the case failed."""
    folder = tempfile.mkdtemp(prefix="interop-")
    here = os.getcwd()
    try:
        function(Setting(folder, options.program, FIXTURES, options.model))
    except Failure as failure:
        return str(failure)
    except Exception:
        return traceback.format_exc(limit=-3).strip()
    finally:
        os.chdir(here)
        if options.keep:
            print("kept " + folder)
        else:
            shutil.rmtree(folder, ignore_errors=True)
    return None


class Running:
    """run_case in processes of its own: a case may fork ranks, which is not safe once another has started threads."""

    def __init__(self, name, function, options):
        self.name = name
        self.started = time.monotonic()
        self.read_end, write_end = os.pipe()
        sys.stdout.flush()
        self.child = os.fork()
        if self.child == 0:
            os.setsid()
            os.close(self.read_end)
            reason = run_case(function, options)
            with open(write_end, "w", encoding="utf-8", errors="replace") as pipe:
                pipe.write("passed" if reason is None else "failed" + reason[-30000:])  # a pipe holds 64 KiB
            sys.stdout.flush()
            os._exit(0)
        os.close(write_end)

    def seconds(self):
        return time.monotonic() - self.started

    def finish(self):
        """Once it has said something, or its time is over: None, or why the case failed."""
        in_time = select.select([self.read_end], [], [], 0)[0]
        if in_time:
            os.waitpid(self.child, 0)
        try:
            os.killpg(self.child, signal.SIGKILL)  # ranks that hang or were left
        except ProcessLookupError:
            pass
        with open(self.read_end, encoding="utf-8", errors="replace") as pipe:
            said = pipe.read()
        if not in_time:
            os.waitpid(self.child, 0)
            return "not done after %d s" % CASE_SECONDS_MAX
        return None if said == "passed" else said[len("failed"):] or "ended without a word"


def uses_transformers(case):
    module = sys.modules[getattr(case[1], "func", case[1]).__module__]
    return hasattr(module, "import_peft") or hasattr(module, "import_transformers")


def run_all(cases, options):
    """Yields (name, seconds, None or why it failed) of each, in the order in which they end. Those that use transformers
    come last: with PEFT it takes seconds to import, which is done once for all of them."""
    waiting, running = sorted(reversed(cases), key=uses_transformers, reverse=True), []
    while waiting or running:
        while waiting and len(running) < options.jobs:
            if uses_transformers(waiting[-1]) and "peft" not in sys.modules and "FSDPCK_PEFT" in os.environ:
                import_peft()
            running.append(Running(*waiting.pop(), options))
        patience = CASE_SECONDS_MAX - max(r.seconds() for r in running)
        ready = select.select([r.read_end for r in running], [], [], max(patience, 0))[0]
        for one in [r for r in running if r.read_end in ready or r.seconds() >= CASE_SECONDS_MAX]:
            running.remove(one)
            yield one.name, one.seconds(), one.finish()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--program", required=True)
    parser.add_argument("--model", help="safetensors file of a real model; its case is left out without")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)), help="cases at a time")
    parser.add_argument("--keep", action="store_true", help="keep the folders of the cases")
    parser.add_argument("cases", nargs="*", default=["*"])
    options = parser.parse_args()
    options.program = os.path.abspath(options.program)
    if not os.access(options.program, os.X_OK):
        parser.error("no program at " + options.program)
    torch.set_num_threads(1)
    cases_fixtures.register(FIXTURES)
    cases = [(name, function) for name, function in CASES
             if any(fnmatch.fnmatch(name, pattern) for pattern in options.cases or ["*"])]
    passed, failures, times = 0, [], []
    for name, seconds, reason in run_all(cases, options):
        times.append((seconds, name))
        if reason is None:
            passed += 1
        else:
            failures.append("FAILED %s: %s" % (name, reason))
            print(failures[-1], flush=True)
    print("slowest: " + ", ".join("%s %.0f s" % (name, seconds) for seconds, name in sorted(times)[:-11:-1]))
    for failure in failures:  # again: torch's warnings push the first print out of the end of the log
        print(failure[:1500])
    print("%d passed, %d failed" % (passed, len(failures)))
    return 1 if failures or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
