"""Features of the empty text, which stand in for a text that is dropped."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from voicehub.errors import DataError
from voicehub_flow.store.reader import FeatureStore

NULL_TEXT_FILE = "null_text.safetensors"
_KEY = "null_text"


def write_null_text(store: Path, features: Tensor) -> None:
    """Write them beside a store's index, float32 (tokens, channels)."""
    from safetensors.torch import save_file

    save_file({_KEY: features.float().contiguous()}, store / NULL_TEXT_FILE)


def null_text_of(
    path: str | None, stores: list[FeatureStore], shape: tuple[int, int], setting: str
) -> Tensor:
    """The features of the empty text, float32.

    Args:
        path: a file of them: ``.safetensors``, ``.npy`` or ``.pth``; None looks into the stores.
        stores: the first that has them is taken.
        shape: (tokens, channels).
        setting: dotted key of ``path``, for messages.

    Raises:
        DataError: there are none, or of another shape.
    """
    if path is None:
        found = [store.directory / NULL_TEXT_FILE for store in stores]
        place = next((file for file in found if file.is_file()), None)
        if place is None:
            raise DataError(
                f"no store holds the features of the empty text ({NULL_TEXT_FILE}), which stand in "
                f"where a text is dropped. Name a file of them, {list(shape)}: {setting}=FILE "
                "(.safetensors, .npy or .pth)."
            )
    else:
        place = Path(path).expanduser()
    features = _read(place)
    if features.dim() == 3 and features.shape[0] == 1:
        features = features[0]
    if tuple(features.shape) != shape:
        raise DataError(
            f"{place}: features of the empty text have the shape {list(features.shape)}; the "
            f"stores' texts have {list(shape)}."
        )
    return features.float()


def _read(path: Path) -> Tensor:
    try:
        if path.suffix == ".npy":
            return torch.from_numpy(np.load(path, allow_pickle=False))
        if path.suffix == ".safetensors":
            from safetensors.torch import load_file

            held = list(load_file(path).values())
        else:
            loaded = torch.load(path, map_location="cpu", weights_only=True)
            held = list(loaded.values()) if isinstance(loaded, dict) else [loaded]
    except Exception as error:  # each format has errors of its own
        raise DataError(f"{path}: cannot be read ({error}).") from error
    if len(held) != 1 or not isinstance(held[0], Tensor):
        raise DataError(f"{path}: expected one tensor, found {len(held)} entries.")
    found: Tensor = held[0]
    return found
