"""Tokenizers in directories: ``ctc_tokenizer.json`` says which kind, other files hold the rest."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from voicehub.errors import ConfigurationError
from voicehub.suggest import did_you_mean
from voicehub_asr_ctc.tokenizers.base import CTCTokenizer
from voicehub_asr_ctc.tokenizers.characters import CharacterTokenizer
from voicehub_asr_ctc.tokenizers.pretrained import PretrainedTokenizer
from voicehub_asr_ctc.tokenizers.sentence_pieces import SentencePieceTokenizer
from voicehub_asr_ctc.tokenizers.subwords import SubwordTokenizer

TOKENIZER_FILE = "ctc_tokenizer.json"

_LOADERS: dict[str, Callable[[Path, Mapping[str, Any]], CTCTokenizer]] = {
    CharacterTokenizer.kind: CharacterTokenizer.load,
    SubwordTokenizer.kind: SubwordTokenizer.load,
    SentencePieceTokenizer.kind: SentencePieceTokenizer.load,
    PretrainedTokenizer.kind: PretrainedTokenizer.load,
}


def save_tokenizer(tokenizer: CTCTokenizer, directory: str | Path) -> None:
    """Write a tokenizer into a directory."""
    directory = Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    settings = tokenizer.save(directory)
    document = {
        "kind": tokenizer.kind,
        "tokens": len(tokenizer),
        "sha256": tokenizer.fingerprint(),
        "settings": settings,
    }
    text = json.dumps(document, indent=2, ensure_ascii=False)
    (directory / TOKENIZER_FILE).write_text(text + "\n", encoding="utf-8")


def load_tokenizer(directory: str | Path) -> CTCTokenizer:
    """Read what ``save_tokenizer`` wrote.

    Raises:
        ConfigurationError: the directory holds no tokenizer, or its files do not belong together.
    """
    directory = Path(directory).expanduser()
    path = directory / TOKENIZER_FILE
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        loader = _LOADERS.get(document["kind"])
        if loader is None:
            raise ConfigurationError(
                f"{path}: unknown tokenizer kind {document['kind']!r}."
                f"{did_you_mean(document['kind'], _LOADERS)}"
            )
        tokenizer = loader(directory, document["settings"])
    except FileNotFoundError as error:
        missing = Path(str(error.filename or path))
        raise ConfigurationError(
            f"{directory} holds no tokenizer: {missing.name} is missing. Give the directory of a "
            "model of this family."
        ) from None
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise ConfigurationError(f"{path} cannot be read: {error}") from error
    if tokenizer.fingerprint() != document["sha256"]:
        raise ConfigurationError(
            f"{path}: the tokens are not those that were saved; a file beside it was replaced."
        )
    return tokenizer
