"""Reports VoiceHub runs to Trackio: ``TrainingArguments(report_to="trackio")``."""
