"""Who watches a run: metrics as JSON lines, the console, the HTML report and the summary."""
