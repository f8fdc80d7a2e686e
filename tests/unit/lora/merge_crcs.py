"""Prints merge_crcs.h: CRC-32 of products and sums of torch (2.15, CPU), for test_merge_kernel.c."""

import zlib

import torch

MASK = (1 << 64) - 1


def numbers(seed, *shape):
    count = torch.Size(shape).numel()
    values = [((seed * 1000003 + i + 1) * 0x9E3779B97F4A7C15 & MASK) >> 40 for i in range(count)]
    return (torch.tensor(values, dtype=torch.float64) / 2**24 - 0.5).float().reshape(shape)


def crc(tensor):
    return "0x%08x" % zlib.crc32(tensor.contiguous().view(torch.uint8).numpy().tobytes())


for rank in (1, 4, 8, 16, 32, 64, 128):
    delta = (numbers(1, 96, rank) @ numbers(2, rank, 200)) * 1.25
    row = [str(rank), crc(delta)]
    for dtype in (torch.bfloat16, torch.float16):
        weight = numbers(3, 96, 200).to(dtype)
        plain, rounded = weight.clone(), weight.clone()
        plain += delta
        rounded += delta.to(dtype)
        row += [crc(plain), crc(rounded)]
    print("    {%s}," % ", ".join(row + [crc(numbers(3, 96, 200) + delta)]))
