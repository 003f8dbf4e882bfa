"""Runs samples of ``kernels_beside`` in a process of its own: importing torch's databases changes flags of the whole process."""

import multiprocessing
from concurrent.futures import ProcessPoolExecutor


def other_process():
    """A pool of one process."""
    return ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn"))


def sample(family, every, options):
    """Counts, and differences by operator and kind, of every so many-th operator; ``symbols`` makes sizes symbolic."""
    import kernels_beside as kb
    import torch

    symbols = options.pop("symbols", False)
    if "dtypes" in options:
        options["dtypes"] = [getattr(torch, name) for name in options["dtypes"]]
    beside = kb.run(getattr(kb, family)(kb.op_db[::every], **options), symbols=symbols)
    return dict(beside.counts), {key: str(example) for key, example in beside.found.items()}
