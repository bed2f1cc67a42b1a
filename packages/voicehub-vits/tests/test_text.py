"""Ids are those of transformers' tokenizer; what has no token is counted."""

from __future__ import annotations

from pathlib import Path

import pytest

from voicehub.errors import ConfigurationError, DataError
from voicehub_vits.text import TextFrontEnd, build_tokenizer
from voicehub_vits.text.front_end import load_front_end


@pytest.mark.parametrize("add_blank", [True, False])
@pytest.mark.parametrize("lower", [True, False])
def test_ids_equal_those_of_the_exported_tokenizer(
    lower: bool, add_blank: bool, tmp_path: Path
) -> None:
    texts = ["Wer spät lernt, bleibt jung.", "Ein Haus am See!"]
    front_end, rare = build_tokenizer(texts, lower=lower, add_blank=add_blank)
    assert not rare
    front_end.save(tmp_path)
    again = load_front_end(tmp_path)
    assert again.fingerprint() == front_end.fingerprint()
    for text in [*texts, "See, Haus"]:
        encoded = again.encode(text)
        assert list(encoded.ids) == again.tokenizer(text).input_ids
        assert encoded.symbols == len(text)
    upper = again.encode("WER")
    assert upper.symbols == (3 if lower else 2)  # of the capitals R was not seen


def test_blanks_stand_between_all_tokens() -> None:
    front_end, _ = build_tokenizer(["ab"])
    table = front_end.tokenizer.encoder
    assert front_end.encode("ba").ids == (0, table["b"], 0, table["a"], 0)


def test_unknown_and_rare_symbols_are_counted() -> None:
    front_end, rare = build_tokenizer(["aaa b", "ac"], min_count=2)
    assert rare == {"b": 1, "c": 1, " ": 1}
    encoded = front_end.encode("abba?")
    assert encoded.symbols == 2 and encoded.unknown == {"b": 2, "?": 1}
    with pytest.raises(DataError, match=r"row 7: no symbol of 'xyz' has a token.*knows 'a'"):
        front_end.require("xyz", "row 7")
    with pytest.raises(DataError, match="holds no symbol"):
        build_tokenizer([""])


def test_phonemes_are_spelled_and_exported_for_english(tmp_path: Path) -> None:
    pytest.importorskip("espeakng_loader", reason="espeak-ng is an extra")
    front_end, _ = build_tokenizer(["Hello, world!"], phonemes="en-us")
    assert "ə" in front_end.tokenizer.encoder and "," in front_end.tokenizer.encoder
    assert "H" not in front_end.tokenizer.encoder
    encoded = front_end.encode("world")
    assert encoded.symbols == len("w\u02c8\u025c\u02d0ld") and not encoded.unknown
    assert front_end.tokenizer.phonemize
    german, _ = build_tokenizer(["Hallo"], phonemes="de")
    assert not german.tokenizer.phonemize  # transformers would speak American English
    german.save(tmp_path)
    assert load_front_end(tmp_path, "de").encode("Hallo") == german.encode("Hallo")


def test_a_directory_without_a_tokenizer(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="no tokenizer of VITS.*kind=characters"):
        load_front_end(tmp_path, local_files_only=True)


def test_romanised_checkpoints_need_uroman(monkeypatch: pytest.MonkeyPatch) -> None:
    from transformers import utils

    front_end, _ = build_tokenizer(["ab"])
    front_end.tokenizer.is_uroman = True
    monkeypatch.setattr(utils, "is_uroman_available", lambda: False)
    with pytest.raises(ConfigurationError, match="pip install uroman"):
        TextFrontEnd(front_end.tokenizer).encode("ab")
