"""The pytest plugin of the sessions of ``noxfile.py``: ``PYTHONPATH=testing pytest -p gate``.

- ``selection``: which of the slow tests run (``--slow``);
- ``limits``: what each test costs (``--costs``), and the limit for tests that are not listed as slow (``--cpu-limit``);
- ``workers``: cache directories for each worker of pytest-xdist, and tests that run while no other test does.

``slow.txt`` lists the slow tests; ``python testing/gate/record.py`` writes the list.
"""

pytest_plugins = ["gate.selection", "gate.limits", "gate.workers"]
