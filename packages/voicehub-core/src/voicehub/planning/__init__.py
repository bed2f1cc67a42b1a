"""What a run needs before it starts: memory, disk and time, from shapes alone."""
