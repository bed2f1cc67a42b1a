"""``voicehub codec fit``: a codec of residual k-means over log-mel frames."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any

import typer

from voicehub.cli.options import JsonOption
from voicehub.cli.output import UsageError, finish
from voicehub_codec_lm.cli.options import DataOption


def fit(
    data: DataOption,
    out: Annotated[Path, typer.Option("--out", help="Directory of the new codec.")],
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", help="KEY=VALUE of the codec's settings, e.g. n_mels=80; repeat."),
    ] = None,
    json_: JsonOption = False,
) -> None:
    """Fit a codec to a corpus. Give training recordings alone: what it sees, it fits."""
    from voicehub_codec_lm.cli.options import manifest
    from voicehub_codec_lm.codecs import CorpusCodec
    from voicehub_codec_lm.codecs.cache import row_audio

    config = _config(set_ or [])
    rows = manifest(data)
    began = time.perf_counter()

    codec = CorpusCodec.fit((row_audio(row, config) for row in rows), config)
    try:
        codec.save(out)
    except OSError as error:
        raise UsageError(f"{out} cannot be written: {error.strerror or error}.") from None
    seconds = time.perf_counter() - began
    result = {
        "directory": str(out),
        "recordings": len(rows),
        "seconds": round(seconds, 2),
        **codec.identity(),
    }
    human = (
        f"{out}: {codec.num_codebooks} codebooks of {codec.codebook_size}, "
        f"{codec.frame_rate:.1f} frames a second, fitted to {len(rows):,} recordings in "
        f"{seconds:.0f} s"
    )
    finish(result, json_mode=json_, human=human, ok=True)


def _config(settings: list[str]) -> Any:
    import yaml
    from pydantic import ValidationError

    from voicehub.suggest import did_you_mean
    from voicehub_codec_lm.codecs import CorpusCodecConfig

    values: dict[str, Any] = {}
    for item in settings:
        key, separator, value = item.partition("=")
        if not separator:
            raise UsageError(f"--set {item!r}: expected KEY=VALUE.")
        if key not in CorpusCodecConfig.model_fields:
            hint = did_you_mean(key, CorpusCodecConfig.model_fields)
            raise UsageError(f"--set {key}: the codec has no such setting.{hint}")
        values[key] = yaml.safe_load(value)
    try:
        return CorpusCodecConfig.model_validate(values)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise UsageError(f"--set {'.'.join(map(str, first['loc']))}: {first['msg']}.") from None
