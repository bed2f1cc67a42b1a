"""CTC speech recognition: a small log-mel model from scratch, and the CTC classes of transformers.

Importing this package loads nothing else.
"""

from __future__ import annotations

__version__ = "0.1.0"
