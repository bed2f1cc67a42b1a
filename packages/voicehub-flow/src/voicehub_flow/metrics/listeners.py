"""Models of other families that listen to what was made, loaded when first asked for."""

from __future__ import annotations

from typing import Any

from voicehub.errors import ConfigurationError
from voicehub.models.artifact import artifact_directory
from voicehub.models.auto import AutoModelForSpeakerEmbedding, AutoModelForSpeechRecognition

#: Recognisers of this project listen at 16 kHz unless they say otherwise.
_LISTENING_RATE = 16000


class Listeners:
    """A recogniser and a speaker embedder, by the paths that settings name.

    Args:
        recogniser, embedder: directories, runs or Hub ids; None where there is none.
        recogniser_type: model type, where the directory does not say it.
    """

    def __init__(
        self, recogniser: str | None, embedder: str | None, *, recogniser_type: str | None = None
    ) -> None:
        self._sources = {"recogniser": recogniser, "embedder": embedder}
        self._recogniser_type = recogniser_type
        self._loaded: dict[str, Any] = {}

    def check(self) -> None:
        """Find out, without loading weights, whether they are there and of the right kind.

        Raises:
            ConfigurationError: names the setting.
        """
        for name, source in self._sources.items():
            if source is None:
                continue
            try:
                self._open(name, lazy=True)
            except ConfigurationError as error:
                raise ConfigurationError(f"after_training.{name}: {error}") from None

    @property
    def recogniser(self) -> Any:
        """The recogniser, with its weights."""
        return self._get("recogniser")

    @property
    def embedder(self) -> Any:
        """The speaker embedder, with its weights."""
        return self._get("embedder")

    @property
    def recogniser_rate(self) -> int:
        """Hz that the recogniser listens at."""
        front_end = getattr(self.recogniser, "front_end", None)
        return int(getattr(front_end, "sample_rate", _LISTENING_RATE))

    def _get(self, name: str) -> Any:
        if name not in self._loaded:
            self._loaded[name] = self._open(name, lazy=False)
        return self._loaded[name]

    def _open(self, name: str, *, lazy: bool) -> Any:
        source = self._sources[name]
        if source is None:
            raise ConfigurationError(f"no {name} was given: set after_training.{name}.")
        inside = artifact_directory(source)
        found = str(inside) if inside.is_dir() else source
        if name == "recogniser":
            return AutoModelForSpeechRecognition.from_pretrained(
                found, model_type=self._recogniser_type, lazy_load=lazy
            )
        return AutoModelForSpeakerEmbedding.from_pretrained(found, lazy_load=lazy)
