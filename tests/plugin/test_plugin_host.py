"""What can be asked of the host: frameworks, policies, stores, and names that two plugins claim."""

from __future__ import annotations

import importlib.metadata
import pickle
import sys

import pytest

from dlrl_core.errors import FrameworkUnavailableError, PluginError, UnknownFrameworkError
from dlrl_core.plugin import PluginHost, PluginStatus
from dlrl_core.roles import RoleType
from dlrl_core.spec import ClassRef, JobSpec, RoleSpec, problems_of

CLS = ClassRef(module="m", class_name="C")


def spec_with(*roles: RoleType, **options: object) -> JobSpec:
    return JobSpec(trainer=CLS, roles=tuple(RoleSpec(role=role, cls=CLS) for role in roles), **options)


def host_of(site, allow: str | None = None) -> PluginHost:
    """A host of the site's plugins alone, whatever else this interpreter has installed."""
    dists = importlib.metadata.distributions(path=[str(site.path)])
    return PluginHost.discover(allow, [entry for dist in dists for entry in dist.entry_points])


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ("verll", "unknown framework 'verll'; did you mean 'verl'? registered: openrlhf, verl"),
        ("VERL", "unknown framework 'VERL'; did you mean 'verl'? registered: openrlhf, verl"),
        ("zzz", "unknown framework 'zzz'; registered: openrlhf, verl"),
        ("", "unknown framework ''; registered: openrlhf, verl"),
    ],
)
def test_an_unknown_framework_is_answered_with_the_known_ones(site, asked, words):
    site.install_framework("dist-1", "verl", entry="one")
    site.install_framework("dist-2", "openrlhf", entry="two")

    with pytest.raises(UnknownFrameworkError) as caught:
        host_of(site).framework(asked)

    assert str(caught.value) == words


def test_without_any_framework_the_error_says_so(site):
    with pytest.raises(UnknownFrameworkError, match="unknown framework 'verl'; none is registered"):
        host_of(site).framework("verl")


def test_a_typo_of_a_broken_plugins_name_is_recognised(site):
    site.install("torn-dist", "raise ValueError", entry="torn")

    with pytest.raises(UnknownFrameworkError, match=r"did you mean 'torn'\?"):
        host_of(site).framework("tron")


def test_an_unknown_framework_error_names_the_plugins_that_did_not_load(site):
    """A plugin's frameworks may have other names than its entry point, which nobody knows if it is broken."""
    site.install("torn-dist", "import no_such_module_here", entry="torn")

    with pytest.raises(UnknownFrameworkError) as caught:
        host_of(site).framework("something")

    assert str(caught.value) == ("unknown framework 'something'; none is registered; plugins that did not load: torn")


def test_one_adapter_serves_all_who_ask(site):
    site.install_framework("acme-dist", "acme")
    host = host_of(site)

    assert host.framework("acme") is host.frameworks()["acme"]


def test_a_framework_name_of_two_plugins_is_usable_for_neither(site):
    site.install_framework("dist-1", "acme", entry="one")
    site.install_framework("dist-2", "acme", entry="two")
    site.install_framework("dist-3", "other", entry="three")

    host = host_of(site)

    words = (
        "framework 'acme' is registered by plugin 'one' (dist-1 1.0) and plugin 'two' (dist-2 1.0), "
        "so neither can be used; uninstall one, or leave one out of DLRL_PLUGINS"
    )
    assert set(host.frameworks()) == {"other"}
    assert host.problems() == [words]
    assert {record.name: record.error for record in host.records} == {
        "builtin": None,
        "one": words,
        "two": words,
        "three": None,
    }
    with pytest.raises(PluginError) as caught:
        host.framework("acme")
    assert str(caught.value) == words


def test_leaving_one_out_ends_a_clash_of_names(site):
    site.install_framework("dist-1", "acme", entry="one")
    site.install_framework("dist-2", "acme", entry="two")

    host = host_of(site, allow="two")

    assert (set(host.frameworks()), host.problems()) == ({"acme"}, [])


@pytest.mark.parametrize(("hook", "ask"), [("dlrl_policies", "policy"), ("dlrl_stores", "store_opener")])
def test_policies_and_stores_clash_by_name_too(site, hook, ask):
    site.install_hook("dist-1", hook, "return {'both': len, 'first': len}", entry="one")
    site.install_hook("dist-2", hook, "return {'both': len}", entry="two")

    host = host_of(site)

    assert getattr(host, ask)("first")("abc") == 3
    with pytest.raises(PluginError, match=r"'both' is registered by plugin 'one' .* and plugin 'two'"):
        getattr(host, ask)("both")


def test_nobody_replaces_a_built_in_policy_in_silence(site):
    site.install_hook("acme-dist", "dlrl_policies", "return {'separate_sync': len}")

    with pytest.raises(PluginError, match=r"plugin 'builtin' \(dlrl .*\) and plugin 'acme' \(acme-dist 1\.0\)"):
        host_of(site).policy("separate_sync")


def test_an_entry_point_named_builtin_does_not_take_the_built_in_policies_away(site):
    site.install_framework("acme-dist", "acme", entry="builtin")

    host = host_of(site)

    assert set(host.frameworks()) == {"acme"}
    assert all(callable(host.policy(name)) for name in ("separate_sync", "colocate_sync"))


def test_an_unknown_policy_is_answered_with_the_known_ones(site):
    with pytest.raises(PluginError) as caught:
        host_of(site).policy("colocated_sync")

    assert str(caught.value) == (
        "unknown policy 'colocated_sync'; did you mean 'colocate_sync'? registered: colocate_sync, separate_sync"
    )


def test_a_store_opener_is_found_by_its_scheme(site):
    site.install_hook("acme-dist", "dlrl_stores", "return {'etcd': lambda url: ('opened', url)}")

    host = host_of(site)

    assert host.store_opener("etcd")("etcd://host/x") == ("opened", "etcd://host/x")
    with pytest.raises(PluginError, match="unknown store scheme 'etcdd'; did you mean 'etcd'"):
        host.store_opener("etcdd")


def test_a_function_given_by_its_path_is_imported_when_it_is_first_used(site):
    module = site.install("late-dist", "def shout(): return 'acme!'", entry_points="")
    site.install_hook("acme-dist", "dlrl_commands", f"return {{'shout': '{module}:shout'}}")

    host = host_of(site)

    assert module not in sys.modules
    assert host.commands()["shout"]() == "acme!"


@pytest.mark.parametrize(
    ("path", "cause"),
    [
        ("no_such_module_here:go", "ModuleNotFoundError: No module named 'no_such_module_here'"),
        ("json:no_such_function", "AttributeError: module 'json' has no attribute 'no_such_function'"),
        ("json:__name__", "that is a value of type 'str'; it must be callable"),
    ],
)
def test_a_path_that_can_not_be_imported_is_reported_with_its_plugin_and_spares_the_others(site, caplog, path, cause):
    site.install_hook("acme-dist", "dlrl_plan_formats", f"return {{'dot': '{path}', 'csv': len}}")
    site.install_hook("other-dist", "dlrl_commands", "return {'go': len}", entry="other")
    host = host_of(site)
    assert host.problems() == []

    host.import_all()
    host.import_all()

    words = f"plugin 'acme' (acme-dist 1.0) is broken; update or uninstall acme-dist: plan format 'dot' is '{path}': {cause}"
    assert host.problems() == host.problems("dlrl_plan_formats") == [words]
    assert host.problems("dlrl_commands") == []
    assert {record.name: record.error for record in host.records} == {"builtin": None, "acme": words, "other": None}
    assert caplog.messages == [words]
    assert (host.plan_format("csv")("abc"), host.commands()) == (3, {"go": len})
    with pytest.raises(PluginError) as caught:
        host.plan_format("dot")
    assert str(caught.value) == words


@pytest.mark.parametrize(("hook", "name"), [("dlrl_commands", "run"), ("dlrl_stores", "sqlite")])
def test_a_name_that_belongs_to_dlrl_is_a_problem_and_nobody_elses(site, hook, name):
    site.install_hook("acme-dist", hook, f"return {{'{name}': len, 'own': len}}")

    host = host_of(site)

    [problem] = host.problems()
    assert f"'{name}' of plugin 'acme' (acme-dist 1.0) has a name that belongs to dlrl itself" in problem
    assert problem == host.records[1].error
    assert name not in host.commands()


def test_a_command_of_dlrls_own_plugins_stays_theirs(site):
    """The real plugin `why` is found beside the one that wants its name."""
    site.install_hook("acme-dist", "dlrl_commands", "return {'why': len}")

    host = PluginHost.discover()

    [problem] = host.problems("dlrl_commands")
    assert "command 'why' of plugin 'acme' (acme-dist 1.0) has a name that belongs to dlrl itself" in problem
    assert host.commands()["why"].__module__ == "dlrl_why.command"
    assert {record.name: record.error for record in host.records if record.error} == {"acme": problem}


@pytest.mark.parametrize("what", ["commands", "detectors", "event_sinks", "doctor_checks"])
def test_functions_are_returned_by_name(site, what):
    site.install_hook("acme-dist", f"dlrl_{what}", "return {'acme': len}")

    assert getattr(host_of(site), what)()["acme"]("abc") == 3


def test_separate_sync_returns_the_spec_as_it_is(site):
    spec = spec_with(RoleType.ACTOR, RoleType.ROLLOUT)

    assert host_of(site).policy("separate_sync")(spec) is spec


def test_colocate_sync_puts_all_roles_into_one_group(site):
    spec = spec_with(RoleType.ACTOR, RoleType.ROLLOUT, RoleType.CRITIC)

    placed = host_of(site).policy("colocate_sync")(spec)

    assert placed.with_collocation == ((RoleType.ACTOR, RoleType.ROLLOUT, RoleType.CRITIC),)
    assert problems_of(placed) == []


def test_colocate_sync_keeps_what_the_user_collocated(site):
    pair = (RoleType.ACTOR, RoleType.ROLLOUT)
    spec = spec_with(RoleType.ACTOR, RoleType.ROLLOUT, RoleType.CRITIC, with_collocation=(pair,))

    assert host_of(site).policy("colocate_sync")(spec).with_collocation == (pair,)


def test_colocate_sync_leaves_a_single_role_alone(site):
    placed = host_of(site).policy("colocate_sync")(spec_with(RoleType.ACTOR))

    assert problems_of(placed) == []


@pytest.mark.parametrize("error_type", [PluginError, UnknownFrameworkError, FrameworkUnavailableError])
def test_plugin_errors_survive_pickling(error_type):
    error = error_type("framework 'x' is missing")

    again = pickle.loads(pickle.dumps(error))

    assert (type(again), str(again)) == (error_type, str(error))


def test_records_survive_pickling(site):
    site.install("torn-dist", "raise ValueError('x')", entry="torn")
    records = host_of(site).records

    assert pickle.loads(pickle.dumps(records)) == records
    assert records[-1].status is PluginStatus.BROKEN
