"""Lint: what is refused in an environment repository, and why."""

from mlgitops.core.manifest.lint.objects import lint_objects
from mlgitops.core.manifest.lint.rule import ALLOW_PREFIX, RULES, Rule
from mlgitops.core.manifest.lint.tree import lint_tree

__all__ = ["ALLOW_PREFIX", "RULES", "Rule", "lint_objects", "lint_tree"]
