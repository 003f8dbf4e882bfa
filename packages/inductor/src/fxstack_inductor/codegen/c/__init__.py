"""The C target for CPUs: vectorised loops with OpenMP, one C function per kernel.

``strategy`` chooses a loop structure and its writer: a module of ``pointwise``, ``function``,
``reductions.columns`` or ``scatter``. ``text`` and ``ops`` print values; ``sharing`` and ``threads`` divide
loops among threads; ``module`` joins the functions. Modules here import ``ir``, ``codegen`` helpers and
``schedule.condition_splits``. Begin with ``strategy``, then ``loops`` and ``pointwise.points``.
"""
