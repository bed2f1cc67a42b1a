"""Command lines of ``voicehub launch --to`` in which every two options occur with every value."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations, product

Words = tuple[str, ...]

ODD_DIRECTORY = '/tmp/it\'s # a "dir" \\x'
_SETUP = ("--setup", "export GREETING='a b'", "--setup", 'echo "it is $GREETING"')
_COMMON: dict[str, Sequence[Words]] = {
    "nodes": [(), ("--nnodes", "2")],
    "processes": [(), ("--nproc", "4")],
    "gpus": [(), ("--gpus", "H100"), ("--gpus", "A100")],
    "cpus": [(), ("--cpus", "8")],
    "memory": [(), ("--memory", "64")],
    "env": [(), ("--env", "HF_TOKEN"), ("--env", "HF_TOKEN", "--env", "_x9")],
    "setup": [(), _SETUP],
    "name": [(), ("--name", "ab"), ("--name", "a" * 38 + "-9")],
    "restarts": [(), ("--max-restarts", "2")],
}
_ONLY: dict[str, dict[str, Sequence[Words]]] = {
    "sbatch": {
        "minutes": [(), ("--minutes", "90")],
        "partition": [(), ("--partition", "short"), ("--partition", "main,short")],
        "directory": [(), ("--directory", "/"), ("--directory", ODD_DIRECTORY)],
    },
    "skypilot": {"directory": [(), ("--directory", "..")]},
    "dstack": {
        "minutes": [(), ("--minutes", "90")],
        "directory": [(), ("--directory", "/data/my run")],
    },
}


def cases(to: str) -> list[Words]:
    """Options of command lines for one tool, the plain one first."""
    options = {**_COMMON, **_ONLY[to]}
    return [sum(row.values(), ()) for row in covering(options)]


def covering(options: Mapping[str, Sequence[Words]]) -> list[dict[str, Words]]:
    """Rows with a value for each option, in which every pair of values occurs.

    Greedy: each row takes, option by option, the value that meets the most pairs still missing.
    """
    missing = {
        frozenset([(a, x), (b, y)])
        for a, b in combinations(options, 2)
        for x, y in product(range(len(options[a])), range(len(options[b])))
    }
    row = dict.fromkeys(options, 0)
    rows = []
    while True:
        missing -= {frozenset(pair) for pair in combinations(row.items(), 2)}
        rows.append({name: values[row[name]] for name, values in options.items()})
        if not missing:
            return rows
        row = dict(min(missing, key=sorted))
        for name in [name for name in options if name not in row]:
            met = [
                sum(frozenset([(name, value), other]) in missing for other in row.items())
                for value in range(len(options[name]))
            ]
            row[name] = met.index(max(met))
