"""Gymnasium environments by id, with errors that help."""

from __future__ import annotations

import difflib
import importlib
from typing import Any

import gymnasium
from gymnasium.envs.registration import EnvSpec

from distrl.core.errors import ConfigError


def gymnasium_environment(id: str, **make_kwargs: Any) -> gymnasium.Env:
    """One environment as Gymnasium makes it, without its passive checker.

    `id` is "Name-v0", "namespace/Name-v0", or either behind "module:", which is
    imported first and registers it. Raises ConfigError for an unknown id, with the
    nearest known ones, and when a package that the environment needs is not installed.
    """
    registration = registered(id)
    try:
        return gymnasium.make(registration, disable_env_checker=True, **make_kwargs)
    except gymnasium.error.DependencyNotInstalled as error:
        raise ConfigError(f"environment {id!r}: {error}") from error


def registered(id: str) -> EnvSpec:
    """What Gymnasium knows of an id. Raises ConfigError for an unknown one."""
    module, _, name = id.rpartition(":")
    try:
        if module:
            importlib.import_module(module)
        return gymnasium.spec(name)
    except (ImportError, gymnasium.error.Error) as error:
        near = difflib.get_close_matches(name, gymnasium.registry, n=3, cutoff=0.5)
        hint = f"; did you mean {' or '.join(near)}?" if near else ""
        raise ConfigError(f"unknown environment {id!r}: {error}{hint}") from error
