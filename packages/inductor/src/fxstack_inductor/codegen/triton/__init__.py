"""The Triton target for GPUs: kernels as text of Triton functions. Writing needs neither Triton nor a GPU.

``tiles``, ``product_tiles`` and ``attention_tiles`` choose tile sizes. ``writer`` writes a function, with
subclasses in ``products`` and ``attention``. ``ops`` and ``float8`` are scalar operations; ``module`` joins
the kernels of a graph. Modules here import ``ir``, ``errors``, ``codegen`` helpers and ``schedule.loops``.
Begin with ``module``, then ``tiles`` and ``writer``.
"""
