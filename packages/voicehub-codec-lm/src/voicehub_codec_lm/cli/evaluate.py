"""``voicehub codec eval``: how much of the sound a codec keeps, and how it uses its codes."""

from __future__ import annotations

from typing import Any

from voicehub.cli.options import JsonOption
from voicehub.cli.output import finish
from voicehub_codec_lm.cli.options import CodebooksOption, CodecOption, DataOption, RowsOption


def evaluate(
    codec: CodecOption,
    data: DataOption,
    num_codebooks: CodebooksOption = None,
    max_samples: RowsOption = None,
    json_: JsonOption = False,
) -> None:
    """Encode and decode recordings and compare.

    ``mel_cepstral_distance_db`` lies between recordings and their round trip, lower is better.
    ``codes_used`` and ``perplexity`` tell for each codebook how many of its codes occur, and how
    many would occur equally often with the same entropy.
    """
    from voicehub_codec_lm.cli.options import load, manifest
    from voicehub_codec_lm.codecs.cache import row_audio
    from voicehub_codec_lm.codecs.report import CodecReport

    rows = list(manifest(data))[:max_samples]
    chosen = load(codec, num_codebooks)
    report = CodecReport(chosen)
    for row in rows:
        report.add(row_audio(row, chosen))
    found: dict[str, Any] = {**report.result(), **chosen.identity()}
    lines = [
        f"{found['recordings']:,} recordings, {found['bits_per_second']:,.0f} bits a second",
        f"mel cepstral distance {found['mel_cepstral_distance_db']:.2f} dB",
        *(
            f"codebook {book}: {used} codes used, perplexity {width:.1f}"
            for book, (used, width) in enumerate(
                zip(found["codes_used"], found["perplexity"], strict=True)
            )
        ),
    ]
    finish(found, json_mode=json_, human="\n".join(lines), ok=True)
