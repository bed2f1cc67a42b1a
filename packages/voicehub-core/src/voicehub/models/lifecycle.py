"""Model wrappers: lazy until loaded, and loaded for training in a fixed order."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from voicehub.errors import ConfigurationError, DataError, UnsupportedTrainingError
from voicehub.models.artifact import CONFIG_FILE, read_config, write_artifact_config
from voicehub.models.checks import check_full_precision, check_not_serving_only
from voicehub.specs.model import ModelTrainingSpec
from voicehub.specs.registry import get_training_spec
from voicehub.specs.support import TrainingSupport

if TYPE_CHECKING:
    import numpy as np

    from voicehub.models.initial import InitialWeights
    from voicehub.models.results import EvaluationReport, Synthesis, Transcription
    from voicehub.models.sampling import Prompt

logger = logging.getLogger(__name__)

Self = TypeVar("Self", bound="PreTrainedSpeechModel")


class PreTrainedSpeechModel(ABC):
    """Base of the model wrappers that families write.

    A family implements ``_load_weights`` (which puts the module where the spec's
    ``module_paths`` say, usually ``self.model``), ``artifact_config`` and
    ``_save_family_files``; it may override ``_validate_training_runtime``, ``_initialize_from``,
    ``_prepare_for_training`` and ``export_native``. Optional hooks that the Trainer uses where
    they exist: ``create_training_dataset(...)`` and ``prepare_training_inputs(batch)``.

    Class attributes:
        default_model_type: Used where the caller names no type.
        destructive_inference_load: Whether ``load()`` leaves a graph that cannot be trained
            (quantised, fused, compiled, EMA-only). Conservative: true unless a family knows better.

    Attributes:
        model_type: The exact model type.
        name_or_path: Hub id or local directory.
        revision: Hub revision.
        device: Where weights load.
        options: Further loading options.
        initial_weights: What training starts from, where ``start_from`` was called.
        is_training_load: True while weights load for training.
        model: The loaded module; None before.
    """

    default_model_type: ClassVar[str | None] = None
    destructive_inference_load: ClassVar[bool] = True

    def __init__(
        self,
        name_or_path: str | Path,
        *,
        model_type: str | None = None,
        device: str = "cpu",
        revision: str | None = None,
        **options: Any,
    ) -> None:
        """Keep what is to be loaded; nothing is read or allocated."""
        chosen = model_type or self.default_model_type
        if chosen is None:
            raise ConfigurationError(f"{type(self).__name__} needs a model_type.")
        self.model_type = chosen
        self.name_or_path = str(name_or_path)
        self.revision = revision
        self.device = device
        self.options = options
        self.initial_weights: InitialWeights | None = None
        self.is_training_load = False
        self.model: Any = None
        self._loaded: str | None = None

    @classmethod
    def from_pretrained(
        cls: type[Self],
        name_or_path: str | Path,
        *,
        model_type: str | None = None,
        device: str = "cpu",
        lazy_load: bool = True,
        revision: str | None = None,
        **options: Any,
    ) -> Self:
        """Build a wrapper; with ``lazy_load`` it holds no weights yet."""
        model = cls(
            name_or_path, model_type=model_type, device=device, revision=revision, **options
        )
        if not lazy_load:
            model.load()
        return model

    @property
    def training_spec(self) -> ModelTrainingSpec:
        """The spec of the model type."""
        return get_training_spec(self.model_type)

    @property
    def is_loaded(self) -> bool:
        """Whether weights are in memory."""
        return self._loaded is not None

    @property
    def loaded_for_training(self) -> bool:
        """Whether they were loaded by ``load_for_training()``."""
        return self._loaded == "training"

    def load(self: Self) -> Self:
        """Load for inference, unless something is loaded already."""
        if not self.is_loaded:
            self._load_weights()
            self._loaded = "inference"
        return self

    def load_for_training(self: Self, *, allow_quantized: bool = False) -> Self:
        """Load a graph that trains: validate, load weights, restore training-only state.

        Where ``start_from`` was called, its weights replace the loaded ones before training-only
        state is prepared.

        Idempotent.

        Args:
            allow_quantized: The recipe trains quantised weights.

        Raises:
            UnsupportedTrainingError: the runtime or checkpoint is unsupported (before anything
                loads), or the wrapper was loaded for inference through a destructive path.
        """
        if self.loaded_for_training:
            return self
        if self.is_loaded and self.destructive_inference_load:
            raise UnsupportedTrainingError(
                f"{self.name_or_path!r} is already loaded for inference; do not reuse that object "
                "for training. Build a fresh lazy wrapper: "
                f"{type(self).__name__}.from_pretrained({self.name_or_path!r}, lazy_load=True)."
            )
        self.validate_training_support(allow_quantized=allow_quantized)
        self._validate_training_runtime()
        self._loaded = None
        self.is_training_load = True
        try:
            self._load_weights()
            self._apply_initial_weights()
        finally:
            self.is_training_load = False
        self._prepare_for_training()
        self._loaded = "training"
        return self

    def start_from(self, weights: InitialWeights) -> None:
        """Have ``load_for_training()`` begin with the weights of an earlier artifact.

        Raises:
            ConfigurationError: the model is loaded already.
        """
        if self.is_loaded:
            raise ConfigurationError(
                f"{self.name_or_path!r} is loaded already, so it cannot start from "
                f"{weights.directory}. Build a fresh lazy wrapper."
            )
        self.initial_weights = weights

    def validate_training_support(self, *, allow_quantized: bool = False) -> ModelTrainingSpec:
        """Check spec, checkpoint name and configuration without loading weights.

        Args:
            allow_quantized: The recipe trains quantised weights.

        Returns:
            The spec.

        Raises:
            UnsupportedTrainingError: inference-only, serving-only format, or quantised.
        """
        spec = self.training_spec
        if spec.support is TrainingSupport.INFERENCE_ONLY:
            raise UnsupportedTrainingError(f"{spec.model_type!r} is inference-only.")
        check_not_serving_only(self.name_or_path)
        if not allow_quantized:
            check_full_precision(self.name_or_path, self._loading_configuration())
        return spec

    def resolve(self, path: str) -> Any:
        """Return the component at a dotted path, for example ``"model.encoder"``.

        Raises:
            AttributeError: the path leads nowhere, or the model is not loaded.
        """
        value: Any = self
        for part in filter(None, path.split(".")):
            if isinstance(value, Mapping):
                if part not in value:
                    raise AttributeError(f"{part!r} of {path!r} is not there.")
                value = value[part]
            else:
                value = getattr(value, part)
        if value is None:
            raise AttributeError(f"{path!r} is None; the model is not loaded.")
        return value

    def save_pretrained(self, directory: str | Path) -> None:
        """Write the portable artifact: our ``config.json`` and the family's files."""
        directory = Path(directory)
        write_artifact_config(
            directory,
            model_type=self.model_type,
            family=self.training_spec.family,
            model=self.artifact_config(),
        )
        self._save_family_files(directory)

    def export_native(self, directory: Path) -> bool:
        """Write the layout of the library the model comes from; False where there is none."""
        return False

    def configure_sampling(self, config: Any) -> None:
        """Override to take from a run's resolved configuration what ``sample`` needs.

        For example where its features lie, or how many steps a solver takes. Called before
        ``sample``, with the configuration of the run that the weights come from.

        Args:
            config: The family's ``RunConfig``.
        """

    def sample(self, prompt: Prompt, *, seed: int) -> Synthesis:
        """Override to make what a prompt asks for; equal seeds give equal results.

        Raises:
            DataError: the prompt asks for what the model does not know.
            UnsupportedTrainingError: the family makes no audio.
        """
        raise UnsupportedTrainingError(f"{self.model_type!r} makes no audio from prompts.")

    @abstractmethod
    def artifact_config(self) -> dict[str, Any]:
        """Return the family's configuration as JSON values: enough to rebuild the graph."""

    def _validate_training_runtime(self) -> None:
        """Override to refuse runtimes that cannot train, before weights load."""

    @abstractmethod
    def _load_weights(self) -> None:
        """Build the module and load its weights; reads ``is_training_load``."""

    def _apply_initial_weights(self) -> None:
        weights = self.initial_weights
        if weights is None:
            return
        notes = list(self._initialize_from(weights))
        logger.info("Weights start from %s (SHA-256 %s).", weights.directory, weights.sha256)
        for note in notes:
            logger.info("%s", note)

    def _initialize_from(self, weights: InitialWeights) -> Sequence[str]:
        """Override to take over an artifact's weights in another way, such as by class name.

        Called once the module stands, before ``_prepare_for_training``. The default loads the
        artifact with this class and copies all tensors of ``model``.

        Returns:
            What to tell the user, for example which rows of an output layer are new.

        Raises:
            CheckpointMismatchError: names or shapes differ; nothing was changed.
        """
        from voicehub.models.initial import copy_weights

        earlier = type(self).from_pretrained(weights.directory, model_type=self.model_type)
        copy_weights(self.model, earlier.load_for_training().model, weights.directory)
        return ()

    def _prepare_for_training(self) -> None:
        """Override to validate or restore training-only state after weights loaded."""

    @abstractmethod
    def _save_family_files(self, directory: Path) -> None:
        """Write weights, tokenizer and the like beside ``config.json``."""

    def _loading_configuration(self) -> dict[str, Any]:
        """The checkpoint's own configuration, where it is local, and the loading options."""
        directory = Path(self.name_or_path)
        on_disk = read_config(directory) if (directory / CONFIG_FILE).is_file() else {}
        return {**on_disk, **self.options}


class PreTrainedTTSModel(PreTrainedSpeechModel):
    """Base of text-to-speech wrappers."""

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
        """Speak texts, one after the other; equal seeds give equal speech.

        Args:
            texts: What to say.
            speaker: Name or number, where the model has several.
            language: Its name, where the model has several.
            speaking_rate: Over 1 is faster; None is the model's own.
            seed: Of whatever the model draws, the same for each text.
            options: What the family takes beyond these.

        Raises:
            UnsupportedTrainingError: The family does not synthesise.
        """
        raise UnsupportedTrainingError(f"{self.model_type!r} does not synthesise speech.")

    def sample(self, prompt: Prompt, *, seed: int) -> Synthesis:
        """Speak a prompt's text with its speaker, language and options."""
        if prompt.text is None or prompt.features is not None:
            raise DataError(
                f"prompt {prompt.id!r}: a text-to-speech model takes text and no features."
            )
        (spoken,) = self.synthesize(
            [prompt.text],
            speaker=prompt.speaker,
            language=prompt.language,
            seed=seed,
            **prompt.options,
        )
        return spoken


class PreTrainedSpeakerModel(PreTrainedSpeechModel):
    """Base of speaker embedders."""

    @abstractmethod
    def embed(self, waveforms: Any, sampling_rate: int, *, batch_size: int = 8) -> Any:
        """Return the embeddings of recordings.

        Args:
            waveforms: Mono float32, (samples,) each, or together (B, samples).
            sampling_rate: Hz.
            batch_size: Recordings that share a forward.

        Returns:
            Tensor (B, D), float32, on the CPU.
        """

    @abstractmethod
    def evaluate(
        self,
        manifest: str | Path,
        *,
        batch_size: int = 8,
        max_samples: int | None = None,
        **options: Any,
    ) -> EvaluationReport:
        """Verify the pairs of a manifest, or the trials of a list.

        Args:
            manifest: What the family's data layer reads.
            batch_size: Recordings embedded together.
            max_samples: Only the first so many.
            options: What the family takes beyond these, for example ``trials``.
        """


class PreTrainedRecognitionModel(PreTrainedSpeechModel):
    """Base of recognisers."""

    @abstractmethod
    def transcribe(
        self,
        audio: Sequence[str | Path | np.ndarray[Any, Any]],
        *,
        batch_size: int = 8,
        beam_size: int = 1,
        timestamps: bool = False,
        **options: Any,
    ) -> list[Transcription]:
        """Return the text of files, or of float32 mono arrays (samples,) at the model's rate.

        Args:
            audio: Paths or arrays.
            batch_size: Recordings decoded together.
            beam_size: 1 is greedy.
            timestamps: Also return word timings.
            options: What the family's decoder takes beyond these.
        """

    @abstractmethod
    def evaluate(
        self,
        manifest: str | Path,
        *,
        batch_size: int = 8,
        max_samples: int | None = None,
        **options: Any,
    ) -> EvaluationReport:
        """Transcribe a manifest and compare with its texts.

        Args:
            manifest: What the family's data layer reads.
            batch_size: Recordings decoded together.
            max_samples: Only the first so many.
            options: What the family's decoder takes beyond these.
        """
