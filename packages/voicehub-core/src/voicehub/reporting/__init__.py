"""Who watches a run: the console, the HTML report and the summary."""
