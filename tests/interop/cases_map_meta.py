"""The map of Meta's Llama against the script that converts its files, convert_llama_weights_to_hf.py."""

import os
import shutil

import torch
import torch.distributed.checkpoint as dcp

from meta_llama import convert_meta, make_meta_state, meta_params, write_meta
from support import BAD_INPUT, UNSUPPORTED, case, check, check_same_tensors, load_hf


@case(first=(2, 15))
def case_map_meta_llama(setting):
    for ranks, release, heads, kv_heads in ((1, 2, 6, 2), (2, 2, 6, 2), (4, 3, 8, 4), (2, 3, 4, 4)):
        state = make_meta_state(heads, kv_heads, 6, torch.bfloat16)
        folder = setting.path("meta")
        write_meta(folder, state, ranks, release, meta_params(heads, kv_heads, 6))
        expected = convert_meta(folder, ranks, release)
        check(len(expected) == len(state) - 1, "the script lost tensors")
        done, made = setting.consolidate(folder, "hf/", "--map", "meta-llama", "--config", folder + "/params.json")
        check_same_tensors(load_hf(made)[0], expected, "%d ranks" % ranks)
        check("RANKS-UNKNOWN" not in done.stderr and "rope.freqs" in done.stdout, done.stdout + done.stderr)
        _, whole = setting.consolidate(folder, "whole/")
        check_same_tensors(load_hf(whole)[0], state, "without a map")
        setting.run("reshard", made, setting.path("back"), "--world-size", "2", "--format", "dcp", "--import", "--map",
                    "meta-llama", "--config", folder + "/params.json")
        back = {name: torch.zeros_like(tensor) for name, tensor in state.items() if name != "rope.freqs"}
        dcp.load(back, checkpoint_id=setting.path("back"), no_dist=True)
        check_same_tensors(back, {name: state[name] for name in back}, "and back")
        if ranks > 1:
            os.remove(os.path.join(folder, "consolidated.%02d.pth" % (ranks - 1)))
            done = setting.run("consolidate", folder, setting.path("no/"), expected=BAD_INPUT)
            check("FILE-MISSING" in done.stderr or "are missing" in done.stderr, done.stderr)
        for name in ("meta", "hf", "whole", "back"):
            shutil.rmtree(setting.path(name))


@case(first=(2, 15))
def case_map_meta_refused(setting):
    """Copies of key heads, and layers of other models."""
    state = make_meta_state(8, 2, 4, torch.bfloat16)
    write_meta(setting.path("copies"), state, 2, 3, {**meta_params(8, 2, 4), "n_kv_heads": 1})
    done = setting.run("consolidate", setting.path("copies"), setting.path("no/"), expected=UNSUPPORTED)
    check("key head" in done.stderr, done.stderr)
    state["layers.0.feed_forward.experts.moe_w_in_eD_F"] = torch.zeros(4, 4)
    write_meta(setting.path("other"), state, 2, 3, meta_params(8, 2, 4))
    done = setting.run("consolidate", setting.path("other"), setting.path("no/"), expected=UNSUPPORTED)
    check("layers.0.feed_forward.experts.moe_w_in_eD_F" in done.stderr, done.stderr)


@case(first=(2, 15))
def case_map_meta_head_dim(setting):
    """Heads whose size is not the hidden size by their number: the script cannot, its formula can."""
    heads, kv_heads, head_dim, hidden = 4, 2, 6, 16
    state = make_meta_state(heads, kv_heads, head_dim, torch.float32)
    state = {name: tensor[:hidden].clone() if name.endswith(("norm.weight", "attention.wo.weight", "w2.weight"))
             else tensor[:, :hidden].clone() if tensor.dim() == 2 else tensor for name, tensor in state.items()}
    write_meta(setting.path("meta"), state, 2, 3, {**meta_params(heads, kv_heads, head_dim), "dim": hidden,
                                                   "head_dim": head_dim})
    _, made = setting.consolidate(setting.path("meta"), "hf/", "--map", "meta-llama", "--config",
                                  setting.path("meta", "params.json"))
    found = load_hf(made)[0]

    def permute(w, count):
        return w.view(count, w.shape[0] // count // 2, 2, w.shape[1]).transpose(1, 2).reshape(w.shape)

    for name, count in (("q", heads), ("k", kv_heads)):
        check(torch.equal(found["model.layers.1.self_attn.%s_proj.weight" % name],
                          permute(state["layers.1.attention.w%s.weight" % name], count)), name)
    for name in ("v", "o"):
        check(torch.equal(found["model.layers.1.self_attn.%s_proj.weight" % name],
                          state["layers.1.attention.w%s.weight" % name]), name)
