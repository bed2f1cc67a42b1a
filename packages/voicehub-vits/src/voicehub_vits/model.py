"""Wrapper of ``VitsModel``: checkpoints, artifacts of ours, random weights."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from voicehub.errors import ConfigurationError
from voicehub.models.artifact import is_artifact, read_artifact
from voicehub.models.initial import InitialWeights, copy_weights
from voicehub.models.lifecycle import PreTrainedTTSModel
from voicehub.models.modes import eval_mode
from voicehub.models.results import Synthesis
from voicehub_vits.acoustic import AcousticConfig
from voicehub_vits.checks import (
    assumed_acoustic,
    check_training_settings,
    read_vits_config,
    require_trainable_files,
)
from voicehub_vits.config import VitsModelConfig
from voicehub_vits.data.voices import Voices
from voicehub_vits.export import export_transformers
from voicehub_vits.network import weight_norm
from voicehub_vits.network.generator import conditioning_of
from voicehub_vits.network.inference import Spoken, speak
from voicehub_vits.settings import settings_from_options
from voicehub_vits.text.front_end import TextFrontEnd, load_front_end
from voicehub_vits.weights import (
    DISCRIMINATOR_FILE,
    build_discriminators,
    load_generator,
    read_artifact_state,
    write_artifact_state,
)

logger = logging.getLogger(__name__)

RANDOM_WEIGHTS = "(random weights)"
TOKENIZER_FOLDER = "tokenizer"
_OPTIONS = tuple(name for name in VitsModelConfig.model_fields if name != "path")


class VitsTTS(PreTrainedTTSModel):
    """A VITS or MMS-TTS model: a checkpoint of transformers, an artifact of ours, or both' sizes.

    Args:
        name_or_path: local directory or Hub id.
        arguments: those of the base, and the keys of ``VitsModelConfig``, such as
            ``training_acoustic_config`` and ``generator_only``.

    Attributes:
        model: ``VitsModel``; in training its decoder is weight-normalised, and it holds the
            language table where there is one.
        discriminator, duration_discriminator: loaded for training alone.
    """

    default_model_type = "vits"
    # Loading for training reads the weights again.
    destructive_inference_load = False

    def __init__(self, name_or_path: str | Path, **arguments: Any) -> None:
        given = {name: arguments.pop(name) for name in _OPTIONS if name in arguments}
        given.setdefault("revision", None)
        super().__init__(name_or_path, revision=given["revision"], **arguments)
        if self.options:
            settings_from_options(self.name_or_path, {**given, **self.options})  # names the key
        self.discriminator: Any = None
        self.duration_discriminator: Any = None
        self.seed = 0
        self._voices: Voices | None = None
        self._vits_config: Any = None
        self._front_end: TextFrontEnd | None = None
        self._phonemes: str | None = None
        self._is_artifact = False
        directory = Path(self.name_or_path)
        if directory.is_dir() and is_artifact(directory):
            self._read_artifact(directory, given)
        elif self.name_or_path != RANDOM_WEIGHTS:
            self.config = settings_from_options(self.name_or_path, given)

    @classmethod
    def from_config(
        cls,
        config: VitsModelConfig,
        front_end: TextFrontEnd,
        voices: Voices,
        *,
        vits_config: Any = None,
        seed: int = 0,
        device: str = "cpu",
    ) -> VitsTTS:
        """Build a lazy wrapper for a run.

        Args:
            config: model section of the run.
            front_end: text to ids.
            voices: rows of the embedding tables.
            vits_config: of transformers, for a model from random weights.
            seed: of what is drawn.
            device: where weights load.
        """
        path = RANDOM_WEIGHTS if config.path is None else config.path
        model = cls(path, device=device)
        model.config = config
        model._front_end, model.voices, model.seed = front_end, voices, seed
        if vits_config is not None:
            model._vits_config = vits_config
        return model

    def _read_artifact(self, directory: Path, given: dict[str, Any]) -> None:
        from transformers import VitsConfig

        artifact = read_artifact(directory, self.model_type)
        stored = artifact.model
        settings = {**stored["config"], "path": str(directory), "architecture": None}
        settings.update({key: value for key, value in given.items() if value is not None})
        settings["text"] = {"kind": "checkpoint"}
        del settings["path"]
        self.config = settings_from_options(str(directory), settings)
        self._vits_config = VitsConfig.from_dict(stored["vits_config"])
        self.voices = Voices.from_dict(stored["voices"])
        self._phonemes = stored["phonemes"]
        self._is_artifact = True

    # -- what is known before weights are there -------------------------------------------------

    @property
    def vits_config(self) -> Any:
        """``VitsConfig`` of the checkpoint; read when first asked for."""
        if self._vits_config is None:
            self._vits_config = read_vits_config(self.name_or_path, **self._fetch)
        return self._vits_config

    @property
    def voices(self) -> Voices:
        """Rows of the embedding tables; a checkpoint's own have numbers for names."""
        if self._voices is None:
            self._voices = Voices.numbered(int(self.vits_config.num_speakers))
        return self._voices

    @voices.setter
    def voices(self, voices: Voices) -> None:
        self._voices = voices

    @property
    def front_end(self) -> TextFrontEnd:
        """Text to ids, by the checkpoint's tokenizer or the one given."""
        if self._front_end is None:
            source, fetch = Path(self.name_or_path), self._fetch
            if self._is_artifact:
                source, fetch = source / TOKENIZER_FOLDER, {}
            self._front_end = load_front_end(source, self._phonemes, **fetch)
        return self._front_end

    @property
    def acoustic(self) -> AcousticConfig:
        """Features; of a generator-only run as far as the architecture implies them."""
        if self.config.training_acoustic_config is not None:
            return self.config.training_acoustic_config
        return assumed_acoustic(self.vits_config)

    @property
    def sampling_rate(self) -> int:
        """Hz of the audio it makes."""
        return int(self.vits_config.sampling_rate)

    @property
    def _fetch(self) -> dict[str, Any]:
        local = self.config.local_files_only or Path(self.name_or_path).is_dir()
        return {"revision": self.revision, "local_files_only": local}

    def artifact_config(self) -> dict[str, Any]:
        return {
            "config": self.config.model_dump(mode="json", exclude={"path", "architecture"}),
            "started_from": None if self._is_artifact else self.config.path,
            "vits_config": self._portable_config(),
            "voices": self.voices.to_dict(),
            "phonemes": self.front_end.phonemes,
            "tokenizer_sha256": self.front_end.fingerprint(),
        }

    def _portable_config(self) -> dict[str, Any]:
        values: dict[str, Any] = self.vits_config.to_dict()
        for key in ("_name_or_path", "transformers_version", "dtype", "torch_dtype"):
            values.pop(key, None)
        return values

    # -- loading ---------------------------------------------------------------------------------

    def _validate_training_runtime(self) -> None:
        if self.name_or_path != RANDOM_WEIGHTS:
            require_trainable_files(self.name_or_path)
        check_training_settings(
            self.vits_config,
            self.config.training_acoustic_config,
            generator_only=self.config.generator_only,
            conditioned=bool(self.voices.languages),
            source=self.name_or_path,
        )

    def _load_weights(self) -> None:
        training = self.is_training_load
        directory = Path(self.name_or_path) if self._is_artifact else None
        if not training and self.name_or_path != RANDOM_WEIGHTS:
            require_trainable_files(self.name_or_path)
        model = load_generator(self, training=training)
        self.discriminator, self.duration_discriminator = (
            build_discriminators(self) if training else (None, None)
        )
        if directory is not None:
            weight_norm.add_weight_norm(model.decoder)
            self.model = model
            read_artifact_state(self, directory, training=training)
        if training:
            weight_norm.add_weight_norm(model.decoder)
            model.train()
        else:
            weight_norm.remove_weight_norm(model.decoder)
            model.eval()
        self.model = model.to(self.device)
        for part in (self.discriminator, self.duration_discriminator):
            if part is not None:
                part.to(self.device)

    def _initialize_from(self, weights: InitialWeights) -> Sequence[str]:
        """Take over generator and, where both have them, discriminators of an artifact."""
        earlier = type(self)(weights.directory, model_type=self.model_type).load_for_training()
        copy_weights(self.model, earlier.model, weights.directory)
        notes = []
        for name in ("discriminator", "duration_discriminator"):
            own, theirs = getattr(self, name), getattr(earlier, name)
            if own is not None and theirs is not None and earlier.has_adversaries:
                copy_weights(own, theirs, weights.directory)
            elif own is not None:
                notes.append(f"The {name.replace('_', ' ')} starts from random weights.")
        return notes

    @property
    def is_artifact(self) -> bool:
        """Whether it comes from a directory that VoiceHub has written."""
        return self._is_artifact

    @property
    def has_adversaries(self) -> bool:
        """Whether the artifact that this comes from holds trained discriminators."""
        return self._is_artifact and (Path(self.name_or_path) / DISCRIMINATOR_FILE).is_file()

    def _prepare_for_training(self) -> None:
        frozen = set(self.config.freeze)
        if self.config.generator_only:
            # Rendering needs an adversary, and the posterior must fit the decoder.
            frozen |= {"posterior_encoder", "decoder"}
        for name in sorted(frozen):
            getattr(self.model, name).requires_grad_(False)

    # -- saving -----------------------------------------------------------------------------------

    def _save_family_files(self, directory: Path) -> None:
        write_artifact_state(self, directory)
        self.front_end.save(directory / TOKENIZER_FOLDER)

    def export_native(self, directory: Path) -> bool:
        """Write what plain transformers loads and speaks with."""
        export_transformers(self, directory)
        return True

    # -- synthesis --------------------------------------------------------------------------------

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
        """Speak texts; see ``PreTrainedTTSModel``. Symbols without a token are named in the log.

        Options:
            noise_scale, noise_scale_duration: the model's own where absent.

        Raises:
            DataError: no symbol of a text has a token.
            ConfigurationError: an option, a speaker or a language is not there.
        """
        unknown = set(options) - {"noise_scale", "noise_scale_duration"}
        if unknown:
            raise ConfigurationError(
                f"unknown synthesis option {sorted(unknown)[0]!r}; expected noise_scale or "
                "noise_scale_duration."
            )
        if language is not None and not self.voices.languages:
            raise ConfigurationError(
                f"language {language!r} was asked for, but this model knows no languages."
            )
        if speaking_rate is not None and not speaking_rate > 0:
            raise ConfigurationError(f"speaking_rate must be over 0, got {speaking_rate}.")
        made = []
        for position, text in enumerate(texts):
            where = "the text" if len(texts) == 1 else f"text {position + 1}"
            encoded = self.front_end.require(text, where)
            if encoded.unknown:
                left_out = ", ".join(map(repr, encoded.unknown))
                logger.warning("%s: these symbols have no token, left unsaid: %s", where, left_out)
            spoken = self.speak(
                encoded.ids,
                self.voices.speaker(speaker, where),
                self.voices.language(language, where),
                seed=seed,
                speaking_rate=speaking_rate,
                **options,
            )
            wave = spoken.waveform.float().cpu().numpy()
            made.append(Synthesis(text, np.ascontiguousarray(wave), self.sampling_rate))
        return made

    def speak(
        self, ids: Sequence[int], speaker: int, language: int, *, seed: int, **options: Any
    ) -> Spoken:
        """Speak token ids in a voice given by its rows of the tables."""
        if self.model is None:
            self.load()
        device = next(self.model.parameters()).device

        def tensor(values: Sequence[int]) -> Tensor:
            return torch.tensor(list(values), dtype=torch.long, device=device)

        model = self.model
        with eval_mode(model), torch.no_grad():
            tables = {"speaker_ids": tensor([speaker]), "language_ids": tensor([language])}
            conditioning = conditioning_of(model, tables)
            return speak(model, tensor(ids), conditioning, seed=seed, **options)
