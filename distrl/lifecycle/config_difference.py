"""How the configuration of a task that wants to join differs from the run's."""

from __future__ import annotations

SPEC = "spec:"  # how the keys begin that only tasks with an environment know


def difference(ours: dict[str, str], theirs: dict[str, str]) -> str:
    """The first key that differs, with both values, or ''.

    Specs are compared where both sides know theirs.
    """
    both_know_specs = specs_of(ours) and specs_of(theirs)
    for key in sorted(set(ours) | set(theirs)):
        here, there = ours.get(key, "not set"), theirs.get(key, "not set")
        if here != there and (both_know_specs or not key.startswith(SPEC)):
            return f"{key} is {there} there, and {here} in the run"
    return ""


def specs_of(config: dict[str, str]) -> dict[str, str]:
    """The part of a configuration that describes specs."""
    return {key: text for key, text in config.items() if key.startswith(SPEC)}
