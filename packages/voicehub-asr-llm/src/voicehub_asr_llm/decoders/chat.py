"""The decoder's chat template: what stands before and behind the audio, and how a turn ends.

The template is rendered once, with marks where the audio and the transcript belong, and cut at
the marks. Prompt and transcript become tokens apart, in training as in transcription.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any, Literal, NamedTuple

from voicehub.errors import ConfigurationError
from voicehub_asr_llm.config import PromptConfig

#: Marks that no template and no prompt holds.
_AUDIO, _ANSWER = "VOICEHUBAUDIOHERE", "VOICEHUBANSWERHERE"

Kind = Literal["plain", "punctuated"]
KINDS: tuple[Kind, ...] = ("plain", "punctuated")


class Prompt(NamedTuple):
    """Tokens around the audio.

    Attributes:
        before: up to the audio.
        after: behind it, up to where the transcript begins.
    """

    before: tuple[int, ...]
    after: tuple[int, ...]


class Encoded(NamedTuple):
    """A transcript as the model should write it.

    Attributes:
        ids: tokens, the end of the turn included.
        problem: why decoding them does not give the transcript; empty where it does.
    """

    ids: tuple[int, ...]
    problem: str = ""


class ChatFormat:
    """Prompts and labels by a tokenizer's chat template.

    Args:
        tokenizer: of transformers, with a chat template.
        config: what the user's turn asks.

    Attributes:
        end_id: token that ends the assistant's turn.
        prompts: tokens around the audio, by kind.

    Raises:
        ConfigurationError: there is no template, or it leaves out what must be in it.
    """

    def __init__(self, tokenizer: Any, config: PromptConfig) -> None:
        if not getattr(tokenizer, "chat_template", None):
            raise ConfigurationError(
                f"the tokenizer {tokenizer.name_or_path} has no chat template. Take a decoder that "
                "was trained to chat, or set model.decoder.chat_template to a Jinja template."
            )
        self.tokenizer, self.config = tokenizer, config
        self._special = _special_ids(tokenizer)
        self.prompts: dict[Kind, Prompt] = {}
        for kind in KINDS:
            prefix, suffix = self._rendered(getattr(config, kind))
            parts = prefix.split(_AUDIO)
            if len(parts) != 2:
                raise ConfigurationError(
                    f"the chat template of {tokenizer.name_or_path} shows the user's turn "
                    f"{len(parts) - 1} times; expected once."
                )
            self.prompts[kind] = Prompt(self._tokens(parts[0]), self._tokens(parts[1]))
        self.end_id = self._end(suffix)

    def _rendered(self, question: str) -> tuple[str, str]:
        """What stands before the transcript and behind it."""
        messages = [{"role": "user", "content": f"{_AUDIO}\n{question}"}]
        if self.config.system:
            messages.insert(0, {"role": "system", "content": self.config.system})
        asked = self._render(messages, generates=True)
        answered = self._render(
            [*messages, {"role": "assistant", "content": _ANSWER}], generates=False
        )
        prefix, mark, suffix = answered.partition(_ANSWER)
        if not mark or _ANSWER in suffix:
            raise ConfigurationError(
                f"the chat template of {self.tokenizer.name_or_path} does not show the "
                "assistant's turn as it is, once."
            )
        # Some templates open the turn with more when they ask for it than when they show it.
        return (asked if asked.startswith(prefix) else prefix), suffix

    def _render(self, messages: list[dict[str, str]], *, generates: bool) -> str:
        from jinja2 import TemplateError

        try:
            text: str = self.tokenizer.apply_chat_template(
                messages, tokenize=False, add_generation_prompt=generates, enable_thinking=False
            )
        except TemplateError as error:
            hint = " Leave model.prompt.system empty." if self.config.system else ""
            raise ConfigurationError(
                f"the chat template of {self.tokenizer.name_or_path} cannot be rendered: "
                f"{error}.{hint}"
            ) from error
        return text

    def _end(self, suffix: str) -> int:
        for token in self._tokens(suffix):
            if token in self._special:
                return token
        end = self.tokenizer.eos_token_id
        if end is None:
            raise ConfigurationError(
                f"the chat template of {self.tokenizer.name_or_path} ends the assistant's turn "
                f"with {suffix!r}, in which there is no special token, and the tokenizer has no "
                "eos_token: nothing would end a transcript."
            )
        return int(end)

    def _tokens(self, text: str) -> tuple[int, ...]:
        ids = self.tokenizer(text, add_special_tokens=False)["input_ids"]
        return tuple(int(token) for token in ids)

    # -- transcripts ---------------------------------------------------------------------------

    def encode(self, text: str) -> Encoded:
        """Tokens of a transcript and the end of the turn; an empty one is the end alone."""
        ids = self._tokens(text)
        problem = ""
        if any(token in self._special for token in ids):
            problem = "it holds what the tokenizer takes for a special token"
        elif (back := self._text(ids)) != text:
            problem = f"its tokens decode to {_short(back)}"
        return Encoded((*ids, self.end_id), problem)

    def decode(self, ids: Any) -> str:
        """Text of generated tokens, up to the end of the turn."""
        kept = []
        for token in ids:
            if int(token) == self.end_id:
                break
            kept.append(int(token))
        return self._text(kept, skip_special_tokens=True).strip()

    def _text(self, ids: Any, **options: Any) -> str:
        text: str = self.tokenizer.decode(list(ids), clean_up_tokenization_spaces=False, **options)
        return text

    @property
    def pad_id(self) -> int:
        """What stands behind a generated text."""
        pad = self.tokenizer.pad_token_id
        return self.end_id if pad is None else int(pad)

    @property
    def longest_prompt(self) -> int:
        """Tokens of the longer prompt."""
        return max(len(prompt.before) + len(prompt.after) for prompt in self.prompts.values())

    def fingerprint(self) -> str:
        """SHA-256 of prompts and vocabulary."""
        vocabulary = sorted(self.tokenizer.get_vocab().items())
        text = json.dumps([vocabulary, sorted(self.prompts.items()), self.end_id])
        return hashlib.sha256(text.encode()).hexdigest()


def read_template(given: str) -> str:
    """A template, or the content of the file that holds it."""
    if "{" in given or "\n" in given:
        return given
    path = Path(given)
    if not path.is_file():
        raise ConfigurationError(
            f"model.decoder.chat_template: {given!r} is neither a file nor a Jinja template."
        )
    return path.read_text(encoding="utf-8")


def _special_ids(tokenizer: Any) -> frozenset[int]:
    """Ids that are never text: marked special, or added to the vocabulary as such."""
    added = getattr(tokenizer, "added_tokens_decoder", {})
    marked = {int(token) for token, value in added.items() if value.special}
    unknown = {tokenizer.unk_token_id} if tokenizer.unk_token_id is not None else set()
    return frozenset((marked | {int(t) for t in tokenizer.all_special_ids}) - unknown)


def _short(text: str, limit: int = 60) -> str:
    return repr(text if len(text) <= limit else f"{text[:limit]}...")
