from voicehub.specs.model import ModelTrainingSpec
from voicehub.specs.support import TrainingSupport
from voicehub.specs.task import SpeechTask

TOY_LINE = ModelTrainingSpec(
    model_type="toy-line",
    family="toy",
    task=SpeechTask.AUTOMATIC_SPEECH_RECOGNITION,
    support=TrainingSupport.NATIVE,
    summary="A line fitted to numbers.",
    module_paths=("model",),
    config_class="toyfamily.config:ToyRunConfig",
    experiment_factory="toyfamily.experiment:build_experiment",
)
