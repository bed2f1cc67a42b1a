"""Hugging Face ``datasets`` as a source: local files, saved data sets, Hub ids.

Audio that lives inside the data set's tables is written once to files named by their content,
beside the library's cache: rows then look like those of every other source, worker processes read
plain files, and a changed recording changes the manifest's digest.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from voicehub.errors import ConfigurationError, DataError, OptionalDependencyError
from voicehub.suggest import did_you_mean
from voicehub_data.config import DataSourceConfig
from voicehub_data.files import write_file
from voicehub_data.manifest.records import DEFAULT_COLUMNS, Columns, RowBuilder
from voicehub_data.manifest.rows import Manifest

_FILE_BUILDERS = {".parquet": "parquet", ".arrow": "arrow", ".json": "json", ".jsonl": "json"}
_MAGIC = ((b"RIFF", ".wav"), (b"fLaC", ".flac"), (b"OggS", ".ogg"), (b"ID3", ".mp3"))


def read_datasets(config: DataSourceConfig, role: str) -> Manifest:
    """Read the splits of a data set for ``role`` (``train`` or ``eval``).

    Rows take ``audio_column`` and ``text_column``, and ``id``, ``speaker``, ``language`` and
    ``duration`` where the data set has such columns or ``column_map`` names them. Texts and
    numbers of other columns are kept with the row, classes by their names.

    Raises:
        OptionalDependencyError: ``datasets`` is not installed.
        DataError: the data set cannot be loaded, or a split does not exist.
        ConfigurationError: a column does not exist, or a setting does not apply.
    """
    if config.audio_root:
        raise ConfigurationError(f"{config.path}: audio_root does not apply to kind=datasets.")
    splits = _load_splits(config, role)
    source = Path(config.path)
    builder = RowBuilder(source, Path(), Columns({}))
    digest = hashlib.sha256()
    store = _audio_store(config)
    number = 0
    for name, table in splits.items():
        columns = _columns(config, table.column_names)
        builder.columns = Columns({field: field for field in ("audio_filepath", "id", *columns)})
        table = _undecoded(table, config.audio_column)
        others = _other_columns(table, {config.audio_column, *columns.values()}, builder.columns)
        for position, record in enumerate(table):
            number += 1
            values = {field: record[column] for field, column in columns.items()}
            values.setdefault("id", f"{name}-{position}")
            try:
                path, content = _audio_file(record[config.audio_column], store)
            except DataError as error:
                builder.problem(number, f"split {name}, position {position}: {error}")
                continue
            extra = {column: read(record[column]) for column, read in others.items()}
            builder.add(number, {"audio_filepath": str(path), **values, **extra})
            digest.update(f"{content} {values}\n".encode("utf-8", "surrogatepass"))
    rows, problems = builder.finish()
    note = f"splits read: {', '.join(splits)}"
    return Manifest(tuple(rows), digest.hexdigest(), source, "datasets", tuple(problems), (note,))


def _load_splits(config: DataSourceConfig, role: str) -> dict[str, Any]:
    """Split name -> table, in the order configured."""
    loaded = load_dataset_of(config)
    wanted = config.train_splits if role == "train" else config.eval_splits
    if not isinstance(loaded, Mapping) or _is_single_file(config):
        # One table without splits of its own: it is what every role reads, unless a split is named.
        tables = list(loaded.values()) if isinstance(loaded, Mapping) else [loaded]
        if f"{role}_splits" in config.model_fields_set:
            raise ConfigurationError(
                f"{config.path}: {role}_splits is set, but this source is a single table without "
                "splits; remove it."
            )
        return {role: tables[0]}
    for name in wanted:
        if name not in loaded:
            raise DataError(
                f"{config.path}: no split {name!r}.{did_you_mean(name, loaded)} Its splits are "
                f"{', '.join(loaded)}; set {role}_splits."
            )
    return {name: loaded[name] for name in wanted}


def _is_single_file(config: DataSourceConfig) -> bool:
    return Path(config.path).expanduser().is_file()


def load_dataset_of(config: DataSourceConfig) -> Any:
    """Return a table, or a mapping of split name to table, fetching what is not here yet.

    Raises:
        OptionalDependencyError: ``datasets`` is not installed.
        DataError: the data set cannot be loaded.
        ConfigurationError: the file is of a kind that is not read.
    """
    try:
        import datasets
    except ImportError as error:
        raise OptionalDependencyError(
            f"{config.path}: kind=datasets needs the package datasets: "
            "pip install 'voicehub-data[datasets]'."
        ) from error
    path = Path(config.path).expanduser()
    cache = config.dataset_cache_dir
    try:
        if path.is_file():
            builder = _FILE_BUILDERS.get(path.suffix.lower())
            if builder is None:
                raise ConfigurationError(
                    f"{path}: kind=datasets reads {', '.join(_FILE_BUILDERS)} files, directories "
                    "and Hub ids."
                )
            return datasets.load_dataset(builder, data_files=str(path), cache_dir=cache)
        if (path / "dataset_dict.json").exists() or (path / "state.json").exists():
            return datasets.load_from_disk(str(path))
        where = str(path) if path.is_dir() else config.path
        return datasets.load_dataset(where, config.name, cache_dir=cache, revision=config.revision)
    except ConfigurationError:
        raise
    except Exception as error:
        # The library raises dozens of types; whichever it is, the user needs its words.
        raise DataError(
            f"{config.path}: datasets cannot load it ({type(error).__name__}: {error})."
        ) from error


def cached_dataset(config: DataSourceConfig) -> Path | None:
    """Return the folder in which ``datasets`` keeps a data set of the Hub; None where it does not.

    Nothing is opened, and no network is touched.
    """
    try:
        import datasets
        from datasets.naming import camelcase_to_snakecase
    except ImportError:
        return None
    root = Path(config.dataset_cache_dir or datasets.config.HF_DATASETS_CACHE).expanduser()
    *owner, name = config.path.split("/")
    folder = root / "___".join([*owner, camelcase_to_snakecase(name)])
    # Configuration, version, fingerprint: unfinished ones have another name.
    kept = sorted(folder.glob(f"{config.name or '*'}/*/*/dataset_info.json"))
    return kept[0].parent if kept else None


def _columns(config: DataSourceConfig, available: Iterable[str]) -> dict[str, str]:
    """Field -> column for everything but the audio."""
    available = list(available)
    if config.column_map and {"audio_filepath", "text"} & set(config.column_map):
        raise ConfigurationError(
            f"{config.path}: for kind=datasets set audio_column and text_column, not column_map."
        )
    for key in ("audio_column", "text_column"):
        column = getattr(config, key)
        if column not in available:
            raise ConfigurationError(
                f"{config.path}: {key}: the data set has no column {column!r}."
                f"{did_you_mean(column, available)} Its columns are {', '.join(available)}."
            )
    rest = [name for name in available if name not in (config.audio_column, config.text_column)]
    found = Columns.resolve(config.column_map, rest).names
    optional = {
        field: column
        for field, column in found.items()
        if field in DEFAULT_COLUMNS and field not in ("audio_filepath", "text", "offset")
    }
    return {"text": config.text_column, **optional}


def _other_columns(table: Any, read: set[str], fields: Columns) -> dict[str, Callable[[Any], Any]]:
    """Columns kept beside the fields, and how a cell of each is read: classes by name."""
    import datasets

    kept: dict[str, Callable[[Any], Any]] = {}
    for name, feature in table.features.items():
        if name in read or name in fields.names:
            continue
        if isinstance(feature, datasets.ClassLabel):
            kept[name] = partial(_class_name, feature)
        elif isinstance(feature, datasets.Value) and feature.dtype not in (
            "binary",
            "large_binary",
        ):
            kept[name] = _as_it_is
    return kept


def _class_name(feature: Any, value: int | None) -> str | None:
    # -1 stands for an example without a class.
    return None if value is None or value < 0 else str(feature.int2str(value))


def _as_it_is(value: Any) -> Any:
    return value


def _undecoded(table: Any, column: str) -> Any:
    """The table with audio as ``{"bytes", "path"}``; a column of paths is left as it is."""
    import datasets

    if isinstance(table.features[column], datasets.Audio):
        return table.cast_column(column, datasets.Audio(decode=False))
    return table


def _audio_store(config: DataSourceConfig) -> Path:
    """Folder of extracted recordings."""
    if config.dataset_cache_dir is not None:
        root = Path(config.dataset_cache_dir).expanduser()
    else:
        import datasets

        root = Path(datasets.config.HF_DATASETS_CACHE)
    return root.absolute() / "voicehub-audio"


def _audio_file(value: Any, store: Path) -> tuple[Path, str]:
    """Path of a recording and a name for its content.

    Raises:
        DataError: the cell holds neither bytes nor a path, or the file cannot be written.
    """
    if isinstance(value, str):
        value = {"path": value, "bytes": None}
    if not isinstance(value, Mapping) or not (value.get("bytes") or value.get("path")):
        raise DataError("the audio cell is empty")
    content = value.get("bytes")
    if not content:
        path = Path(str(value["path"])).absolute()
        size = path.stat().st_size if path.exists() else -1
        return path, f"{path.name} {size}"
    digest = hashlib.sha256(content).hexdigest()
    path = store / digest[:2] / (digest + _suffix(content, value.get("path")))
    if not path.exists() or path.stat().st_size != len(content):
        write_file(path, content)
    return path, digest


def _suffix(content: bytes, name: str | None) -> str:
    suffix = next((suffix for magic, suffix in _MAGIC if content.startswith(magic)), "")
    return suffix or Path(name or "").suffix.lower() or ".audio"
