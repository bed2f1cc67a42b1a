"""A family as a third party would write it, small enough to train in a second; tests plant it."""
