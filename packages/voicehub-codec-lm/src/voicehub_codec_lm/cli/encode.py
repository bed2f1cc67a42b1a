"""``voicehub codec encode``: a corpus into the token cache."""

from __future__ import annotations

from voicehub.cli.options import JsonOption
from voicehub.cli.output import finish
from voicehub_codec_lm.cli.options import CacheOption, CodebooksOption, CodecOption, DataOption


def encode(
    codec: CodecOption,
    data: DataOption,
    cache: CacheOption,
    num_codebooks: CodebooksOption = None,
    json_: JsonOption = False,
) -> None:
    """Encode recordings that are not in the cache; what is there stays as it is."""
    from voicehub_codec_lm.cli.options import load, manifest
    from voicehub_codec_lm.codecs import TokenCache

    rows = manifest(data)
    tokens = TokenCache(cache, load(codec, num_codebooks))
    before = len(tokens)
    keys = tokens.fill(
        rows, None if json_ else lambda done, total: print(f"{done:,} of {total:,}", flush=True)
    )
    made = len(tokens) - before
    known = len(set(keys)) - made
    result = {"directory": str(tokens.directory), "encoded": made, "already_there": known}
    human = f"{tokens.directory}: {made:,} recordings encoded, {known:,} were there"
    finish(result, json_mode=json_, human=human, ok=True)
