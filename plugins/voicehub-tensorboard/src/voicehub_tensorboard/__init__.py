"""Reports VoiceHub runs to TensorBoard: ``TrainingArguments(report_to="tensorboard")``."""
