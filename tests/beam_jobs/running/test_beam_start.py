"""Answers of Beam that are kept are those that it gives."""

import pickle
from typing import Any

import pytest

pytest.importorskip("apache_beam")

import apache_beam as beam
from apache_beam.coders import VarIntCoder
from apache_beam.options.pipeline_options import DirectOptions, StandardOptions
from apache_beam.transforms import userstate
from apache_beam.transforms.userstate import CombiningValueStateSpec

from beam_jobs.running.beam_start import dofn_specs_kept
from beam_jobs.running.runner import beam_options

COUNT = CombiningValueStateSpec("count", VarIntCoder(), sum)
PARAMETER = beam.DoFn.StateParam(COUNT)


class Stateful(beam.DoFn):
    def process(self, element: Any, count=PARAMETER) -> None:
        count.add(1)


class Counter:
    def stateful(self, element: Any, count=PARAMETER) -> None:
        count.add(1)

    def plain(self, element: Any) -> Any:
        return element


DOFNS = (
    Stateful(),
    beam.Map(str).fn,
    beam.Map(Counter().stateful).fn,
    beam.Map(Counter().plain).fn,
    beam.Map(lambda element: element).fn,
    beam.FlatMap(list).fn,
)


def test_specs_are_those_that_beam_finds():
    beams = userstate.get_dofn_specs
    with dofn_specs_kept():
        for _ in range(2):
            assert [userstate.get_dofn_specs(each) for each in DOFNS] == list(map(beams, DOFNS))
    assert userstate.get_dofn_specs is beams
    assert beams(DOFNS[0]) == ({COUNT}, set())


def test_a_class_is_inspected_once(monkeypatch: pytest.MonkeyPatch):
    inspected = []
    monkeypatch.setattr(userstate, "get_dofn_specs", inspected.append)
    with dofn_specs_kept():
        for _ in range(3):
            userstate.get_dofn_specs(Stateful())
    assert len(inspected) == 1


def test_all_views_share_their_values():
    options = beam_options(["--direct_num_workers=3", "--runner=local"])
    direct = options.view_as(DirectOptions)
    assert direct is options.view_as(DirectOptions)
    direct.direct_num_workers = 5
    standard = options.view_as(StandardOptions)
    assert standard.view_as(DirectOptions).direct_num_workers == 5
    standard.runner = "other"
    assert options.get_all_options()["runner"] == "other"
    assert options.get_all_options()["direct_num_workers"] == 5
    copy = pickle.loads(pickle.dumps(options))
    assert copy.get_all_options() == options.get_all_options()
