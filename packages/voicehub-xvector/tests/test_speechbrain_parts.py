"""What reads an attribute of every module must not import k2."""

from __future__ import annotations

import sys

from voicehub_xvector.speechbrain_parts import speechbrain_part


def test_no_module_fails_when_its_file_is_asked_for():
    losses = speechbrain_part("nnet.losses")
    assert losses.__name__ == "speechbrain.nnet.losses"
    names = [name for name in sys.modules if name.partition(".")[0] == "speechbrain"]
    assert names and all(hasattr(sys.modules[name], "__name__") for name in names)
    assert not [name for name in names if getattr(sys.modules[name], "__file__", None) is None]
