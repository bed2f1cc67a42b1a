"""The Triton kernels that ship, and every configuration in which a launch can compile them.

A launch compiles a kernel anew for the dtypes of its tensors, the constants of its table, numbers
that are 1 (they become constants), numbers beyond 32 bits, and for pointers and numbers that are
all multiples of 16. ``jobs`` is every table and dtype with each of those specialities,
``cover`` a part in which every kernel has every table, and with the largest one every common dtype
and every speciality: that table alone on every architecture, each of the rest on one of them, in
turn. The bar ``ahead-of-time`` compiles all.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

from ahead_of_time import ARCHITECTURES, Binary, Job

Constants = Mapping[str, int]
#: Bytes that every architecture gives a program without asking.
SHARED = 48 * 1024
SCORES = ("fp32", "fp64", "fp16", "bf16")


@dataclass(frozen=True)
class Shipped:
    """One kernel.

    Attributes:
        kernel: ``module:name``.
        pointers: Triton type by parameter.
        numbers: parameters that are integers of the launch.
        tables: constants and warps of each configuration, by the widest type of its ``dtypes``.
        dtypes: replacements of pointers, with constants that go with them.
        ones: sets of numbers that may be 1 at the same time, whatever the table.
        small: numbers that are 1 at the same time with the first table of all constants alone.
        common: how many of the dtypes, from the first on, ``cover`` takes; None for all.
        most_registers: a thread may use.
        maxnreg: the option of the launch.
    """

    kernel: str
    pointers: Mapping[str, str]
    numbers: tuple[str, ...]
    tables: Sequence[tuple[Constants, int]]
    dtypes: Sequence[tuple[Mapping[str, str], Constants]] = (({}, {}),)
    ones: Sequence[tuple[str, ...]] = ((),)
    small: tuple[str, ...] = ()
    common: int | None = None
    most_registers: int = 128
    maxnreg: int | None = None

    def job(
        self,
        table: tuple[Constants, int],
        dtype: tuple[Mapping[str, str], Constants],
        ones: tuple[str, ...],
        width: str,
        aligned: bool,
        architecture: int,
    ) -> Job:
        """One configuration; ``width`` is the type of the numbers."""
        (constants, warps), (types, own) = table, dtype
        signature = {**self.pointers, **types, **dict.fromkeys(self.numbers, width)}
        fixed = {**constants, **own, **dict.fromkeys(ones, 1)}
        return Job(self.kernel, signature, fixed, warps, architecture, aligned, self.maxnreg)

    def specialities(self) -> list[tuple[tuple[str, ...], str, bool]]:
        """Numbers that are 1, their type, and whether all is a multiple of 16."""
        plain = self.ones[0]
        return [(plain, "i32", True), (plain, "i64", False)] + [
            (ones, "i32", False) for ones in self.ones
        ]

    def jobs(self, architecture: int) -> Iterator[Job]:
        """Every configuration."""
        for table, dtype, special in product(self.tables, self.dtypes, self.specialities()):
            yield self.job(table, dtype, *special, architecture)
        for dtype in self.dtypes if self.small else ():
            yield self.job(self.tables[0], dtype, self.small, "i32", False, architecture)

    def cover(self, architecture: int) -> Iterator[Job]:
        """The largest table, and of what else there is that which is this architecture's turn."""
        largest, *rest = self.values(architecture)
        yield largest
        yield from rest[ARCHITECTURES.index(architecture) :: len(ARCHITECTURES)]

    def values(self, architecture: int) -> Iterator[Job]:
        """Each value of each axis once, the largest table first."""
        special, *others = self.specialities()
        for table in reversed(self.tables):
            yield self.job(table, self.dtypes[0], *special, architecture)
        for dtype in self.dtypes[1 : self.common]:
            yield self.job(self.tables[-1], dtype, *special, architecture)
        for other in others:
            yield self.job(self.tables[-1], self.dtypes[0], *other, architecture)
        if self.small:
            yield self.job(self.tables[0], self.dtypes[0], self.small, "i32", False, architecture)


def _alignment() -> list[Shipped]:
    from voicehub_vits.losses.monotonic_alignment import _triton

    module = "voicehub_vits.losses.monotonic_alignment._triton"
    lengths = {"text_lengths": "*i64", "frame_lengths": "*i64", "moved": "*i8"}
    strides = ("batch_stride", "text_stride", "frame_stride")
    sizes = ("most_text", "most_frames")
    return [
        Shipped(
            f"{module}:_forward",
            lengths,
            (*strides, *sizes),
            [({"BLOCK": block}, warps) for block, warps in _triton.WARPS.items()],
            [({"scores": f"*{name}"}, {}) for name in SCORES],
            [(), ("text_stride",), ("frame_stride",)],
            small=(*strides, *sizes),
        ),
        Shipped(
            f"{module}:_backtrack",
            {**lengths, "index": "*i64"},
            sizes,
            [({}, 1)],
            small=sizes,
        ),
    ]


def _ctc() -> list[Shipped]:
    from voicehub_asr_ctc.losses import _triton

    module = "voicehub_asr_ctc.losses._triton"
    rows = [({"BLOCK": block}, warps) for block, warps in _triton.TOKENS.items()]
    states = [({"BLOCK": block}, warps) for block, warps in _triton.STATES.items()]
    strides = ("item_stride", "frame_stride", "token_stride")
    known = {"frame_lengths": "*i64", "shares": "*fp64"}
    target = {**known, "label_lengths": "*i64", "arrivals": "*fp64", "ends": "*fp64"}

    def wide(name: str) -> str:
        return "*fp64" if name == "fp64" else "*fp32"

    def dtypes(*pointers: str, double: bool) -> list[tuple[dict[str, str], Constants]]:
        return [
            (
                {**dict.fromkeys(pointers, f"*{name}"), "peaks": wide(name)},
                {"DOUBLE": int(name == "fp64")} if double else {},
            )
            for name in SCORES
        ]

    ones = [(), ("token_stride",), ("frame_stride",)]
    return [
        Shipped(
            f"{module}.rows:statistics",
            known,
            (*strides, "tokens"),
            rows,
            dtypes("logits", double=True),
            ones,
            small=(*strides, "tokens"),
        ),
        Shipped(
            f"{module}.rows:softmax",
            {**known, "ends": "*fp64", "upstream": "*fp64"},
            (*strides, "tokens"),
            rows,
            dtypes("logits", "gradient", double=True),
            ones,
            small=(*strides, "tokens"),
        ),
        Shipped(
            f"{module}.lattice:paths",
            {**target, "labels": "*i64", "losses": "*fp64"},
            (*strides, "most_frames", "most_labels", "tokens", "blank"),
            [
                ({**table, "STORE": store}, warps)
                for store, (table, warps) in product((0, 1), states)
            ],
            dtypes("logits", double=False),
            [*ones, ("blank", "token_stride")],
            small=(*strides, "most_frames", "most_labels", "tokens", "blank"),
            maxnreg=_triton.MOST_REGISTERS,
        ),
        Shipped(
            f"{module}.lattice:occupancy",
            {
                **target,
                **dict.fromkeys(("sorted_labels", "order", "firsts"), "*i64"),
                "upstream": "*fp64",
            },
            (*strides, "most_labels", "tokens", "blank"),
            states,
            dtypes("logits", "gradient", double=False),
            [*ones, ("blank", "token_stride")],
            small=(*strides, "most_labels", "tokens", "blank"),
            maxnreg=_triton.MOST_REGISTERS,
        ),
    ]


def _velocity() -> list[Shipped]:
    from voicehub_flow.losses.masked_velocity_mse import _triton

    module = "voicehub_flow.losses.masked_velocity_mse._triton"
    tensors = ("prediction", "noise", "data")
    strides = tuple(f"{t}_{axis}" for t in tensors for axis in ("item", "frame", "channel"))
    channels = tuple(f"{t}_channel" for t in tensors)
    known = {"mask": "*u8", "shares": "*fp64"}
    tables = [
        ({"ROWS": rows, "COLUMNS": columns}, _triton.WARPS)
        for columns, rows in _triton.TILES.items()
    ]

    def dtypes(*own: str) -> list[tuple[dict[str, str], Constants]]:
        """Noise and data have one dtype, the prediction any; usual ones first."""
        usual = [(name, name) for name in SCORES] + [("bf16", "fp32"), ("fp16", "fp32")]
        others = [pair for pair in product(SCORES, SCORES) if pair not in usual]
        found = []
        for one, two in usual + others:
            types = dict.fromkeys(own, f"*{one}") | {"noise": f"*{two}", "data": f"*{two}"}
            found.append((types, {"DOUBLE": int("fp64" in (one, two))}))
        return found

    ones = [(), channels, tuple(f"{t}_frame" for t in tensors)]
    numbers = (*strides, "frames", "channels")
    return [
        Shipped(
            f"{module}:_forward",
            {**known, "partial": "*fp64"},
            numbers,
            tables,
            dtypes("prediction"),
            ones,
            small=numbers,
            common=6,
        ),
        Shipped(
            f"{module}:_backward",
            {**known, "upstream": "*fp64"},
            numbers,
            tables,
            dtypes("prediction", "gradient"),
            ones,
            small=numbers,
            common=6,
        ),
    ]


def kernels() -> list[Shipped]:
    """All that ship."""
    return [*_alignment(), *_ctc(), *_velocity()]


def jobs() -> list[Job]:
    """Every configuration of every kernel on every architecture."""
    return [job for kernel in kernels() for n in ARCHITECTURES for job in kernel.jobs(n)]


def cover() -> list[Job]:
    """The part that a test has time for."""
    return [job for kernel in kernels() for n in ARCHITECTURES for job in kernel.cover(n)]


def problems(wanted: Sequence[Job], binaries: Sequence[Binary]) -> list[str]:
    """What binaries use beyond their bounds, one line each."""
    most = {kernel.kernel: kernel.most_registers for kernel in kernels()}
    found = []
    for job, binary in zip(wanted, binaries, strict=True):
        if binary.stack or binary.local:
            found.append(f"{job} spills {binary.stack} bytes of stack, {binary.local} of local")
        if binary.registers > most[job.kernel]:
            found.append(f"{job} takes {binary.registers} registers, over {most[job.kernel]}")
        if binary.shared > SHARED:
            found.append(f"{job} takes {binary.shared} bytes of shared memory, over {SHARED}")
        if binary.atomics:
            found.append(f"{job} has atomics: {binary.atomics}")
    return found
