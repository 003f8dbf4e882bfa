"""Random numbers in traced graphs.

``rng`` keeps the order and the bits of eager's random operators; ``functional_random`` makes a graph that
takes the state of torch's generator and returns the state after it. The folder imports ``tracing``. Begin
with ``rng``.
"""
