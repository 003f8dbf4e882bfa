"""Random numbers as data: graphs that take the state of torch's generator and return the state after it.

``functional_random`` makes such a graph of a captured graph; ``nested_draws`` does so for the graphs inside of
higher-order operators. ``tracer.exact_random`` keeps the order and the bits of eager's draws. Begin with
``functional_random``.
"""
