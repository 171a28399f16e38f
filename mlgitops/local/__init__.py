"""The embedded engine of one machine: the adapters put together, and the loop that `local up` runs."""
