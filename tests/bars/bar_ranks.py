"""Several processes: killed and restarted, side by side with single ones, and what they hold."""

from __future__ import annotations

import json
import os
import random
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from barkit import Outcome, Skipped, bar, shared_data

KILLS, STEPS, SAVED = 20, 500, 5
SHARE = 0.9
MEMORY = 0.6
SECONDS = 60.0
#: How gradients of one machine travel: as they do by themselves, and with the direct line off.
WAYS = {"memory": "through shared memory", "messages": "through gloo where that is off"}
HERE = Path(__file__).resolve().parent


def environment() -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(HERE)}


def torchrun(*arguments: str | Path, restarts: int = 0) -> list[str]:
    return [
        sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2",
        "--max-restarts", str(restarts), "--master-port", "0", "--rdzv-backend", "c10d",
        "--rdzv-endpoint", "127.0.0.1:0", *map(str, arguments),
    ]  # fmt: skip


def digest(directory: Path) -> dict[str, str]:
    """SHA-256 of what the last checkpoint's manifest lists, but for what holds times."""
    manifest = json.loads(
        (directory / f"checkpoint-{STEPS}" / "checkpoint_manifest.json").read_text()
    )
    files = manifest["file_integrity"]
    return {n: files[n]["sha256"] for n in ("model_state.safetensors", "optimizer.pt")}


@bar("ranks-kill", f"{KILLS} kills of a rank at random moments: the run ends as if undisturbed")
def ranks_kill(scratch: Path) -> Outcome:
    script = HERE / "ranks_training.py"
    undisturbed = scratch / "undisturbed" / "run"
    subprocess.run(
        torchrun(script, undisturbed, str(STEPS), str(STEPS)),
        env=environment(),
        check=True,
        capture_output=True,
    )
    killed = scratch / "killed" / "run"
    with (scratch / "log").open("w") as log:
        run = subprocess.Popen(
            torchrun(script, killed, str(STEPS), str(SAVED), restarts=KILLS + 5),
            env=environment(),
            stderr=log,
        )
        try:
            ends = kill_again_and_again(run, killed.parent / "pids")
            code = run.wait(timeout=600)
        finally:
            run.terminate()
    kills = len(ends)
    same = code == 0 and digest(killed) == digest(undisturbed)
    slowest = max(ends, default=0.0)
    figure = f"{kills} kills, exit code {code}, weights and optimizer state "
    figure += f"{'bit-equal' if same else 'DIFFER'}; the other rank ended within {slowest:.1f} s"
    return Outcome(figure, same and kills == KILLS and slowest <= SECONDS)


def kill_again_and_again(run: subprocess.Popen[bytes], places: Path) -> list[float]:
    """Kill one of two ranks at random moments; seconds until the other one has ended."""
    draws = random.Random(0)
    ends: list[float] = []
    while run.poll() is None and len(ends) < KILLS:
        pids = wait_for_pids(places, len(ends), run)
        if pids is None:
            break
        time.sleep(draws.uniform(0.0, 1.0))
        victim = draws.randrange(2)
        os.kill(pids[victim], signal.SIGKILL)
        ends.append(seconds_until_gone(pids[1 - victim]))
    return ends


def seconds_until_gone(pid: int) -> float:
    """How long a process goes on."""
    began = time.monotonic()
    while time.monotonic() - began < 2 * SECONDS:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            break
        time.sleep(0.02)
    return time.monotonic() - began


def wait_for_pids(directory: Path, attempt: int, run: subprocess.Popen[bytes]) -> list[int] | None:
    """Numbers of the two processes of an attempt once they train; None where the run has ended."""
    places = [directory / f"{attempt}-{rank}" for rank in range(2)]
    until = time.monotonic() + 120
    while not all(place.exists() for place in places):
        if run.poll() is not None or time.monotonic() > until:
            return None
        time.sleep(0.02)
    return [int(place.read_text()) for place in places]


@bar(
    "ranks-scaling",
    f"two processes reach >= {SHARE} of two single runs side by side (asr-ctc/tiny)",
)
def ranks_scaling(scratch: Path) -> Outcome:
    """In turn, three times each; the same batches a process, one thread each."""
    ratios, figures, began = [], [], busy_seconds()
    started = time.monotonic()
    for turn in range(3):
        single = speed_of_singles(scratch / f"single-{turn}")
        both = speed_of_ranks(scratch / f"ranks-{turn}")
        ratios.append(both / single)
        figures.append((both, single))
    others = (busy_seconds() - began) / (time.monotonic() - started)
    overlap = {name: overlapped_share(scratch / name, name == "memory") for name in WAYS}
    ratio = statistics.median(ratios)
    shown = ", ".join(f"{both:.0f}/{single:.0f}" for both, single in figures)
    figure = f"{ratio:.3f} (audio s/s {shown}); of the time in which gradients travel, "
    figure += " and ".join(f"{overlap[name]:.0%} {WAYS[name]}" for name in WAYS)
    figure += f" lie inside a backward (profiler trace); other programs took {others:.2f} cores"
    facts = {"ratios": ratios, "overlap": overlap, "cores_of_others": others}
    return Outcome(figure, ratio >= SHARE and min(overlap.values()) > 0.2, facts)


def busy_seconds() -> float:
    """Processor seconds that programs other than this bar's have used since the machine started.

    Two runs side by side fill the cores that others leave; two processes of one run wait for the
    one that others hold up. So the figure says something only where this is near 0.
    """
    fields = Path("/proc/stat").read_text().splitlines()[0].split()[1:]
    user, nice, system, _, _, interrupt, soft = map(int, fields[:7])
    everything = float(user + nice + system + interrupt + soft) / os.sysconf("SC_CLK_TCK")
    times = os.times()
    return float(everything - sum(times[:4]))


def command(run: Path, *more: str) -> list[str]:
    data = shared_data("fsdd")
    return [
        "train", "asr-ctc/tiny", f"data.train={data / 'train.jsonl'}",
        f"data.eval={data / 'test.jsonl'}", f"training.output_dir={run}",
        "training.max_steps=60", "training.logging_steps=10", "training.eval_strategy=no",
        "training.save_strategy=no", *more,
    ]  # fmt: skip


def speed_of_singles(scratch: Path) -> float:
    """Audio seconds a second of two independent runs at the same time, added up."""
    runs = [scratch / "a", scratch / "b"]
    started = [
        subprocess.Popen(
            [sys.executable, "-m", "voicehub.cli.app", *command(run)],
            env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
        )
        for run in runs
    ]  # fmt: skip
    for process in started:
        _, problem = process.communicate()
        if process.returncode:
            raise RuntimeError(problem.decode()[-2000:])
    return sum(map(steady_speed, runs))


def speed_of_ranks(scratch: Path) -> float:
    """The same of two processes that train one model."""
    arguments = ["-m", "voicehub.cli.app", *command(scratch, "training.strategy=ddp")]
    done = subprocess.run(torchrun(*arguments), env=environment(), capture_output=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr.decode()[-2000:])
    return steady_speed(scratch)


def steady_speed(run: Path) -> float:
    """Median over log windows, the first one left out."""
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return statistics.median([r["audio_per_second"] for r in rows if "audio_per_second" in r][1:])


def overlapped_share(scratch: Path, link: bool) -> float:
    """How much of the time of gradient messages lies inside of backwards, from a trace."""
    from ranks_trace import trace

    from voicehub.testing.ranks import RankPool

    scratch.mkdir()
    more = ("training.strategy=ddp", "training.max_steps=8")
    pool = RankPool(2)
    shares = pool.run(trace, scratch, command(scratch / "run", *more)[2:], link)
    pool.close()
    return float(min(shares))


@bar("fsdp-memory", f"fsdp holds <= {MEMORY:.0%} of what ddp holds a rank, on two processes")
def fsdp_memory(scratch: Path) -> Outcome:
    from ranks_training import memory

    from voicehub.testing.ranks import RankPool

    found: dict[str, list[dict[str, Any]]] = {}
    for name in ("ddp", "fsdp"):
        fresh = RankPool(2)  # memory that one strategy has left is no merit of the next
        found[name] = fresh.run(memory, scratch / name, name)
        fresh.close()
    ratios = {
        kind: max(row[kind] for row in found["fsdp"]) / min(row[kind] for row in found["ddp"])
        for kind in ("counted", "resident")
    }
    megabytes = {name: max(r["counted"] for r in rows) / 2**20 for name, rows in found.items()}
    figure = f"{ratios['counted']:.3f} of parameters, gradients and optimizer state "
    figure += f"({megabytes['fsdp']:.1f} of {megabytes['ddp']:.1f} MiB); "
    figure += f"the process grows by {ratios['resident']:.3f} of what it grows by under ddp"
    return Outcome(figure, max(ratios.values()) <= MEMORY, ratios)


@bar("ranks-gpu", "two GPUs make the updates of one, float32 <= 1e-4 and bf16 <= 2e-2 apart")
def ranks_gpu(scratch: Path) -> Outcome:
    import torch
    from ranks_training import gpu_updates

    from voicehub.testing.ranks import RankPool

    if torch.cuda.device_count() < 2:
        raise Skipped("needs two CUDA devices")
    figures, passed = [], True
    for bf16, limit in ((False, 1e-4), (True, 2e-2)):
        alone, _ = gpu_updates(scratch / f"one-{bf16}", "torch", 2, bf16)
        for strategy in ("ddp", "fsdp"):
            pool = RankPool(2)
            change, speed = pool.run(
                gpu_updates, scratch / f"{strategy}-{bf16}", strategy, 1, bf16
            )[0]
            pool.close()
            gap = float((change - alone).norm() / alone.norm())
            passed &= gap <= limit
            kind = "bf16" if bf16 else "float32"
            figures.append(f"{strategy} {kind} {gap:.1e} ({speed:.0f} samples/s)")
    return Outcome(", ".join(figures), passed)
