"""Chat templates: what is asked for decodes to the transcript and the end, and nothing else."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from voicehub.errors import ConfigurationError, DataError
from voicehub.losses.linear_cross_entropy import IGNORED
from voicehub_asr_llm.config import PromptConfig
from voicehub_asr_llm.data import AUDIO
from voicehub_asr_llm.decoders import ChatFormat
from voicehub_asr_llm.decoders.chat import read_template
from voicehub_asr_llm.testing import LETTERS, TEMPLATES, tiny_tokenizer

#: Hypothesis also tries constants that it finds in the code, such as the end of a turn, which is no
#: transcript.
WORDS = st.text(st.sampled_from(LETTERS.replace("\n", "")), max_size=40).filter(
    lambda text: not re.search("<(unk|pad|start|end)>", text)
)


def chat_of(template: str, **prompts) -> ChatFormat:
    return ChatFormat(tiny_tokenizer(template), PromptConfig(**prompts))


@pytest.fixture(scope="module", params=TEMPLATES)
def chat(request):
    return chat_of(request.param)


@settings(max_examples=60, deadline=None)
@given(text=WORDS)
def test_labels_decode_to_the_transcript_and_the_end(chat, text):
    encoded = chat.encode(text)
    assert encoded.problem == ""
    assert encoded.ids[-1] == chat.end_id
    assert chat.tokenizer.decode(encoded.ids) == f"{text}<end>"
    assert chat.decode(encoded.ids) == text.strip()


def test_the_whole_conversation_is_the_rendered_template(chat):
    prompt = chat.prompts["plain"]
    before, after = (chat.tokenizer.decode(ids) for ids in prompt)
    rendered = chat.tokenizer.apply_chat_template(
        [
            {"role": "user", "content": f"[AUDIO]\n{PromptConfig().plain}"},
            {"role": "assistant", "content": "he said so"},
        ],
        tokenize=False,
        enable_thinking=False,
    )
    answer = chat.tokenizer.decode(chat.encode("he said so").ids)
    said = f"{before}[AUDIO]{after}{answer}".replace(" <end>", "<end>")
    assert rendered.replace(" <end>", "<end>").startswith(said)


def test_the_prompt_is_what_the_template_asks_generation_with(chat):
    asked = chat.tokenizer.apply_chat_template(
        [{"role": "user", "content": f"[AUDIO]\n{PromptConfig().punctuated}"}],
        tokenize=False,
        add_generation_prompt=True,
        enable_thinking=False,
    )
    before, after = (chat.tokenizer.decode(ids) for ids in chat.prompts["punctuated"])
    assert f"{before}[AUDIO]{after}".rstrip() == asked.rstrip()


@pytest.mark.parametrize("template", TEMPLATES)
def test_unmasked_labels_of_a_batch(template, model_of, items_of, collate, decoder):
    path = str(decoder("llama", template))
    texts = ["hello there", "", "Yes, it's 9 o'clock."]
    seen = []
    for plain in ("Transcribe", "Write down what was said"):
        model = model_of(decoder={"path": path}, prompt={"plain": plain}, load=False)
        items = items_of(model, *texts)
        batch = collate(model, items)
        asked = []
        for row, labels in zip(batch["input_ids"], batch["labels"], strict=True):
            kept = labels[labels != IGNORED].tolist()
            asked.append(model.chat.tokenizer.decode(kept))
            # The label of a step is the input of the next; the end is never an input.
            first = int((labels != IGNORED).nonzero()[0])
            assert row[first + 1 : first + len(kept)].tolist() == kept[:-1]
            assert int((row == AUDIO).sum()) > 0
        assert asked == [f"{text}<end>" for text in texts]
        seen.append(batch["labels"][batch["labels"] != IGNORED].tolist())
    assert seen[0] == seen[1]


def test_a_sample_without_any_label_is_an_error(model_of, items_of, collate):
    model = model_of(load=False)
    (item,) = items_of(model, "ab")
    with pytest.raises(DataError, match="sample 'item-0' has no label at all"):
        collate(model, [item._replace(labels=())])


def test_a_sample_without_a_projected_frame_is_an_error(model_of, items_of, collate):
    model = model_of(load=False)
    (item,) = items_of(model, "ab")
    with pytest.raises(DataError, match="sample 'item-0' has 1 frames"):
        collate(model, [item._replace(prepared=item.prepared._replace(frames=1))])


@pytest.mark.parametrize(
    ("text", "why"), [("so <end> it is", "special token"), ("größer", "decode to 'gr<unk>")]
)
def test_what_cannot_be_spelled_is_told(text, why):
    assert why in chat_of("chatml").encode(text).problem


def test_a_system_turn_goes_first_or_is_refused():
    with_system = chat_of("chatml", system="You are a clerk")
    text = with_system.tokenizer.decode(with_system.prompts["plain"].before)
    assert text.startswith("<start>system\nYou are a clerk<end>")
    with pytest.raises(ConfigurationError, match=r"System role not supported.*prompt\.system"):
        chat_of("model-turn", system="You are a clerk")


def test_bad_templates_are_refused():
    tokenizer = tiny_tokenizer()
    for template, why in [
        (None, "no chat template"),
        ("{% for m in messages %}{{ m['role'] }}{% endfor %}", "assistant's turn"),
        (
            "{% for m in messages if m['role'] == 'assistant' %}{{ m['content'] }}<end>"
            "{% endfor %}",
            "user's turn 0 times",
        ),
    ]:
        tokenizer.chat_template = template
        with pytest.raises(ConfigurationError, match=why):
            ChatFormat(tokenizer, PromptConfig())
    tokenizer.chat_template = "{% for m in messages %}{{ m['content'] }}{% endfor %}"
    tokenizer.eos_token = None
    with pytest.raises(ConfigurationError, match="nothing would end a transcript"):
        ChatFormat(tokenizer, PromptConfig())


def test_a_template_may_come_from_a_file(tmp_path):
    path = tmp_path / "chat.jinja"
    path.write_text(TEMPLATES["chatml"])
    assert read_template(str(path)) == TEMPLATES["chatml"]
    assert read_template(TEMPLATES["headers"]) == TEMPLATES["headers"]
    with pytest.raises(ConfigurationError, match="neither a file nor"):
        read_template("chat.jinja")
