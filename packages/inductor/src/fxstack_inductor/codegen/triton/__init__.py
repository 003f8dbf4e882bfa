"""The Triton target for GPUs: kernels as text of Triton functions. Writing needs neither Triton nor a GPU.

``writer`` writes a function; templates have writers that derive from it. ``ops`` and ``float8`` are scalar
operations; ``templates.kernels`` joins the kernels of a graph. Modules here import ``ir``, ``errors``, ``tiling``, ``codegen``
helpers and ``schedule.int32_indexing``. Begin with ``writer``.
"""
