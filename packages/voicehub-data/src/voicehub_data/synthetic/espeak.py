"""espeak-ng through ctypes: text in, 16-bit samples out.

The library comes from the PyPI package ``espeakng_loader``. It is GPL-3.0, so it is loaded only
when asked for and no wheel of this project requires it.
"""

from __future__ import annotations

import ctypes
import shutil
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from voicehub.errors import OptionalDependencyError, VoiceHubError
from voicehub_data.synthetic.voices import Voice

# Constants of espeak-ng's speak_lib.h.
_AUDIO_OUTPUT_SYNCHRONOUS = 2
_INITIALIZE_DONT_EXIT = 0x8000
_CHARS_UTF8 = 1
_POSITION_CHARACTER = 1
_PARAMETER_RATE = 1
_PARAMETER_PITCH = 3
_PARAMETER_RANGE = 4

# espeak-ng copies the data path into an array of 160 bytes and adds file names to it.
_LONGEST_DATA_PATH = 100

_SynthCallback = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.POINTER(ctypes.c_short), ctypes.c_int, ctypes.c_void_p
)


def _load_library() -> tuple[Any, Path]:
    """The shared library and the directory of its data files."""
    try:
        import espeakng_loader  # type: ignore[import-untyped, unused-ignore]
    except ImportError as error:
        raise OptionalDependencyError(
            "espeak-ng, which speaks the synthetic corpus and spells phonemes, is not installed. "
            'Install it with: pip install "voicehub-data[synth]"'
        ) from error
    library_path = espeakng_loader.get_library_path()
    try:
        library = ctypes.CDLL(library_path)
    except OSError as error:
        raise OptionalDependencyError(
            f"espeak-ng cannot be loaded from {library_path}: {error}. Reinstall it with: "
            'pip install --force-reinstall "voicehub-data[synth]"'
        ) from error
    return library, Path(espeakng_loader.get_data_path())


class Espeak:
    """The synthesiser of this process.

    espeak-ng keeps one global state and carries some of it from one utterance to the next (phase
    of its oscillators, random numbers): samples depend on all that was said before. For equal
    results say the same utterances in the same order in a fresh process.

    Use as a context manager; only one may be open in a process.
    """

    def __init__(self, *, seed: int = 0) -> None:
        self._library, data_path = _load_library()
        self._data_path = data_path
        self._chunks: list[bytes] = []
        self._short_path: str | None = None
        self._voice: str | None = None
        self._declare_types()
        rate = self._library.espeak_Initialize(
            _AUDIO_OUTPUT_SYNCHRONOUS,
            0,
            str(self._short(data_path)).encode(),
            _INITIALIZE_DONT_EXIT,
        )
        if rate <= 0:
            self.close()
            raise VoiceHubError(
                f"espeak-ng did not start with the data in {data_path}: the installation is "
                'damaged. Reinstall it with: pip install --force-reinstall "voicehub-data[synth]"'
            )
        self.sample_rate: int = int(rate)
        # After the initialisation, which seeds from the clock. Breathy voices draw noise.
        self._library.espeak_ng_SetRandSeed(ctypes.c_long(seed))
        self._callback = _SynthCallback(self._collect)  # a reference, or ctypes frees it
        self._library.espeak_SetSynthCallback(self._callback)

    @property
    def version(self) -> str:
        """Version of the library, e.g. ``1.52.0``."""
        return str(self._library.espeak_Info(None).decode().split()[0])

    def say(self, text: str, voice: Voice, *, rate: int, pitch: int) -> NDArray[np.int16]:
        """Speak one sentence.

        Args:
            text: plain words.
            voice: who speaks.
            rate: words per minute, 80 to 450.
            pitch: base pitch, 0 to 100.

        Returns:
            Mono samples, int16, shape ``(n,)``, at ``sample_rate`` hertz.

        Raises:
            VoiceHubError: the voice is unknown to this build, or no sample was made.
        """
        if voice.espeak_name != self._voice:
            self._choose(voice)
        self._set(_PARAMETER_RATE, rate)
        self._set(_PARAMETER_PITCH, pitch)
        self._set(_PARAMETER_RANGE, voice.pitch_range)
        self._chunks.clear()
        encoded = text.encode()
        status = self._library.espeak_Synth(
            encoded, len(encoded) + 1, 0, _POSITION_CHARACTER, 0, _CHARS_UTF8, None, None
        )
        self._library.espeak_Synchronize()
        samples = np.frombuffer(b"".join(self._chunks), dtype=np.int16)
        if status != 0 or samples.size == 0:
            raise VoiceHubError(
                f"espeak-ng made no sound (status {status}) for {text!r} by {voice.name!r}"
            )
        return samples

    def close(self) -> None:
        """Release the library's memory and the shortened path, if one was made."""
        self._library.espeak_Terminate()
        if self._short_path is not None:
            shutil.rmtree(self._short_path, ignore_errors=True)
            self._short_path = None

    def __enter__(self) -> Espeak:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _collect(self, samples: Any, count: int, events: int | None) -> int:
        if samples and count > 0:
            self._chunks.append(ctypes.string_at(samples, count * 2))
        return 0  # go on

    def _choose(self, voice: Voice) -> None:
        variant = voice.espeak_name.partition("+")[2]
        # espeak-ng falls back on the plain voice where it does not know the variant.
        known = not variant or (self._data_path / "voices" / "!v" / variant).is_file()
        if not known or self._library.espeak_SetVoiceByName(voice.espeak_name.encode()) != 0:
            raise VoiceHubError(
                f"espeak-ng {self.version} has no voice {voice.espeak_name!r} "
                f"(speaker {voice.name!r}). Its variants are the files in "
                f"{self._data_path / 'voices' / '!v'}"
            )
        self._voice = voice.espeak_name

    def _set(self, parameter: int, value: int) -> None:
        self._library.espeak_SetParameter(parameter, value, 0)

    def _declare_types(self) -> None:
        self._library.espeak_Info.restype = ctypes.c_char_p
        self._library.espeak_Info.argtypes = [ctypes.c_void_p]
        self._library.espeak_Synth.argtypes = [
            ctypes.c_char_p,
            ctypes.c_size_t,
            ctypes.c_uint,
            ctypes.c_int,
            ctypes.c_uint,
            ctypes.c_uint,
            ctypes.c_void_p,
            ctypes.c_void_p,
        ]

    def _short(self, data_path: Path) -> Path:
        """A path to the data that fits espeak-ng's buffer: deep virtual environments do not."""
        if len(str(data_path).encode()) <= _LONGEST_DATA_PATH:
            return data_path
        self._short_path = tempfile.mkdtemp(prefix="espeak")
        short = Path(self._short_path) / data_path.name
        try:
            short.symlink_to(data_path, target_is_directory=True)
        except OSError:  # symbolic links need a privilege on Windows
            shutil.copytree(data_path, short)
        return short
