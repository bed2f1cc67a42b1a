"""Uploads to the Hugging Face hub: ``TrainingArguments(push_to_hub=True)``."""
