"""Operators of ours that may stand in a graph between stages.

Attention as one operator, launches of users' Triton kernels, states of random generators, hooks of gradients.
Every stage may import them. Begin with ``seeds``, the shortest.
"""
