"""What a compilation did, as text: on stderr, in a folder, in torch's logs, as a closing table and as a report.

Begin reading in ``artefacts`` (what there is to see), then ``listener`` (events of compilations to text) and
``output`` (where the text goes). May import ``fxstack.log`` and the stages; the pipeline imports nothing of this folder.
"""
