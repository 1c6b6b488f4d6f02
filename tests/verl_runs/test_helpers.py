"""The processes that verl starts beside its workers."""

from __future__ import annotations

import subprocess
import sys

ROUTER = """
import sys, pickle
router, handle = pickle.loads(sys.stdin.buffer.read())
balancer = router(servers={"a": handle})
print(*balancer.acquire_server("request"))
print(*{"torch", "vllm", "verl"} & set(sys.modules))
"""


def test_the_router_of_requests_imports_neither_vllm_nor_torch(imported_process):
    """Each such process would take seconds to start, and a gigabyte of memory."""
    data = imported_process(carried_router)
    told = subprocess.run([sys.executable, "-c", ROUTER], check=False, input=data, capture_output=True)

    assert told.returncode == 0, told.stderr.decode()
    server, imported = told.stdout.decode().splitlines()
    assert server.startswith("a <dlrl_verl.steady_handle.SteadyHandle")
    assert imported == ""


def carried_router() -> bytes:
    import ray
    from verl.workers.rollout import router

    from dlrl_verl.helpers import carried
    from dlrl_verl.steady_handle import SteadyHandle

    with carried(router):
        data: bytes = ray.cloudpickle.dumps((router.GlobalRequestLoadBalancer, SteadyHandle("rollout-0", "job")))
    return data
