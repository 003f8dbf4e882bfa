"""What records a trace: its inputs, the symbols of their sizes, the tracer, and the functionalisation under it.

``inputs`` makes the caller's examples fake; ``aten_tracer`` records ATen operators into a graph; ``engine``
removes views and mutations from what is recorded; ``exact_random`` keeps the order and the bits of random
operators; ``tensor_metadata`` describes the layout of saved tensors and gradients. Begin with ``inputs``.
"""
