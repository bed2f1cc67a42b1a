"""Wrapper of the multimodal transformer: random weights, artifacts, generation."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from voicehub.data.keyed_random import preserved_global_state
from voicehub.errors import ConfigurationError
from voicehub.models.artifact import is_artifact, read_artifact
from voicehub.models.lifecycle import PreTrainedSpeechModel
from voicehub.models.results import Synthesis
from voicehub.models.sampling import Prompt
from voicehub.models.tensor_files import read_tensors, require_same_tensors, write_tensors
from voicehub_flow.features.base import AudioExtractor, Extractor, Kind, TextExtractor
from voicehub_flow.features.registry import stored_extractor
from voicehub_flow.multimodal.generation import GenerationConditions, generate_latents
from voicehub_flow.multimodal.network import MultimodalTransformer
from voicehub_flow.multimodal.prompts import asked_by, open_sets
from voicehub_flow.solvers import Method
from voicehub_flow.store.config import GenerationConfig, MultimodalModelConfig
from voicehub_flow.store.sets import ClipSet
from voicehub_flow.store.shapes import FeatureShapes
from voicehub_flow.store.statistics import ChannelStatistics

RANDOM_WEIGHTS = "(random weights)"
WEIGHTS_FILE = "model.safetensors"
EXTRACTORS_FOLDER = "extractors"


class MultimodalFlow(PreTrainedSpeechModel):
    """A flow over audio latents, given text, video, both or neither.

    The extractors are no part of the module: they are in no optimiser. An artifact holds those
    that are built in; of pretrained ones it names the directory, and refuses other weights.

    Args:
        name_or_path: an artifact of ours; new models come from ``from_config``.

    Attributes:
        config: the model section of the run.
        shapes: of the features.
        clip_seconds: of a whole clip; None where the store did not say.
    """

    # Loading for training reads the weights again.
    destructive_inference_load = False

    config: MultimodalModelConfig
    shapes: FeatureShapes

    def __init__(self, name_or_path: str | Path, **arguments: Any) -> None:
        super().__init__(name_or_path, **arguments)
        if self.options:
            raise ConfigurationError(
                f"{self.name_or_path}: unknown option {sorted(self.options)[0]!r}; there are none."
            )
        self.seed = 0
        self.clip_seconds: float | None = None
        self._initial: dict[str, Tensor] = {}
        self._kept: dict[str, Any] = {}
        self._beside = Path()
        self._extractors: dict[str, Extractor] = {}
        self._sets: list[ClipSet] = []
        self._is_artifact = False
        directory = Path(self.name_or_path)
        if self.name_or_path != RANDOM_WEIGHTS and is_artifact(directory):
            self._read_artifact(directory)

    @classmethod
    def from_config(
        cls,
        config: MultimodalModelConfig,
        shapes: FeatureShapes,
        statistics: ChannelStatistics,
        null_text: Tensor,
        *,
        model_type: str,
        seed: int = 0,
        device: str = "cpu",
        extractors: Mapping[str, Any] | None = None,
        beside: Path | None = None,
        clip_seconds: float | None = None,
    ) -> MultimodalFlow:
        """Build a lazy wrapper for a run.

        Args:
            config: model section of the run.
            shapes: of the features.
            statistics: of the latents; stored with the model.
            null_text: features of the empty text, (tokens, channels); stored with the model.
            model_type: of ours.
            seed: of the weights that are drawn.
            device: where weights load.
            extractors: what the store keeps of its extractors, by kind.
            beside: directory that saved extractors lie in.
            clip_seconds: of a whole clip.
        """
        model = cls(RANDOM_WEIGHTS, model_type=model_type, device=device)
        model.config, model.shapes, model.seed = config, shapes, seed
        model._initial = {
            "latent_mean": statistics.mean.float(),
            "latent_std": statistics.deviation.float(),
            "null_text": null_text.float(),
        }
        model._kept, model._beside = dict(extractors or {}), beside or Path()
        model.clip_seconds = clip_seconds
        return model

    def _read_artifact(self, directory: Path) -> None:
        artifact = read_artifact(directory, self.model_type)
        stored = artifact.model
        self.config = MultimodalModelConfig.load(stored["config"])
        self.shapes = FeatureShapes.from_dict(stored["shapes"])
        self.clip_seconds = stored["clip_seconds"]
        self._kept, self._beside = dict(stored["extractors"]), directory / EXTRACTORS_FOLDER
        self._is_artifact = True

    # -- extractors ------------------------------------------------------------------------------

    def extractor(self, kind: Kind) -> Extractor:
        """The extractor that the training features were made with.

        Raises:
            ConfigurationError: it is not known, since the store was not written by
                ``voicehub features extract``, or not there any more.
        """
        if kind not in self._extractors:
            if kind not in self._kept:
                raise ConfigurationError(
                    f"{self.name_or_path}: which {kind} extractor made the features is not known, "
                    "since the store was not written by `voicehub features extract`. Generate from "
                    "features, and decode the latents with what made them."
                )
            self._extractors[kind] = stored_extractor(kind, self._kept[kind], self._beside)
        return self._extractors[kind]

    @property
    def audio(self) -> AudioExtractor:
        """Latents to sound."""
        return cast("AudioExtractor", self.extractor("audio"))

    @property
    def text(self) -> TextExtractor:
        """Text to features."""
        return cast("TextExtractor", self.extractor("text"))

    @property
    def sampling_rate(self) -> int:
        """Hz of the audio it makes."""
        return self.audio.sample_rate

    def artifact_config(self) -> dict[str, Any]:
        return {
            "config": self.config.model_dump(mode="json"),
            "shapes": self.shapes.to_dict(),
            "clip_seconds": self.clip_seconds,
            "extractors": self._kept,
        }

    # -- loading ---------------------------------------------------------------------------------

    def _load_weights(self) -> None:
        if not hasattr(self, "shapes"):
            raise ConfigurationError(
                f"{self.name_or_path} is no artifact of ours. Train one on a feature store: "
                "voicehub train flow/tiny-store data.train=STORE"
            )
        with preserved_global_state():
            torch.manual_seed(self.seed)
            module = MultimodalTransformer(self.config.architecture, self.shapes)
        if self._is_artifact:
            path = Path(self.name_or_path) / WEIGHTS_FILE
            state = read_tensors(path)
            require_same_tensors(module.state_dict(), state, path)
            module.load_state_dict(state)
        else:
            with torch.no_grad():
                for name, value in self._initial.items():
                    module.get_buffer(name).copy_(value)
        self.model = module.to(self.device)
        self.model.train(self.is_training_load)

    # -- saving -----------------------------------------------------------------------------------

    def _save_family_files(self, directory: Path) -> None:
        write_tensors(self.model.state_dict(), directory / WEIGHTS_FILE)
        for kept in self._kept.values():
            if kept["saved"]:
                target = directory / EXTRACTORS_FOLDER / kept["place"]
                shutil.copytree(self._beside / kept["place"], target, dirs_exist_ok=True)

    # -- generation --------------------------------------------------------------------------------

    def encode_texts(self, texts: Sequence[str]) -> Tensor:
        """Features (texts, tokens, channels) as the network was trained on."""
        return self.text.encode(list(texts))

    def generate(
        self,
        conditions: GenerationConditions,
        *,
        num_frames: int | None = None,
        guidance_scale: float | None = None,
        steps: int | None = None,
        method: Method | None = None,
        seeds: Sequence[int] = (0,),
    ) -> Tensor:
        """Draw latents.

        Args:
            conditions: features of a batch; what is absent is replaced by the null condition.
            num_frames: of the latents; None is those of a whole clip.
            guidance_scale, steps, method: None is the model's own.
            seeds: of each sample's noise; equal seeds give equal latents in any batch.

        Returns:
            float32 (samples, num_frames, channels) on the CPU, as the audio extractor decodes
            them.
        """
        if self.model is None:
            self.load()
        own = self.config.generation
        settings = GenerationConfig(
            guidance_scale=own.guidance_scale if guidance_scale is None else guidance_scale,
            steps=own.steps if steps is None else steps,
            method=own.method if method is None else method,
        )
        frames = self.shapes.latent_frames if num_frames is None else num_frames
        return generate_latents(self.model, conditions, frames, settings, seeds)

    def decode(self, latents: Tensor) -> list[np.ndarray[Any, Any]]:
        """Waveforms, float32 (samples,), of latents (samples, frames, channels)."""
        return [
            np.ascontiguousarray(self.audio.decode(each, self.config.vocoder).cpu().numpy())
            for each in latents
        ]

    def configure_sampling(self, config: Any) -> None:
        """Take solver, guidance and vocoder of a run, and its stores, whose clips prompts name."""
        self.config = self.config.model_copy(
            update={
                "generation": config.model.generation,
                "vocoder": config.model.vocoder,
            }
        )
        self._sets = open_sets(config.data, self.shapes)

    def sample(self, prompt: Prompt, *, seed: int) -> Synthesis:
        """Make a prompt: its text, the video of the clip that it names, or both.

        Raises:
            DataError: the prompt asks for what the model does not know.
        """
        asked = asked_by(prompt, self._sets, self.encode_texts)
        options = {"num_frames": asked.frames, **prompt.options}
        latents = self.generate(asked.conditions, seeds=(seed,), **options)
        return Synthesis(prompt.text or "", self.decode(latents)[0], self.sampling_rate)
