"""Self-play learns games: real runs, then games against chance, all of them counted."""

from __future__ import annotations

import json

import numpy as np
import pytest
from test_configs_learn import train

from distrl import configurables
from distrl.checkpoints.checkpoint_store import CheckpointStore
from distrl.checkpoints.policy_sampler import PolicySampler
from distrl.checkpoints.variables import select_parameters
from distrl.worlds.batch_world import BatchWorld
from distrl.worlds.example_index import ExampleIndex
from distrl.worlds.policy_participant import PolicyParticipant
from distrl.worlds.random_participant import RandomParticipant
from distrl.worlds.reducers import values
from distrl.worlds.registry import create_task

GAMES = 1000


def results(run_dir, task, num_actions):
    """Shares of won, drawn and lost games of the newest parameters, as the first and
    as the second player; an illegal move would be an error."""
    agent = configurables.read_experiment(str(run_dir / "config.gin")).agent
    store = CheckpointStore(run_dir / "checkpoints")
    arrays, _ = store.load(store.newest())
    found = []
    for seat in (0, 1):
        policy = agent.make_policy(agent.environment_spec(), arrays)
        players = [PolicyParticipant(policy), RandomParticipant(num_actions, seed=7)]
        players = players if seat == 0 else players[::-1]
        world = create_task(task, players, ExampleIndex(GAMES))
        with BatchWorld(world, 50) as batch:
            while batch.parley():
                pass
            report = values(batch.report())
        assert report["episodes"] == GAMES
        name = sorted(key for key in report if key.endswith("/wins"))[seat]
        name = name.removesuffix("/wins")
        shares = [report[f"{name}/{what}"] for what in ("wins", "draws", "losses")]
        assert sum(shares) == pytest.approx(1.0)
        found.append(shares)
    (run_dir / "results.json").write_text(json.dumps(found))
    return found


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_tic_tac_toe(tmp_path):
    train(tmp_path / "run", "apex/tictactoe.gin", 0, timeout=1500)
    found = results(tmp_path / "run", "pettingzoo:classic.tictactoe_v3", 9)
    (first, _, first_lost), (second, _, second_lost) = found
    assert first >= 0.9 and second >= 0.75, found
    assert first_lost <= 0.02 and second_lost <= 0.02, found


@pytest.mark.slow
@pytest.mark.timeout(3000)
def test_connect_four(tmp_path):
    train(tmp_path / "run", "apex/connect_four.gin", 0, timeout=2700)
    found = results(tmp_path / "run", "pettingzoo:classic.connect_four_v3", 7)
    assert all(wins >= 0.9 for wins, _, _ in found), found


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_rock_paper_scissors(tmp_path):
    """Nobody can exploit whoever does all three alike: what the best answer to the
    learnt policy earns is near 0. It would be 1 against a policy that always does the
    same."""
    run_dir = tmp_path / "run"
    train(run_dir, "impala/rock_paper_scissors.gin", 0, timeout=1000)
    agent = configurables.read_experiment(str(run_dir / "config.gin")).agent
    store = CheckpointStore(run_dir / "checkpoints")
    arrays, _ = store.load(store.newest())
    sampler = PolicySampler(agent.model, agent.environment_spec())
    sampler.load(select_parameters(sampler.parameter_specs, arrays))
    payoff = np.array([[0, 1, -1], [-1, 0, 1], [1, -1, 0]])  # paper beats rock, …
    for seen in range(4):
        drawn = sampler.act(np.full(4000, seen), (3, seen)).raw_action
        shares = np.bincount(drawn, minlength=3) / 4000
        assert (shares @ payoff).max() <= 0.3, (seen, shares)
    sampler.close()
