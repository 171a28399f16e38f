"""The same traffic, judged by mlgitops and by the published rules of others."""
