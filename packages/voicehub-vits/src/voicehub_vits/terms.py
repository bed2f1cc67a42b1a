"""What each loss term of VITS is, the band that a healthy run keeps, and which figures decide.

Users ask of every VITS trainer which of its losses to watch. The live panel, the report and the
documentation say it from here; no tensor library is imported.
"""

from __future__ import annotations

from dataclasses import dataclass

#: Sum over the discriminators of one that says 1/2 to everything, a discriminator.
UNDECIDED = 0.5


@dataclass(frozen=True)
class Term:
    """One logged figure.

    Attributes:
        key: as logged, without the prefix ``loss/`` or ``eval_``.
        name: for people.
        meaning: what it measures.
        band: what a healthy run does.
        decides: whether it says how good the model is.
    """

    key: str
    name: str
    meaning: str
    band: str
    decides: bool = False


TERMS = (
    Term(
        "discriminator/adversarial",
        "discriminators",
        "how well the six discriminators tell recordings from rendered audio: the sum over them "
        "of (1 - D(recording))^2 + D(rendered)^2",
        "3.0 is undecided, 0 is perfect; healthy runs stay between 1.5 and 2.9. Below 0.5 they "
        "have won, at 3.0 for good they have collapsed. It need not fall, and says nothing of "
        "quality",
    ),
    Term(
        "discriminator/real",
        "discriminators on recordings",
        "the recordings' half of the sum",
        "0.6 to 1.5, about as large as the other half",
    ),
    Term(
        "discriminator/generated",
        "discriminators on rendered audio",
        "the rendered audio's half of the sum",
        "0.5 to 1.5",
    ),
    Term(
        "generator/adversarial",
        "adversarial",
        "how badly the generator deceives the discriminators: the sum of (1 - D(rendered))^2",
        "1.5 is undecided, 6 is no deception at all; healthy runs stay between 1.5 and 3.5 and "
        "often rise slowly, as the discriminators learn",
    ),
    Term(
        "generator/feature_matching",
        "feature matching",
        "how far rendered audio is from the recording inside the discriminators",
        "a few units, 1 to 8; it rises while the discriminators get sharper. Only a fall to 0 is "
        "bad: then they see nothing",
    ),
    Term(
        "generator/mel",
        "mel L1",
        "distance of the log-mels of rendered segments and of the recordings, in nepers",
        "falls throughout, fast at first: from over 2 to 0.3 to 0.5 in a fine-tuning that works",
        decides=True,
    ),
    Term(
        "generator/kl",
        "KL",
        "how far the latents of the audio are from what the text predicts, a frame",
        "falls to between 1 and 2 and stays; near 0 the text decides nothing of the latents, over "
        "3 speech from text is mumbled however good the mel L1 is",
    ),
    Term(
        "generator/duration",
        "duration",
        "bound on the negative log-likelihood of the alignment's durations, a token (stochastic "
        "predictor), or squared error of log-durations (the plain one)",
        "falls from 2 or 3 and may go below 0 (a density, not a probability)",
    ),
    Term(
        "mel_cepstral_distance",
        "mel cepstral distance",
        "distance in dB of synthesised evaluation sentences to their recordings, after dynamic "
        "time warping",
        "falls; single-speaker models reach 5 to 7 dB",
        decides=True,
    ),
    Term(
        "intelligibility_wer",
        "intelligibility",
        "word error rate of a recogniser on synthesised sentences (eval.recogniser)",
        "falls towards the recogniser's rate on the recordings",
        decides=True,
    ),
    Term(
        "duration_error",
        "duration error",
        "how far synthesised sentences are from the length of their recordings, relative",
        "falls below 0.1",
        decides=True,
    ),
)


def term(key: str) -> Term | None:
    """The term of a logged key, prefixes aside."""
    bare = key.removeprefix("loss/").removeprefix("eval_")
    return next((found for found in TERMS if found.key == bare), None)


def bands() -> tuple[float, float]:
    """Below and at which sum of six discriminators has won, or has collapsed."""
    return 0.5, 3.0
