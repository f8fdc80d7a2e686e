#include "open/weights_names.h"

#include <fnmatch.h>
#include <stddef.h>

#include "formats/format.h"

static bool matches_any(const char *const *globs, size_t count, const char *name)
{
    for (size_t i = 0; i < count; i++)
        if (fnmatch(globs[i], name, 0) == 0)
            return true;
    return false;
}

bool checkpoint_is_weights_name(const char *name)
{
    static const char *const globs[] = {"model.safetensors",
                                        "model.safetensors.index.json",
                                        "model.pt",
                                        "model.pth",
                                        "model.bin",
                                        "model.ckpt",
                                        "pytorch_model.bin",
                                        "pytorch_model.pt",
                                        "pytorch_model.pth",
                                        "pytorch_model_fsdp.bin",
                                        "pytorch_model-*-of-*.bin",
                                        "model-*-of-*.safetensors",
                                        "shard-*-model-*-of-*.safetensors",
                                        "diffusion_pytorch_model*.bin",
                                        "diffusion_pytorch_model*.safetensors",
                                        "consolidated*.pth",
                                        "consolidated*.safetensors",
                                        "mp_rank_*.pt"};
    return matches_any(globs, sizeof globs / sizeof *globs, name);
}

bool checkpoint_is_rank_name(const char *name)
{
    static const char *const others[] = {
        "*rng*",    "random*",     "*optim*",        "sched*",         "*lr_sched*", "scaler*",
        "adapter*", "*tokenizer*", "trainer_state*", "training_args*", "dataloader*"};
    bool known;
    return format_is_rank_file(name, &known) &&
           (known || !matches_any(others, sizeof others / sizeof *others, name));
}

bool checkpoint_is_foreign_name(const char *name)
{
    static const char *const globs[] = {
        "tf_model*.h5",   "model*.h5", "*.weights.h5", "flax_model*.msgpack",
        "rust_model*.ot", "*.gguf",    "*.onnx"};
    return matches_any(globs, sizeof globs / sizeof *globs, name);
}
