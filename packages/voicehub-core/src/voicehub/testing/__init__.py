"""The conformance kit: what every family must hold, checked on a tiny model of it.

A family offers a ``ConformanceCase`` in the entry-point group ``voicehub.conformance`` and runs
``pytest --voicehub-family NAME``, or ``run_check`` in its own tests. Importing this package loads
neither torch nor pytest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from voicehub._lazy import lazy_exports

if TYPE_CHECKING:
    from voicehub.testing.case import ConformanceCase
    from voicehub.testing.check_names import CHECKS
    from voicehub.testing.outcomes import Outcome
    from voicehub.testing.runner import run_check

__all__ = ["CHECKS", "ConformanceCase", "Outcome", "run_check"]

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "CHECKS": "voicehub.testing.check_names",
        "ConformanceCase": "voicehub.testing.case",
        "Outcome": "voicehub.testing.outcomes",
        "run_check": "voicehub.testing.runner",
    },
)
