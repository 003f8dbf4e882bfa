"""Regions: parts of a captured graph that several calls share, as nodes of ``invoke_subgraph``.

A region is traced, cut into forward and backward, and compiled once for all calls with inputs of the same
kinds. A program makes regions with ``torch.compiler.nested_compile_region``; ``outline`` makes regions of
equal parts of a captured graph, for example of the layers of a transformer. ``periods`` and ``segments`` find
the equal parts, ``cut`` makes a forward and a backward of a traced body, and ``table`` holds the regions of
one compilation. ``tracing.region_calls`` records the calls. Begin with ``table``.
"""
