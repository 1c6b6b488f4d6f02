"""AdapterConformance: the tests that an adapter inherits to prove its contract."""

from __future__ import annotations

import contextlib
import os
import tempfile
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
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
from dlrl_conformance.deaths import DeathReport, choose_deaths, restarts_between, take_deaths
from dlrl_conformance.planned_apart import plan_apart
from dlrl_conformance.watched_job import (
    Look,
    Processes,
    ProcessTrail,
    WatchedJob,
    left_of,
    quoted,
    submitted,
    wait_until_gone,
)
from dlrl_core.api import JobResult, RLJob, RLJobBuilder
from dlrl_core.context import JobView
from dlrl_core.errors import FrameworkUnavailableError, SpecError
from dlrl_core.plan import needed_cluster
from dlrl_core.plugin import FrameworkAdapter, plugin_host


@dataclass(kw_only=True)
class _Run:
    """A running job, the processes that were seen of it, and, when it has ended, what it left behind."""

    job: WatchedJob
    trail: ProcessTrail = field(default_factory=ProcessTrail)
    left: Sequence[str] = ()


@dataclass(frozen=True, kw_only=True)
class _RunWithDeaths:
    """What was seen of the one job that takes all deaths."""

    first: Processes
    """The processes at the first commit."""
    before: JobView
    """The job just before the first death."""
    reports: Sequence[DeathReport]
    last: Look
    result: JobResult
    problems: Sequence[str]
    """Commits that were lost, and what was left behind."""


class AdapterConformance:
    """Extend it in a test module, set `framework`, a small `config` and `steps`, and run it with pytest.

    Tests that run jobs are skipped where the framework is not installed. One job takes all deaths. Another one, without
    a fault, is run only if `check_result` is not overridden; two more prove that a stopped job can be resumed, if
    `resume_config` says how.
    """

    framework: ClassVar[str]
    """The name users write in `.framework(name)`."""
    steps: ClassVar[int]
    """How many steps a job with `config` has: three more than it has roles, trainer and master, or more."""
    seed: ClassVar[int] = 7
    """Chooses which processes are killed, in which order, and when."""
    heavy_modules: ClassVar[tuple[str, ...]] = ("torch",)
    """What a plan must do without, besides the modules of the framework's distribution."""
    needs_framework_to_plan: ClassVar[bool] = False
    """The adapter can't read a config without its framework, and says so by `check_available`."""
    save_every: ClassVar[int] = 1
    """How many steps apart the framework saves what it can be resumed from."""
    start_s: ClassVar[float] = 180.0
    """Longest time from submission to the first commit."""
    recover_s: ClassVar[float] = 120.0
    """Longest time from a death to the next commit with every process up."""
    end_s: ClassVar[float] = 300.0
    """Longest time from the last death, or else the first commit, to the end of the job."""
    gone_s: ClassVar[float] = 20.0
    """Longest time from the end of the job until nothing of it is left."""

    _cluster: ClassVar[contextlib.ExitStack | None] = None
    _with_deaths: ClassVar[_RunWithDeaths | AssertionError | None] = None
    _undisturbed: ClassVar[JobResult | None] = None

    def __init_subclass__(cls) -> None:
        cls._cluster = cls._with_deaths = cls._undisturbed = None

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

    def check_result(self, result: Any, before: JobView) -> None:
        """Assert that what `fit` returned after deaths, or resumed, is what it returns without.

        As it is: `compare_results` with the result of a job without a fault, which is run once. Override it where no
        two jobs return the same, because the framework samples: then that job is not needed. `before` is the status of
        the same job before its first death, or of the job that was stopped.
        """
        self.compare_results(self._undisturbed_result().value, result)

    def compare_results(self, undisturbed: Any, other: Any) -> None:
        """Assert that two results of `fit` are the same. As it is: that they are equal."""
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
        run = self._run_with_deaths()
        assert run.last.commits == self.steps, (
            f"it made {run.last.commits} commits in {self.steps} steps; commit every step"
        )
        restarted = restarts_between(run.first, Look(view=run.before).processes)
        _check("before the first death", [f"'{name}' was restarted" for name in restarted])

    def test_it_survives_every_death(self) -> None:
        self._skip_if_missing()
        run = self._run_with_deaths()
        print("", *run.reports, sep="\n")  # shown by `pytest -s`, and when the test fails
        late = restarts_between(run.reports[-1].after, run.last.processes)
        problems = [problem for report in run.reports for problem in report.problems]
        problems += [*run.problems, *(f"'{name}' was restarted again after the last recovery" for name in late)]
        problems += self._differences(run.result.value, run.before)
        _check("what deaths led to", problems)

    def test_it_resumes_after_what_it_had_saved(self) -> None:
        self._skip_if_missing()
        config = self.config
        resumed_config = self.resume_config(config)
        if resumed_config is None:
            _skip(f"framework '{self.framework}' does not say how to resume; see resume_config")
        with self._running(config) as first:
            half = max(self.steps // 2, self.save_every)
            first.job.until(lambda look: look.committed > half, f"step {half + 1} was committed", self.end_s)
            first.job.handle.stop("to be resumed")
            stopped = Look(view=first.job.handle.status().view)
        with self._running(resumed_config) as second:
            last, result = self._finished(second.job)
        done = self.steps - last.commits
        # A step is saved when it is committed or after that, so of the last one nothing may be saved yet.
        least, most = (stopped.committed - 1) // self.save_every * self.save_every, stopped.view["progress"]["step"]
        assert least <= done <= most, (
            f"stopped with step {stopped.committed} committed, it went on after step {done} of {self.steps}; "
            f"it saves every {self.save_every} steps, so expected was after step {least} to {most}"
        )
        _check("when resumed", [*first.left, *second.left, *self._differences(result.value, stopped.view)])

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

    def _run_with_deaths(self) -> _RunWithDeaths:
        """The one job that takes all deaths, run once for all tests of the class; fails again if it failed."""
        cls = type(self)
        if cls._with_deaths is None:
            try:
                cls._with_deaths = self._take_deaths()
            except AssertionError as error:
                cls._with_deaths = error
        if isinstance(cls._with_deaths, AssertionError):
            raise cls._with_deaths
        return cls._with_deaths

    def _take_deaths(self) -> _RunWithDeaths:
        deaths = choose_deaths(self._job(self.config).spec, self.seed)
        enough = len(deaths) + 3
        assert self.steps >= enough, f"{len(deaths)} deaths need {enough} steps, one each; steps is {self.steps}"
        with self._running(self.config) as run:
            first = self._first_commit(run)
            # The second commit shows how long a step takes.
            before = run.job.until(lambda look: look.committed >= 2, "the second commit", self.start_s)
            limits = {"recover_s": self.recover_s, "gone_s": self.gone_s}
            reports = take_deaths(run.job, deaths, run.trail, seed=self.seed, **limits)
            last, result = self._finished(run.job)
        return _RunWithDeaths(
            first=first.processes,
            before=before.view,
            reports=reports,
            last=last,
            result=result,
            problems=[*run.job.problems, *(f"left behind: {one}" for one in run.left)],
        )

    def _undisturbed_result(self) -> JobResult:
        """Of the one job without a fault, which all tests of the class compare with."""
        cls = type(self)
        if cls._undisturbed is None:
            with self._running(self.config) as run:
                first = self._first_commit(run)
                last, result = self._finished(run.job)
            restarted = restarts_between(first.processes, last.processes)
            problems = [*run.job.problems, *run.left, *(f"'{name}' was restarted" for name in restarted)]
            _check("a run without a fault", problems)
            cls._undisturbed = result
        return cls._undisturbed

    def _first_commit(self, run: _Run) -> Look:
        """The job when its first step is committed; fails if it ends without a commit."""
        first = run.job.until(lambda look: look.committed >= 1 or look.is_final, "the first commit", self.start_s)
        if first.committed == 0:
            self._finished(run.job)
        run.trail.note(first.processes)
        return first

    def _differences(self, result: Any, before: JobView) -> list[str]:
        try:
            self.check_result(result, before)
        except AssertionError as error:
            return [str(error)]
        return []

    @contextlib.contextmanager
    def _running(self, config: Any) -> Iterator[_Run]:
        """The job, running; when the block has ended, `left` tells what the job left behind."""
        self._join_cluster()
        name = f"conformance-{uuid.uuid4().hex[:8]}"
        with tempfile.TemporaryDirectory() as home, patch.dict(os.environ, DLRL_HOME=home):
            with submitted(self._watched(config), name) as job:
                run = _Run(job=job)
                yield run
                run_id = job.look().view["run_id"]
            run.left = wait_until_gone(lambda: left_of(name, run_id, run.trail), self.gone_s)

    def _watched(self, config: Any) -> RLJob:
        """The job with every step committed, so that each death can cost one step at most."""
        return self.builder(config).commits(every=1).allow_chaos().restart_budget(**_PLENTY).build()

    def _finished(self, job: WatchedJob) -> tuple[Look, JobResult]:
        """The job at its end, with all steps done and the last one committed."""
        result = job.end(self.end_s)
        last = job.look()
        step, total = last.view["progress"]["step"], last.view["progress"]["total_steps"]
        assert (step, total) == (self.steps, self.steps), f"it ended at step {step} of {total}; expected {self.steps}"
        assert last.commits, "nothing was committed; call self.commit(step) in `fit` at the end of every step"
        assert last.committed == self.steps, f"the last commit is of step {last.committed} of {self.steps}"
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
