"""Programs that call ``torch.compile`` run on fxstack, unedited.

``installing`` puts fxstack in the place of torch's compiler and takes it out again, ``fxstack_startup`` changes
modules of torch when somebody imports them, ``entrances`` has the functions with torch's signatures. The folder
imports ``api`` and its imports. Begin with ``installing``.
"""
