"""Transcribing and evaluating with an LLM recogniser."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from voicehub.errors import ConfigurationError
from voicehub.models.lifecycle import PreTrainedRecognitionModel
from voicehub.models.modes import eval_mode
from voicehub.models.options import with_options
from voicehub.models.results import EvaluationReport, Transcription
from voicehub_asr_llm.config import AsrLlmModelConfig, GenerationConfig
from voicehub_asr_llm.decoders.chat import ChatFormat, Kind
from voicehub_asr_llm.decoders.loading import plain
from voicehub_asr_llm.encoders.base import FrontEnd
from voicehub_asr_llm.evaluating import Hypothesis, SeenIds
from voicehub_asr_llm.projectors.base import projected_lengths
from voicehub_asr_llm.transcribing import Limits, cut_at_quiet_places, generate
from voicehub_data.audio import extended
from voicehub_data.by_length import run_by_length
from voicehub_data.given_audio import given_audio

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Audio = NDArray[np.float32]


class LlmRecogniser(PreTrainedRecognitionModel):
    """Base of the model wrapper: from audio to text.

    Attributes:
        metric_normalizer: applied to both sides before errors are counted.
        punctuated: whether transcription asks for punctuation.
        seen: ids of the rows that it was trained on.
    """

    config: AsrLlmModelConfig
    metric_normalizer: str = "whisper-english-variants"
    punctuated: bool = False
    seen: SeenIds | None = None

    @property
    @abstractmethod
    def front_end(self) -> FrontEnd:
        """From audio to the encoder's input."""

    @property
    @abstractmethod
    def prompt_kind(self) -> Kind:
        """Which prompt transcription uses."""

    @property
    @abstractmethod
    def network(self) -> Any:
        """The loaded module."""

    chat: Any

    @property
    def sampling_rate(self) -> int:
        """Hz of the audio that it takes."""
        return self.front_end.sample_rate

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

        Recordings over ``generation.max_seconds`` are cut at quiet places.

        Options:
            those of ``GenerationConfig``; where absent the model's own hold.
            prompt: ``plain`` or ``punctuated``.

        Raises:
            DataError: a file cannot be read; the message names it.
            ConfigurationError: an option is not there; timings are asked for.
        """
        if timestamps:
            raise ConfigurationError(
                "a language model gives no word timings; take a CTC model for them."
            )
        kind = self._kind(options.pop("prompt", None))
        settings = self._generation(options)
        waves = [given_audio(item, self.sampling_rate) for item in audio]
        results = self.hypotheses(
            waves, batch_size=batch_size, beam_size=beam_size, settings=settings, kind=kind
        )
        return [
            Transcription(
                f"audio-{place}" if isinstance(item, np.ndarray) else str(item),
                result.text,
                None,
                len(wave) / self.sampling_rate,
            )
            for place, (item, wave, result) in enumerate(zip(audio, waves, results, strict=True))
        ]

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

        Options:
            those of ``transcribe``, ``beam_size`` and ``normalizer``.
            allow_seen: measure on rows that the model was trained on all the same.
        """
        from voicehub_asr_llm.evaluating import evaluate_manifest

        normalizer = str(options.pop("normalizer", self.metric_normalizer))
        allow_seen = bool(options.pop("allow_seen", False))
        return evaluate_manifest(
            self.recognise(**options),
            manifest,
            sample_rate=self.sampling_rate,
            batch_size=batch_size,
            max_samples=max_samples,
            normalizer=normalizer,
            seen=self.seen,
            allow_seen=allow_seen,
        )

    def recognise(self, **options: Any) -> Callable[[Sequence[Audio]], list[Hypothesis]]:
        """Return what recognises a batch of waveforms; options are those of ``evaluate``."""
        beam_size = int(options.pop("beam_size", 1))
        kind = self._kind(options.pop("prompt", None))
        settings = self._generation(options)

        def run(waves: Sequence[Audio]) -> list[Hypothesis]:
            return self.hypotheses(
                waves,
                batch_size=len(waves),
                beam_size=beam_size,
                settings=settings,
                kind=kind,
            )

        return run

    def hypotheses(
        self,
        waves: Sequence[Audio],
        *,
        batch_size: int = 8,
        beam_size: int = 1,
        settings: GenerationConfig | None = None,
        kind: Kind | None = None,
    ) -> list[Hypothesis]:
        """Return the text of waveforms, mono float32 at the model's rate, in their order."""
        settings = settings or self.config.generation
        limit = settings.max_seconds
        if self.front_end.maximum_samples is not None:
            limit = min(limit, self.front_end.maximum_samples / self.sampling_rate)
        work = [
            (owner, piece)
            for owner, wave in enumerate(waves)
            for piece in cut_at_quiet_places(wave, self.sampling_rate, limit)
        ]
        write = partial(
            self._write,
            settings=settings,
            beam_size=beam_size,
            kind=kind or self.prompt_kind,
        )
        pieces = [piece for _, piece in work]
        found = run_by_length(pieces, batch_size, write, length=len)
        parts: list[list[Hypothesis]] = [[] for _ in waves]
        for (owner, _), result in zip(work, found, strict=True):
            parts[owner].append(result)
        return [
            Hypothesis(
                " ".join(part.text for part in own if part.text),
                all(part.finished for part in own),
            )
            for own in parts
        ]

    def _write(
        self, waves: Sequence[Audio], settings: GenerationConfig, beam_size: int, kind: Kind
    ) -> list[Hypothesis]:
        chat: ChatFormat = self.chat
        with eval_mode(self.network), torch.inference_mode():
            inputs = self._conversations(waves, kind)
            seconds = [len(wave) / self.sampling_rate for wave in waves]
            written = generate(
                self.network.decoder,
                inputs,
                Limits.of(settings, seconds),
                settings,
                end_id=chat.end_id,
                pad_id=chat.pad_id,
                beam_size=beam_size,
            )
        return [Hypothesis(chat.decode(row.ids), row.finished) for row in written]

    def _conversations(self, waves: Sequence[Audio], kind: Kind) -> list[Tensor]:
        """Inputs of the decoder up to the transcript, (steps, width) of each recording."""
        network, stride = self.network, self.network.projector.stride
        shortest = self.front_end.minimum_samples(stride)
        items = [self.front_end.prepare(extended(wave, shortest)) for wave in waves]
        counts = [projected_lengths(item.frames, stride) for item in items]
        batch: dict[str, Any] = self.front_end.batch(items)
        batch["audio_frames"] = torch.tensor([item.frames for item in items])
        device = next(network.parameters()).device
        moved = {key: value.to(device) for key, value in batch.items()}
        moved["row_counts"] = [item.valid for item in items]
        moved["frame_counts"] = [item.frames for item in items]
        moved["placeholders"] = counts
        projected = network.hear(moved).outputs
        embed = plain(network.decoder).get_input_embeddings()
        prompt = self.chat.prompts[kind]
        before, after = (
            embed(torch.tensor(ids, dtype=torch.long, device=device))
            for ids in (prompt.before, prompt.after)
        )
        return [
            torch.cat([before, outputs[:count].to(before.dtype), after])
            for outputs, count in zip(projected, counts, strict=True)
        ]

    def _kind(self, given: Any) -> Kind:
        if given is None:
            return self.prompt_kind
        if given not in self.chat.prompts:
            raise ConfigurationError(f"prompt {given!r}: expected 'plain' or 'punctuated'.")
        return given  # type: ignore[no-any-return]

    def _generation(self, options: dict[str, Any]) -> GenerationConfig:
        return with_options(self.config.generation, options, "transcription")
