"""Published checkpoints in folders of a Hub repository: weights and vocabulary, nothing else."""

from __future__ import annotations

from pathlib import Path

from voicehub.errors import CheckpointError

_VOCABULARY = "vocab.txt"


def fetched_folder(
    source: str, subfolder: str | None, revision: str | None, local_files_only: bool
) -> Path:
    """The folder of a checkpoint in the Hub's cache, fetched where it is not there yet.

    Args:
        source: id of the repository.
        subfolder: where the files lie in it.
        revision: branch, tag or commit.
        local_files_only: do not ask the Hub.

    Raises:
        CheckpointError: it can only be a directory, and there is none; or it cannot be fetched.
    """
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    from voicehub_hf.loading import checkpoint_source

    name, local = checkpoint_source(source, local_files_only)
    folder = "" if subfolder is None else f"{subfolder}/"
    try:
        snapshot = snapshot_download(
            name,
            revision=revision,
            local_files_only=local,
            allow_patterns=[f"{folder}*.safetensors", f"{folder}{_VOCABULARY}"],
        )
    except (OSError, HfHubHTTPError, LocalEntryNotFoundError) as error:
        raise CheckpointError(f"Cannot fetch {source}: {error}") from error
    return Path(snapshot) / folder


def cached_folder(source: str, subfolder: str | None, revision: str | None) -> Path | None:
    """The same where weights and vocabulary are in the cache; None otherwise. No network."""
    from huggingface_hub import try_to_load_from_cache

    name = _VOCABULARY if subfolder is None else f"{subfolder}/{_VOCABULARY}"
    try:
        found = try_to_load_from_cache(source, name, revision=revision)
    except ValueError:  # no id of a repository
        return None
    if not isinstance(found, str) or not any(Path(found).parent.glob("*.safetensors")):
        return None
    return Path(found).parent
