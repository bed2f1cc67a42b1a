"""What follows the training of a flow model: fixed prompts, and metrics of what was made."""
