"""Operators that need their own treatment in a trace, for example fused optimizers, attention and RNNs.

A module of this folder replaces an operator by other operators, or calls it under special conditions. The
folder imports the tracer's types and ``fxstack_interchange`` only. ``tracing.interpret`` looks functions up
in its tables: begin there, then read ``elements`` as the smallest example.
"""
