"""Manifests: reading, rendering, editing what the tool owns, and lint."""
