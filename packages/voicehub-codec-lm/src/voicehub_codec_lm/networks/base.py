"""What the three layouts have in common."""

from __future__ import annotations

import copy
import inspect
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from voicehub.errors import CheckpointError
from voicehub_codec_lm.config import CodecLMModelConfig
from voicehub_codec_lm.data.collate import CodecCollator
from voicehub_codec_lm.sampling.settings import SamplingSettings


@dataclass(frozen=True)
class Sizes:
    """What a model must know before it is built.

    Attributes:
        prompt_tokens: of the prompt vocabulary.
        codebooks, codebook_size: of the codec.
    """

    prompt_tokens: int
    codebooks: int
    codebook_size: int

    def to_dict(self) -> dict[str, int]:
        """Return JSON values."""
        return {
            "prompt_tokens": self.prompt_tokens,
            "codebooks": self.codebooks,
            "codebook_size": self.codebook_size,
        }


@dataclass(frozen=True)
class Heads:
    """Hidden states, the heads they meet, and what those should say.

    Attributes:
        names: one for each head, for the logs.
        hidden: (rows, size).
        weight: (heads, vocabulary, size).
        labels: int64 (rows, heads).
        head_weights: float32 (heads,).
        position_weights: (rows, heads), or None where all count 1.
    """

    names: tuple[str, ...]
    hidden: Tensor
    weight: Tensor
    labels: Tensor
    head_weights: Tensor
    position_weights: Tensor | None = None


@dataclass(frozen=True)
class Asked:
    """What a batch asks of a model.

    Attributes:
        heads: groups of heads over one set of rows each.
        shape: (batch, steps) of the first group's rows.
    """

    heads: tuple[Heads, ...]
    shape: tuple[int, int]


class Network(ABC):
    """One layout over its transformers class.

    Args:
        config: model section of a run.
        sizes: of prompt and codec.
    """

    #: Whether the model can speak without its condition, for classifier-free guidance.
    has_guidance: ClassVar[bool] = False

    def __init__(self, config: CodecLMModelConfig, sizes: Sizes) -> None:
        self.config, self.sizes = config, sizes

    @abstractmethod
    def build(self, seed: int) -> nn.Module:
        """A module from the checkpoint of the configuration, or from random weights."""

    @abstractmethod
    def read(self, directory: Path) -> nn.Module:
        """The module that ``write`` wrote."""

    @abstractmethod
    def write(self, module: nn.Module, directory: Path) -> None:
        """Write what plain transformers loads; low-rank adapters are merged in a copy."""

    @abstractmethod
    def collator(self, pack_steps: int | None = None) -> CodecCollator:
        """What makes batches for this layout; ``pack_steps`` joins short utterances in a row."""

    @abstractmethod
    def ask(self, module: nn.Module, batch: Mapping[str, Any]) -> Asked:
        """Run the module up to its heads."""

    @abstractmethod
    def generate(
        self,
        module: nn.Module,
        prompt: Sequence[int],
        settings: SamplingSettings,
        generator: torch.Generator,
        max_frames: int,
    ) -> Tensor:
        """Speak a prompt: codes int64 (codebooks, frames), at most ``max_frames``."""

    @abstractmethod
    def adapted(self, module: nn.Module) -> nn.Module:
        """The transformers model that low-rank adapters go on."""

    @abstractmethod
    def new_parameters(self, module: nn.Module) -> list[nn.Parameter]:
        """What trains in full beside low-rank adapters: embeddings and heads of codes."""

    def codebook_weights(self, device: torch.device) -> Tensor:
        """float32 (codebooks,), as the configuration weighs them."""
        given = self.config.loss.codebook_weights
        values = [1.0] * self.sizes.codebooks if given is None else given
        return torch.tensor(values, dtype=torch.float32, device=device)


# -- helpers over transformers ---------------------------------------------------------------------


def plain(model: nn.Module) -> Any:
    """The transformers model inside low-rank adapters; any other model as it is."""
    inner = getattr(model, "get_base_model", None)
    return inner() if callable(inner) else model


def additive(mask: Tensor, dtype: torch.dtype) -> Tensor:
    """A mask that is true where attention is allowed, as what is added to its scores."""
    added = torch.zeros(mask.shape, dtype=dtype, device=mask.device)
    return added.masked_fill_(~mask, torch.finfo(dtype).min)


def cached(model: nn.Module, cache: Any, **inputs: Any) -> Any:
    """Call a model with its key-value cache; transformers renamed that argument in version 5."""
    names = inspect.signature(model.forward).parameters
    name = "cache" if "cache" in names else "past_key_values"
    return model(**inputs, **{name: cache}, use_cache=True)


def cache_of(output: Any) -> Any:
    """The cache that :func:`cached` returned."""
    return output.cache if "cache" in output else output.past_key_values


def from_pretrained(model_class: Any, source: str | Path, **options: Any) -> Any:
    """Load weights from safetensors alone, in float32.

    Raises:
        CheckpointError: they cannot be read.
    """
    from voicehub_hf.processors import progress_bars

    local = bool(options.get("local_files_only")) or Path(source).is_dir()
    try:
        with progress_bars(shown=not local):
            return model_class.from_pretrained(
                str(source),
                dtype=torch.float32,
                use_safetensors=True,
                **{**options, "local_files_only": local},
            )
    except (OSError, ValueError) as error:
        raise CheckpointError(
            f"Cannot load {model_class.__name__} from {source}: {error}"
        ) from error


def save(model: nn.Module, directory: Path) -> None:
    """Write a transformers model, adapters merged.

    Raises:
        CheckpointError: the directory cannot be written.
    """
    from voicehub_hf.lora import merge_lora
    from voicehub_hf.processors import progress_bars

    if hasattr(model, "merge_and_unload"):
        model = merge_lora(copy.deepcopy(model))
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with progress_bars(shown=False):
            model.save_pretrained(directory)  # type: ignore[operator]
    except OSError as error:
        raise CheckpointError(f"Cannot write {directory}: {error}") from error


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """torch's global generator at a seed for a while: transformers draws its weights from it."""
    with torch.random.fork_rng(devices=()):
        torch.manual_seed(seed)
        yield
