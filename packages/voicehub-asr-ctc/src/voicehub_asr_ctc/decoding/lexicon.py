"""Beam search over the words of a lexicon, in C++ through flashlight-text.

It finds the best path, not the sum over alignments, and never writes a word that the lexicon
lacks: the choice for commands, names and other closed vocabularies.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from voicehub.errors import ConfigurationError, DataError, OptionalDependencyError
from voicehub_asr_ctc.decoding.language_model import INSTALL_HINT, NgramLM
from voicehub_asr_ctc.decoding.results import Hypothesis

#: Stands for minus infinity in emissions, which the C++ code adds up in single precision.
_IMPOSSIBLE = -1e4


class LexiconDecoder:
    """Decode utterances into words of a lexicon.

    Args:
        words: The lexicon.
        tokens: Token strings by id, as the model was trained with.
        lm: n-gram model over words; every word is equally likely without one.
        alpha: Weight of the model's natural log-probability.
        beta: Added for each word.
        blank: Id of the blank.
        word_delimiter: Token between words, where the vocabulary has one.
        spell: Token ids of a word without the delimiter; its characters by default.
        beam_size: Hypotheses kept after each frame.
        beam_threshold: Hypotheses this far below the best are dropped.

    Raises:
        OptionalDependencyError: flashlight-text is not installed.
        ConfigurationError: The lexicon is empty, or a word cannot be spelt.
    """

    def __init__(
        self,
        words: Iterable[str],
        tokens: Sequence[str],
        lm: NgramLM | None = None,
        *,
        alpha: float = 0.5,
        beta: float = 0.0,
        blank: int = 0,
        word_delimiter: str = "|",
        spell: Callable[[str], Sequence[int]] | None = None,
        beam_size: int = 50,
        beam_threshold: float = 30.0,
    ) -> None:
        text = _flashlight()
        self._tokens, self._blank = list(tokens), blank
        self._delimiter = self._tokens.index(word_delimiter) if word_delimiter in tokens else -1
        lexicon = sorted(set(words))
        if not lexicon:
            raise ConfigurationError("The lexicon holds no word.")
        dictionary = text.Dictionary([*lexicon, "<unk>"])
        dictionary.set_default_index(len(lexicon))
        model = text.ZeroLM() if lm is None else text.KenLM(str(lm.path), dictionary)
        trie = self._trie(text, lexicon, model, spell or self._characters)
        # kenlm's scores are decimal logarithms, and flashlight passes them on.
        weight = alpha * math.log(10)
        options = text.LexiconDecoderOptions(
            beam_size, len(tokens), beam_threshold, weight, beta, -math.inf, 0.0, False, text.CTC
        )
        self._decoder = text.LexiconDecoder(
            options, trie, model, self._delimiter, blank, len(lexicon), [], False
        )
        # The C++ decoder borrows these; they must live as long as it does.
        self._borrowed = (dictionary, model, trie)

    def __call__(self, log_probs: np.ndarray) -> list[Hypothesis]:
        """Decode one utterance.

        Args:
            log_probs: (T, V), log-probabilities, valid frames only.

        Returns:
            Hypotheses, best first; ``ctc_score`` is that of the best path.

        Raises:
            DataError: The shape does not fit the vocabulary, or a value is NaN.
        """
        scores = np.asarray(log_probs)
        if scores.ndim != 2 or scores.shape[1] != len(self._tokens):
            raise DataError(
                f"Expected log_probs (T, {len(self._tokens)}); got shape {scores.shape}."
            )
        if np.isnan(scores).any():
            raise DataError("The decoder got NaN log-probabilities.")
        emissions = self._with_final_delimiter(np.maximum(scores, _IMPOSSIBLE))
        frames, size = emissions.shape
        found = self._decoder.decode(emissions.ctypes.data, frames, size)
        return [self._hypothesis(result) for result in found]

    def _with_final_delimiter(self, scores: np.ndarray) -> np.ndarray:
        """Append a frame that is surely a delimiter.

        Lexicon words end in the delimiter, so that they never run into each other; the last word
        of an utterance has none of its own.
        """
        if self._delimiter < 0:
            return np.ascontiguousarray(scores, dtype=np.float32)
        last = np.full((1, scores.shape[1]), _IMPOSSIBLE)
        last[0, self._delimiter] = 0.0
        return np.ascontiguousarray(np.concatenate((scores, last)), dtype=np.float32)

    def _hypothesis(self, result: Any) -> Hypothesis:
        merged = (token for token, _ in itertools.groupby(result.tokens))
        ids = [token for token in merged if token not in (self._blank, -1)]
        if ids and ids[-1] == self._delimiter:
            ids.pop()
        ctc = float(result.emittingModelScore)
        return Hypothesis(tuple(ids), float(result.score), ctc, float(result.score) - ctc)

    def _characters(self, word: str) -> list[int]:
        return [self._tokens.index(character) for character in word]

    def _trie(
        self, text: Any, lexicon: list[str], model: Any, spell: Callable[[str], Sequence[int]]
    ) -> Any:
        trie = text.Trie(len(self._tokens), max(self._delimiter, 0))
        start = model.start(False)
        ending = [self._delimiter] if self._delimiter >= 0 else []
        for index, word in enumerate(lexicon):
            try:
                spelling = list(spell(word))
            except ValueError as error:
                raise ConfigurationError(
                    f"The lexicon word '{word}' cannot be spelt with the model's tokens: {error}"
                ) from error
            _, score = model.score(start, index)
            trie.insert(spelling + ending, index, score)
        trie.smear(text.MAX)
        return trie


def _flashlight() -> Any:
    """Import what is needed of flashlight-text under one roof."""
    try:
        from flashlight.lib.text import decoder, dictionary
        from flashlight.lib.text.decoder import kenlm
    except ImportError as error:
        raise OptionalDependencyError(
            f"A lexicon decoder needs flashlight-text. Install it with: {INSTALL_HINT}"
        ) from error
    from types import SimpleNamespace

    return SimpleNamespace(
        Dictionary=dictionary.Dictionary,
        KenLM=kenlm.KenLM,
        ZeroLM=decoder.ZeroLM,
        Trie=decoder.Trie,
        LexiconDecoder=decoder.LexiconDecoder,
        LexiconDecoderOptions=decoder.LexiconDecoderOptions,
        CTC=decoder.CriterionType.CTC,
        MAX=decoder.SmearingMode.MAX,
    )
