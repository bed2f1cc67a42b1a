"""What each loss term of VITS is, the band that a healthy run keeps, and which figures decide.

Users ask of every VITS trainer which of its losses to watch. The live panel, the report and the
documentation say it from here; no tensor library is imported.
"""

from __future__ import annotations

from voicehub.adapters.experiment import FigureNote

TERMS = (
    FigureNote(
        "discriminator/adversarial",
        "discriminators",
        "how well the six discriminators tell recordings from rendered audio: the sum over them "
        "of (1 - D(recording))^2 + D(rendered)^2",
        "3.0 is undecided, 0 is perfect; healthy runs stay between 1.5 and 2.9. Below 0.5 they "
        "have won, at 3.0 for good they have collapsed. It need not fall, and says nothing of "
        "quality",
        brief="1.5 to 2.9",
    ),
    FigureNote(
        "discriminator/real",
        "discriminators on recordings",
        "the recordings' half of the sum",
        "0.6 to 1.5, about as large as the other half",
        brief="0.6 to 1.5",
    ),
    FigureNote(
        "discriminator/generated",
        "discriminators on rendered audio",
        "the rendered audio's half of the sum",
        "0.5 to 1.5",
        brief="0.5 to 1.5",
    ),
    FigureNote(
        "generator/adversarial",
        "adversarial",
        "how badly the generator deceives the discriminators: the sum of (1 - D(rendered))^2",
        "1.5 is undecided, 6 is no deception at all; healthy runs stay between 1.5 and 3.5 and "
        "often rise slowly, as the discriminators learn",
        brief="1.5 to 3.5",
    ),
    FigureNote(
        "generator/feature_matching",
        "feature matching",
        "how far rendered audio is from the recording inside the discriminators",
        "a few units, 1 to 8; it rises while the discriminators get sharper. Only a fall to 0 is "
        "bad: then they see nothing",
        brief="1 to 8",
    ),
    FigureNote(
        "generator/mel",
        "mel L1",
        "distance of the log-mels of rendered segments and of the recordings, in nepers",
        "falls throughout, fast at first: from over 2 to 0.3 to 0.5 in a fine-tuning that works",
        brief="falls",
        decides=True,
    ),
    FigureNote(
        "generator/kl",
        "KL",
        "how far the latents of the audio are from what the text predicts, a frame",
        "falls to between 1 and 2 and stays; near 0 the text decides nothing of the latents, over "
        "3 speech from text is mumbled however good the mel L1 is",
        brief="1 to 2 in the end",
    ),
    FigureNote(
        "generator/duration",
        "duration",
        "bound on the negative log-likelihood of the alignment's durations, a token (stochastic "
        "predictor), or squared error of log-durations (the plain one)",
        "falls from 2 or 3 and may go below 0 (a density, not a probability)",
        brief="falls",
    ),
    FigureNote(
        "mel_cepstral_distance",
        "mel cepstral distance",
        "distance in dB of synthesised evaluation sentences to their recordings, after dynamic "
        "time warping",
        "falls; single-speaker models reach 5 to 7 dB",
        brief="5 to 7 dB",
        decides=True,
    ),
    FigureNote(
        "intelligibility_wer",
        "intelligibility",
        "word error rate of a recogniser on synthesised sentences (eval.recogniser)",
        "falls towards the recogniser's rate on the recordings",
        brief="falls",
        decides=True,
    ),
    FigureNote(
        "duration_error",
        "duration error",
        "how far synthesised sentences are from the length of their recordings, relative",
        "falls below 0.1",
        brief="below 0.1",
        decides=True,
    ),
)
