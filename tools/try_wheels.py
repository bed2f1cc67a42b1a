"""Use what the wheels installed, away from the sources. Run by ``nox -s wheels``."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

from package_matrix import ROOT, distributions

VOICEHUB = Path(sys.executable).parent / "voicehub"


def run(*command: str | Path, cwd: str) -> str:
    """Run a command, show its end if it fails, and return its output."""
    words = [str(word) for word in command]
    print("$", *words, flush=True)
    done = subprocess.run(words, cwd=cwd, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"ended with {done.returncode}:\n{(done.stdout + done.stderr)[-4000:]}")
    return done.stdout


def check_place(cwd: str) -> None:
    """What is imported are the installed files, not the repository's."""
    place = run(sys.executable, "-c", "import voicehub; print(voicehub.__file__)", cwd=cwd)
    if str(ROOT / "packages") in place:
        sys.exit(f"voicehub is imported from the sources: {place}")


def check_plugins(cwd: str) -> None:
    """Every entry of ours loads; whatever else is installed is not looked at."""
    output = run(VOICEHUB, "plugins", "--inspect", "--json", cwd=cwd)
    items = json.loads(output.splitlines()[-1])["plugins"]
    ours = [item for item in items if item["distribution"] in distributions()]
    bad = [f"{item['name']}: {item['reason']}" for item in ours if item["state"] != "loaded"]
    if bad or not ours:
        sys.exit("\n".join(bad) or "no plugin of ours is found")


def main() -> int:
    with tempfile.TemporaryDirectory() as cwd:
        check_place(cwd)
        run(VOICEHUB, "--help", cwd=cwd)
        run(VOICEHUB, "doctor", cwd=cwd)
        check_plugins(cwd)
        run(VOICEHUB, "presets", cwd=cwd)
        run(VOICEHUB, "train", "example/tiny", "training.max_steps=3", cwd=cwd)
        run(VOICEHUB, "new-plugin", "demo", cwd=cwd)
        run(sys.executable, "-m", "pytest", "-q", "--voicehub-family", "example", cwd=cwd)
    print("the wheels work")
    return 0


if __name__ == "__main__":
    sys.exit(main())
