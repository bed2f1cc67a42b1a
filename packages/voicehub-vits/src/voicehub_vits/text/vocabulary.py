"""A ``VitsTokenizer`` over the symbols of a training text."""

from __future__ import annotations

import json
import tempfile
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from voicehub.errors import DataError
from voicehub_vits.text.front_end import TextFrontEnd

PAD, UNKNOWN = "<pad>", "<unk>"


def build_tokenizer(
    texts: Iterable[str],
    *,
    min_count: int = 1,
    lower: bool = True,
    phonemes: str | None = None,
    add_blank: bool = True,
) -> tuple[TextFrontEnd, Counter[str]]:
    """Build a tokenizer with one token for each symbol of the texts.

    Args:
        texts: of the training rows.
        min_count: symbols seen fewer times get no token.
        lower: texts are lower-cased, here and by the exported tokenizer.
        phonemes: spell phonemes of this language instead of letters.
        add_blank: a blank between all tokens, as published.

    Returns:
        The front end, and the symbols that got no token with their counts.

    Raises:
        DataError: the texts hold no symbol.
    """
    blank = _tokenizer([PAD, UNKNOWN], lower, phonemes, add_blank)
    speller = TextFrontEnd(blank, phonemes)
    counts: Counter[str] = Counter()
    for text in texts:
        counts.update(speller.spell(text))
    rare = Counter({symbol: n for symbol, n in counts.items() if n < min_count})
    kept = sorted(set(counts) - set(rare))
    if not kept:
        raise DataError("the training text holds no symbol to build a vocabulary from.")
    tokenizer = _tokenizer([PAD, UNKNOWN, *kept], lower, phonemes, add_blank)
    return TextFrontEnd(tokenizer, phonemes), rare


def _tokenizer(tokens: list[str], lower: bool, phonemes: str | None, add_blank: bool) -> Any:
    from transformers import VitsTokenizer

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "vocab.json"
        table = {token: index for index, token in enumerate(tokens)}
        path.write_text(json.dumps(table, ensure_ascii=False), encoding="utf-8")
        make: Any = VitsTokenizer
        return make(
            str(path),
            pad_token=PAD,
            unk_token=UNKNOWN,
            add_blank=add_blank,
            normalize=lower and phonemes is None,
            # transformers knows the phonemes of American English alone.
            phonemize=phonemes == "en-us",
        )
