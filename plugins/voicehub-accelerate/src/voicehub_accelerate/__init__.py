"""The training strategy ``accelerate``: processes and precision by Hugging Face Accelerate."""
