"""Dropout's random numbers on CUDA from published descriptions: Philox4x32-10 (Salmon et al., 2011), cuRAND, torch's kernel.

Written for the tests alone, in NumPy, without code of the package.
"""

import numpy as np
import torch


def philox(counter, key):
    """Four words for each counter (four words, the last axis) under a key of two words."""
    c = [np.asarray(counter[..., k], np.uint64) for k in range(4)]
    k0, k1 = key
    low = np.uint64(0xFFFFFFFF)
    for _ in range(10):
        left, right = np.uint64(0xD2511F53) * c[0], np.uint64(0xCD9E8D57) * c[2]
        c = [
            (right >> np.uint64(32)) ^ c[1] ^ np.uint64(k0),
            right & low,
            (left >> np.uint64(32)) ^ c[3] ^ np.uint64(k1),
            left & low,
        ]
        k0, k1 = (k0 + 0x9E3779B9) % 2**32, (k1 + 0xBB67AE85) % 2**32
    return np.stack(c, -1).astype(np.uint32)


def uniform(words):
    """cuRAND's numbers between 0 and 1."""
    return words.astype(np.float32) * np.float32(2**-32) + np.float32(2**-33)


class Stream:
    """What ``curand_uniform4`` returns to one thread, call by call."""

    def __init__(self, seed, thread, offset):
        self.key, self.thread, self.at = (seed % 2**32, seed >> 32), thread, offset // 4

    def four(self):
        counter = np.array([self.at % 2**32, self.at >> 32, self.thread, 0])
        self.at += 1
        return uniform(philox(counter, self.key))


def numbers(x, threads, seed, offset, aligned=16):
    """The number that each element of ``x`` is compared with, as torch's kernel runs: thread by thread."""
    count, size = x.numel(), x.element_size()
    dense = torch.ops.aten.is_non_overlapping_and_dense(x)
    vector = min(16, aligned) // size if dense else 1
    while count % vector:
        vector //= 2
    found = np.zeros(count, np.float32)
    for thread in range(threads):
        stream = Stream(seed, thread, offset)
        if vector == 1:
            for first in range(thread, count, 4 * threads):
                four = stream.four()
                for k in range(4):
                    if first + k * threads < count:
                        found[first + k * threads] = four[k]
            continue
        for first in range(vector * thread, count, vector * threads):
            drawn = np.concatenate([stream.four() for _ in range(max(vector // 4, 1))])
            found[first : first + vector] = drawn[:vector]
    if vector == 1:  # elements count in row-major order
        return torch.from_numpy(found).reshape(x.shape)
    laid_out = torch.empty_strided(x.shape, x.stride(), dtype=torch.float32)
    laid_out.as_strided((count,), (1,)).copy_(torch.from_numpy(found))
    return laid_out


def dropout(x, p, threads, seed, offset, aligned=16):
    """Eager's value and mask on CUDA."""
    computed = torch.float64 if x.dtype is torch.float64 else torch.float32
    keep = torch.tensor(1.0 - p, dtype=torch.float64).to(computed)
    mask = numbers(x, threads, seed, offset, aligned).to(computed) < keep
    scale = (1.0 / keep.double()).to(computed)
    return (x.to(computed) * mask * scale).to(x.dtype), mask


class Generator:
    """A generator in place of torch's on a GPU; ``reserved`` are the counts of numbers that were reserved."""

    def __init__(self, seed, offset=0):
        self.seed, self.offset, self.reserved = seed, offset, []

    def get_offset(self):
        return self.offset

    def philox_state(self, count):
        self.reserved.append(count)
        offset, self.offset = self.offset, self.offset + -(-count // 4) * 4
        return tuple(torch.tensor([value]) for value in (self.seed, offset, 0))
