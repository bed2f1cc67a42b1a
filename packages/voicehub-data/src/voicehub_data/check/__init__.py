"""Find what is wrong with a corpus before it is trained on."""

from __future__ import annotations

from voicehub_data.check.findings import SEVERITIES, CheckReport, Finding
from voicehub_data.check.run import check_manifest

__all__ = ["SEVERITIES", "CheckReport", "Finding", "check_manifest"]
