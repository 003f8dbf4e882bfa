"""The Triton target for GPUs: kernels as text of Triton functions. Writing needs neither Triton nor a GPU.

``writer`` writes a function, with subclasses in ``products`` and ``attention``. ``ops`` and ``float8`` are scalar
operations; ``module`` joins the kernels of a graph. Modules here import ``ir``, ``errors``, ``tiling``, ``codegen``
helpers and ``schedule.index_width``. Begin with ``module``, then ``writer``.
"""
