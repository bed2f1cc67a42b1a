"""What trains: each mode is a rule from parameter names to the names that train.

Names are those of the network: ``encoder.…`` (a transformers model, inside peft where there are
adapters), ``fuser.…``, ``head.…`` and ``loss.…`` (the prototypes, which are the output layer).
No tensor library is imported here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from voicehub.errors import ConfigurationError
from voicehub.suggest import did_you_mean

_PEFT_PREFIX = "base_model.model."


@dataclass(frozen=True)
class Layout:
    """Where parts are.

    Attributes:
        front_end: paths, from the encoder, of what turns audio into its first hidden states.
        embedding: path of the layer that gives the embedding.
    """

    front_end: tuple[str, ...] = ()
    embedding: str = "head.embedding"


@dataclass(frozen=True)
class _Name:
    """One parameter, as the rules see it."""

    full: str
    layout: Layout

    @property
    def inside(self) -> str | None:
        """Its name within the encoder, or None where it is elsewhere."""
        if not self.full.startswith("encoder."):
            return None
        return self.full.removeprefix("encoder.").removeprefix(_PEFT_PREFIX)

    @property
    def is_encoder(self) -> bool:
        return self.inside is not None

    @property
    def is_front_end(self) -> bool:
        inside = self.inside
        return inside is not None and _below(inside, self.layout.front_end)

    @property
    def is_adapter(self) -> bool:
        return self.is_encoder and ".lora_" in self.full

    @property
    def is_encoder_bias(self) -> bool:
        return self.is_encoder and self.full.endswith(".bias") and not self.is_adapter

    @property
    def is_adapted_bias(self) -> bool:
        """A bias of a layer that has an adapter."""
        return self.full.endswith(".base_layer.bias")

    @property
    def is_output(self) -> bool:
        return self.full.startswith("loss.")

    @property
    def is_head(self) -> bool:
        return self.full.startswith("head.") or self.is_output

    @property
    def is_embedding(self) -> bool:
        return _below(self.full, (self.layout.embedding,)) or self.is_output


def _below(name: str, paths: Iterable[str]) -> bool:
    return any(name == path or name.startswith(f"{path}.") for path in paths)


_Rule = Callable[[_Name], bool]

_RULES: dict[str, _Rule] = {
    "full": lambda name: True,
    "frozen": lambda name: False,
    "ft-embed-affine": lambda name: name.is_embedding,
    "ft-xvector": lambda name: name.is_head,
    "hf-feats-frozen": lambda name: not name.is_encoder,
    "hf-feat-extractor-frozen": lambda name: not name.is_front_end,
    "hf-lora": lambda name: name.is_adapter or not name.is_encoder,
    "hf-all-bias-lora": lambda name: name.is_adapter or name.is_encoder_bias or not name.is_encoder,
    "hf-lora-with-bias": lambda name: (
        name.is_adapter or name.is_adapted_bias or not name.is_encoder
    ),
}
#: The same sets; the encoder's forward is told, besides, to keep nothing for a backward.
_NO_GRAD = {"ft-xvector-nograd": "ft-xvector", "hf-feats-frozen-nograd": "hf-feats-frozen"}

NATIVE_MODES = ("full", "frozen", "ft-embed-affine")
LORA_MODES = ("hf-lora", "hf-all-bias-lora", "hf-lora-with-bias")
ENCODER_MODES = (*_RULES, *_NO_GRAD)


def trainable_names(mode: str, names: Iterable[str], layout: Layout) -> frozenset[str]:
    """Return which of ``names`` train.

    Args:
        mode: one of ``ENCODER_MODES``.
        names: of the parameters that the network itself leaves trainable.
        layout: where its parts are.

    Raises:
        ConfigurationError: there is no such mode; a mode that trains adapters finds none.
    """
    rule = _RULES.get(_NO_GRAD.get(mode, mode))
    if rule is None:
        raise ConfigurationError(
            f"train_mode '{mode}' is unknown; modes are {', '.join(ENCODER_MODES)}."
            f"{did_you_mean(mode, ENCODER_MODES)}"
        )
    seen = [_Name(name, layout) for name in names]
    if mode in LORA_MODES and not any(name.is_adapter for name in seen):
        raise ConfigurationError(
            f"train_mode '{mode}' trains low-rank adapters, and the network has none."
        )
    chosen = frozenset(name.full for name in seen if rule(name))
    if not chosen and mode != "frozen":
        raise ConfigurationError(f"train_mode '{mode}' matches no parameter of the network.")
    return chosen


def encoder_without_grad(mode: str) -> bool:
    """Whether nothing in the encoder trains, so that its forward keeps no graph."""
    return mode in _NO_GRAD or mode in (
        "frozen", "ft-embed-affine", "ft-xvector", "hf-feats-frozen",
    )  # fmt: skip


def stops_before_embedding(mode: str) -> bool:
    """Whether everything below the embedding layer is frozen."""
    return mode == "ft-embed-affine"
