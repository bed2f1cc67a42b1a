"""Named normalisers.

| preset | what it does |
|---|---|
| ``none`` | nothing |
| ``basic`` | NFKC, lower case, no punctuation or symbols, single spaces; any language |
| ``english`` | ``basic`` after the steps of the Whisper English normaliser, written here |
| ``whisper-english`` | the normaliser of ``transformers`` itself, where that is installed |
| ``whisper-english-variants`` | that, then one spelling for okay/ok, all right/alright, kinda |
| ``orthographic`` | NFKC, plain quotes, single spaces: case and punctuation count |
| ``labels`` | transcripts as training targets (:mod:`voicehub_data.text.labels`) |

A preset is a fixed function: adding a step to one would change published figures, so a variant
gets a name of its own.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable
from dataclasses import dataclass

from voicehub.errors import ConfigurationError
from voicehub.suggest import did_you_mean

TextFunction = Callable[[str], str]


@dataclass(frozen=True, slots=True)
class TextNormalizer:
    """A function from text to text under a name that reports can state."""

    name: str
    function: TextFunction

    def __call__(self, text: str) -> str:
        return self.function(text)


def normalize_basic(text: str) -> str:
    """NFKC, lower case, punctuation and symbols to spaces, white space collapsed.

    Apostrophes inside words are kept ("don't"); combining marks are kept, since many scripts
    write vowels with them. Idempotent.
    """
    text = unicodedata.normalize("NFKC", text).lower()
    text = unicodedata.normalize("NFKC", text.replace("\u2019", "'"))
    kept = []
    for index, character in enumerate(text):
        if character == "'":
            inside = (
                0 < index < len(text) - 1
                and text[index - 1].isalnum()
                and text[index + 1].isalnum()
            )
            kept.append("'" if inside else " ")
        else:
            kept.append(" " if unicodedata.category(character)[0] in "PSCZ" else character)
    return " ".join("".join(kept).split())


def _identity(text: str) -> str:
    return text


def _english() -> TextFunction:
    from voicehub_data.text.english import normalize_english

    return normalize_english


def _whisper_english() -> TextFunction:
    from voicehub_data.text.whisper import whisper_english_normalizer

    return whisper_english_normalizer()


def _whisper_english_variants() -> TextFunction:
    from voicehub_data.text.whisper import whisper_english_variants_normalizer

    return whisper_english_variants_normalizer()


def _labels() -> TextFunction:
    from voicehub_data.text.labels import normalize_label

    return normalize_label


def _orthographic() -> TextFunction:
    from voicehub_data.text.labels import normalize_spelling

    return normalize_spelling


_FACTORIES: dict[str, Callable[[], TextFunction]] = {
    "none": lambda: _identity,
    "basic": lambda: normalize_basic,
    "english": _english,
    "whisper-english": _whisper_english,
    "whisper-english-variants": _whisper_english_variants,
    "orthographic": _orthographic,
    "labels": _labels,
}
_BUILT: dict[str, TextNormalizer] = {}


def list_normalizers() -> list[str]:
    """Names of the presets and of registered normalisers."""
    return sorted(_FACTORIES)


def register_normalizer(name: str, function: TextFunction) -> TextNormalizer:
    """Add a normaliser under a new name.

    Raises:
        ConfigurationError: the name is taken.
    """
    if name in _FACTORIES:
        raise ConfigurationError(f"text normaliser {name!r} exists; choose another name.")
    _FACTORIES[name] = lambda: function
    return get_normalizer(name)


def get_normalizer(normalizer: str | TextNormalizer) -> TextNormalizer:
    """The preset of that name; a normaliser is returned as it is.

    Raises:
        ConfigurationError: unknown name.
        OptionalDependencyError: the preset needs a package that is not installed.
    """
    if isinstance(normalizer, TextNormalizer):
        return normalizer
    if normalizer not in _BUILT:
        factory = _FACTORIES.get(normalizer)
        if factory is None:
            raise ConfigurationError(
                f"unknown text normaliser {normalizer!r}."
                f"{did_you_mean(normalizer, _FACTORIES)} Presets are "
                f"{', '.join(list_normalizers())}."
            )
        _BUILT[normalizer] = TextNormalizer(normalizer, factory())
    return _BUILT[normalizer]
