"""Real processes: two that write the same job, and one that is killed while it writes."""

from __future__ import annotations

import signal

import pytest
from context_samples import job_record, run_python, start_python, workload_record

from dlrl_core.context import JobContext, Store, open_store
from dlrl_core.errors import StoreError

WRITER = """
    import itertools, sys
    from dlrl_core.context import JobContext, open_store

    context = JobContext.load(open_store(sys.argv[1]), "my-ppo")
    for step in itertools.count(context.record.master_incarnation + 1):
        with context.change(is_durable=True) as change:
            change.job(master_incarnation=step)
            change.progress(step=step)
            for name in context.workloads:
                change.workload(name, incarnation=step, detail="x" * 2000)
            change.event("step", f"step {step}")
        print(step, flush=True)
"""

COUNTER = """
    import sys
    from dlrl_core.context import JobContext, open_store
    from dlrl_core.errors import StoreError

    store, done, refused = open_store(sys.argv[1]), 0, 0
    context = JobContext.load(store, "my-ppo")
    print("ready", flush=True)
    sys.stdin.readline()
    while done < 40:
        try:
            with context.change(is_durable=True) as change:
                change.job(master_incarnation=change.record.master_incarnation + 1)
                change.event("counted", "one more")
            done += 1
        except StoreError as error:
            assert "somebody else wrote" in str(error), error
            refused += 1
            context = JobContext.load(store, "my-ppo")
    print(refused)
"""

CREATOR = """
    import sys
    from dlrl_core.context import JobContext, JobRecord, open_store
    from dlrl_core.errors import JobExistsError

    record = JobRecord(name="my-ppo", spec_json="{}", store_url="unused")
    print("ready", flush=True)
    sys.stdin.readline()
    try:
        JobContext.create(open_store(sys.argv[1]), record)
        print("created")
    except JobExistsError:
        print("exists")
"""


def run_at_once(code: str, count: int, url: str) -> list[str]:
    """Last line of each of some processes that were let go together."""
    processes = [start_python(code, url) for _ in range(count)]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    outputs = [process.communicate(timeout=60) for process in processes]
    assert [process.returncode for process in processes] == [0] * count, outputs
    return [output.split()[-1] for output, _ in outputs]


def test_of_two_processes_that_write_a_version_one_is_refused(store: Store, store_url: str) -> None:
    context = JobContext.create(store, job_record())
    first = context.version
    run_python(
        """
        import sys
        from dlrl_core.context import JobContext, open_store
        with JobContext.load(open_store(sys.argv[1]), "my-ppo").change() as change:
            change.job(master_incarnation=2)
        """,
        store_url,
    )

    refusal = rf"is at version \d+ in the store, this process expected version {first}: somebody else wrote"
    with pytest.raises(StoreError, match=refusal), context.change() as change:
        change.job(master_incarnation=1)

    assert JobContext.load(store, "my-ppo").record.master_incarnation == 2


def test_no_commit_is_lost_between_processes_that_write_at_once(store: Store, store_url: str) -> None:
    JobContext.create(store, job_record())

    run_at_once(COUNTER, 2, store_url)

    context = JobContext.load(store, "my-ppo")
    assert context.record.master_incarnation == 80
    assert len([event for event in context.journal() if event.kind == "counted"]) == 80


def test_of_processes_that_create_a_job_in_a_new_store_one_wins(store_url: str) -> None:
    assert sorted(run_at_once(CREATOR, 3, store_url)) == ["created", "exists", "exists"]


@pytest.mark.parametrize("commits", [1, 7, 30])
def test_writer_killed_at_any_moment_leaves_its_last_commit_whole(store_url: str, commits: int) -> None:
    with open_store(store_url) as store:
        JobContext.create(store, job_record(), [workload_record(rank=rank) for rank in range(50)])
    writer = start_python(WRITER, store_url)
    assert writer.stdout is not None
    for _ in range(commits):
        said = int(writer.stdout.readline())
    writer.send_signal(signal.SIGKILL)
    said = max([said, *map(int, writer.communicate(timeout=30)[0].split())])

    with open_store(store_url) as store:
        context = JobContext.load(store, "my-ppo")
        step = context.record.progress.step
        assert writer.returncode == -signal.SIGKILL
        assert said <= context.record.master_incarnation <= said + 1
        assert step == context.record.master_incarnation
        assert {workload.incarnation for workload in context.workloads.values()} == {step}
        assert [event.message for event in context.journal()][1:] == [f"step {n + 1}" for n in range(step)]
        with context.change() as change:
            change.event("restarted", "the next master goes on")
