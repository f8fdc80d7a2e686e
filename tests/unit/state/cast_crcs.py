#!/usr/bin/env python3
"""Writes cast_crcs.h: what torch makes of the inputs of test_cast.c, for every pair of floating types.

    cast_crcs.py > cast_crcs.h      (torch 2.15 on x86-64 with AVX2 or AVX-512)

Float64 sources hold no NaN: which NaN torch makes of one as bfloat16 depends on its place in the tensor.
"""
import zlib

import numpy as np
import torch

NAMES = ["float64", "float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2",
         "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu"]
BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
COUNT = 1 << 18


def mix(n):
    z = (np.arange(n, dtype=np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def shaped(mantissa, bias, drop_min, drops):
    """Three quarters of all values get an exponent near those of the small types, half end in zeros, a
    quarter lie exactly between two values of some type."""
    i = np.arange(COUNT, dtype=np.uint64)
    z = mix(COUNT)
    width = 64 if mantissa == 52 else 32
    u = z if width == 64 else z >> np.uint64(32)
    exponent = np.uint64(bias - 37) + (z & np.uint64(0xFFFF)) % np.uint64(70)
    sign = (u >> np.uint64(width - 1)) << np.uint64(width - 1)
    near = sign | exponent << np.uint64(mantissa) | (u & np.uint64((1 << mantissa) - 1))
    u = np.where(i & np.uint64(3) != 0, near, u)
    drop = np.uint64(drop_min) + (i >> np.uint64(3)) % np.uint64(drops)
    u = np.where(i & np.uint64(2) != 0, u >> drop << drop, u)
    u = np.where(i & np.uint64(6) == np.uint64(6), u | np.uint64(1) << (drop - np.uint64(1)), u)
    if mantissa == 52:
        all_ones = np.uint64(0x7FF) << np.uint64(52)
        u = np.where(u & all_ones == all_ones, u & ~(np.uint64(1) << np.uint64(62)), u)
        return u
    return u.astype(np.uint32)


def source(name):
    dtype = getattr(torch, name)
    size = torch.empty(0, dtype=dtype).element_size()
    if size == 1:
        a = np.arange(256, dtype=np.uint8)
        a = np.tile(a, 8)
    elif size == 2:
        a = np.arange(65536, dtype=np.uint16)
    elif size == 4:
        a = shaped(23, 127, 8, 14)
    else:
        a = shaped(52, 1023, 37, 14)
    return torch.from_numpy(a.copy()).view(dtype)


def main():
    print("/* Written by cast_crcs.py with torch %s. */" % torch.__version__.split("+")[0])
    for a in NAMES:
        x = source(a)
        for b in NAMES:
            if a == b:
                continue
            y = x.to(getattr(torch, b))
            wide = x.to(torch.float64)
            if b == "float8_e4m3fn":
                lost = wide.isfinite() & (x.to(torch.float32).to(torch.float64).abs() > 464)
            else:
                lost = wide.isfinite() & ~y.to(torch.float64).isfinite()
            bits = y.view(BITS[y.element_size()]).numpy().tobytes()
            print("{DTYPE_%s, DTYPE_%s, 0x%08X, %d}," %
                  (a.upper(), b.upper(), zlib.crc32(bits), lost.sum().item()))


main()
