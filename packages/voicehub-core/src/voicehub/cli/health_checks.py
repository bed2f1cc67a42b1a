"""The checks behind ``voicehub doctor``; each looks at one thing and never raises."""

from __future__ import annotations

import importlib
import importlib.util
import platform
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from voicehub.cli.installed import core_mismatches, foreign_voicehub, installed_versions

OK, NOTE, WARNING, FAILED = "ok", "note", "warning", "failed"

_LOW_DISK = 5 * 2**30  # bytes; a small corpus, a few checkpoints and a download cache
_AUDIO_FORMATS = (("WAV", "PCM_16"), ("FLAC", "PCM_16"), ("OGG", "VORBIS"), ("MP3", None))


@dataclass(frozen=True)
class Check:
    """One finding: ``state`` is ok, note, warning or failed."""

    name: str
    state: str
    detail: str

    def as_dict(self) -> dict[str, str]:
        """For JSON."""
        return asdict(self)


def run_checks() -> list[Check]:
    """All checks in the order of display; one that breaks is reported as failed itself."""
    groups: tuple[Callable[[], Iterator[Check]], ...] = (
        _python,
        _import_name,
        _packages,
        _devices,
        _audio,
        _speech_synthesiser,
        _disk,
        _plugins,
        _checks_of_plugins,
    )
    found: list[Check] = []
    for group in groups:
        name = group.__name__.strip("_").replace("_", " ")
        try:
            found += group()
        except Exception as error:  # a check must never take the others down with it
            found.append(Check(name, FAILED, f"{type(error).__name__}: {error}"))
    return found


def _python() -> Iterator[Check]:
    version = platform.python_version()
    supported = (3, 10) <= sys.version_info[:2] <= (3, 13)
    where = f"{version} ({sys.executable}) on {platform.platform()}"
    advice = "" if supported else "; Python 3.10 to 3.13 is what VoiceHub is tested with"
    yield Check("python", OK if supported else WARNING, f"{where}{advice}")


def _import_name() -> Iterator[Check]:
    foreign = foreign_voicehub()
    if foreign:
        yield Check("import name 'voicehub'", FAILED, foreign)
    else:
        yield Check("import name 'voicehub'", OK, "belongs to voicehub-core")


def _packages() -> Iterator[Check]:
    ours, others = installed_versions()
    mismatches = core_mismatches()
    for name, version in ours.items():
        if name in mismatches:
            yield Check(name, WARNING, f"{version} {mismatches[name]}: install matching versions")
        else:
            yield Check(name, OK, version)
    for name, version in others.items():
        yield Check(name, OK, version)


def _devices() -> Iterator[Check]:
    try:
        import torch
    except Exception as error:  # a broken binary raises OSError and more
        yield Check("devices", FAILED, f"torch does not import: {type(error).__name__}: {error}")
        return
    yield Check("device cpu", OK, f"{torch.get_num_threads()} threads")
    for index in range(torch.cuda.device_count()):
        properties = torch.cuda.get_device_properties(index)
        memory = properties.total_memory / 2**30
        yield Check(f"device cuda:{index}", OK, f"{properties.name}, {memory:.0f} GiB")
    if torch.backends.mps.is_available():
        yield Check("device mps", OK, "available")
    elif not torch.cuda.is_available():
        built = torch.version.cuda
        why = f"torch is built for CUDA {built}, no device was found" if built else "CPU build"
        yield Check("accelerator", NOTE, f"none ({why}); training runs on the CPU")


def _audio() -> Iterator[Check]:
    # By name at run time: the core must work, and this must say so, without the data package.
    if importlib.util.find_spec("soundfile") is None:
        yield Check(
            "libsndfile", WARNING, "not installed: `pip install voicehub-data` decodes audio"
        )
        return
    soundfile: Any = importlib.import_module("soundfile")
    trouble = {name: _decoding_trouble(soundfile, name, kind) for name, kind in _AUDIO_FORMATS}
    version = soundfile.__libsndfile_version__
    if any(trouble.values()):
        reasons = "; ".join(f"{name}: {reason}" for name, reason in trouble.items() if reason)
        yield Check("libsndfile", WARNING, f"{version} does not decode {reasons}")
    else:
        names = ", ".join(name for name, _ in _AUDIO_FORMATS)
        yield Check("libsndfile", OK, f"{version} decodes {names}")


def _decoding_trouble(soundfile: Any, name: str, subtype: str | None) -> str:
    try:
        _encode_and_decode(soundfile, name, subtype)
    except Exception as error:  # libsndfile's own error types are many
        return str(error) or type(error).__name__
    return ""


def _encode_and_decode(soundfile: Any, name: str, subtype: str | None) -> None:
    import io

    import numpy as np

    rate = 16_000
    tone = 0.5 * np.sin(2 * np.pi * 440.0 / rate * np.arange(rate // 4, dtype=np.float32))
    buffer = io.BytesIO()
    soundfile.write(buffer, tone, rate, format=name, subtype=subtype)
    buffer.seek(0)
    decoded, found_rate = soundfile.read(buffer, dtype="float32")
    if found_rate != rate or abs(len(decoded) - len(tone)) > rate // 4:
        raise ValueError(f"{len(decoded)} samples at {found_rate} Hz came back")
    if not 0.2 < float(np.sqrt(np.mean(decoded**2))) < 0.5:
        raise ValueError("the decoded tone has another level than the one written")


def _speech_synthesiser() -> Iterator[Check]:
    name = "espeak-ng"
    if importlib.util.find_spec("espeakng_loader") is None:
        yield Check(name, NOTE, "not installed; only the quickstart's corpus needs it")
        return
    loader: Any = importlib.import_module("espeakng_loader")
    library = Path(loader.get_library_path())
    if not library.is_file():
        yield Check(name, WARNING, f"espeakng-loader names {library}, which is not there")
        return
    import ctypes

    try:
        ctypes.CDLL(str(library))
    except OSError as error:
        yield Check(name, WARNING, f"{library} does not load: {error}")
        return
    yield Check(name, OK, str(library))


def _disk() -> Iterator[Check]:
    here = Path.cwd()
    free = shutil.disk_usage(here).free
    detail = f"{free / 2**30:.1f} GiB free in {here}"
    if free < _LOW_DISK:
        yield Check("disk space", WARNING, f"{detail}; checkpoints and caches need room")
    else:
        yield Check("disk space", OK, detail)


def _plugins() -> Iterator[Check]:
    from voicehub.plugins.discovery import PluginState
    from voicehub.plugins.loading import inspect

    entries = inspect(load_them=True)
    bad = [
        entry
        for entry in entries
        if entry.state in (PluginState.BROKEN, PluginState.CONFLICT, PluginState.UNSUPPORTED)
    ]
    for owner in dict.fromkeys(entry.distribution for entry in bad):
        own = [entry for entry in bad if entry.distribution == owner]
        total = sum(entry.distribution == owner for entry in entries)
        more = "; `voicehub plugins --inspect` shows all" if len(own) > 1 else ""
        detail = f"{len(own)} of {total} do not work, {own[0].name} is {own[0].state.value}"
        yield Check(f"plugins of {owner}", WARNING, f"{detail}: {own[0].reason}{more}")
    if not bad:
        owners = {entry.distribution for entry in entries}
        count = f"{len(entries)} entries of {len(owners)} distributions"
        yield Check("plugins", OK, f"{count} import")


def _checks_of_plugins() -> Iterator[Check]:
    """Each is a callable: what it returns is the detail, what it raises is a warning."""
    from voicehub.plugins.hooks import checks

    for check in checks():
        name = getattr(check, "__name__", type(check).__name__).strip("_").replace("_", " ")
        yield _result_of(name, check)


def _result_of(name: str, check: Callable[[], object]) -> Check:
    try:
        return Check(name, OK, str(check() or "fine"))
    except Exception as error:  # anything may be wrong with what a plugin looks at
        return Check(name, WARNING, str(error) or type(error).__name__)
