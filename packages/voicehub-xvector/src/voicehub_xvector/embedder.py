"""From recordings to embeddings: what both model wrappers share."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from voicehub.errors import DataError, UnsupportedTrainingError
from voicehub.models.lifecycle import PreTrainedSpeakerModel
from voicehub.models.modes import eval_mode
from voicehub.models.tensor_files import read_tensors, write_tensors
from voicehub_data.audio import resample
from voicehub_data.by_length import run_by_length
from voicehub_data.given_audio import mono_samples
from voicehub_xvector.class_map import (
    classes_digest,
    load_classes,
    remap_classes,
    save_classes,
)
from voicehub_xvector.front_ends.base import FrontEnd
from voicehub_xvector.train_modes import Layout, trainable_names
from voicehub_xvector.weights import copy_weights

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from voicehub.models.initial import InitialWeights
    from voicehub.models.results import EvaluationReport

    Audio = NDArray[np.float32]

RANDOM_WEIGHTS = "(random weights)"
WEIGHTS_FILE = "model.safetensors"


class XVectorModel(PreTrainedSpeakerModel):
    """Base of the wrappers.

    Attributes:
        config: model section of the run that made it.
        classes: speakers it was trained to tell apart, by label.
        front_end: from audio to the network's input.
    """

    destructive_inference_load = False

    config: Any
    classes: list[str]
    front_end: FrontEnd

    # -- embeddings ------------------------------------------------------------------------------

    def embed(
        self,
        waveforms: Sequence[np.ndarray[Any, Any] | Tensor] | Tensor,
        sampling_rate: int,
        *,
        batch_size: int = 8,
    ) -> Tensor:
        """Return embeddings (B, D), float32 on the CPU, not scaled to length one.

        An utterance's embedding does not depend on the others. Long recordings run in pieces
        where the encoder needs it; see ``chunk_seconds`` of its configuration.

        Args:
            waveforms: mono, (samples,) each, or together (B, samples).
            sampling_rate: Hz; other rates than the model's are resampled.
            batch_size: recordings that share a forward.

        Raises:
            DataError: a waveform is not mono, empty or not finite.
        """
        waves = [self._wave(wave, sampling_rate, i) for i, wave in enumerate(waveforms)]
        if not waves:
            raise DataError("embed() was given no waveform.")
        with eval_mode(self.network), torch.inference_mode():
            rows = run_by_length(waves, batch_size, self._embed, length=len)
        return torch.stack(rows)

    def evaluate(
        self,
        manifest: str | Path,
        *,
        batch_size: int = 8,
        max_samples: int | None = None,
        **options: Any,
    ) -> EvaluationReport:
        """Verify all pairs of a manifest by cosine, or the ``trials`` of a list.

        Rows that cannot be read are counted in ``dropped``.
        """
        from voicehub_xvector.evaluating import evaluate_manifest

        return evaluate_manifest(
            self, manifest, batch_size=batch_size, max_samples=max_samples, options=options
        )

    def _embed(self, waves: Sequence[Audio]) -> list[Tensor]:
        """Embeddings (D,) of recordings that fit into one forward, on the CPU."""
        inputs = self.front_end.batch([self.front_end.prepare(wave) for wave in waves])
        moved = {key: value.to(self.running_device) for key, value in inputs.items()}
        return list(self.network(**moved).float().cpu())

    @property
    def sample_rate(self) -> int:
        """Hz of the audio that the model works on."""
        return self.front_end.sample_rate

    @property
    def embedding_size(self) -> int:
        """D."""
        return int(self.config.head.embedding_size)

    @property
    def network(self) -> nn.Module:
        """The loaded network; a lazy wrapper loads its weights when they are first needed."""
        if self.model is None:
            self.load()
        network: nn.Module = self.model
        return network

    @property
    def running_device(self) -> torch.device:
        """Where the weights are."""
        return next(self.network.parameters()).device

    def _wave(self, given: Any, sampling_rate: int, position: int) -> Audio:
        if isinstance(given, Tensor):
            given = given.detach().cpu().numpy()
        wave = mono_samples(given, f"waveform {position}")
        if sampling_rate != self.sample_rate:
            wave = resample(wave, sampling_rate, self.sample_rate)
        return wave

    # -- what trains -----------------------------------------------------------------------------

    @property
    @abstractmethod
    def layout(self) -> Layout:
        """Where the parts of the network are that train modes speak of."""

    def _validate_training_runtime(self) -> None:
        if self.config.train_mode == "frozen":
            raise UnsupportedTrainingError(
                "train_mode 'frozen' trains nothing: it is for extracting embeddings (voicehub "
                "extract). Choose another mode to train."
            )

    def _apply_train_mode(self, natural: set[int]) -> None:
        """Freeze all but what the mode trains.

        Args:
            natural: identities of the parameters that the network itself leaves trainable.
        """
        named = dict(self.model.named_parameters())
        candidates = [n for n, p in named.items() if id(p) in natural or ".lora_" in n]
        chosen = trainable_names(self.config.train_mode, candidates, self.layout)
        for name, parameter in named.items():
            parameter.requires_grad_(name in chosen)

    # -- weights ---------------------------------------------------------------------------------

    def _initialize_from(self, weights: InitialWeights) -> Sequence[str]:
        """Take over what another artifact learnt; prototypes follow their speakers' names."""
        tensors = read_tensors(weights.directory / WEIGHTS_FILE)
        remapping = remap_classes(load_classes(weights.directory), self.classes)
        notes = copy_weights(self.model, tensors, remapping, weights.directory)
        return [remapping.describe(), *notes]

    def _own_tensors(self) -> dict[str, Tensor]:
        """State of all parts but a pretrained encoder."""
        state = self.network.state_dict()
        return {name: t for name, t in state.items() if not name.startswith("encoder.")}

    def _save_family_files(self, directory: Path) -> None:
        write_tensors(self._own_tensors(), directory / WEIGHTS_FILE)
        save_classes(self.classes, directory)

    def artifact_config(self) -> dict[str, Any]:
        return {
            "config": self.config.model_dump(mode="json"),
            "num_classes": len(self.classes),
            "classes_sha256": classes_digest(self.classes),
            "sample_rate": self.sample_rate,
        }

    def export_native(self, directory: Path) -> bool:
        """Write what runs without VoiceHub; see ``voicehub_xvector.export``."""
        from voicehub_xvector.export import export

        export(self, directory)
        return True
