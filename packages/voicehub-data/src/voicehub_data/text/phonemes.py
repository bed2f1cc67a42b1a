"""Text to phonemes in the International Phonetic Alphabet, by espeak-ng.

espeak-ng is GPL-3.0: it is loaded when asked for, from ``espeakng_loader``, and no package of this
project requires it.
"""

from __future__ import annotations

import ctypes
import re
from typing import Any

from voicehub.errors import ConfigurationError
from voicehub_data.synthetic.espeak import Espeak

_UTF8 = 1
_IPA = 0x02
_SWITCH = re.compile(r"\([a-z-]+\)")
#: Marks that stay in place and between which espeak-ng is asked; it drops them itself.
_MARKS = re.compile(r"(\s*[.,;:!?¡¿—…\"«»“”()]+\s*)")


class Phonemizer:
    """Phonemes of one language, stress marks and punctuation kept.

    Args:
        language: a voice of espeak-ng, for example ``en-us`` or ``de``.

    Raises:
        OptionalDependencyError: espeak-ng is not installed; the message names the extra.
        ConfigurationError: espeak-ng has no such voice.
    """

    def __init__(self, language: str = "en-us") -> None:
        self.language = language
        self._engine = Espeak()
        library: Any = self._engine._library
        library.espeak_TextToPhonemes.restype = ctypes.c_char_p
        library.espeak_TextToPhonemes.argtypes = [
            ctypes.POINTER(ctypes.c_void_p),
            ctypes.c_int,
            ctypes.c_int,
        ]
        if library.espeak_SetVoiceByName(language.encode()) != 0:
            raise ConfigurationError(
                f"espeak-ng has no voice for {language!r}; names are such as en-us, en-gb, de, fr."
            )
        self._library = library

    def __call__(self, text: str) -> str:
        """Return the phonemes of a text, words apart by single spaces."""
        parts = [
            part if position % 2 else self._clause(part)
            for position, part in enumerate(_MARKS.split(text))
        ]
        return " ".join("".join(parts).split())

    def _clause(self, text: str) -> str:
        if not text.strip():
            return text
        buffer = ctypes.create_string_buffer(text.encode())
        pointer = ctypes.c_void_p(ctypes.addressof(buffer))
        found = []
        while pointer.value:
            said = self._library.espeak_TextToPhonemes(ctypes.byref(pointer), _UTF8, _IPA)
            found.append(said.decode())
        # Words of another language are put between marks such as (fr).
        return _SWITCH.sub("", " ".join(found)).strip()
