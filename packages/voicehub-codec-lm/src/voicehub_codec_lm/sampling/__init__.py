"""Drawing codes from logits."""
