"""What serves models: the embedded model server, router and controller."""
