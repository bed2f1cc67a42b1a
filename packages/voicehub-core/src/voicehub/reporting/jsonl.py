"""Moved: the Trainer itself always writes ``metrics.jsonl`` (``voicehub.trainer.metrics_file``).

The command line must not add it again; read the rows with ``read_metrics``.
"""

from voicehub.trainer.metrics_file import METRICS_FILE, read_metrics

__all__ = ["METRICS_FILE", "read_metrics"]
