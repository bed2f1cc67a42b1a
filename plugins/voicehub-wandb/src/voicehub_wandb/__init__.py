"""Reports VoiceHub runs to Weights & Biases: ``TrainingArguments(report_to="wandb")``."""
