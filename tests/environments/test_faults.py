"""Errors of environments, and who is to blame."""

import pickle
import traceback

import cloudpickle
import pytest

from distrl.environments.faults import EnvironmentFault, Fault
from distrl.environments.spaces import WrongObservation


def raised(error):
    """The error as it is caught: with a traceback."""
    try:
        deep_inside(error)
    except BaseException as caught:
        return caught


def deep_inside(error):
    raise error


def test_the_error_itself_is_raised():
    error = raised(KeyError("inside"))
    blamed = Fault.of(error, 3, 8, "step").blame()
    assert blamed is error and blamed.args == ("inside",)
    assert blamed.environment_index == 3
    cause = blamed.__cause__
    assert isinstance(cause, EnvironmentFault)
    assert str(cause).startswith("environment 3 of 8, in step:\nTraceback")
    assert "in deep_inside" in str(cause) and "KeyError: 'inside'" in str(cause)
    shown = "".join(traceback.format_exception(blamed))
    assert "environment 3 of 8, in step" in shown


def test_what_others_raised_is_in_the_cause():
    faults = [
        Fault.of(raised(OSError(text)), k, 3, "reset") for k, text in enumerate("abc")
    ]
    blamed = faults[0].blame(faults[1:])
    assert str(blamed) == "a" and blamed.environment_index == 0
    text = str(blamed.__cause__)
    for slot, message in enumerate("abc"):
        assert f"environment {slot} of 3, in reset:" in text
        assert f"OSError: {message}" in text


def test_the_causes_of_the_error_are_in_the_text():
    try:
        try:
            deep_inside(ZeroDivisionError("first"))
        except ZeroDivisionError as first:
            raise LookupError("second") from first
    except LookupError as caught:
        blamed = Fault.of(caught, 0, 1, "step").blame()
    assert "ZeroDivisionError: first" in str(blamed.__cause__)


def test_wrong_observations_name_the_environment_once():
    fault = Fault.of(raised(WrongObservation("leaf 'a'")), 1, 2, "step")
    assert str(fault.error) == "environment 1 of 2: leaf 'a'"
    again = Fault.of(fault.error, 1, 2, "step")
    assert str(again.error) == "environment 1 of 2: leaf 'a'"
    assert isinstance(fault.blame(), ValueError)
    assert "in deep_inside" in str(fault.blame().__cause__)


@pytest.mark.parametrize("module", [pickle, cloudpickle])
def test_faults_travel(module):
    fault = Fault.of(raised(ValueError("bad", 7)), 2, 4, "close")
    there = pickle.loads(module.dumps(fault))
    assert type(there) is Fault and there[1:] == fault[1:]
    blamed = there.blame()
    assert type(blamed) is ValueError and blamed.args == ("bad", 7)
    assert blamed.environment_index == 2
    assert "in deep_inside" in str(blamed.__cause__)
