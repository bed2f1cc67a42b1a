"""What the pre-flight knows that may keep a model from learning."""

from __future__ import annotations

from voicehub_asr_ctc.config import CTCRunConfig, PretrainedRunConfig
from voicehub_asr_ctc.data.coverage import explain
from voicehub_asr_ctc.data.preflight import LabelledSplit, available_frames
from voicehub_asr_ctc.decoding.forced import minimum_frames
from voicehub_asr_ctc.front_ends.base import FrontEnd
from voicehub_asr_ctc.health import Suspicion, learning_rate_suspicion
from voicehub_asr_ctc.tokenizers.base import CTCTokenizer
from voicehub_data.splits import NARROW_BAND

#: Shares above these are worth a word.
_UNKNOWN_SHARE, _TIGHT_SHARE = 0.005, 0.1
#: A row is tight when its labels need more than this share of its frames.
_TIGHT = 0.8


def suspicions(
    config: CTCRunConfig, train: LabelledSplit, tokenizer: CTCTokenizer, front_end: FrontEnd
) -> list[Suspicion]:
    """Return what was seen, the likeliest cause of blank collapse first."""
    found = []
    if train.coverage.share > _UNKNOWN_SHARE:
        cause = explain(train.coverage.unknown, tokenizer)
        found.append(Suspicion(cause.name, f"{train.coverage.describe()}; {cause.advice}"))
    tight = _tight_share(train, front_end)
    if tight > _TIGHT_SHARE:
        found.append(
            Suspicion(
                "labels-fill-frames",
                f"in {tight:.0%} of the rows the labels need most of the frames "
                f"({1000 * front_end.frame_seconds:.0f} ms each), which leaves few alignments to "
                "learn from; use longer tokens (model.tokenizer.kind=bpe) or shorter frames",
            )
        )
    # Audio of a higher rate loses nothing that the checkpoint has heard.
    narrow = (n for n in train.report.notes if n.startswith("wrong-rate: ") and NARROW_BAND in n)
    wrong = next(narrow, None)
    if wrong is not None and isinstance(config, PretrainedRunConfig):
        found.append(
            Suspicion(
                "sample-rate",
                f"{wrong.removeprefix('wrong-rate: ')}; the checkpoint heard audio recorded at "
                f"{front_end.sample_rate} Hz",
            )
        )
    fine_tuning = isinstance(config, PretrainedRunConfig) and config.model.lora is None
    rate = learning_rate_suspicion(config.training.learning_rate, fine_tuning=fine_tuning)
    return [*found, *([rate] if rate is not None else [])]


def _tight_share(train: LabelledSplit, front_end: FrontEnd) -> float:
    tight = sum(
        minimum_frames(labels) > _TIGHT * available_frames(row, front_end)
        for row, labels in zip(train.rows, train.labels, strict=True)
    )
    return tight / len(train.rows)
