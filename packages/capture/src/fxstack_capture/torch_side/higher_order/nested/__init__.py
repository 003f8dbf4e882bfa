"""Nested graphs of control flow.

``calls`` traces the functions of one call and adds its node. ``bodies`` makes the graph of one function: copies of
tensors that the function writes to, and results with memory of their own. ``results`` has numbers as results, and
messages about results that differ; ``branches`` joins the results of two branches. ``nodes`` has the nodes of each
operator. ``lifting`` and ``derivations`` are for calls under ``torch.func``. Begin with ``calls``.
"""
