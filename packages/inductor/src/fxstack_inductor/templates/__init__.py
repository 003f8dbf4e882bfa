"""Templates: kernels that are written from patterns of their own, because they profit from matrix instructions.

``template`` is the interface, ``all_templates`` the list; each folder is one template: its lowering rules, tiling, writer
and cost. ``kernels`` writes all kernels of a graph, with or without a template. Other folders know a template only by the
name in ``Kernel.template``. Modules here import ``lower``, ``schedule``, ``tiling``, ``cost``, ``codegen.triton`` and
``autotune``; templates do not import each other. Begin with ``template``, then ``product``.
"""
