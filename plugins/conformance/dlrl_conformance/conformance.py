"""AdapterConformance: the tests that an adapter inherits to prove its contract."""

from __future__ import annotations

import contextlib
import os
import tempfile
import uuid
from collections.abc import Iterator
from typing import Any, ClassVar, NoReturn
from unittest.mock import patch

from dlrl_conformance.contract import (
    UNKNOWN_KEY,
    config_problems,
    fill_problems,
    identity_problems,
    modules_of_framework,
    read_plain,
    role_problems,
    with_unknown_key,
)
from dlrl_conformance.death_series import DeathReport, take_deaths
from dlrl_conformance.leftovers import ProcessTrail, left_of, wait_until_gone
from dlrl_conformance.planned_apart import plan_apart
from dlrl_conformance.restarts import choose_deaths, quoted, restarts_between
from dlrl_conformance.watched_job import Look, WatchedJob, submitted
from dlrl_core.api import JobResult, RLJob, RLJobBuilder
from dlrl_core.errors import FrameworkUnavailableError, SpecError
from dlrl_core.plan import needed_cluster
from dlrl_core.plugin import FrameworkAdapter, plugin_host


class AdapterConformance:
    """Extend it in a test module, say which framework and a small config, and run it with pytest.

    Tests that run jobs are skipped where the framework is not installed. One job is run without a fault, one takes all
    deaths, and two more prove that a stopped job can be resumed, if `resume_config` says how.
    """

    framework: ClassVar[str]
    """The name users write in `.framework(name)`."""
    steps: ClassVar[int]
    """How many steps a job with `config` has: three more than it has roles, trainer and master, or more."""
    seed: ClassVar[int] = 7
    """Chooses who dies, in which order, and when."""
    heavy_modules: ClassVar[tuple[str, ...]] = ("torch",)
    """What a plan must do without, besides the modules of the framework's distribution."""
    needs_framework_to_plan: ClassVar[bool] = False
    """The adapter can't read a config without its framework, and says so by `check_available`."""
    save_every: ClassVar[int] = 1
    """How many steps apart the framework saves what it can be resumed from."""
    start_s: ClassVar[float] = 180.0
    """Longest time from submission to the first commit."""
    recover_s: ClassVar[float] = 120.0
    """From a death to the next commit with everybody up."""
    end_s: ClassVar[float] = 300.0
    """From the last death, or else the first commit, to the end of the job."""
    gone_s: ClassVar[float] = 20.0
    """From the end until nothing of the job is left."""

    _cluster: ClassVar[contextlib.ExitStack | None] = None
    _undisturbed: ClassVar[JobResult | None] = None

    def __init_subclass__(cls) -> None:
        cls._cluster = cls._undisturbed = None

    # ---- what an adapter's author overrides

    @property
    def config(self) -> Any:
        """A small job, in any form that `.config(...)` takes. An attribute does, or a property that makes it."""
        raise NotImplementedError("say `config = ...` in your class")

    def resume_config(self, config: Any) -> Any:
        """The config with which a job goes on from what a stopped one with `config` had saved; None: it can't."""
        return None

    def builder(self, config: Any) -> RLJobBuilder:
        """The job of a config; say more on the builder if your job needs it."""
        return RLJobBuilder().framework(self.framework).config(config)

    @contextlib.contextmanager
    def cluster(self) -> Iterator[None]:
        """This process is connected to a Ray cluster that the job fits on, from the first run to the last.

        As it is: the cluster it is connected to already, else a local one as small as the job allows.
        """
        import ray

        from dlrl_local_ray.local_cluster import LocalCluster

        if ray.is_initialized():
            yield
            return
        local = LocalCluster()
        try:
            address = local.add_nodes(needed_cluster(self._job(self.config).spec))
            ray.init(address=address, log_to_driver=False, configure_logging=False)
            yield
        finally:
            ray.shutdown()
            local.stop()

    def compare_results(self, undisturbed: Any, other: Any) -> None:
        """Assert that `fit` returned after deaths, or resumed, what it returns without. As it is: exactly that."""
        assert other == undisturbed, f"the end differs: {other!r}; without a death it is {undisturbed!r}"

    # ---- without a cluster

    def test_it_is_registered_and_says_what_it_is(self) -> None:
        _check("its attributes", identity_problems(self._adapter(), self.framework))

    def test_its_module_imports_neither_its_framework_nor_torch(self) -> None:
        heavy = {*self.heavy_modules, *modules_of_framework(self._adapter())}
        apart = plan_apart(self.framework, self.config)
        assert apart.at_registration, f"framework '{self.framework}' does not load in a new process: {apart.error}"
        imported = heavy & {name.partition(".")[0] for name in apart.at_registration}
        assert not imported, f"the plugin's module imports {quoted(imported)}; import it where it runs"

    def test_its_config_comes_through_json_and_omegaconf(self) -> None:
        spec = self._job(self.config).spec
        _check("its config", config_problems(spec.config, spec))

    def test_filling_is_pure_and_always_the_same(self) -> None:
        adapter, config = self._adapter(), self.config
        _check("fill", fill_problems(adapter, read_plain(adapter, config)))
        spec = RLJobBuilder().framework(self.framework).config(config).build(import_classes=False).spec
        apart = plan_apart(self.framework, config)
        assert apart.error is None, f"it does not plan in a new process: {apart.error}"
        assert apart.spec_json == spec.to_json(), (
            f"another process, with another hash seed, makes {apart.spec_json} of the same config; "
            f"here it is {spec.to_json()}"
        )

    def test_an_unknown_key_is_refused_before_anything_starts(self) -> None:
        try:
            self._job(with_unknown_key(self.config))
        except SpecError as error:
            assert UNKNOWN_KEY in str(error), f"the error does not name '{UNKNOWN_KEY}': {error}"
            return
        raise AssertionError(f"read_config takes '{UNKNOWN_KEY}', which is no key of the framework")

    def test_every_role_has_a_class_a_count_and_a_scope(self) -> None:
        adapter = self._adapter()
        _check("its roles", role_problems(adapter.fill(read_plain(adapter, self.config))))

    def test_it_plans_without_its_framework_and_imports_no_class(self) -> None:
        if self.needs_framework_to_plan:
            _skip(f"framework '{self.framework}' says that it can't plan without its framework")
        adapter, config = self._adapter(), self.config
        apart = plan_apart(
            self.framework,
            config,
            hidden_modules={*self.heavy_modules, *modules_of_framework(adapter)},
            hidden_distribution=adapter.distribution,
        )
        assert apart.error is None, f"where {quoted(self.heavy_modules)} and the framework are missing: {apart.error}"
        filled = adapter.fill(read_plain(adapter, config))
        classes = {filled.trainer.module, *(role.cls.module for role in filled.roles.values())}
        assert not classes & apart.at_plan, f"planning imports {quoted(classes & apart.at_plan)}"

    # ---- on a cluster

    def test_it_runs_to_the_end_and_commits_every_step(self) -> None:
        self._skip_if_missing()
        self._undisturbed_result()

    def test_it_survives_every_death(self) -> None:
        self._skip_if_missing()
        expected = self._undisturbed_result().value
        with self._running(self.config) as (job, trail):
            reports = self._take_deaths(job, trail)
            print("", *reports, sep="\n")  # shown by `pytest -s`, and when the test fails
            last, result = self._finished(job)
            late = restarts_between(reports[-1].after, last.processes)
            problems = [problem for report in reports for problem in report.problems]
            problems += [*job.problems, *(f"'{name}' was restarted again after the last recovery" for name in late)]
            problems += self._differences(expected, result.value)
            _check("what deaths led to", problems)

    def test_it_resumes_after_what_it_had_saved(self) -> None:
        self._skip_if_missing()
        config = self.config
        resumed_config = self.resume_config(config)
        if resumed_config is None:
            _skip(f"framework '{self.framework}' does not say how to resume; see resume_config")
        expected = self._undisturbed_result().value
        with self._running(config) as (job, _):
            half = max(self.steps // 2, self.save_every)
            job.until(lambda look: look.committed >= half, f"step {half} was committed", self.end_s)
            job.handle.stop("to be resumed")
            stopped = Look(view=job.handle.status().view)
        with self._running(resumed_config) as (job, _):
            last, result = self._finished(job)
        first = self.steps - last.commits
        least, most = stopped.committed // self.save_every * self.save_every, stopped.view["progress"]["step"]
        assert least <= first <= most, (
            f"stopped with step {stopped.committed} committed, it went on with step {first} of {self.steps}; "
            f"it saves every {self.save_every} steps, so expected was {least} to {most}"
        )
        _check("when resumed", self._differences(expected, result.value))

    # ---- how

    def _adapter(self) -> FrameworkAdapter:
        return plugin_host().framework(self.framework)

    def _skip_if_missing(self) -> None:
        """First of all: to make a config may need the framework."""
        try:
            self._adapter().check_available()
        except FrameworkUnavailableError as error:
            _skip(str(error))

    def _job(self, config: Any) -> RLJob:
        return self.builder(config).build(import_classes=False)

    def _undisturbed_result(self) -> JobResult:
        """Of the one run without a fault, which all tests of the class compare with."""
        cls = type(self)
        if cls._undisturbed is None:
            with self._running(self.config) as (job, trail):
                first = job.until(lambda look: look.committed >= 0 or look.is_final, "the first commit", self.start_s)
                trail.note(first.processes)
                last, result = self._finished(job)
            assert last.commits == self.steps, (
                f"it made {last.commits} commits in {self.steps} steps; commit every step"
            )
            restarted = restarts_between(first.processes, last.processes)
            _check("a run without a fault", [*job.problems, *(f"'{name}' was restarted" for name in restarted)])
            cls._undisturbed = result
        return cls._undisturbed

    def _differences(self, undisturbed: Any, other: Any) -> list[str]:
        try:
            self.compare_results(undisturbed, other)
        except AssertionError as error:
            return [str(error)]
        return []

    def _take_deaths(self, job: WatchedJob, trail: ProcessTrail) -> list[DeathReport]:
        deaths = choose_deaths(self._job(self.config).spec, self.seed)
        enough = len(deaths) + 3
        assert self.steps >= enough, f"{len(deaths)} deaths need {enough} steps, one each; steps is {self.steps}"
        job.until(lambda look: look.committed >= 1, "the second commit", self.start_s)  # it shows how long a step takes
        return take_deaths(job, deaths, trail, seed=self.seed, recover_s=self.recover_s, gone_s=self.gone_s)

    @contextlib.contextmanager
    def _running(self, config: Any) -> Iterator[tuple[WatchedJob, ProcessTrail]]:
        """The job, running; after it, nothing of it may be left."""
        self._join_cluster()
        name, trail = f"conformance-{uuid.uuid4().hex[:8]}", ProcessTrail()
        with tempfile.TemporaryDirectory() as home, patch.dict(os.environ, DLRL_HOME=home):
            with submitted(self.builder(config).allow_chaos().restart_budget(**_PLENTY).build(), name) as job:
                yield job, trail
                run_id = job.look().view["run_id"]
            _check("left behind", wait_until_gone(lambda: left_of(name, run_id, trail), self.gone_s))

    def _finished(self, job: WatchedJob) -> tuple[Look, JobResult]:
        """The job has come to its end with all steps done and committed."""
        result = job.end(self.end_s)
        last = job.look()
        step, total = last.view["progress"]["step"], last.view["progress"]["total_steps"]
        assert (step, total) == (self.steps, self.steps), f"it ended at step {step} of {total}; expected {self.steps}"
        assert last.commits, "nothing was committed; call self.commit(step) in `fit` at the end of every step"
        assert last.committed == self.steps - 1, f"the last commit is of step {last.committed} of {self.steps}"
        return last, result

    def _join_cluster(self) -> None:
        cls = type(self)
        if cls._cluster is None:
            stack = contextlib.ExitStack()
            stack.enter_context(self.cluster())
            cls._cluster = stack

    @classmethod
    def teardown_class(cls) -> None:
        """pytest's: the cluster is left when the last test of the class is done."""
        if cls._cluster is not None:
            cls._cluster.close()
            cls._cluster = None


_PLENTY = {"workload": 100, "role": 100, "job": 100, "node": 0, "backoff_s": 0.0}
"""No death of the series is one too many."""


def _check(what: str, problems: list[str]) -> None:
    assert not problems, f"{what}: " + "; ".join(problems)


def _skip(reason: str) -> NoReturn:
    import pytest

    pytest.skip(reason)
