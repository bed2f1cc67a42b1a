"""Wrapper of codec language models: checkpoints, artifacts of ours, random weights."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from voicehub.data.keyed_random import torch_generator
from voicehub.errors import ConfigurationError
from voicehub.models.artifact import is_artifact, read_artifact
from voicehub.models.initial import InitialWeights, copy_weights
from voicehub.models.lifecycle import PreTrainedTTSModel
from voicehub.models.modes import eval_mode
from voicehub.models.options import with_options
from voicehub.models.results import Synthesis
from voicehub.suggest import did_you_mean
from voicehub_codec_lm.codecs import AudioCodec, load_codec, require_identity
from voicehub_codec_lm.config import CodecLMModelConfig
from voicehub_codec_lm.networks.base import Network, Sizes
from voicehub_codec_lm.networks.registry import NETWORKS
from voicehub_codec_lm.sampling.settings import SamplingSettings
from voicehub_codec_lm.text import Prompts, load_prompts
from voicehub_hf.lora import add_lora

RANDOM_WEIGHTS = "(random weights)"
PROMPTS_FOLDER = "prompts"


class CodecLM(PreTrainedTTSModel):
    """A language model over the codes of a codec.

    The codec is no part of the model: it is in no optimiser and in no checkpoint, which name it
    with a hash and refuse another.

    Args:
        name_or_path: an artifact of ours; checkpoints come in through ``from_config``, since a
            codec and a prompt vocabulary belong to them.
        arguments: those of the base, and ``codec``: the codec's directory or id, where it does not
            lie where it lay in training.

    Attributes:
        network: the layout.
        codec_identity: of the codec whose codes are spoken.
    """

    # Loading for training reads the weights again.
    destructive_inference_load = False

    def __init__(self, name_or_path: str | Path, **arguments: Any) -> None:
        codec = arguments.pop("codec", None)
        super().__init__(name_or_path, **arguments)
        if self.options:
            name = sorted(self.options)[0]
            raise ConfigurationError(
                f"{self.name_or_path}: unknown option {name!r}.{did_you_mean(name, ('codec',))}"
            )
        self.seed = 0
        self.codec_identity: dict[str, Any] = {}
        self._codec: AudioCodec | None = None
        self._is_artifact = False
        if self.name_or_path != RANDOM_WEIGHTS and is_artifact(Path(self.name_or_path)):
            self._read_artifact(Path(self.name_or_path), codec)

    @classmethod
    def from_config(
        cls,
        config: CodecLMModelConfig,
        prompts: Prompts,
        codec: AudioCodec,
        *,
        model_type: str,
        seed: int = 0,
        device: str = "cpu",
    ) -> CodecLM:
        """Build a lazy wrapper for a run.

        Args:
            config: model section of the run.
            prompts: text to tokens.
            codec: whose codes are spoken.
            model_type: of ours, which decides the layout.
            seed: of what is drawn.
            device: where weights load.

        Raises:
            ConfigurationError: settings do not fit the codec.
        """
        model = cls(config.path or RANDOM_WEIGHTS, model_type=model_type, device=device)
        weights = config.loss.codebook_weights
        if weights is not None and len(weights) != codec.num_codebooks:
            raise ConfigurationError(
                f"loss.codebook_weights has {len(weights)} entries, and the codec "
                f"{codec.num_codebooks} codebooks."
            )
        model._configure(config, prompts, codec.identity())
        model._codec, model.seed = codec, seed
        return model

    def _configure(
        self, config: CodecLMModelConfig, prompts: Prompts, identity: dict[str, Any]
    ) -> None:
        network_class, _ = NETWORKS[self.model_type]
        self.config, self.prompts, self.codec_identity = config, prompts, identity
        sizes = Sizes(len(prompts), identity["num_codebooks"], identity["codebook_size"])
        self.network: Network = network_class(config, sizes)

    def _read_artifact(self, directory: Path, codec: str | Path | None) -> None:
        artifact = read_artifact(directory, self.model_type)
        _, config_class = NETWORKS[self.model_type]
        stored = dict(artifact.model["config"])
        if codec is not None:
            stored["codec"] = {**stored["codec"], "path": str(codec)}
        # The weights beside this file are what is loaded; sizes are theirs.
        config = config_class.model_validate(stored)
        self._configure(config, load_prompts(directory / PROMPTS_FOLDER), artifact.model["codec"])
        self._is_artifact = True

    # -- what is known before weights are there -------------------------------------------------

    @property
    def codec(self) -> AudioCodec:
        """The codec; read when first asked for.

        Raises:
            ConfigurationError: it is not there, or another one than in training.
        """
        if self._codec is None:
            try:
                found = load_codec(self.config.codec, self.device)
            except ConfigurationError as error:
                raise ConfigurationError(
                    f"{self.name_or_path} speaks through the codec {self.config.codec.path} "
                    f"(SHA-256 {self.codec_identity['sha256'][:16]}…): {error} Where it lies "
                    "elsewhere now, name it: from_pretrained(..., codec=PATH)."
                ) from error
            require_identity(found, self.codec_identity, self.name_or_path)
            self._codec = found
        return self._codec

    @property
    def sampling_rate(self) -> int:
        """Hz of the audio it makes."""
        return int(self.codec_identity["sample_rate"])

    def artifact_config(self) -> dict[str, Any]:
        config = self.config.model_dump(mode="json")
        path = Path(config["codec"]["path"])
        if path.exists():
            config["codec"]["path"] = str(path.resolve())
        return {
            "config": config,
            "codec": self.codec_identity,
            "sizes": self.network.sizes.to_dict(),
            "prompts_sha256": self.prompts.fingerprint(),
        }

    # -- loading ---------------------------------------------------------------------------------

    def _load_weights(self) -> None:
        if not hasattr(self, "network"):
            raise ConfigurationError(
                f"{self.name_or_path} is no artifact of ours. A checkpoint of transformers becomes "
                "a codec language model by training: voicehub train codec-lm/llama-audio "
                f"model.path={self.name_or_path}"
            )
        if self._is_artifact:
            module = self.network.read(Path(self.name_or_path))
        else:
            module = self.network.build(self.seed)
        self.model = module.to(self.device)
        self.model.train(self.is_training_load)

    def _initialize_from(self, weights: InitialWeights) -> Sequence[str]:
        """The artifact's weights, in which low-rank adapters are merged."""
        stored = weights.artifact.model["codec"]
        if stored["sha256"] != self.codec_identity["sha256"]:
            raise ConfigurationError(
                f"init_from {weights.directory} speaks codes of the codec "
                f"{stored['sha256'][:16]}…, and this run uses "
                f"{self.codec_identity['sha256'][:16]}…. Train with the same codec."
            )
        copy_weights(self.model, self.network.read(weights.directory), weights.directory)
        return ()

    def _prepare_for_training(self) -> None:
        lora = self.config.lora
        if lora is None:
            return
        part = self.network.adapted(self.model)
        self.model.requires_grad_(False)
        new = self.network.new_parameters(self.model)
        adapted = add_lora(
            part, lora.rank, lora.alpha, lora.dropout, lora.target_modules, seed=self.seed
        )
        for parameter in new:
            parameter.requires_grad_(True)
        if part is self.model:
            self.model = adapted
        else:
            self.model.decoder = adapted

    # -- saving -----------------------------------------------------------------------------------

    def _save_family_files(self, directory: Path) -> None:
        self.network.write(self.model, directory)
        self.prompts.save(directory / PROMPTS_FOLDER)

    def export_native(self, directory: Path) -> bool:
        """Write what plain transformers loads, adapters merged."""
        self.network.write(self.model, directory)
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
        """Speak texts; see ``PreTrainedTTSModel``.

        Options:
            those of ``SamplingSettings``; where absent the model's own hold.

        Raises:
            DataError: no character of a text has a token.
            ConfigurationError: an option or a speaker is not there, or the model has no such
                control.
        """
        settings = self._sampling(options)
        if language is not None or speaking_rate not in (None, 1.0):
            what = "language" if language is not None else "speaking_rate"
            raise ConfigurationError(f"a codec language model has no {what} to set.")
        made = []
        for position, text in enumerate(texts):
            prompt = self.prompts.require(text, speaker, f"text {position + 1}")
            codes = self.speak(prompt, settings, seed=seed)
            wave = self.codec.decode(codes).numpy()
            made.append(Synthesis(text, np.ascontiguousarray(wave), self.sampling_rate))
        return made

    def speak(
        self, prompt: Sequence[int], settings: SamplingSettings, *, seed: int = 0
    ) -> torch.Tensor:
        """Codes int64 (codebooks, frames) of a prompt; equal seeds give equal codes."""
        if self.model is None:
            self.load()
        identity = self.codec_identity
        rate = identity["sample_rate"] / identity["hop_length"]
        frames = max(1, int(settings.max_seconds * rate))
        model: nn.Module = self.model
        with eval_mode(model), torch.no_grad():
            generator = torch_generator("codec-lm", seed)
            return self.network.generate(model, prompt, settings, generator, frames)

    def _sampling(self, options: dict[str, Any]) -> SamplingSettings:
        settings = with_options(self.config.sampling, options, "synthesis")
        if settings.guidance_scale != 1.0 and not self.network.has_guidance:
            raise ConfigurationError(
                f"guidance_scale {settings.guidance_scale:g}: {self.model_type!r} is never trained "
                "without its text, so there is nothing to guide away from; leave it at 1."
            )
        return settings
