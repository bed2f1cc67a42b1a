"""A codec by its directory or id."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from voicehub.errors import ConfigurationError
from voicehub.models.assets import Asset, Kind
from voicehub.trainer.section import Section
from voicehub_codec_lm.codecs.base import AudioCodec
from voicehub_codec_lm.codecs.corpus import CONFIG_FILE, CorpusCodec


class CodecConfig(Section):
    """Which codec a run uses.

    Attributes:
        path: directory of a corpus codec (``voicehub codec fit``), or of EnCodec, DAC, Mimi or
            X-Codec 2, or a Hub id of one of these.
        num_codebooks: use the first so many; None takes all. A corpus codec is used whole.
        revision: branch, tag or commit of a Hub id.
        local_files_only: do not ask the Hub; use what was downloaded before.
    """

    path: str
    num_codebooks: int | None = Field(default=None, ge=1, le=16)
    revision: str | None = None
    local_files_only: bool = False

    def assets(self, setting: str) -> list[Asset]:
        """What this names: a corpus codec is a folder of ours, others are checkpoints."""
        corpus = (Path(self.path) / CONFIG_FILE).is_file()
        kind: Kind = "file" if corpus else "checkpoint"
        key = f"{setting}.path"
        return [Asset(key, self.path, kind, self.revision, self.local_files_only)]


def load_codec(config: CodecConfig, device: str = "cpu") -> AudioCodec:
    """Read a codec.

    Raises:
        ConfigurationError: it is none, or has fewer codebooks.
        CheckpointError: it cannot be read.
    """
    from voicehub_codec_lm.codecs.pretrained import load_pretrained

    directory = Path(config.path)
    if (directory / CONFIG_FILE).is_file():
        codec = CorpusCodec.load(directory)
        if config.num_codebooks not in (None, codec.num_codebooks):
            raise ConfigurationError(
                f"{directory} is a corpus codec of {codec.num_codebooks} codebooks and is used "
                f"whole; codec.num_codebooks is {config.num_codebooks}. Fit another one."
            )
        return codec
    if not directory.exists() and config.path.startswith((".", "/", "~")):
        raise ConfigurationError(
            f"codec.path {config.path} does not exist. Fit a codec to your corpus with: voicehub "
            f"codec fit --data MANIFEST --out {config.path}"
        )
    return load_pretrained(
        config.path,
        num_codebooks=config.num_codebooks,
        revision=config.revision,
        local_files_only=config.local_files_only,
        device=device,
    )
