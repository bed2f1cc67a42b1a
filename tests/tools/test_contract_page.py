"""The page of the contract is up to date; no statement is without a proof, nor without a break."""

from __future__ import annotations

from pathlib import Path

import contract_breaks
import contract_page
import pytest

STATED = {name for group in contract_page.GROUPS.values() for name in group}


def test_the_page_is_what_the_tests_are() -> None:
    assert contract_page.main(["--check"]) == 0, "run python tools/contract_page.py"


def test_every_statement_has_a_proof_among_the_contract_tests() -> None:
    proofs = [proof for proof in contract_page.proofs() if proof.file.startswith("tests/contract/")]
    assert {proof.statement for proof in proofs} == STATED


def test_every_statement_is_broken_on_purpose() -> None:
    assert {mutation.statement for mutation in contract_breaks.MUTATIONS} == STATED


def test_a_proof_is_found_by_its_name(tmp_path: Path) -> None:
    place = tmp_path / "packages" / "x" / "tests" / "deep"
    place.mkdir(parents=True)
    (place / "test_some.py").write_text(
        "def helper(): ...\nclass TestR3:\n    def test_R3_means_over_items(self): ...\n"
    )
    found = list(contract_page.proofs(tmp_path))
    expected = contract_page.Proof("R3", "packages/x/tests/deep/test_some.py", "means over items")
    assert found == [expected]
    text = contract_page.page(found)
    assert "- `packages/x/tests/deep/test_some.py`: means over items" in text
    assert "R4" not in text and "## Checkpoints" not in text


def test_a_statement_that_is_not_there_is_an_error() -> None:
    with pytest.raises(ValueError, match="Q7"):
        contract_page.page([contract_page.Proof("Q7", "tests/test_x.py", "nothing")])
