"""What every augmentation is: a pure function of the audio and of a key.

The draws of one transform on one sample come from a generator seeded by (seed, epoch, draw,
sample id, transform name). They do not depend on worker processes, on ranks, on the other
transforms, or on where a run was resumed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from voicehub.data.keyed_random import SampleKey, numpy_generator
from voicehub.errors import ConfigurationError

if TYPE_CHECKING:
    from numpy.typing import NDArray


def draw_generator(key: SampleKey, sample_id: str, transform: str) -> np.random.Generator:
    """Generator of one transform's draws for one draw of one sample."""
    return numpy_generator("augment", key.seed, key.epoch, key.draw, sample_id, transform)


class Augmentation(ABC):
    """A transform of mono float32 audio ``(n,)``.

    Args:
        probability: share of draws that are transformed; the others pass unchanged.
        name: names the transform in the key of its draws; give two transforms of one class
            different names.
    """

    def __init__(self, probability: float, name: str) -> None:
        if not 0.0 <= probability <= 1.0:
            raise ConfigurationError(f"{name}: probability must lie in [0, 1], got {probability}.")
        self.probability = probability
        self.name = name

    #: Longest output over input, so that a plan's cap on seconds holds after the transform.
    max_stretch: float = 1.0

    def apply(
        self, x: NDArray[np.float32], sample_rate: int, key: SampleKey, sample_id: str
    ) -> NDArray[np.float32]:
        """Return the augmented audio; ``x`` is not modified."""
        generator = draw_generator(key, sample_id, self.name)
        if generator.random() >= self.probability:
            return x
        return self._transform(x, sample_rate, generator)

    @abstractmethod
    def _transform(
        self, x: NDArray[np.float32], sample_rate: int, generator: np.random.Generator
    ) -> NDArray[np.float32]:
        """Draw and transform; must not write into ``x``."""

    def fingerprint(self) -> dict[str, Any]:
        """JSON that identifies the transform and its settings, for a run's record."""
        settings = self._settings()
        return {"transform": type(self).__name__, "name": self.name, **settings}

    def _settings(self) -> dict[str, Any]:
        return {"probability": self.probability}


class Compose(Augmentation):
    """Transforms one after the other; each draws from its own key.

    Raises:
        ConfigurationError: two transforms share a name, or one does not work on audio.
    """

    def __init__(self, transforms: Sequence[Augmentation]) -> None:
        super().__init__(1.0, "compose")
        names = [transform.name for transform in transforms]
        repeated = sorted({name for name in names if names.count(name) > 1})
        if repeated:
            raise ConfigurationError(
                f"two transforms are named {repeated[0]!r} and would draw alike; "
                "pass name= to one of them."
            )
        for transform in transforms:
            if not isinstance(transform, Augmentation):
                raise ConfigurationError(
                    f"{type(transform).__name__} is not an Augmentation of audio. SpecAugment "
                    "works on features: apply it in the dataset's transform."
                )
        self.transforms = tuple(transforms)
        stretch = 1.0
        for transform in transforms:
            stretch *= transform.max_stretch
        self.max_stretch = stretch

    def apply(
        self, x: NDArray[np.float32], sample_rate: int, key: SampleKey, sample_id: str
    ) -> NDArray[np.float32]:
        for transform in self.transforms:
            x = transform.apply(x, sample_rate, key, sample_id)
        return x

    def _transform(
        self, x: NDArray[np.float32], sample_rate: int, generator: np.random.Generator
    ) -> NDArray[np.float32]:
        raise NotImplementedError("Compose draws nothing itself; its transforms do.")

    def _settings(self) -> dict[str, Any]:
        return {"transforms": [transform.fingerprint() for transform in self.transforms]}
