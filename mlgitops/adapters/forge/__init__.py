"""Pull requests, comments and statuses."""
