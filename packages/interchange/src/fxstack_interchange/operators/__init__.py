"""The operators of fxstack that may occur in a graph between stages.

These operators are attention as one operator, launches of users' Triton kernels, states of random generators, and
gradient hooks. Every stage may import them. Begin with ``seeds``, the shortest module.
"""
