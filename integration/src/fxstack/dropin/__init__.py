"""Programs that call ``torch.compile`` run on fxstack, unedited.

``installing`` puts fxstack in the place of torch's compiler and takes it out again, ``fxstack_startup`` changes
modules of torch when somebody imports them, ``entrances`` has the functions with torch's signatures, ``entries``
shares what was compiled, ``module_class`` answers ``isinstance(m, torch._dynamo.OptimizedModule)``. The folder
imports ``api`` and what it imports. Begin with ``installing``.
"""
