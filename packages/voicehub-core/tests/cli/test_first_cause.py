"""What a launch says of which process failed first, whoever of them was heard."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from torch.distributed.elastic.multiprocessing.errors import ProcessFailure

from voicehub.cli.launch_run import _first_cause
from voicehub.cli.output import report_failure
from voicehub.errors import DataError, VoiceHubError
from voicehub.strategies.failure_watch import RankFailedError, RankFailure
from voicehub.strategies.world import RankStalledError


def ended(code: int, told: Any = None, timestamp: int = 0) -> Any:
    """As torchrun describes a process; ``told`` is what it wrote."""
    failure = ProcessFailure(local_rank=0, pid=1, exitcode=code, error_file="")
    failure.timestamp = timestamp
    if told is not None:
        failure.error_file_data = told
    return failure


@pytest.fixture
def written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """What the process writes for its launcher when it ends with an error."""
    path = tmp_path / "error.json"
    monkeypatch.setenv("TORCHELASTIC_ERROR_FILE", str(path))

    def of(error: VoiceHubError) -> Any:
        report_failure(error, json_mode=False)
        return json.loads(path.read_text())

    return of


def test_the_first_cause_is_known_from_others_where_its_process_was_ended_sooner(
    written: Any,
) -> None:
    """torchrun ends all of them as soon as one has ended, and that need not be the first."""
    other = written(RankFailedError(RankFailure(1, "DataError", "the tape is torn")))
    said = _first_cause({0: ended(1, other), 1: ended(-15, timestamp=1)})
    assert said == "rank 1 failed first: DataError: the tape is torn. Ranks 0 ended with it."


def test_its_own_words_go_first(written: Any) -> None:
    other = written(RankFailedError(RankFailure(1, "DataError", "the tape is torn")))
    own = written(DataError("the tape is torn, at its end"))
    said = _first_cause({0: ended(1, other), 1: ended(1, own, timestamp=1)})
    assert said.startswith("rank 1 failed first: DataError: the tape is torn, at its end. Ranks 0")


def test_of_a_process_that_wrote_nothing_its_end_is_said() -> None:
    """It was killed, and the other knows no more than that it is gone."""
    said = _first_cause({0: ended(-9), 1: ended(1, timestamp=1)})
    assert said == "rank 0 failed first: it was ended by SIGKILL. Ranks 1 ended with it."
    assert _first_cause({3: ended(7)}) == "rank 3 failed first: it ended with exit code 7."


@pytest.mark.parametrize(
    ("code", "how"), [(-9, "was ended by SIGKILL"), (7, "ended with exit code 7")]
)
def test_who_died_failed_before_who_missed_it(written: Any, code: int, how: str) -> None:
    gone = written(RankStalledError("rank 0 waited, and the connection to rank 1 was closed"))
    said = _first_cause({0: ended(1, gone), 1: ended(code, timestamp=1)})
    assert said == f"rank 1 failed first: it {how}. Ranks 0 ended with it."


def test_who_is_killed_at_last_had_been_waited_for(written: Any) -> None:
    late = written(RankStalledError("rank 0 waited: the connection to rank 1 timed out"))
    said = _first_cause({0: ended(1, late), 1: ended(-9, timestamp=1)})
    assert said.startswith("rank 0 failed first: RankStalledError: rank 0 waited")
