"""``voicehub codec decode``: what a codec leaves of a corpus, as recordings."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from voicehub.cli.options import JsonOption
from voicehub.cli.output import UsageError, finish
from voicehub_codec_lm.cli.options import CodebooksOption, CodecOption, DataOption, RowsOption


def decode(
    codec: CodecOption,
    data: DataOption,
    out: Annotated[Path, typer.Option("--out", help="Folder for recordings and manifest.")],
    cache: Annotated[
        Path | None, typer.Option("--cache", help="Folder that codes are read from and kept in.")
    ] = None,
    num_codebooks: CodebooksOption = None,
    max_samples: RowsOption = None,
    json_: JsonOption = False,
) -> None:
    """Encode and decode recordings; the folder then holds them and ``manifest.jsonl``.

    Whatever a language model over this codec says, it cannot sound better than these.
    """
    from dataclasses import replace

    from voicehub.trainer.media import Audio
    from voicehub_codec_lm.cli.options import load, manifest
    from voicehub_codec_lm.codecs import TokenCache
    from voicehub_codec_lm.codecs.cache import row_audio
    from voicehub_data.manifest import write_manifest

    rows = list(manifest(data))[:max_samples]
    chosen = load(codec, num_codebooks)
    tokens = None if cache is None else TokenCache(cache, chosen)
    keys = [""] * len(rows) if tokens is None else tokens.fill(rows)
    made = []
    try:
        out.mkdir(parents=True, exist_ok=True)
        for number, (row, key) in enumerate(zip(rows, keys, strict=True)):
            codes = chosen.encode(row_audio(row, chosen)) if tokens is None else tokens.codes(key)
            audio = Audio(chosen.decode(codes).numpy(), chosen.sample_rate)
            path = out / f"{number:06d}.wav"
            path.write_bytes(audio.as_wav())
            made.append(
                replace(row, audio_filepath=path, offset=0.0, duration=None, is_segment=False)
            )
        write_manifest(made, out / "manifest.jsonl")
    except OSError as error:
        raise UsageError(f"{out} cannot be written: {error.strerror or error}.") from None
    result = {"directory": str(out), "recordings": len(made)}
    finish(result, json_mode=json_, human=f"{out}: {len(made):,} recordings", ok=True)
