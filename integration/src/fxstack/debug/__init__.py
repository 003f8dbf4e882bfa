"""What a compilation did, as text: on stderr, in a folder, in torch's logs, and as a closing table.

Begin reading in ``artefacts`` (what there is to see), then ``listener`` (events of compilations to text) and
``output`` (where the text goes). May import ``fxstack.log`` and the stages; the pipeline imports nothing of this folder.
"""

from fxstack.debug.listener import DebugListener
from fxstack.debug.summary import Summary, print_at_exit
from fxstack.log import LISTENERS


def start() -> None:
    """Follow all compilations of the process. Nothing is shown unless the environment or torch's logs ask for it."""
    summary = Summary()
    LISTENERS.extend((DebugListener(), summary))
    print_at_exit(summary)
