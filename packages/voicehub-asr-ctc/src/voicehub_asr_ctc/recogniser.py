"""Transcribing and evaluating: what both model wrappers share."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from voicehub.errors import ConfigurationError, DataError
from voicehub.models.lifecycle import PreTrainedRecognitionModel
from voicehub.models.modes import eval_mode
from voicehub.models.results import EvaluationReport, PredictionRow, Transcription, WordTiming
from voicehub_asr_ctc.chunks import Chunk, plan_chunks
from voicehub_asr_ctc.decoding import TokenTexts, beam_search, force_align, greedy, word_timings
from voicehub_asr_ctc.decoding.language_model import LanguageModel, NgramLM
from voicehub_asr_ctc.forward import run_apart, run_together
from voicehub_asr_ctc.metrics import EvaluationRow, error_rates, prediction_row
from voicehub_asr_ctc.tokenizers.base import CTCTokenizer
from voicehub_data.by_length import run_by_length
from voicehub_data.evaluation_rows import evaluation_notes, evaluation_rows
from voicehub_data.given_audio import given_audio
from voicehub_data.manifest import ManifestRow
from voicehub_data.row_audio import load_rows

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from voicehub_asr_ctc.front_ends.base import FrontEnd

    Audio = NDArray[np.float32]

#: Seconds of a window and of the overlap of two, for long recordings.
CHUNK_SECONDS, OVERLAP_SECONDS = 30.0, 4.0


class CTCRecogniser(PreTrainedRecognitionModel):
    """Base of the model wrappers: from audio to text.

    Attributes:
        tokenizer: from labels to text.
        front_end: from audio to the network's input.
        metric_normalizer: applied to both sides before errors are counted.
        runs_apart: utterances of unequal length do not share a forward.
    """

    destructive_inference_load = False

    tokenizer: CTCTokenizer
    front_end: FrontEnd
    metric_normalizer: str = "basic"
    runs_apart: bool = False

    def transcribe(
        self,
        audio: Sequence[str | Path | np.ndarray[Any, Any]],
        *,
        batch_size: int = 8,
        beam_size: int = 1,
        timestamps: bool = False,
        **options: Any,
    ) -> list[Transcription]:
        """Return the text of recordings; see ``PreTrainedRecognitionModel``.

        Options:
            language_model: path of a KenLM model, or an object with its methods; needs a beam.
            alpha, beta: its weight, and what each word adds.
            chunk_seconds, overlap_seconds: windows that longer recordings are cut into.

        Raises:
            DataError: a file cannot be read; the message names it.
        """
        decoder = Decoder(self, beam_size, options)
        waves = [given_audio(item, self.front_end.sample_rate) for item in audio]
        results = []
        scores = self.log_probs(waves, batch_size=batch_size, **decoder.chunking)
        for position, (item, wave, rows) in enumerate(zip(audio, waves, scores, strict=True)):
            name = f"audio-{position}" if isinstance(item, np.ndarray) else str(item)
            text, words = decoder.decode(rows, timestamps=timestamps)
            seconds = len(wave) / self.front_end.sample_rate
            results.append(Transcription(name, text, words, seconds))
        return results

    def evaluate(
        self,
        manifest: str | Path,
        *,
        batch_size: int = 8,
        max_samples: int | None = None,
        **options: Any,
    ) -> EvaluationReport:
        """Transcribe a manifest and count errors; see ``PreTrainedRecognitionModel``.

        A row whose audio cannot be read is counted in ``dropped``, never as an empty hypothesis.
        Options are those of ``transcribe``, ``beam_size`` and ``normalizer``.
        """
        normalizer = str(options.pop("normalizer", self.metric_normalizer))
        decoder = Decoder(self, int(options.pop("beam_size", 1)), options)
        rows, dropped, left_out = evaluation_rows(manifest, max_samples)
        results, unreadable = self.recognise_rows(rows, decoder, batch_size=batch_size)
        if unreadable:
            dropped["unreadable-audio"] = len(unreadable)
        if not results:
            raise DataError(f"{manifest}: no row can be read. The first: {unreadable[0]}")
        metrics = error_rates(results, normalizer)
        by_id = {row.id: row for row in rows}
        predictions = [prediction_row(item, by_id[item.id], normalizer) for item in results]
        notes = evaluation_notes([by_id[item.id] for item in results], [*left_out, *unreadable])
        return EvaluationReport(metrics, predictions, dict(dropped), notes=notes)

    def predict_rows(self, rows: Sequence[ManifestRow], batch_size: int = 8) -> list[PredictionRow]:
        """Greedy predictions of rows, for a report; unreadable ones are left out."""
        results, _ = self.recognise_rows(rows, Decoder(self, 1, {}), batch_size=batch_size)
        by_id = {row.id: row for row in rows}
        return [prediction_row(item, by_id[item.id], self.metric_normalizer) for item in results]

    def recognise_rows(
        self, rows: Sequence[ManifestRow], decoder: Decoder, *, batch_size: int
    ) -> tuple[list[EvaluationRow], list[str]]:
        """Recognise rows in their order; also return what was said of those that cannot be read."""
        failures: list[str] = []

        def run(batch: list[ManifestRow]) -> list[EvaluationRow | None]:
            waves, unread = load_rows(batch, self.front_end.sample_rate)
            failures.extend(unread)
            heard = [wave for wave in waves if wave is not None]
            scores = iter(self.log_probs(heard, batch_size=batch_size, **decoder.chunking))
            return [
                None if wave is None else self._evaluated(row, next(scores), decoder)
                for row, wave in zip(batch, waves, strict=True)
            ]

        results = run_by_length(rows, batch_size, run, length=lambda row: row.duration or 0.0)
        return [result for result in results if result is not None], failures

    def _evaluated(
        self, row: ManifestRow, log_probs: NDArray[np.float32], decoder: Decoder
    ) -> EvaluationRow:
        text, _ = decoder.decode(log_probs)
        blanks = int((log_probs.argmax(-1) == self.tokenizer.blank_id).sum())
        return EvaluationRow(row.id, row.text, text, len(log_probs), blanks)

    def log_probs(
        self,
        waves: Sequence[Audio],
        *,
        batch_size: int = 8,
        chunk_seconds: float = CHUNK_SECONDS,
        overlap_seconds: float = OVERLAP_SECONDS,
    ) -> list[NDArray[np.float32]]:
        """Return log-probabilities (frames, tokens) of each recording, long ones in windows.

        Args:
            waves: mono float32 at the model's rate.
            batch_size: windows that share a forward.
            chunk_seconds, overlap_seconds: of the windows.
        """
        rate, hop = self.front_end.sample_rate, self.front_end.hop_samples
        sizes = (int(chunk_seconds * rate), int(overlap_seconds * rate))
        work = [
            (owner, chunk)
            for owner, wave in enumerate(waves)
            for chunk in plan_chunks(len(wave), hop, *sizes)
        ]
        pieces = [waves[owner][chunk.start : chunk.stop] for owner, chunk in work]
        scores = run_by_length(pieces, batch_size, self._scores, length=len)
        parts: list[list[NDArray[np.float32]]] = [[] for _ in waves]
        for (owner, chunk), rows in zip(work, scores, strict=True):
            parts[owner].append(_kept(chunk, rows))
        return [np.concatenate(part) for part in parts]

    def _scores(self, waves: Sequence[Audio]) -> list[NDArray[np.float32]]:
        """Log-probabilities of recordings that fit into one forward."""
        items = [self.front_end.prepare(wave) for wave in waves]
        device = next(self.network.parameters()).device
        inputs = {key: value.to(device) for key, value in self.front_end.batch(items).items()}
        with eval_mode(self.network), torch.inference_mode():
            # Frames of masked rows are decoded, as plain transformers does; they are what they
            # are for the utterance alone only where nothing longer is beside it.
            if self.runs_apart or self.front_end.masks_rows:
                lengths = [len(item.rows) for item in items]
                logits = run_apart(lambda part: self.network(**part), inputs, lengths)
            else:
                logits, _ = run_together(lambda part: self.network(**part), inputs)
        scores = logits.float().log_softmax(-1).cpu().numpy()
        return [row[: item.produced] for row, item in zip(scores, items, strict=True)]

    @property
    def network(self) -> torch.nn.Module:
        """The loaded module; a lazy wrapper loads its weights when they are first needed."""
        if self.model is None:
            self.load()
        return self.model  # type: ignore[no-any-return]


class Decoder:
    """How scores become text: greedy, or a beam with or without a language model.

    Args:
        model: whose tokenizer and frames are meant.
        beam_size: 1 is greedy.
        options: see ``CTCRecogniser.transcribe``.

    Raises:
        ConfigurationError: an option is unknown, or a language model is given without a beam.
    """

    def __init__(self, model: CTCRecogniser, beam_size: int, options: dict[str, Any]) -> None:
        options = dict(options)
        names = ("chunk_seconds", "overlap_seconds")
        self.chunking = {name: options.pop(name) for name in names if name in options}
        self.alpha = float(options.pop("alpha", 0.5))
        self.beta = float(options.pop("beta", 1.0))
        self.lm = _language_model(options.pop("language_model", None))
        if options:
            known = ("alpha", "beta", "language_model", *names)
            raise ConfigurationError(
                f"unknown decoding option {sorted(options)[0]!r}; expected {', '.join(known)}."
            )
        if beam_size < 1 or (self.lm is not None and beam_size == 1):
            raise ConfigurationError(
                f"beam_size is {beam_size}; expected at least 1, and more with a language model."
            )
        self.beam_size = beam_size
        self.tokenizer = model.tokenizer
        self.frame_seconds = model.front_end.frame_seconds
        self.roles = TokenTexts.from_tokens(self.tokenizer.surfaces, word_delimiter=" ")

    def decode(
        self, log_probs: NDArray[np.float32], *, timestamps: bool = False
    ) -> tuple[str, list[WordTiming] | None]:
        """Return the text of one recording, and the times of its words if asked for."""
        blank = self.tokenizer.blank_id
        if self.beam_size == 1:
            alignment = greedy(torch.from_numpy(log_probs)[None], blank=blank)[0]
        else:
            best = beam_search(
                log_probs,
                blank,
                self.beam_size,
                self.lm,
                self.alpha,
                self.beta,
                self.roles if self.lm is not None else None,
            )[0]
            if not timestamps:
                return self.tokenizer.decode(best.ids), None
            alignment = force_align(log_probs, best.ids, blank)
        words = word_timings(alignment, self.roles, self.frame_seconds) if timestamps else None
        return self.tokenizer.decode(alignment.ids), words


def _language_model(given: str | Path | LanguageModel | None) -> LanguageModel | None:
    return NgramLM(given) if isinstance(given, (str, Path)) else given


def _kept(chunk: Chunk, scores: NDArray[np.float32]) -> NDArray[np.float32]:
    stop = None if chunk.keep_to is None else chunk.keep_to - chunk.first_frame
    return scores[chunk.keep_from - chunk.first_frame : stop]
