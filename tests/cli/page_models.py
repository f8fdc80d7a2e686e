"""Small models, whose differences are known."""
import json
import math
import random
import struct

LAYERS, MATRICES = 7, ("attn.q.weight", "mlp.up.weight")
GROWN = "model.layers.5." + MATRICES[0]


def write_model(folder, change, layers=LAYERS):
    """A model folder; returns its values. change(layer, matrix, values) gives what is stored, or None."""
    header, data, values = {}, b"", {}
    for layer in range(layers):
        for matrix in MATRICES:
            name = "model.layers.%d.%s" % (layer, matrix)
            made = random.Random(name)
            value = change(layer, matrix, [struct.unpack("<f", struct.pack("<f", made.gauss(0, 1)))[0] for _ in range(1024)])
            if value is None:
                continue
            values[name] = value
            header[name] = {"dtype": "F32", "shape": [32, 32], "data_offsets": [len(data), len(data) + 4096]}
            data += struct.pack("<1024f", *values[name])
    text = json.dumps(header).encode()
    folder.mkdir()
    (folder / "model.safetensors").write_bytes(len(text).to_bytes(8, "little") + text + data)
    (folder / "config.json").write_text('{"model_type": "llama", "hidden_size": 32}')
    return values


def models(work):
    """A base; one whose later layers moved, by a known power of 2; one whose mlp matrices are reversed, and one matrix is larger."""
    return (write_model(work / "base", lambda layer, matrix, v: v),
            write_model(work / "moved", lambda layer, matrix, v: [v[0] + 2.0 ** (layer - 3)] + v[1:] if layer >= 3 else v),
            write_model(work / "wrong", lambda layer, matrix, v: v[::-1] if matrix == MATRICES[1] else [20 * x for x in v] if layer == 5 else v))


def cosine(a, b):
    return sum(x * y for x, y in zip(a, b)) / math.sqrt(sum(x * x for x in a) * sum(y * y for y in b))
