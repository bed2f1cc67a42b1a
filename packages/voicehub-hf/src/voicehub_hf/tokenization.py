"""Tokenizers of transformers over a given CTC vocabulary, so that exports decode anywhere."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from voicehub.errors import ConfigurationError
from voicehub_hf.encoders import ctc_encoder


def ctc_tokenizer(
    model_type: str,
    vocabulary: Sequence[str],
    *,
    pad_token: str = "<pad>",
    unk_token: str = "<unk>",
    word_delimiter_token: str = "|",
) -> Any:
    """Build the tokenizer of a CTC model over a character vocabulary.

    Args:
        model_type: One of the five; Parakeet gets a ``ParakeetTokenizer``, the others a
            ``Wav2Vec2CTCTokenizer``.
        vocabulary: Tokens in the order of their ids. One character each, but for the three below.
        pad_token: CTC blank; must be in the vocabulary.
        unk_token: Stands for characters outside the vocabulary; must be in it.
        word_delimiter_token: Stands for the space; must be in the vocabulary.

    Raises:
        ConfigurationError: Tokens repeat, or one of the three is missing.
    """
    tokens = list(vocabulary)
    if len(set(tokens)) != len(tokens):
        repeated = sorted({token for token in tokens if tokens.count(token) > 1})
        raise ConfigurationError(f"The CTC vocabulary repeats {repeated}.")
    for role, token in (("pad", pad_token), ("unk", unk_token), ("space", word_delimiter_token)):
        if token not in tokens:
            raise ConfigurationError(f"The CTC vocabulary lacks the {role} token '{token}'.")
    ids = {token: index for index, token in enumerate(tokens)}
    if ctc_encoder(model_type).model_type == "parakeet_ctc":
        return _parakeet(ids, pad_token, unk_token, word_delimiter_token)
    return _wav2vec2(ids, pad_token, unk_token, word_delimiter_token)


def _wav2vec2(ids: dict[str, int], pad: str, unk: str, delimiter: str) -> Any:
    import transformers

    make: Any = transformers.Wav2Vec2CTCTokenizer

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "vocab.json"
        path.write_text(json.dumps(ids, ensure_ascii=False), encoding="utf-8")
        # Sentence marks that are not in the vocabulary would be appended to it, and the
        # tokenizer would then be larger than the model's output.
        return make(
            str(path),
            bos_token=None,
            eos_token=None,
            pad_token=pad,
            unk_token=unk,
            word_delimiter_token=delimiter,
        )


def _parakeet(ids: dict[str, int], pad: str, unk: str, delimiter: str) -> Any:
    import transformers
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    # Byte-pair encoding without merges: one token for each character.
    tokenizer = Tokenizer(models.BPE(vocab=ids, merges=[], unk_token=unk))
    space: dict[str, Any] = {"replacement": delimiter, "prepend_scheme": "never", "split": False}
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(**space)
    tokenizer.decoder = decoders.Metaspace(**space)
    make: Any = transformers.ParakeetTokenizer
    return make(tokenizer_object=tokenizer, pad_token=pad, unk_token=unk)
