"""GitOps push-to-deploy for machine learning: from a git push to a judged canary, and back."""

__version__ = "0.1.0"
__all__ = ["__version__"]
