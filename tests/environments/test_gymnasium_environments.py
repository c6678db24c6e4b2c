import sys
import types

import gymnasium
import pytest

from distrl.core.errors import ConfigError
from distrl.environments.gymnasium_environments import gymnasium_environment


def test_makes_it_without_the_checker():
    environment = gymnasium_environment("CartPole-v1", max_episode_steps=7)
    assert "PassiveEnvChecker" not in str(environment)
    assert environment.spec.max_episode_steps == 7


@pytest.mark.parametrize(
    "id, message",
    [
        ("CartPool-v1", "'CartPool-v1'.*CartPole-v1"),
        ("CartPole-v9", "'CartPole-v9'.*CartPole-v1"),
        ("CartPole", "'CartPole'.*CartPole-v1"),
        ("Nowhere/Thing-v0", "'Nowhere/Thing-v0'.*Namespace"),
        ("no_such_module:Thing-v0", "'no_such_module:Thing-v0'.*no_such_module"),
        ("not an id!", "'not an id!'"),
    ],
)
def test_unknown_ids(id, message):
    with pytest.raises(ConfigError, match=message):
        gymnasium_environment(id)


def test_module_in_front_is_imported(monkeypatch):
    module = types.ModuleType("some_games")
    monkeypatch.setitem(sys.modules, "some_games", module)
    assert gymnasium_environment("some_games:CartPole-v1").spec.id == "CartPole-v1"


def test_missing_package_is_named(monkeypatch):
    def needs():
        raise gymnasium.error.DependencyNotInstalled("pip install physics")

    gymnasium.register("Needs-v0", entry_point=needs)
    try:
        with pytest.raises(ConfigError, match="Needs-v0.*physics"):
            gymnasium_environment("Needs-v0")
    finally:
        del gymnasium.registry["Needs-v0"]
