"""Nested graphs of control flow.

``bodies`` makes the graph of one function: copies of tensors that the function writes to, and results with memory
of their own. ``results`` has numbers as results, and messages about results that differ; ``branches`` joins the
results of two branches. Begin with ``bodies``.
"""
