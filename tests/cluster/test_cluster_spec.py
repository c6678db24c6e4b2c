"""Hosts of a run: flags, files, tasks, proxies."""

from __future__ import annotations

import json
import os

import pytest

from distrl.cluster.spec import (
    ClusterSpec,
    cluster_from_file,
    cluster_from_flags,
    split_address,
)
from distrl.core.errors import ConfigError

GOOD = {"ps": ["a:1"], "memory": ["b:1", "b:2"], "learner": ["c:1"], "actor": 3}
SPEC = ClusterSpec(("a:1",), ("b:1", "b:2"), ("c:1",), 3)


def from_flags(ps="a:1", memory="b:1,b:2", learner="c:1", **actors):
    return cluster_from_flags(ps, memory, learner, **(actors or {"num_actors": 3}))


def write(tmp_path, content):
    path = tmp_path / "cluster.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return str(path)


# Addresses.


@pytest.mark.parametrize(
    ("address", "parts"),
    [
        ("localhost:1", ("localhost", 1)),
        ("10.0.0.1:65535", ("10.0.0.1", 65535)),
        ("my-host_1.net:80", ("my-host_1.net", 80)),
        ("[::1]:2222", ("::1", 2222)),
    ],
)
def test_addresses_are_split(address, parts):
    assert split_address(address) == parts


@pytest.mark.parametrize(
    "address",
    [
        *("", "a", "a:", ":1", "a:b", "a:1:2", "::1:5", "a:0", "a:70000", "a:65536"),
        *("a:-1", "a b:1", "a: 1", "a :1", "a:1\n", "a:1 b:2", "http://a:1", "a:1.5"),
        *("a:1/", "a:\u0661"),  # a digit, but not one of ours
    ],
)
def test_a_malformed_address_is_shown(address):
    for job in ("ps", "memory", "learner"):
        hosts = {"ps": ("x:1",), "memory": ("x:2",), "learner": ("x:3",)}
        hosts[job] = (*hosts[job], address)
        with pytest.raises(ConfigError) as error:
            ClusterSpec(**hosts, num_actors=1)
        assert repr(address) in str(error.value)
        assert f"{job} host 1" in str(error.value)


# Flags.


def test_flags():
    assert from_flags() == SPEC
    assert from_flags(memory=" b:1 , b:2") == SPEC
    assert from_flags(actor_hosts="x:1,x:2,x:3") == SPEC
    assert from_flags(actor_hosts="x:1,x:2,x:3", num_actors=3) == SPEC


def test_an_empty_entry_in_a_list_is_malformed():
    for hosts in ("b:1,", ",b:1", "b:1,,b:2"):
        with pytest.raises(ConfigError, match="memory host .*''"):
            from_flags(memory=hosts)


@pytest.mark.parametrize("job", ["ps", "memory", "learner"])
@pytest.mark.parametrize("hosts", ["", "  "])
def test_a_missing_job_is_named(job, hosts):
    with pytest.raises(ConfigError, match=f"^{job} hosts"):
        from_flags(**{job: hosts}, num_actors=3)


@pytest.mark.parametrize("number", [0, -2])
def test_a_run_needs_an_actor(number):
    with pytest.raises(ConfigError, match=str(number)):
        from_flags(num_actors=number)


def test_actors_must_be_given_and_must_agree():
    with pytest.raises(ConfigError, match="num_actors.*actor_hosts"):
        cluster_from_flags("a:1", "b:1", "c:1")
    with pytest.raises(ConfigError, match=r"num_actors=3 .*2 --actor_hosts"):
        from_flags(actor_hosts="x:1,x:2", num_actors=3)


@pytest.mark.parametrize(
    ("flags", "tasks"),
    [
        ({"ps": "a:1,a:1"}, ("ps/0", "ps/1")),
        ({"ps": "b:2"}, ("ps/0", "memory/1")),
        ({"learner": "b:1"}, ("memory/0", "learner/0")),
        ({"ps": "HOST:1", "learner": "host:01"}, ("ps/0", "learner/0")),
    ],
)
def test_two_tasks_at_one_address_are_named(flags, tasks):
    with pytest.raises(ConfigError) as error:
        from_flags(**flags, num_actors=3)
    for expected in (
        *tasks,
        repr(flags.get("learner", flags.get("ps")).split(",")[-1]),
    ):
        assert expected in str(error.value)


# Files.


@pytest.mark.parametrize(
    "content",
    [
        GOOD,
        {"cluster": GOOD},
        {"cluster": GOOD, "task": {}},
        GOOD | {"actor": list("xyz")},
    ],
)
def test_files(tmp_path, content):
    assert cluster_from_file(write(tmp_path, content)) == SPEC


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("{", "cannot read"),
        ("", "cannot read"),
        ("[]", "list"),
        ("3", "int"),
        ({}, r"expected the keys.*\[\]"),
        ({"cluster": []}, "list"),
        ({k: v for k, v in GOOD.items() if k != "memory"}, "memory"),
        (GOOD | {"chief": ["d:1"]}, "chief"),
        (GOOD | {"ps": "a:1"}, "ps: expected a list of host:port, got 'a:1'"),
        (GOOD | {"ps": [7]}, r"ps: .*\[7\]"),
        (GOOD | {"ps": []}, "ps hosts"),
        (GOOD | {"ps": ["a"]}, "ps host 0.*'a'"),
        (GOOD | {"ps": ["c:1"]}, "learner/0 and ps/0.*'c:1'"),
        (GOOD | {"actor": "3"}, "actor: .*'3'"),
        (GOOD | {"actor": True}, "actor: .*True"),
        (GOOD | {"actor": 1.5}, "actor: .*1.5"),
        (GOOD | {"actor": []}, "at least 1 configured actor, got 0"),
    ],
)
def test_a_file_that_cannot_be_used(tmp_path, content, complaint):
    with pytest.raises(ConfigError, match=complaint):
        cluster_from_file(write(tmp_path, content))


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(ConfigError, match="cannot read.*nowhere.json"):
        cluster_from_file(str(tmp_path / "nowhere.json"))


# Tasks.


@pytest.mark.parametrize(
    "task", [("ps", 0), ("memory", 1), ("learner", 0), ("actor", 2), ("actor", 50)]
)
def test_tasks_of_the_run(task):
    SPEC.check_task(*task)  # an actor beyond the configured ones may come


@pytest.mark.parametrize(
    ("task", "complaint"),
    [
        (("memory", 2), r"task_index: 2 .*2 memory host.*b:2"),
        (("ps", 1), r"task_index: 1 .*a:1"),
        (("actor", -1), "-1"),
        (("worker", 0), "job_name.*worker"),
        (("", 0), "job_name.*''"),
    ],
)
def test_a_task_that_the_run_does_not_have(task, complaint):
    with pytest.raises(ConfigError, match=complaint):
        SPEC.check_task(*task)


# Proxies.


@pytest.mark.parametrize(
    ("lower", "upper", "expected"),
    [
        (None, None, ["::1", "a", "b"]),
        ("", "", ["::1", "a", "b"]),
        ("z.net,b", None, ["z.net", "b", "::1", "a"]),
        (None, "z.net", ["z.net", "::1", "a", "b"]),
        ("x, y", "y,z", ["x", "y", "z", "::1", "a", "b"]),
    ],
)
def test_hosts_bypass_proxies_and_known_ones_stay(monkeypatch, lower, upper, expected):
    for name, value in (("no_proxy", lower), ("NO_PROXY", upper)):
        monkeypatch.setenv(name, value or "")
        if value is None:
            monkeypatch.delenv(name)
    spec = ClusterSpec(("a:1",), ("b:1", "b:2"), ("[::1]:1",), 1)
    for _ in range(2):  # a second call changes nothing
        spec.bypass_proxies()
        for name in ("no_proxy", "NO_PROXY"):
            assert os.environ[name].split(",") == expected
