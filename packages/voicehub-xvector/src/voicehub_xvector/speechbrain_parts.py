"""Import parts of speechbrain without the deferred modules that it leaves in ``sys.modules``.

speechbrain registers redirections of its old module names there. They import optional packages
(k2, spacy, flair) as soon as anybody reads an attribute, as tools do that look at the files of all
modules, and fail where those are missing.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType


def speechbrain_part(name: str) -> ModuleType:
    """Import ``speechbrain.<name>``, then take the redirections out of ``sys.modules``.

    They stay reachable as attributes of their packages.
    """
    module = import_module(f"speechbrain.{name}")
    for key, other in list(sys.modules.items()):
        if type(other).__module__ == "speechbrain.utils.importutils":
            del sys.modules[key]
    return module
