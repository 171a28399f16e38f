"""The HTML report: one file without scripts, fonts or anything else from elsewhere."""
