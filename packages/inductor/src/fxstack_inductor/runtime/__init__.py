"""Everything that generated code needs in a running process: compilers, disk cache, loaders, CUDA driver.

``toolchain``, ``cache`` and ``loader`` compile and load C, ``parts`` splits it; ``cubins``, ``cuda_driver`` and
``triton_runtime`` serve GPUs. ``native`` links native host programs, ``arena`` lends them memory, ``cuda_graphs``
records calls. Modules here import ``errors``, ``options``, ``ir.expr``, ``tiling.kernels`` and ``schedule.memory``.
Begin with ``loader``.
"""
