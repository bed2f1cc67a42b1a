"""A small spoken English corpus made on the spot by espeak-ng, for quick starts and tests.

``build_corpus`` writes it; ``voicehub data synthesize OUT`` is the same from a shell. Nothing is
downloaded: espeak-ng comes with the ``synth`` extra (it is GPL, so no wheel of ours requires it).
"""

from __future__ import annotations

from voicehub_data.synthetic.corpus import CorpusSummary, build_corpus
from voicehub_data.synthetic.plan import CorpusPlan, plan_corpus

__all__ = ["CorpusPlan", "CorpusSummary", "build_corpus", "plan_corpus"]
