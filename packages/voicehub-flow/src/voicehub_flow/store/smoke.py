"""What ``voicehub train flow/PRESET --smoke`` trains on where it reads feature stores."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

_RATE, _SECONDS = 4000, 0.6

#: Tiny shapes under the preset's own recipe.
_SIZES = {
    "num_heads": 2,
    "head_dim": 8,
    "depth": 2,
    "fused_depth": 1,
    "mlp_multiple": 8,
    "sync_segment": 2,
    "latent_frames": "null",
    "latent_dim": "null",
    "clip_frames": "null",
    "clip_dim": "null",
    "sync_frames": "null",
    "sync_dim": "null",
    "text_tokens": "null",
    "text_dim": "null",
}


def tiny_settings(values: Mapping[str, Any], directory: Path) -> list[str]:
    """Extract a tiny store of tones: one with video and one without.

    Args:
        values: the preset as composed.
        directory: for what is made.

    Returns:
        Overrides that use it.
    """
    stores = {
        "train": ("seen", directory / "video", True),
        "more": ("heard", directory / "audio", False),
        "eval": ("unseen", directory / "unseen", True),
    }
    for seed, (name, store, filmed) in enumerate(stores.values()):
        make_tone_store(directory / name, store, seed=seed, video=filmed)
    video, audio = stores["train"][1], stores["more"][1]
    return [
        f"data.train=[{{path: {video}, rate: 2.0}},{{path: {audio}}}]",
        f"data.eval={stores['eval'][1]}",
        "data.null_text=null",
        "data.global_batch_size=8",
        "training.per_device_train_batch_size=4",
        "model.generation.steps=2",
        "model.vocoder.iterations=2",
        "after_training.metrics=[frechet_distance]",
        *(f"model.architecture.{key}={value}" for key, value in _SIZES.items()),
    ]


def make_tone_store(
    directory: Path, store: Path, *, seed: int = 0, clips: int = 12, video: bool = True
) -> Path:
    """Write a corpus of tones, pictures that change with it, and a store of both.

    Args:
        directory: of the corpus.
        store: of the features.
        seed: of texts and noise.
        clips: how many.
        video: whether there are pictures.
    """
    import json

    from voicehub_data.manifest import read_manifest
    from voicehub_data.synthetic.tones import write_tone_corpus
    from voicehub_flow.features.run import extract_features
    from voicehub_flow.features.settings import ExtractionSettings, choices

    manifest = write_tone_corpus(
        directory, clips=clips, rate=_RATE, letters=4, letter_seconds=_SECONDS / 4, seed=seed
    )
    if video:
        rows = [json.loads(line) for line in manifest.read_text(encoding="utf-8").splitlines()]
        for row in rows:
            row["video"], row["video_fps"] = _write_video(directory, row), 20
        manifest.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    chosen = choices(
        {
            "audio": "log-mel-pca",
            "text": "hashed",
            "clip": "frame-grid" if video else None,
            "sync": "motion-grid" if video else None,
        },
        [
            f"audio.sample_rate={_RATE}",
            "audio.n_fft=128",
            "audio.hop_length=100",
            "audio.n_mels=12",
            "audio.latent_dim=6",
            "text.tokens=2",
            "text.channels=16",
            *(("clip.fps=5", "clip.rows=1", "clip.columns=2") if video else ()),
            *(("sync.fps=20", "sync.rows=2", "sync.columns=2") if video else ()),
        ],
    )
    settings = ExtractionSettings(seconds=_SECONDS, shard_rows=8)
    extract_features(read_manifest(manifest), store, chosen, settings=settings)
    return store


def _write_video(directory: Path, row: Mapping[str, Any]) -> str:
    """Pictures that are as bright as the sound is loud."""
    import numpy as np

    from voicehub_data.audio import load_audio

    audio = load_audio(directory / row["audio_filepath"], sample_rate=_RATE)
    count = round(_SECONDS * 20)
    loudness = np.array([np.abs(part).max() for part in np.array_split(audio, count)])
    pictures = np.clip(255 * loudness, 0, 255).astype(np.uint8)
    name = f"{row['id']}.npy"
    np.save(directory / name, np.broadcast_to(pictures[:, None, None, None], (count, 4, 4, 3)))
    return name
