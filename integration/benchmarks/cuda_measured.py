"""Times that an NVIDIA H100 80GB HBM3 took, in milliseconds: those of ``docs/results/cuda.md`` (2026-11-26), by system.

The kernels of a function or product with the L2 cache overwritten before each run; for models all kernels of a training step in
bfloat16 (size ``bench``).
"""

Times = dict[str, tuple[float, float]]
"""torch.compile, fxstack."""

KERNELS: Times = {
    "copy": (0.049, 0.049),
    "add relu": (0.072, 0.072),
    "gelu bias": (0.058, 0.058),
    "transpose add": (0.072, 0.072),
    "sum rows": (0.050, 0.055),
    "sum columns": (0.059, 0.080),
    "sum all": (0.056, 0.060),
    "softmax": (0.082, 0.050),
    "layer norm": (0.054, 0.050),
    "rms norm": (0.049, 0.049),
    "cross-entropy": (0.386, 0.418),
    "rope": (0.049, 0.050),
    "adamw": (0.363, 0.317),
    "argmax": (0.258, 0.261),
}
PRODUCTS: Times = {
    "mm 4096x4096x4096": (0.177, 0.175),
    "mm 8192x8192x8192": (1.420, 1.581),
    "mm gelu 4096x4096x4096": (0.203, 0.204),
    "mm gelu 8192x4096x512": (0.130, 0.109),
    "mm relu residual 4096x4096x4096": (0.209, 0.207),
    "swiglu 4096x4096x4096": (0.387, 0.380),
    "causal attention": (0.919, 1.005),
}
MODELS: Times = {
    "gpt2": (0.27, 0.33),
    "llama": (0.33, 0.37),
    "bert": (0.33, 0.41),
    "vit": (0.63, 0.60),
    "mlp": (0.13, 0.22),
    "t5": (0.58, 0.78),
    "resnet": (0.45, 0.68),
}
