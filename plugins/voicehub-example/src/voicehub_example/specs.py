"""What trains and how. No import from here may load a tensor library."""

from voicehub.specs.model import ModelTrainingSpec
from voicehub.specs.support import TrainingSupport
from voicehub.specs.task import SpeechTask

DENOISER = ModelTrainingSpec(
    model_type="example-denoiser",
    family="example",
    task=SpeechTask.AUDIO_GENERATION,
    support=TrainingSupport.NATIVE,
    summary="A small convolutional network that takes noise out of log-mel spectrograms.",
    module_paths=("model",),
    label_names=("clean",),
    field_schemas={"noisy": {"mask_field": "mask"}, "clean": {}},
    config_class="voicehub_example.config:DenoiserRun",
    experiment_factory="voicehub_example.experiment:build_experiment",
)
