"""Language models over words, for the beam search."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, Protocol

from voicehub.errors import ConfigurationError, OptionalDependencyError

#: Ends the messages about missing packages.
INSTALL_HINT = 'pip install "voicehub-asr-ctc[lm]"'


class LanguageModel(Protocol):
    """What the beam search asks of a language model. States are never changed in place."""

    def initial_state(self) -> Any:
        """Return the state at the start of a sentence."""

    def score(self, state: Any, word: str) -> tuple[float, Any]:
        """Return the natural log-probability of ``word`` in ``state``, and the state after it."""

    def finish(self, state: Any) -> float:
        """Return the natural log-probability that the sentence ends in ``state``."""


class NgramLM:
    """An n-gram model that kenlm reads, from an ARPA or a binary file.

    Args:
        path: The file.
        unknown_penalty: Added to the natural log-probability of each word that the model does
            not know, at most 0. Models without ``<unk>`` already give such words 10^-100.

    Raises:
        OptionalDependencyError: kenlm is not installed.
        ConfigurationError: The file is missing or no language model.
    """

    def __init__(self, path: str | Path, *, unknown_penalty: float = 0.0) -> None:
        try:
            import kenlm
        except ImportError as error:
            raise OptionalDependencyError(
                f"An n-gram language model needs kenlm. Install it with: {INSTALL_HINT}"
            ) from error
        if unknown_penalty > 0:
            raise ConfigurationError(f"unknown_penalty must be at most 0; got {unknown_penalty}.")
        self.path = Path(path)
        if not self.path.is_file():
            raise ConfigurationError(f"There is no language model file {self.path}.")
        config = kenlm.Config()
        config.show_progress = False
        config.arpa_complain = kenlm.ARPALoadComplain.NONE
        try:
            self._model = kenlm.Model(str(self.path), config)
        except (OSError, RuntimeError) as error:
            raise ConfigurationError(
                f"kenlm cannot read {self.path}; an ARPA file or a kenlm binary of order 2 or more "
                f"is expected: {error}"
            ) from error
        self._new_state = kenlm.State
        self.unknown_penalty = unknown_penalty

    @property
    def order(self) -> int:
        """The n of the n-grams."""
        return int(self._model.order)

    def __contains__(self, word: str) -> bool:
        return word in self._model

    def initial_state(self) -> Any:
        """Return the state at the start of a sentence."""
        state = self._new_state()
        self._model.BeginSentenceWrite(state)
        return state

    def score(self, state: Any, word: str) -> tuple[float, Any]:
        """Return the natural log-probability of ``word`` in ``state``, and the state after it."""
        after = self._new_state()
        value = self._model.BaseScore(state, word, after) * math.log(10)
        if self.unknown_penalty and word not in self._model:
            value += self.unknown_penalty
        return value, after

    def finish(self, state: Any) -> float:
        """Return the natural log-probability that the sentence ends in ``state``."""
        return float(self._model.BaseScore(state, "</s>", self._new_state()) * math.log(10))
