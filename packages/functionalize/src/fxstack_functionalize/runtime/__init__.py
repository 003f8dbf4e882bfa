"""The wrappers that call compiled graphs with eager's semantics.

Their source is generated for the graph at hand, so that a call tests nothing that is known at compile time.
``plan`` holds what the code is generated from, ``wrapper`` makes the callables of inference and training.
``forward`` holds what a call does, ``backward`` what autograd does afterwards. Begin with ``wrapper``.
"""
