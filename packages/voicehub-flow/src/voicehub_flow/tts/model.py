"""Wrapper of flow-matching text to speech: artifacts of ours, published checkpoints, new models."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from typing_extensions import Self

from voicehub.errors import ConfigurationError, DataError
from voicehub.models.artifact import is_artifact, read_artifact
from voicehub.models.initial import InitialWeights
from voicehub.models.lifecycle import PreTrainedTTSModel
from voicehub.models.modes import eval_mode
from voicehub.models.options import with_options
from voicehub.models.results import Synthesis
from voicehub.suggest import did_you_mean
from voicehub_data.audio import load_audio
from voicehub_flow.config import F5TTSModelConfig, SynthesisSettings
from voicehub_flow.text import Vocabulary
from voicehub_flow.text.vocabulary import VOCABULARY_FILE
from voicehub_flow.tts.data.mels import MelReader
from voicehub_flow.tts.durations import Durations
from voicehub_flow.tts.network import DiT
from voicehub_flow.tts.published import (
    WEIGHTS_FILE,
    open_published,
    read_weights,
    write_published,
)
from voicehub_flow.tts.scaling import MelScaling
from voicehub_flow.tts.speaking import speak_frames
from voicehub_flow.tts.voices import Voices
from voicehub_flow.tts.weights import take_over
from voicehub_flow.vocoders.base import Vocoder, require_same_mel
from voicehub_flow.vocoders.loading import load_vocoder

logger = logging.getLogger(__name__)

RANDOM_WEIGHTS = "(random weights)"
_OPTIONS = tuple(name for name in F5TTSModelConfig.model_fields if name != "path")
_PROMPT = ("prompt_audio", "prompt_text")


class F5TTS(PreTrainedTTSModel):
    """A flow-matching text-to-speech model.

    Args:
        name_or_path: an artifact of ours, a published checkpoint (directory, file or Hub id), or
            what a run starts from.
        arguments: those of the base, and the keys of ``F5TTSModelConfig``, such as ``vocoder``.

    Attributes:
        config: model section.
        vocabulary, voices: rows of the embedding tables.
        scaling: of mel frames.
        durations: how long texts last; None for a published checkpoint, which speaks after a
            recording alone.
    """

    default_model_type = "f5tts"
    # Loading for training reads the weights again.
    destructive_inference_load = False

    def __init__(self, name_or_path: str | Path, **arguments: Any) -> None:
        given = {name: arguments.pop(name) for name in _OPTIONS if name in arguments}
        super().__init__(name_or_path, **arguments)
        given.setdefault("revision", self.revision)
        if self.options:
            name = sorted(self.options)[0]
            raise ConfigurationError(
                f"{self.name_or_path}: unknown option {name!r}.{did_you_mean(name, _OPTIONS)}"
            )
        self.seed = 0
        self.voices, self.scaling = Voices(), MelScaling()
        self.durations: Durations | None = None
        self._vocabulary: Vocabulary | None = None
        self._weights: Path | None = None
        self._vocoder: Vocoder | None = None
        if self.name_or_path == RANDOM_WEIGHTS:
            return
        directory = Path(self.name_or_path)
        if directory.is_dir() and is_artifact(directory):
            self._read_artifact(directory, given)
        else:
            # Frames as the published models take them, where nothing else is said.
            assumed = {"text": {"kind": "checkpoint"}, "mel": {"pad_mode": "reflect"}}
            values = {**assumed, **given, "path": self.name_or_path}
            self.config = F5TTSModelConfig.load(values)

    @classmethod
    def from_config(
        cls,
        config: F5TTSModelConfig,
        vocabulary: Vocabulary,
        voices: Voices,
        *,
        scaling: MelScaling | None = None,
        durations: Durations | None = None,
        seed: int = 0,
        device: str = "cpu",
    ) -> Self:
        """Build a lazy wrapper for a run.

        Args:
            config: model section of the run.
            vocabulary: rows of the text embedding; one that goes on from the checkpoint's.
            voices: rows of the speaker table.
            scaling: of mel frames.
            durations: how long texts last.
            seed: of what is drawn.
            device: where weights load.
        """
        model = cls(RANDOM_WEIGHTS, device=device)
        if config.path is not None:
            model.name_or_path = config.path
            model._weights = open_published(config).weights
        model.config, model.voices, model.seed = config, voices, seed
        model._vocabulary, model.durations = vocabulary, durations
        model.scaling = MelScaling() if scaling is None else scaling
        return model

    def _read_artifact(self, directory: Path, given: dict[str, Any]) -> None:
        artifact = read_artifact(directory, self.model_type)
        changed = {name: value for name, value in given.items() if value is not None}
        fixed = sorted(set(changed) - {"vocoder", "synthesis"})
        if fixed:
            raise ConfigurationError(
                f"{directory} has its own {fixed[0]!r}; only vocoder and synthesis can be given."
            )
        stored = artifact.model
        self.config = F5TTSModelConfig.load({**stored["config"], **changed})
        lower = bool(stored["lower"])
        self._vocabulary = Vocabulary.read(directory / VOCABULARY_FILE, lower=lower)
        self.voices = Voices(stored["speakers"])
        self.scaling = MelScaling.from_dict(stored["scaling"])
        if stored["durations"] is not None:
            self.durations = Durations.from_dict(stored["durations"])
        self._weights = directory / WEIGHTS_FILE

    # -- what is known before weights are there -------------------------------------------------

    @property
    def vocabulary(self) -> Vocabulary:
        """Rows of the text embedding; a published checkpoint's are read when first asked for."""
        if self._vocabulary is None:
            opened = open_published(self.config)
            self._vocabulary, self._weights = opened.vocabulary, opened.weights
        return self._vocabulary

    @property
    def sampling_rate(self) -> int:
        """Hz of the audio it makes."""
        return self.config.mel.sample_rate

    @property
    def vocoder(self) -> Vocoder:
        """Frames to sound; read when first asked for.

        Raises:
            ConfigurationError: it is not there, or reads other frames than the model makes.
        """
        if self._vocoder is None:
            found = load_vocoder(self.config.vocoder, self.config.mel, device=self.device)
            require_same_mel(found, self.config.mel)
            self._vocoder = found
        return self._vocoder

    def artifact_config(self) -> dict[str, Any]:
        return {
            "config": self.config.model_dump(mode="json"),
            "lower": self.vocabulary.lower,
            "vocabulary_sha256": self.vocabulary.fingerprint(),
            "speakers": list(self.voices.names),
            "scaling": self.scaling.to_dict(),
            "durations": None if self.durations is None else self.durations.to_dict(),
        }

    # -- loading ---------------------------------------------------------------------------------

    def _load_weights(self) -> None:
        vocabulary = self.vocabulary
        with torch.random.fork_rng(devices=()):
            torch.manual_seed(self.seed)
            module = DiT(
                self.config.architecture,
                channels=self.config.mel.n_mels,
                symbols=len(vocabulary),
                speakers=len(self.voices),
                dropout=self.config.dropout,
            )
        if self._weights is not None:
            weights = read_weights(self._weights)
            for note in take_over(module, weights, str(self._weights), seed=self.seed):
                logger.info("%s", note)
        self.model = module.to(self.device)
        self.model.train(self.is_training_load)

    def _initialize_from(self, weights: InitialWeights) -> Sequence[str]:
        """An artifact's weights; symbols and speakers that it lacks get new rows."""
        earlier = type(self)(weights.directory, model_type=self.model_type)
        for what, own, theirs in (
            ("vocabulary", self.vocabulary.symbols, earlier.vocabulary.symbols),
            ("speakers", self.voices.names, earlier.voices.names),
        ):
            if own[: len(theirs)] != theirs:
                raise ConfigurationError(
                    f"init_from {weights.directory}: the {what} of this run do not go on from "
                    f"those of the artifact, so that rows would change their meaning."
                )
        tensors = read_weights(weights.directory / WEIGHTS_FILE)
        return take_over(self.model, tensors, f"init_from {weights.directory}", seed=self.seed)

    # -- saving -----------------------------------------------------------------------------------

    def _save_family_files(self, directory: Path) -> None:
        from safetensors.torch import save_file

        tensors = {name: t.contiguous() for name, t in self.model.state_dict().items()}
        save_file(tensors, directory / WEIGHTS_FILE)
        self.vocabulary.save(directory)

    def export_native(self, directory: Path) -> bool:
        """Write the published layout, where the model has nothing that it cannot say."""
        sizes = self.config.architecture
        if len(self.voices) or self.scaling.mean is not None or sizes.text_layout != "front":
            return False
        write_published(self.model, self.vocabulary, directory)
        return True

    # -- synthesis --------------------------------------------------------------------------------

    def configure_sampling(self, config: Any) -> None:
        """Take solver, guidance and vocoder of a run."""
        update = {"synthesis": config.model.synthesis, "vocoder": config.model.vocoder}
        self.config, self._vocoder = self.config.model_copy(update=update), None

    def synthesize(
        self,
        texts: Sequence[str],
        *,
        speaker: str | int | None = None,
        language: str | None = None,
        speaking_rate: float | None = None,
        seed: int = 0,
        **options: Any,
    ) -> list[Synthesis]:
        """Speak texts; see ``PreTrainedTTSModel``.

        Options:
            those of ``SynthesisSettings``, and ``prompt_audio`` (a file, or samples at the model's
            rate) with ``prompt_text``: a recording whose voice is taken over.

        Raises:
            DataError: no character of a text has a token, or a text is too long.
            ConfigurationError: an option or a speaker is not there, or the model needs a prompt.
        """
        prompt = {name: options.pop(name, None) for name in _PROMPT}
        settings = self._settings(options)
        if language is not None:
            raise ConfigurationError(f"{self.model_type!r} has no language to set.")
        if speaking_rate is not None and not speaking_rate > 0:
            raise ConfigurationError(f"speaking_rate must be over 0, got {speaking_rate}.")
        context = self._prompted(prompt["prompt_audio"], prompt["prompt_text"])
        made = []
        for position, text in enumerate(texts):
            where = "the text" if len(texts) == 1 else f"text {position + 1}"
            frames = self._spoken(
                text, self.voices.row(speaker, where), where, settings, context,
                rate=speaking_rate or 1.0, seed=seed,
            )  # fmt: skip
            mel = self.scaling.restored(frames)
            wave = np.ascontiguousarray(self.vocoder(mel).float().cpu().numpy())
            made.append(Synthesis(text, wave, self.sampling_rate, mel.float().cpu().numpy()))
        return made

    def _spoken(
        self,
        text: str,
        speaker: int,
        where: str,
        settings: SynthesisSettings,
        context: tuple[str, Tensor] | None,
        *,
        rate: float,
        seed: int,
    ) -> Tensor:
        clean = " ".join(text.split())
        encoded = self.vocabulary.require(clean, where)
        if encoded.unknown:
            left_out = ", ".join(map(repr, encoded.unknown))
            logger.warning("%s: these characters have no token, left unsaid: %s", where, left_out)
        ids, frames = encoded.ids, self._frames(clean, speaker, where, context, rate)
        longest = settings.max_seconds * self.sampling_rate / self.config.mel.hop_length
        if frames > longest:
            seconds = frames * self.config.mel.hop_length / self.sampling_rate
            raise DataError(
                f"{where}: would last {seconds:.1f} s, over max_seconds "
                f"{settings.max_seconds:g}. Split it, or raise synthesis.max_seconds."
            )
        known = None
        if context is not None:
            ids, known = (*self.vocabulary.encode(f"{context[0]} ").ids, *ids), context[1]
        least = len(ids) - (0 if known is None else len(known))
        frames = max(frames, least, 1)  # every token has a frame of its own
        return self.speak(ids, frames, settings, speaker=speaker, context=known, seed=seed)

    def speak(
        self, ids: Sequence[int], frames: int, settings: SynthesisSettings, **more: Any
    ) -> Tensor:
        """Scaled frames of token ids; see :func:`speak_frames`."""
        if self.model is None:
            self.load()
        with eval_mode(self.model), torch.no_grad():
            return speak_frames(self.model, ids, frames, settings, **more)

    def _frames(
        self,
        text: str,
        speaker: int,
        where: str,
        context: tuple[str, Tensor] | None,
        rate: float,
    ) -> int:
        """Frames of a text: after a recording by its pace, else by the training corpus."""
        if context is not None:
            before = len(context[0].encode())
            return max(1, round(len(context[1]) * len(text.encode()) / max(1, before) / rate))
        if self.durations is None:
            raise ConfigurationError(
                f"{where}: {self.name_or_path} is a published checkpoint, which continues a "
                "recording: give prompt_audio and prompt_text, or train it on a corpus."
            )
        spelt = self.vocabulary.spelt(text)
        seconds = self.durations.seconds(spelt, self.voices.name(speaker)) / rate
        return max(1, round(seconds * self.sampling_rate / self.config.mel.hop_length))

    def _prompted(self, audio: Any, text: str | None) -> tuple[str, Tensor] | None:
        if audio is None and text is None:
            return None
        if audio is None or text is None:
            raise ConfigurationError(
                "prompt_audio and prompt_text belong together: the recording, and what it says."
            )
        clean = " ".join(text.split())
        self.vocabulary.require(clean, "prompt_text")
        if isinstance(audio, (str, Path)):
            samples = load_audio(Path(audio), sample_rate=self.sampling_rate)
        else:
            samples = np.asarray(audio, dtype=np.float32)
        if samples.ndim != 1 or len(samples) <= self.config.mel.n_fft // 2:
            raise DataError(
                f"prompt_audio: expected mono samples of at least {self.config.mel.n_fft} at "
                f"{self.sampling_rate} Hz, got shape {samples.shape}."
            )
        frames = MelReader(self.config.mel).frames(torch.from_numpy(samples))
        return clean, self.scaling.scaled(frames)

    def _settings(self, options: dict[str, Any]) -> SynthesisSettings:
        return with_options(self.config.synthesis, options, "synthesis", also=_PROMPT)
